// Input sets whose tensors the parent holds and judges itself.
#include "base/hash.h"
#include "interp/interpreter.h"
#include "verify/protocol_run.h"

namespace stitch::verify {
namespace {

std::string hash_of(const std::vector<ir::Tensor>& tensors) {
  Sha256 sha;
  for (const auto& t : tensors) sha.field({reinterpret_cast<const char*>(t.data.data()), t.data.size()});
  return sha.hex();
}

// Answers that differ by less than their type can show are the same answer to a candidate.
std::vector<ir::Tensor> rounded(const std::vector<ir::Tensor>& exact, const std::vector<ir::TensorType>& types) {
  std::vector<ir::Tensor> out;
  for (size_t i = 0; i < exact.size(); ++i) {
    auto value = interp::from_tensor(exact[i]);
    value.type.dtype = types[i].dtype;
    out.push_back(interp::to_tensor(value, exact[i].name));
  }
  return out;
}

AllClose kernelbench_rule(const CheckContext& c, const std::vector<ir::Tensor>& got, const std::vector<ir::Tensor>& expected) {
  AllClose all;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto one = all_close(got[i], expected[i], kernelbench_tolerance(c.options.precision));
    all.ok = all.ok && one.ok;
    all.max_abs_difference = std::max(all.max_abs_difference, one.max_abs_difference);
  }
  return all;
}

}  // namespace

// PyTorch's stored outputs must themselves pass against the oracle; if not, one of the two is wrong and no verdict on
// anybody else can be trusted.
Status HostSets::check_oracle(Judge& judge, const ir::Case& stored) const {
  const auto& c = context_;
  Judge agreement(*c.oracle, tolerance_of(hw::PrecisionClass::default_flags, c.bundle.graph, c.bundle.precision), c.special_rounding);
  STITCH_CHECK_OK(agreement.set_inputs(stored.inputs));
  STITCH_TRY(auto j, agreement.judge(stored.expected, run::kPoisonNan));
  if (!j.ok) return oracle_disagrees(c, stored.name, j.sentence);
  judge.add_reference(stored.expected);
  return {};
}

// Two calls on the same inputs, with two kinds of poison: an element nobody writes cannot be right both times.
run::Outcome<HostSets::Calls> HostSets::call_twice(const std::vector<ir::Tensor>& inputs) {
  // Fetching all weights from a GPU after every call would cost more than the calls; a change stays until it is seen.
  const bool thorough = !session_.cuda() || random_() % 4 == 0;
  auto first = session_.run(inputs, static_cast<int>(random_() % kSessionInputSlots), 0, run::kPoisonNan, thorough);
  if (!first) return tl::make_unexpected(first.error());
  auto second = session_.run(inputs, static_cast<int>(random_() % kSessionInputSlots), 1, run::kPoisonFinite, thorough);
  if (!second) return tl::make_unexpected(second.error());
  session_.check_unchanged(0);
  session_.check_unchanged(1);
  return Calls{std::move(*first), std::move(*second)};
}

Result<run::Outcome<SetAnswer>> HostSets::run(const SetItem& item, bool measure) {
  const auto& c = context_;
  const auto inputs = item.stored ? item.stored->inputs : draw_inputs(c.bundle, c.models, item.seed, item.property, c.sample);
  auto calls = call_twice(inputs);
  if (!calls) return run::Outcome<SetAnswer>(tl::make_unexpected(calls.error()));
  Judge judge(*c.oracle, c.tolerance, item.kind == SetItem::Kind::property ? c.special_rounding : c.roundoff);
  STITCH_CHECK_OK(judge.set_inputs(inputs));
  const bool expected = item.stored && !item.stored->expected.empty();
  if (expected) STITCH_CHECK_OK(check_oracle(judge, *item.stored));
  SetAnswer answer;
  STITCH_TRY(answer.judgement, judge.judge(calls->first, run::kPoisonNan, measure));
  answer.output_hash = hash_of(calls->first);
  answer.exact_hash = hash_of(rounded(judge.exact(), ir::output_types(c.bundle)));
  answer.repeats = answer.output_hash == hash_of(calls->second);
  if (!answer.repeats) {
    STITCH_TRY(auto second, judge.judge(calls->second, run::kPoisonFinite, false));
    if (answer.judgement.ok && !second.ok) answer.judgement = std::move(second);
  }
  if (expected) answer.kernelbench = kernelbench_rule(c, calls->first, item.stored->expected);
  return run::Outcome<SetAnswer>(std::move(answer));
}

}  // namespace stitch::verify
