#pragma once
// The correctness half of the protocol, the same on both targets: which sets are run, how each is judged, and what the
// pattern of failures says about the candidate.

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "verify/input_sets.h"
#include "verify/inputs.h"
#include "verify/judge.h"
#include "verify/rounding.h"
#include "verify/session.h"
#include "verify/verify.h"

namespace stitch::verify {

class ReferenceWorker;

struct CheckContext {
  const ir::Bundle& bundle;
  const VerifyOptions& options;
  const Progress& progress;
  std::vector<InputModel> models;
  std::optional<ir::Case> sample;      // the first stored case
  std::vector<ir::Case> cases;
  Oracle* oracle = nullptr;            // where the parent judges; absent where PyTorch does on its device
  std::string oracle_name;
  Tolerance tolerance;
  double roundoff = 0, special_rounding = 0;  // size of perturbations on ordinary and on special data (rounding.h)
  uint64_t seed = 0;
  std::function<double()> seconds_spent;
  bool own_inputs = false;             // PyTorch can be asked for the program's own get_inputs()
};

// Sets whose tensors the parent holds: the host target, and programs without PyTorch on a GPU.
class HostSets final : public SetRunner {
 public:
  HostSets(const CheckContext& context, Session& session) : context_(context), session_(session), random_(context.seed ^ 0x5eed) {}
  Result<run::Outcome<SetAnswer>> run(const SetItem&, bool measure) override;
  const Evidence& evidence() const override { return session_.evidence(); }
  run::Worker& worker() override { return session_.worker(); }

 private:
  struct Calls {
    std::vector<ir::Tensor> first, second;
  };
  run::Outcome<Calls> call_twice(const std::vector<ir::Tensor>& inputs);
  Status check_oracle(Judge&, const ir::Case& stored) const;

  const CheckContext& context_;
  Session& session_;
  std::mt19937_64 random_;
};

// Runs stored cases, random sets and property sets in random order and fills sets, precision, kernelbench,
// deterministic and the guards of the verdict. Inner failure: the candidate died or hung.
Result<std::optional<run::CandidateFailure>> run_checks(const CheckContext&, SetRunner&, Verdict&);

// Loads the candidate again with other weights: a program that carries its own copy of them is caught.
Result<std::optional<run::CandidateFailure>> check_weights_are_used(const CheckContext&, const run::WorkerSpec&,
                                                                    const std::vector<ir::Tensor>& weights, Verdict&);

// The same where PyTorch owns the tensors; its model keeps the other weights afterwards.
Result<std::optional<run::CandidateFailure>> check_weights_are_used_on_device(const CheckContext&, const run::WorkerSpec&, ReferenceWorker&, Verdict&);

// Runs the sanitized build on a few sets and turns what the sanitizers print into guards.
Status run_sanitized(const CheckContext&, run::WorkerSpec, const std::vector<ir::Tensor>& weights, Verdict&);

// The error that ends a verification whose oracle and PyTorch disagree: nobody can be judged then.
tl::unexpected<Error> oracle_disagrees(const CheckContext&, const std::string& stored_case, const std::string& sentence);

// A guard's state: failed with that evidence if it is not empty, else passed with `good`.
void settle(Verdict&, const std::string& guard, const std::string& failure, const std::string& good, bool rule = true);

}  // namespace stitch::verify
