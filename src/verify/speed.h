#pragma once
// The GPU half: PyTorch as oracle and baseline in its own process, and timing of the candidate between blocks of it.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "verify/oracle.h"
#include "verify/protocol_run.h"
#include "verify/session.h"
#include "verify/verdict.h"
#include "verify/verify.h"

namespace stitch::verify {

class ReferenceWorker;

// The side that is timed, with everything around the clock: where its inputs come from and how its outputs are checked.
class TimedSide {
 public:
  virtual ~TimedSide() = default;
  virtual run::Worker& worker() = 0;
  virtual const Evidence& evidence() const = 0;
  // New input values, poisoned outputs, one call with the clock on it; its outputs are kept for check(). Inner failure: the candidate's.
  virtual Result<run::Outcome<Session::TimedCall>> call(uint64_t flush_bytes) = 0;
  virtual Result<std::vector<double>> baseline(const std::string& mode, int calls, uint64_t flush_bytes) = 0;

  struct Checked {
    int checked = 0, wrong = 0;
    std::string first_wrong;
  };
  virtual Result<Checked> check() = 0;  // judges what was kept since the last time, as much as time allows, chosen at random
  // A full call after the clock has stopped: what timing left behind must not have changed the program.
  virtual Result<run::Outcome<Judgement>> last_call() = 0;
};

class SpeedRun {
 public:
  // Starts PyTorch where the bundle's source file and an environment with torch are there; without them the oracle is
  // the interpreter and the baselines are "not run" with the reason.
  static Result<std::unique_ptr<SpeedRun>> start(const ir::Bundle&, const VerifyOptions&, Verdict&);
  ~SpeedRun();

  ReferenceWorker* reference() { return reference_.get(); }  // nullptr where PyTorch is not available

  // Interleaved timing and its guards. Inner failure: the candidate broke during a timed call.
  Result<std::optional<run::CandidateFailure>> measure(const CheckContext&, TimedSide&, Verdict&);

 private:
  SpeedRun() = default;
  std::unique_ptr<ReferenceWorker> reference_;
  std::string why_no_reference_;
};

// The parent holds the tensors and the context's oracle judges. Both must outlive the result.
std::unique_ptr<TimedSide> timed_in_host_memory(const CheckContext&, Session&);

}  // namespace stitch::verify
