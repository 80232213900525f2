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

class SpeedRun {
 public:
  // Starts PyTorch where the bundle's source file and an environment with torch are there; without them the oracle is
  // the interpreter and the baselines are "not run" with the reason.
  static Result<std::unique_ptr<SpeedRun>> start(const ir::Bundle&, const VerifyOptions&, Verdict&);
  ~SpeedRun();

  ReferenceWorker* reference() { return reference_.get(); }  // nullptr where PyTorch is not available
  // PyTorch in fp64 on the GPU, or nullptr when it is not available or cannot run this program in fp64.
  std::unique_ptr<Oracle> oracle();

  // Interleaved timing and its guards. Inner failure: the candidate broke during a timed call.
  Result<std::optional<run::CandidateFailure>> measure(const CheckContext&, Session&, Verdict&);

 private:
  SpeedRun() = default;
  std::unique_ptr<ReferenceWorker> reference_;
  std::string why_no_reference_;
};

}  // namespace stitch::verify
