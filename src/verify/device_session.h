#pragma once
// One candidate on a GPU whose tensors lie in device memory that the trusted PyTorch process owns and lends to the worker. Inputs are
// drawn, outputs taken and judged there, so programs of any size are checked without a copy through the host.

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ir/bundle.h"
#include "run/candidate.h"
#include "run/worker.h"
#include "verify/input_sets.h"
#include "verify/inputs.h"
#include "verify/reference_worker.h"
#include "verify/session.h"
#include "verify/speed.h"

namespace stitch::verify {

class DeviceSession final : public SetRunner, public TimedSide {
 public:
  // Lends memory, fills the weights (times factors in [1, 1 + altered) if `altered` > 0), loads the candidate. Outer error: PyTorch or the device
  // cannot do it; inner: the candidate's failure. `reference` must outlive the session.
  static Result<run::Outcome<std::unique_ptr<DeviceSession>>> start(const CheckContext&, const run::WorkerSpec&, ReferenceWorker& reference,
                                                                    double altered = 0);

  Result<run::Outcome<SetAnswer>> run(const SetItem&, bool measure) override;
  const Evidence& evidence() const override { return evidence_; }
  run::Worker& worker() override { return *worker_; }
  // Draws what timed calls are given. Before the first call().
  Status begin_timing();
  Result<run::Outcome<Session::TimedCall>> call(uint64_t flush_bytes) override;
  Result<std::vector<double>> baseline(const std::string& mode, int calls, uint64_t flush_bytes) override;
  Result<Checked> check() override;
  Result<run::Outcome<Judgement>> last_call() override;

  double create_seconds() const { return create_seconds_; }

 private:
  DeviceSession(const CheckContext& context, ReferenceWorker& reference) : context_(context), reference_(reference) {}
  Status lend(run::Region, const std::string& name, const std::vector<ir::TensorType>&, std::optional<run::CandidateFailure>&);
  Result<std::optional<run::CandidateFailure>> checked_call(int number, uint16_t poison, bool thorough);

  const CheckContext& context_;
  ReferenceWorker& reference_;
  std::unique_ptr<run::Worker> worker_;
  int slots_ = 1;                // of inputs and of outputs; one where two would fill the device
  int in_ = 0, out_ = 0;
  std::mt19937_64 random_;
  Json weight_names_;
  Evidence evidence_;
  double create_seconds_ = 0;
};

}  // namespace stitch::verify
