#include "loop/machine.h"

#include <algorithm>
#include <chrono>

#include "base/interrupt.h"
#include "loop/stamps.h"

namespace stitch::loop {
namespace {

using Clock = std::chrono::steady_clock;

class Machine {
 public:
  Machine(const std::vector<Step>& steps, const MachineOptions& options, RunStore& store, EventLog& log)
      : steps_(steps), options_(options), store_(store), log_(log) {}

  Result<std::map<std::string, std::string>> run(int64_t* run_id) {
    STITCH_CHECK_OK(open());
    *run_id = run_;
    for (size_t i = first_; i < steps_.size();) {
      STITCH_TRY(const size_t next, enter(i));
      i = next;
    }
    return data_;
  }

 private:
  // Finds the unfinished run of this input and folder, or begins one.
  Status open() {
    STITCH_TRY(const auto unfinished, store_.find_unfinished(options_.out.string(), options_.key));
    if (!unfinished) {
      STITCH_TRY(run_, store_.begin({0, options_.program, options_.input, options_.out.string(), options_.key}));
      return log_.emit({EventKind::run_started, 0, "", 1, options_.input});
    }
    run_ = unfinished->id;
    STITCH_CHECK_OK(store_.take_up(run_));
    STITCH_TRY(const auto rows, store_.steps(run_));
    std::string change;
    for (; first_ < steps_.size(); ++first_) {
      const Step& step = steps_[first_];
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const StepRow& r) { return r.step == step.name; });
      if (row == rows.end() || !(change = change_since(row->files)).empty()) break;
      data_[step.name] = row->data;
      attempts_[step.name] = row->attempt;
      STITCH_CHECK_OK(log_.emit({EventKind::step_skipped, 0, step.name, row->attempt, "done before the interruption"}));
    }
    // Their results follow from what is about to be made again.
    for (size_t i = first_; i < steps_.size(); ++i) STITCH_CHECK_OK(store_.forget_step(run_, steps_[i].name));
    std::string text = first_ < steps_.size() ? "going on with " + steps_[first_].name : "nothing left to do";
    if (!change.empty()) text += ", because " + change;
    return log_.emit({EventKind::run_resumed, 0, "", 1, text});
  }

  Result<size_t> enter(size_t i) {
    const Step& step = steps_[i];
    const int attempt = ++attempts_[step.name];
    STITCH_CHECK_OK(log_.emit({EventKind::step_started, 0, step.name, attempt, step.title}));
    const auto start = Clock::now();
    const Progress progress = [&](const std::string& text, double fraction) {
      (void)log_.emit({EventKind::step_progress, 0, step.name, attempt, text, 0, fraction});
    };
    Result<StepResult> result = step.run({attempt, data_, progress});
    stop_if_interrupted();  // its children were killed: it has neither failed nor finished
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (!result) {
      (void)log_.emit({EventKind::step_failed, 0, step.name, attempt, result.error().message, seconds});
      return tl::make_unexpected(std::move(result).error());
    }
    if (!result->back_to.empty()) return go_back(i, *result, seconds);
    STITCH_CHECK_OK(store_.record_step(run_, {step.name, attempt, seconds, result->data, stamps_of(step.outputs)}));
    data_[step.name] = result->data;
    STITCH_CHECK_OK(log_.emit({EventKind::step_finished, 0, step.name, attempt, result->text, seconds, -1, result->data}));
    return i + 1;
  }

  Result<size_t> go_back(size_t i, const StepResult& result, double seconds) {
    const auto target = std::find_if(steps_.begin(), steps_.end(), [&](const Step& s) { return s.name == result.back_to; });
    const auto index = static_cast<size_t>(target - steps_.begin());
    if (index > i) return fail(ErrorKind::internal, "Step {} asked to go back to {}, which is not before it.", steps_[i].name, result.back_to);
    if (attempts_[result.back_to] >= options_.max_attempts)
      return fail(ErrorKind::candidate, "{} attempts at {} have failed; the last one: {}", options_.max_attempts, result.back_to, result.feedback);
    STITCH_CHECK_OK(log_.emit({EventKind::feedback, 0, steps_[i].name, attempts_[steps_[i].name], result.feedback, seconds}));
    for (size_t k = index; k <= i; ++k) {
      STITCH_CHECK_OK(store_.forget_step(run_, steps_[k].name));
      data_.erase(steps_[k].name);
    }
    return index;
  }

  const std::vector<Step>& steps_;
  const MachineOptions& options_;
  RunStore& store_;
  EventLog& log_;
  int64_t run_ = 0;
  size_t first_ = 0;
  std::map<std::string, std::string> data_;
  std::map<std::string, int> attempts_;
};

}  // namespace

Result<std::map<std::string, std::string>> run_steps(const std::vector<Step>& steps, const MachineOptions& options,
                                                     RunStore& store, EventLog& log, int64_t* run_id) {
  return Machine(steps, options, store, log).run(run_id);
}

}  // namespace stitch::loop
