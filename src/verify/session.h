#pragma once
// One candidate, loaded and fed: the worker process together with the memory it shares with us, and the evidence that
// accumulates while it is called.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/bundle.h"
#include "run/candidate.h"
#include "run/worker.h"

namespace stitch::verify {

// What was seen in shared memory around the calls. Each holds the first offence in one sentence, "" if there was none.
struct Evidence {
  std::string inputs_modified, weights_modified, out_of_bounds, late_write;
  int calls = 0;
};

class Session {
 public:
  // Loads the candidate with these weights up to the point where it can run. The outer error is ours (no worker
  // program, out of memory), the inner one the candidate's.
  static Result<run::Outcome<std::unique_ptr<Session>>> start(const ir::Bundle&, const run::WorkerSpec&,
                                                              const std::vector<ir::Tensor>& weights);

  // One call: inputs copied into slot `in`, outputs of slot `out` and the workspace poisoned, candidate run, outputs
  // copied out, all regions checked. Checks of weights and workspace cost a copy on a GPU and happen if `thorough`.
  run::Outcome<std::vector<ir::Tensor>> run(const std::vector<ir::Tensor>& inputs, int in, int out, uint16_t poison, bool thorough = true);
  // Whether output slot `out` still holds what the last run into it returned; notes a late write if not.
  void check_unchanged(int out);

  // Timed call in two halves so that the parent's clock brackets only the run. `fetch_outputs` after it.
  struct TimedCall {
    double event_ms, host_ms, drain_ms;  // the worker's measurements
    double wall_ms;                      // parent: from "go" to the answer
  };
  run::Outcome<TimedCall> timed_run(const std::vector<ir::Tensor>& inputs, int in, int out, uint64_t flush_bytes);
  run::Outcome<std::vector<ir::Tensor>> fetch_outputs(int out);

  run::Worker& worker() { return *worker_; }
  const Evidence& evidence() const { return evidence_; }
  bool cuda() const { return cuda_; }
  const run::Manifest& manifest() const { return manifest_; }
  double create_seconds() const { return create_seconds_; }

 private:
  Session() = default;
  void inspect(const std::vector<ir::Tensor>& inputs, int in, int out, bool thorough);
  std::vector<ir::Tensor> copy_outputs(int out) const;
  void fill_inputs(const std::vector<ir::Tensor>& inputs, int in);

  const ir::Bundle* bundle_ = nullptr;
  std::vector<ir::Tensor> weights_;  // our copies
  std::unique_ptr<run::Worker> worker_;
  std::vector<run::SharedRegion> inputs_, outputs_;
  std::unique_ptr<run::SharedRegion> weights_region_, workspace_;
  std::vector<std::vector<ir::Tensor>> last_outputs_;
  run::Manifest manifest_;
  Evidence evidence_;
  double create_seconds_ = 0;
  bool cuda_ = false;
};

inline constexpr int kSessionInputSlots = 2, kSessionOutputSlots = 2;

}  // namespace stitch::verify
