#include <fmt/format.h>

#include <algorithm>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/terminal.h"
#include "suite/suite.h"
#include "ui/commands.h"

namespace stitch::ui {
namespace {

// One line a failure as it happens, and a live count where the output is a terminal.
class SuiteView {
 public:
  explicit SuiteView(std::FILE* out) : out_(out), live_(is_tty(fileno(out))) {}

  void show(suite::Step step, size_t done, size_t total, const suite::Row& row) {
    clear();
    if (row.done[static_cast<size_t>(step)] == false || (step == suite::Step::verify && row.correct == false))
      fmt::print(out_, "  {} failed: {} ({})\n", row.problem.folder(), printable(row.reason.empty() ? row.sentence : row.reason), name_of(step));
    if (done == total) fmt::print(out_, "{:8} {} problems\n", past_of(step), total);
    else if (live_) fmt::print(out_, "  {} {} of {}", name_of(step), done, total);
    std::fflush(out_);
  }

 private:
  void clear() {
    if (live_) fmt::print(out_, "\r\033[K");
  }
  std::FILE* out_;
  bool live_;
};

Result<suite::SuiteOptions> options_of(const SuiteArguments& a) {
  suite::SuiteOptions o;
  o.root = a.root;
  o.levels = a.levels;
  o.problems = a.problems;
  STITCH_TRY(o.step, suite::step_from_name(a.step));
  o.out = a.out;
  o.jobs = a.jobs;
  o.fresh = a.fresh;
  o.device = a.device;
  STITCH_TRY(o.precision, hw::precision_class_from_name(a.precision));
  o.seed = a.seed;
  o.capture_timeout = std::chrono::seconds(a.capture_timeout);
  o.target = a.target;
  o.gpu_jobs = a.gpu_jobs;
  o.trials = a.trials;
  o.time_budget = a.time_budget;
  o.kernelbench_eval = !a.no_kernelbench_eval;
  o.verify_timeout = std::chrono::seconds(a.verify_timeout);
  o.stop_after = std::chrono::seconds(a.stop_after);
  std::error_code ec;
  o.program = fs::read_symlink("/proc/self/exe", ec);
  return o;
}

}  // namespace

int suite_command(const SuiteArguments& a) {
  const auto options = options_of(a);
  if (!options) return report_error(options.error());
  std::FILE* out = a.json ? stderr : stdout;
  fmt::print(out, "stitchcuda suite kernelbench, level {}, to step {}\n", fmt::join(a.levels, ", "), a.step);
  SuiteView view(out);
  const auto outcome = suite::run_suite(*options, [&](suite::Step step, size_t done, size_t total, const suite::Row& row) { view.show(step, done, total, row); });
  if (!outcome) return report_error(outcome.error());
  const auto passed = std::count_if(outcome->rows.begin(), outcome->rows.end(), [&](const suite::Row& r) { return r.passed(options->step); });
  fmt::print(out, "{} of {} problems {}; {}, {}\n", passed, outcome->rows.size(), options->step == suite::Step::verify ? "verified and correct" : past_of(options->step),
             outcome->json_file.string(), outcome->table_file.string());
  if (a.json) fmt::print("{}\n", outcome->summary);
  return outcome->all_passed ? 0 : 1;
}

}  // namespace stitch::ui
