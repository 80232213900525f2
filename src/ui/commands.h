#pragma once
// One function per subcommand; each prints what its user needs and returns the exit code (see cli.h).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace stitch::ui {

using Command = std::function<int()>;

std::string version();

// "stitchcuda: MESSAGE" on stderr, always one line.
void print_error(std::string message);
// The error's sentence as print_error gives it; its evidence with STITCHCUDA_LOG=debug. Returns the exit code of its kind.
int report_error(const Error&);

struct RunArguments {
  std::string input, out, target = "auto", precision = "default", device = "h200", inputs_attribute;
  int64_t seed = 42;
  int timed_calls = 60;
  bool fresh = false, json = false;
};
int run_command(const RunArguments&);

struct CaptureArguments {
  std::string input, out, inputs_attribute;
  int64_t seed = 42;
  int cases = 1;
  bool expected = false, expected_given = false, no_weights = false;
};
int capture_command(const CaptureArguments&);

struct VerifyArguments {
  std::string candidate, bundle, source, out, target = "auto", precision = "default";
  int trials = 5, timed_calls = 60;
  double time_budget = 900;
  uint64_t seed = 0;
  bool json = false;
};
int verify_command(const VerifyArguments&);

struct BuildArguments {
  std::string folder, target = "auto";
};
int build_command(const BuildArguments&);

struct SuiteArguments {
  std::string root, problems, step = "build", out, target = "auto", precision = "default", device = "h200";
  std::vector<int> levels;
  int jobs = 0, gpu_jobs = 4, trials = 5, capture_timeout = 300, verify_timeout = 1800, stop_after = 0;
  double time_budget = 900;
  int64_t seed = 42;
  bool fresh = false, json = false, no_kernelbench_eval = false;
};
int suite_command(const SuiteArguments&);

int doctor_command(bool json);
int runs_list_command(int limit);
int runs_show_command(int64_t id);
int runs_diff_command(int64_t a, int64_t b);

}  // namespace stitch::ui
