#include "verify/judge.h"

#include <algorithm>

#include "interp/interpreter.h"

namespace stitch::verify {

Judgement combine(std::vector<Comparison> outputs) {
  Judgement j;
  j.ok = true;
  for (const Comparison& c : outputs) {
    j.max_error = std::max(j.max_error, c.max_error);
    j.norm_error = std::max(j.norm_error, c.norm_error);
    if (c.has_reference) {
      j.reference_max_error = std::max(j.reference_max_error.value_or(0), c.reference_max_error);
      j.reference_norm_error = std::max(j.reference_norm_error.value_or(0), c.reference_norm_error);
    }
    j.unwritten += c.unwritten;
    j.forgiven += c.forgiven;
    j.wrong += c.wrong;
    j.nonfinite_wrong += c.nonfinite_wrong;
    j.elements += c.elements;
    if (c.ok) continue;
    j.ok = false;
    if (j.sentence.empty()) j.sentence = c.sentence();
  }
  j.outputs = std::move(outputs);
  return j;
}

Status Judge::set_inputs(std::vector<ir::Tensor> inputs) {
  inputs_ = std::move(inputs);
  references_.clear();
  drawn_ = 0;
  STITCH_TRY(exact_, oracle_.exact(inputs_));
  return {};
}

Status Judge::draw_until(int draws) {
  for (; drawn_ < draws; ++drawn_) {
    STITCH_TRY(auto reference, oracle_.reference(inputs_, drawn_, rounding_));
    references_.push_back(std::move(reference));
  }
  return {};
}

Judgement Judge::compare_all(const std::vector<ir::Tensor>& got, uint16_t poison) const {
  std::vector<Comparison> outputs;
  for (size_t i = 0; i < got.size(); ++i) {
    std::vector<ir::Tensor> references;
    for (const auto& r : references_) references.push_back(r.at(i));
    outputs.push_back(compare(got[i].name, got[i], exact_.at(i), references, tolerance_, poison));
  }
  return combine(std::move(outputs));
}

// A program may be chaotic on special data: disturbed by no more than rounding, the reference itself then goes wrong in as many elements, only in
// others each time. Such a set proves nothing against a candidate that is wrong in no more of them and, as a whole, no further from the truth
// than the reference; small errors everywhere, as of a coarser precision, are never excused by it, nor is any wrong integer.
// python/stitchcuda/device_checks.py has the same rule; tests/data/chaotic_cases.json holds both to it.
bool Judge::reference_is_lost(const std::vector<ir::Tensor>& got, const Judgement& j) const {
  if (references_.size() < 3) return false;
  for (size_t i = 0; i < got.size(); ++i) {
    const Comparison& c = j.outputs[i];
    if (c.ok) continue;
    if (!ir::is_floating(got[i].type.dtype) || !c.norm_ok || c.unwritten > 0 || c.wrong == 0) return false;
    int64_t lost = 0;
    for (const auto& r : references_)
      lost = std::max(lost, compare(c.output, interp::to_f64_tensor(interp::from_tensor(r.at(i)), c.output), exact_[i], {}, tolerance_, 0).wrong);
    if (c.wrong > 2 * lost) return false;
  }
  return true;
}

Result<Judgement> Judge::judge(const std::vector<ir::Tensor>& got, uint16_t poison, bool measure_reference) {
  if (measure_reference) STITCH_CHECK_OK(draw_until(2));
  auto j = compare_all(got, poison);
  if (j.ok) return j;
  // A result that nobody wrote, or that is wrong nearly everywhere, is not a question of rounding.
  const bool hopeless = j.unwritten > 0;
  if (hopeless) return j;
  STITCH_CHECK_OK(draw_until(3));
  j = compare_all(got, poison);
  // A few stubborn elements may sit where the program itself is discontinuous at this precision; look closer at those.
  if (!j.ok && j.wrong <= std::max<int64_t>(8, j.elements / 1000)) {
    STITCH_CHECK_OK(draw_until(16));
    j = compare_all(got, poison);
  }
  if (j.ok || !reference_is_lost(got, j)) return j;
  for (Comparison& c : j.outputs) {
    c.ok = true;
    c.forgiven += c.wrong;
    c.wrong = 0;
    c.first.reset();
  }
  return combine(std::move(j.outputs));
}

}  // namespace stitch::verify
