#pragma once
// Judges the outputs of one input set against the oracle, asking for more evidence about the reference's own error
// only where the plain tolerance does not settle the matter.

#include <string>
#include <vector>

#include "base/result.h"
#include "verify/compare.h"
#include "verify/oracle.h"
#include "verify/verdict.h"

namespace stitch::verify {

struct Judgement {
  bool ok = false;
  std::string sentence;                  // "" when ok
  std::vector<Comparison> outputs;       // one per output
  double max_error = 0, norm_error = 0;  // worst output
  std::optional<double> reference_max_error, reference_norm_error;
  int64_t unwritten = 0, forgiven = 0, wrong = 0, nonfinite_wrong = 0, elements = 0;
};

// The judgement that comparisons of all outputs add up to.
Judgement combine(std::vector<Comparison> outputs);

class Judge {
 public:
  // `rounding`: size of the perturbations that model the reference's own rounding (rounding.h).
  Judge(Oracle& oracle, Tolerance tolerance, double rounding) : oracle_(oracle), tolerance_(tolerance), rounding_(rounding) {}

  // Oracle's answer for a set, computed after the candidate has answered; kept for the calls below.
  Status set_inputs(std::vector<ir::Tensor> inputs);
  // Further results in the reference's precision, e.g. PyTorch's own outputs.
  void add_reference(std::vector<ir::Tensor> outputs) { references_.push_back(std::move(outputs)); }
  // `measure_reference`: evaluate the reference's own error even if the tolerance settles the question.
  Result<Judgement> judge(const std::vector<ir::Tensor>& got, uint16_t poison, bool measure_reference = false);
  const std::vector<ir::Tensor>& exact() const { return exact_; }

 private:
  Judgement compare_all(const std::vector<ir::Tensor>& got, uint16_t poison) const;
  Status draw_until(int draws);
  bool reference_is_lost(const std::vector<ir::Tensor>& got, const Judgement&) const;

  Oracle& oracle_;
  Tolerance tolerance_;
  double rounding_;
  std::vector<ir::Tensor> inputs_, exact_;
  std::vector<std::vector<ir::Tensor>> references_;
  int drawn_ = 0;
};

}  // namespace stitch::verify
