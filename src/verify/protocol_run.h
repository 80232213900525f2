#pragma once
// The correctness half of the protocol, the same on both targets: which sets are run, how each is judged, and what the
// pattern of failures says about the candidate.

#include <functional>
#include <string>
#include <vector>

#include "verify/inputs.h"
#include "verify/judge.h"
#include "verify/rounding.h"
#include "verify/session.h"
#include "verify/verify.h"

namespace stitch::verify {

struct CheckContext {
  const ir::Bundle& bundle;
  const VerifyOptions& options;
  const Progress& progress;
  std::vector<InputModel> models;
  std::optional<ir::Case> sample;      // the first stored case
  std::vector<ir::Case> cases;
  Oracle* oracle = nullptr;
  Tolerance tolerance;
  double roundoff = 0, special_rounding = 0;  // size of perturbations on ordinary and on special data (rounding.h)
  uint64_t seed = 0;
  std::function<double()> seconds_spent;
};

// Runs stored cases, random sets and property sets in random order and fills sets, precision, kernelbench,
// deterministic and the guards of the verdict. Inner failure: the candidate died or hung.
Result<std::optional<run::CandidateFailure>> run_checks(const CheckContext&, Session&, Verdict&);

// Loads the candidate again with other weights: a program that carries its own copy of them is caught.
Result<std::optional<run::CandidateFailure>> check_weights_are_used(const CheckContext&, const run::WorkerSpec&,
                                                                    const std::vector<ir::Tensor>& weights, Verdict&);

// Runs the sanitized build on a few sets and turns what the sanitizers print into guards.
Status run_sanitized(const CheckContext&, run::WorkerSpec, const std::vector<ir::Tensor>& weights, Verdict&);

// A guard's state: failed with that evidence if it is not empty, else passed with `good`.
void settle(Verdict&, const std::string& guard, const std::string& failure, const std::string& good, bool rule = true);

}  // namespace stitch::verify
