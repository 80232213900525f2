// Does the program follow the weights it is given, or does it carry its own?
#include <algorithm>

#include "verify/device_session.h"
#include "verify/protocol_run.h"

namespace stitch::verify {
namespace {

constexpr double kInterpreterFlops = 5e10;  // about a minute of the interpreter
constexpr double kAltered = 0.25;

// Says so in the guard where there is nothing to check.
bool has_float_weights(const CheckContext& c, Verdict& v) {
  const auto& weights = c.bundle.weights;
  const bool any = std::any_of(weights.begin(), weights.end(), [](const ir::TensorInfo& w) { return ir::is_floating(w.type.dtype) && ir::numel(w.type.shape) > 0; });
  if (!any) v.guard("weights_used").evidence = "The program has no float weights.";
  return any;
}

void conclude(const CheckContext& c, const Judgement& j, Verdict& v) {
  settle(v, "weights_used", j.ok ? "" : "With other weights the result is wrong: the program carries its own. " + j.sentence,
         "The program follows other weights than the captured ones.");
  v.sets.push_back({"altered weights", c.seed ^ 0xa17f, j.ok, j.sentence, j.max_error, j.norm_error,
                    j.reference_max_error, j.reference_norm_error, j.forgiven});
  if (!j.ok) v.correct = false;
}

}  // namespace

Result<std::optional<run::CandidateFailure>> check_weights_are_used(const CheckContext& c, const run::WorkerSpec& spec,
                                                                    const std::vector<ir::Tensor>& weights, Verdict& v) {
  if (!has_float_weights(c, v)) return std::optional<run::CandidateFailure>();
  double flops = 0;
  for (const auto& node : c.bundle.graph.nodes) {
    const auto work = hw::work_of(c.bundle.graph, node);
    flops += work.matrix_flops + work.vector_flops;
  }
  if (flops > kInterpreterFlops) {
    v.guard("weights_used").evidence = "The program is too large for the interpreter, which this check needs.";
    return std::optional<run::CandidateFailure>();
  }
  const auto altered = altered_weights(weights, kAltered, c.seed ^ 0xa17e);
  STITCH_TRY(auto started, Session::start(c.bundle, spec, altered));
  if (!started) return std::optional(started.error());
  auto oracle = interpreter_oracle(c.bundle.graph, altered);
  const auto inputs = draw_inputs(c.bundle, c.models, c.seed ^ 0xa17f, Property::none, c.sample);
  auto got = (*started)->run(inputs, 0, 0, run::kPoisonNan);
  if (!got) return std::optional(got.error());
  Judge judge(*oracle, c.tolerance, c.roundoff);
  STITCH_CHECK_OK(judge.set_inputs(inputs));
  STITCH_TRY(auto j, judge.judge(*got, run::kPoisonNan));
  conclude(c, j, v);
  (*started)->worker().quit();
  return std::optional<run::CandidateFailure>();
}

Result<std::optional<run::CandidateFailure>> check_weights_are_used_on_device(const CheckContext& c, const run::WorkerSpec& spec, ReferenceWorker& reference,
                                                                              Verdict& v) {
  if (!has_float_weights(c, v)) return std::optional<run::CandidateFailure>();
  STITCH_TRY(auto started, DeviceSession::start(c, spec, reference, kAltered));
  if (!started) return std::optional(started.error());
  STITCH_TRY(auto answer, (*started)->run({SetItem::Kind::random, "altered weights", (c.seed ^ 0xa17f) | 1, Property::none, nullptr, false}, false));
  if (!answer) return std::optional(answer.error());
  conclude(c, answer->judgement, v);
  (*started)->worker().quit();
  return std::optional<run::CandidateFailure>();
}

}  // namespace stitch::verify
