#pragma once
// The verdict: what is known about one candidate. Schema: src/verify/verdict.schema.json.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace stitch::verify {

enum class GuardState { passed, failed, not_run };

// One check against a way of cheating or breaking. `rule` guards decide `valid`; the others only `correct`.
struct Guard {
  std::string name;
  GuardState state = GuardState::not_run;
  std::string evidence;
  bool rule = true;
};

struct Timing {
  double median = 0, p10 = 0, p90 = 0;  // milliseconds
  std::vector<double> samples;
};
Timing summarise(std::vector<double> samples_ms);

struct Baseline {
  std::string name;               // "eager", "cuda_graph", "compile" ...
  std::optional<Timing> timing;   // absent: not run, `note` says why
  std::string note;
};

struct Speedup {
  std::string baseline;
  double ratio = 0, low = 0, high = 0;  // 95 % bootstrap interval of the ratio of medians
};
// Percentile bootstrap with a fixed number of resamples, deterministic.
Speedup speedup_over(const std::string& baseline, const std::vector<double>& baseline_ms, const std::vector<double>& candidate_ms);

// One input set and how the candidate did on it.
struct SetResult {
  std::string name;      // "case 000", "random 3", "outliers", "altered weights"
  uint64_t seed = 0;     // 0 for a stored case
  bool ok = false;
  std::string sentence;  // "" when ok
  double max_error = 0, norm_error = 0;
  std::optional<double> reference_max_error, reference_norm_error;  // absent where the tolerance settled the matter
  int64_t forgiven = 0;  // elements beyond the tolerance but within the reference's own error
};

struct PrecisionReport {
  std::string precision_class, oracle;
  double tolerance_max = 0, tolerance_norm = 0;
  std::optional<double> max_error, norm_error;                 // worst over the ordinary sets; absent where none was judged
  std::optional<double> reference_max_error, reference_norm_error;
};

struct KernelBenchRule {
  double tolerance = 0;
  bool ok = false;
  double max_abs_difference = 0;
  std::string against;  // "PyTorch's expected outputs" or "the oracle"
};

struct TaskTime {
  std::string task;
  double milliseconds = 0;
};

struct Verdict {
  std::string program, candidate, target;  // target: "host" or "cuda"
  bool valid = false, compiled = false, correct = false;
  std::string outcome;      // "ok", "wrong", "rules_broken", or why it did not run: name_of(run::FailureKind)
  std::string sentence;     // the verdict in one sentence
  std::string printed;      // tail of what the candidate printed: quoted evidence, never interpreted
  PrecisionReport precision;
  std::optional<KernelBenchRule> kernelbench;
  std::optional<Timing> latency_ms;        // only when valid, correct and on a GPU
  std::optional<double> create_ms;         // weight preparation, outside the latency
  std::vector<Baseline> baselines;
  std::vector<Speedup> speedup;
  std::optional<double> floor_ms, of_floor;
  std::vector<Guard> guards;
  std::optional<double> own_share, library_share, framework_share;  // coverage, fractions of device time
  std::string coverage_note;
  std::string profile;                     // path, "" when not profiled
  std::string bottleneck;                  // "" when not known
  std::vector<std::string> feedback;       // most important first
  std::optional<double> build_seconds;     // absent where the candidate came built
  double verify_seconds = 0;
  std::map<std::string, double> verify_steps;  // seconds by step of a verification on a GPU
  int64_t llm_tokens = 0;
  double llm_money = 0;
  std::string sandbox, sandbox_note;
  std::optional<bool> deterministic;
  std::vector<SetResult> sets;
  std::vector<std::string> input_models;   // how each input was drawn
  std::vector<std::string> warnings;
  std::string device, machine_note;        // e.g. "No GPU was found, so no speed is claimed."
  uint64_t seed = 0;                       // of the whole verification

  Guard& guard(const std::string& name);   // found or added (not_run)
  const Guard* find_guard(const std::string& name) const;
  int exit_code() const { return valid && correct ? 0 : 1; }
};

Json to_json(const Verdict&);
std::string to_text(const Verdict&);       // a few lines for a person

}  // namespace stitch::verify
