#pragma once
// What is known about one problem: a row of the suite's table, kept as row.json in the problem's folder so that a later run can go on.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "suite/problems.h"

namespace stitch::suite {

enum class Step { capture, plan, code, build, verify };
inline constexpr int kSteps = 5;
inline constexpr std::array<Step, kSteps> kAllSteps{Step::capture, Step::plan, Step::code, Step::build, Step::verify};
std::string_view name_of(Step);                     // "capture"
std::string_view past_of(Step);                     // "captured"
Result<Step> step_from_name(std::string_view);

struct Row {
  Problem problem;
  std::string sha256;                               // of the problem file
  std::array<std::optional<bool>, kSteps> done;     // nullopt: not run
  std::array<double, kSteps> seconds{};
  std::string reason;                               // why the first failed step failed, one sentence
  std::string note;                                 // worth knowing though nothing failed, one sentence

  int nodes = 0, tasks = 0, kernels = 0;            // compute nodes, each in exactly one task; own kernels
  int64_t lines = 0;
  uint64_t workspace_bytes = 0, gpu_bytes = 0;      // gpu_bytes: inputs, outputs, weights and workspace
  uint64_t peak_memory_bytes = 0;                   // largest resident process that captured it
  std::vector<std::string> aten_ops;                // distinct operators of the exported program
  std::map<std::string, int> tasks_by_skill;
  std::vector<std::string> link_libs;

  // Of the verdict; valid once done[verify] is set. done[verify] says that a verdict was reached, not which.
  std::optional<bool> correct;                      // valid and correct by the verification protocol
  std::string target, outcome, sentence;
  std::optional<double> max_error, reference_max_error, tolerance;

  // Device milliseconds of one call by whose kernels spent them: "own", "library", "framework", "other" (copies, unknown). Empty: not traced.
  std::map<std::string, double> device_ms;

  std::optional<bool> correct_by_kernelbench;       // KernelBench's own evaluator on model_new.py
  std::string kernelbench_reason;
  std::optional<double> kernelbench_max_error;

  // What the artefacts were made from; a step is kept as long as these are still true.
  std::string capture_key, product_key, verify_key, kernelbench_key;

  bool ok(Step s) const { return done[static_cast<size_t>(s)].value_or(false); }
  bool failed() const;                              // a step failed, or the program is not correct
  bool passed(Step asked) const;                    // verify: valid and correct
  void finish(Step, double seconds);
  void finish(Step, double seconds, const Error&);
  // Forgets this step and all later ones.
  void forget_from(Step);
};

Json to_json(const Row&);                           // as in suite.json
Status save_row(const std::filesystem::path& folder, const Row&);
// The row as saved; only the problem when there is none or it cannot be read.
Row load_row(const std::filesystem::path& folder, const Problem&);

}  // namespace stitch::suite
