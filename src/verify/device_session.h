#pragma once
// One candidate on a GPU whose tensors lie in device memory that the trusted PyTorch process owns and lends to the worker. Inputs are
// drawn, outputs taken and judged there, so programs of any size are checked without a copy through the host.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/bundle.h"
#include "run/candidate.h"
#include "run/worker.h"
#include "verify/input_sets.h"
#include "verify/inputs.h"
#include "verify/reference_worker.h"
#include "verify/session.h"

namespace stitch::verify {

class DeviceSession final : public SetRunner {
 public:
  // Lends memory, fills the weights (times factors in [1, 1 + altered) if `altered` > 0), loads the candidate. Outer error: PyTorch or the device
  // cannot do it; inner: the candidate's failure. `reference` must outlive the session.
  static Result<run::Outcome<std::unique_ptr<DeviceSession>>> start(const CheckContext&, const run::WorkerSpec&, ReferenceWorker& reference,
                                                                    double altered = 0);

  Result<run::Outcome<SetAnswer>> run(const SetItem&, bool measure) override;
  const Evidence& evidence() const override { return evidence_; }
  run::Worker& worker() override { return *worker_; }
  double create_seconds() const { return create_seconds_; }

 private:
  DeviceSession(const CheckContext& context, ReferenceWorker& reference) : context_(context), reference_(reference) {}
  Status lend(run::Region, const std::string& name, const std::vector<ir::TensorType>&, std::optional<run::CandidateFailure>&);
  Result<std::optional<run::CandidateFailure>> call(int number, uint16_t poison, bool thorough);

  const CheckContext& context_;
  ReferenceWorker& reference_;
  std::unique_ptr<run::Worker> worker_;
  int slots_ = 1;                // of inputs and of outputs; one where two would fill the device
  int in_ = 0, out_ = 0;
  uint64_t calls_seed_ = 0;
  Json weight_names_;
  Evidence evidence_;
  double create_seconds_ = 0;
};

}  // namespace stitch::verify
