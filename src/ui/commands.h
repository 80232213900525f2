#pragma once
// One function per subcommand; each prints what its user needs and returns the exit code (see cli.h).

#include <cstdint>
#include <functional>
#include <string>

namespace stitch::ui {

using Command = std::function<int()>;

std::string version();

// "stitchcuda: MESSAGE" on stderr, always one line.
void print_error(std::string message);

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

int doctor_command(bool json);
int runs_list_command(int limit);
int runs_show_command(int64_t id);
int runs_diff_command(int64_t a, int64_t b);

}  // namespace stitch::ui
