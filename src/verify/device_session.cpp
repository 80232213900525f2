#include "verify/device_session.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/json_full.h"
#include "verify/protocol_run.h"

namespace stitch::verify {
namespace {

using run::CandidateFailure;
using run::Outcome;
using run::Region;

constexpr int64_t kTwoSlotsBytes = int64_t{4} << 30;  // inputs and outputs beyond this get one buffer each
constexpr auto kPatience = std::chrono::seconds(600);

const char* kind_name(InputModel::Kind k) {
  using K = InputModel::Kind;
  switch (k) {
    case K::normal: return "normal";
    case K::uniform: return "uniform";
    case K::integers: return "integers";
    case K::choice: return "choice";
    case K::boolean: return "boolean";
    case K::row_distribution: return "row_distribution";
    case K::fixed: return "fixed";
  }
  return "?";
}

Json to_json(const std::vector<InputModel>& models) {
  Json list = Json::array();
  for (const auto& m : models)
    list.push_back({{"kind", kind_name(m.kind)}, {"a", m.a}, {"b", m.b}, {"values", m.values}, {"non_negative", m.non_negative},
                    {"structure", m.lower_triangular ? "lower" : m.upper_triangular ? "upper" : m.symmetric ? "symmetric" : ""}});
  return list;
}

// A number, or "inf", "-inf", "nan", which JSON numbers cannot hold.
double number(const Json& j) {
  if (j.is_number()) return j.get<double>();
  const std::string text = j.is_string() ? j.get<std::string>() : "nan";
  return text == "inf" ? HUGE_VAL : text == "-inf" ? -HUGE_VAL : std::nan("");
}

Comparison comparison_from(const Json& j, const ir::Shape& shape) {
  Comparison c;
  c.output = j.at("output").get<std::string>();
  c.ok = j.at("ok").get<bool>();
  c.elements = j.at("elements").get<int64_t>();
  c.wrong = j.at("wrong").get<int64_t>();
  c.unwritten = j.at("unwritten").get<int64_t>();
  c.nonfinite_wrong = j.at("nonfinite_wrong").get<int64_t>();
  c.forgiven = j.at("forgiven").get<int64_t>();
  c.max_error = number(j.at("max_error"));
  c.norm_error = number(j.at("norm_error"));
  c.max_abs_error = number(j.at("max_abs_error"));
  c.has_reference = j.at("has_reference").get<bool>();
  c.reference_max_error = number(j.at("reference_max_error"));
  c.reference_norm_error = number(j.at("reference_norm_error"));
  if (const Json& first = j.at("first"); first.is_object())
    c.first = WrongElement{unravel(first.at("index").get<int64_t>(), shape), number(first.at("expected")), number(first.at("got")),
                           first.at("unwritten").get<bool>()};
  return c;
}

Judgement judgement_from(const Json& list, const std::vector<ir::TensorType>& types) {
  std::vector<Comparison> outputs;
  for (size_t i = 0; i < list.size() && i < types.size(); ++i) outputs.push_back(comparison_from(list[i], types[i].shape));
  return combine(std::move(outputs));
}

}  // namespace

Status DeviceSession::lend(Region id, const std::string& name, const std::vector<ir::TensorType>& types, std::optional<CandidateFailure>& failure) {
  STITCH_TRY(const run::RegionLayout layout, run::layout_of(types));
  Json tensors = Json::array();
  for (size_t i = 0; i < types.size(); ++i)
    tensors.push_back({{"offset", layout.records[i].offset}, {"bytes", layout.records[i].bytes}, {"dtype", std::string(ir::name_of(types[i].dtype))},
                       {"shape", types[i].shape}});
  STITCH_TRY(auto answer, reference_.ask({{"op", "share"}, {"region", name}, {"bytes", layout.bytes}, {"tensors", tensors}}, kPatience));
  STITCH_TRY(const int fd, reference_.receive_descriptor());
  const auto since = std::chrono::steady_clock::now();
  auto attached = worker_->attach(id, fd, layout, answer.at("bytes").get<uint64_t>());
  reference_.add_spent("candidate_attach", since);
  close(fd);
  if (!attached) failure = attached.error();
  return {};
}

Result<Outcome<std::unique_ptr<DeviceSession>>> DeviceSession::start(const CheckContext& context, const run::WorkerSpec& spec,
                                                                     ReferenceWorker& reference, double altered) {
  using Answer = Outcome<std::unique_ptr<DeviceSession>>;
  const auto refused = [](const CandidateFailure& f) { return Answer(tl::make_unexpected(f)); };
  const ir::Bundle& bundle = context.bundle;
  if (auto bad = run::check_elf(spec.candidate)) return refused(*bad);
  std::unique_ptr<DeviceSession> s(new DeviceSession(context, reference));
  s->random_.seed(context.seed ^ 0x5eed);
  auto since = std::chrono::steady_clock::now();
  STITCH_TRY(s->worker_, run::Worker::start(spec));
  reference.add_spent("candidate_start", since);
  const auto inputs = ir::types_of(bundle.inputs), outputs = ir::output_types(bundle);
  s->slots_ = ir::bytes_of(inputs) + ir::bytes_of(outputs) <= kTwoSlotsBytes ? 2 : 1;
  std::optional<CandidateFailure> failure;
  STITCH_CHECK_OK(s->lend(Region::weights, "weights", ir::types_of(bundle.weights), failure));
  for (int slot = 0; slot < s->slots_ && !failure; ++slot) {
    const auto offset = static_cast<uint32_t>(slot);
    STITCH_CHECK_OK(s->lend(static_cast<Region>(static_cast<uint32_t>(Region::inputs0) + offset), fmt::format("inputs{}", slot), inputs, failure));
    if (failure) break;
    STITCH_CHECK_OK(s->lend(static_cast<Region>(static_cast<uint32_t>(Region::outputs0) + offset), fmt::format("outputs{}", slot), outputs, failure));
  }
  if (failure) return refused(*failure);
  s->weight_names_ = Json::array();
  for (const auto& w : bundle.weights) s->weight_names_.push_back(w.name);
  Json fill = {{"op", "fill_weights"}, {"names", s->weight_names_}};
  STITCH_TRY([[maybe_unused]] auto filled, reference.ask(fill, kPatience));
  if (altered > 0) {
    STITCH_TRY([[maybe_unused]] auto changed, reference.ask({{"op", "alter_weights"}, {"names", s->weight_names_}, {"amount", altered}, {"seed", context.seed >> 2}}, kPatience));
  }

  since = std::chrono::steady_clock::now();
  auto manifest_text = s->worker_->load();
  if (!manifest_text) return refused(manifest_text.error());
  if (auto manifest = run::check_manifest(*manifest_text, bundle, spec.cuda); !manifest) return refused(manifest.error());
  auto created = s->worker_->create();
  if (!created) return refused(created.error());
  s->create_seconds_ = s->worker_->last_wall_ms() / 1000;
  reference.add_spent("candidate_load", since);
  const auto workspace = static_cast<int64_t>(std::min<uint64_t>(created->number[0], uint64_t{1} << 50));
  if (workspace > int64_t{128} << 30)
    return refused({run::FailureKind::memory_limit, fmt::format("The candidate asks for a workspace of {} bytes, more than a GPU has.", workspace), {}});
  STITCH_CHECK_OK(s->lend(Region::workspace, "workspace", {{ir::DType::u8, {workspace}}}, failure));
  if (failure) return refused(*failure);
  return Answer(std::move(s));
}

Result<std::optional<CandidateFailure>> DeviceSession::checked_call(int number, uint16_t poison, bool thorough) {
  const std::optional<CandidateFailure> fine;
  STITCH_TRY([[maybe_unused]] auto ready, reference_.ask({{"op", "before_call"}, {"inputs", in_}, {"outputs", out_}, {"poison", poison}}, kPatience));
  const auto called = std::chrono::steady_clock::now();
  auto reply = worker_->run(in_, out_, poison, false);
  reference_.add_spent("candidate_call", called);
  if (!reply) return std::optional(reply.error());
  ++evidence_.calls;
  STITCH_TRY(auto seen, reference_.ask({{"op", "after_call"}, {"inputs", in_}, {"outputs", out_}, {"call", number}, {"thorough", thorough},
                                        {"weight_names", weight_names_}}, kPatience));
  for (auto [slot, key] : {std::pair{&evidence_.inputs_modified, "inputs_modified"}, {&evidence_.weights_modified, "weights_modified"},
                           {&evidence_.out_of_bounds, "out_of_bounds"}})
    if (slot->empty()) *slot = seen.value(key, "");
  return fine;
}

Result<Outcome<SetAnswer>> DeviceSession::run(const SetItem& item, bool measure) {
  const CheckContext& c = context_;
  const char* kinds[] = {"stored", "random", "property"};
  Json request = {{"op", "draw"}, {"kind", item.own ? "own" : kinds[static_cast<int>(item.kind)]}, {"seed", item.seed >> 2}, {"property", name_of(item.property)},
                  {"models", to_json(c.models)}};
  if (item.stored) request["file"] = (c.bundle.folder / "cases" / (item.stored->name + ".safetensors")).string();
  STITCH_TRY([[maybe_unused]] auto drawn, reference_.ask(request, kPatience));

  const bool thorough = evidence_.calls == 0 || random_() % 4 == 0;
  for (int number = 0; number < 2; ++number) {
    in_ = static_cast<int>(random_() % static_cast<uint64_t>(slots_));
    out_ = slots_ > 1 ? number : 0;
    STITCH_TRY(auto failure, checked_call(number, number ? run::kPoisonFinite : run::kPoisonNan, thorough));
    if (failure) return Outcome<SetAnswer>(tl::make_unexpected(*failure));
  }
  const bool special = item.kind == SetItem::Kind::property;
  const Tolerance wide = tolerance_of(hw::PrecisionClass::default_flags, c.bundle.graph, c.bundle.precision);
  STITCH_TRY(auto verdict, reference_.ask({{"op", "judge"}, {"tolerance", {c.tolerance.max, c.tolerance.norm}}, {"oracle_tolerance", {wide.max, wide.norm}},
                                           {"roundoff", special ? c.special_rounding : c.roundoff}, {"special_roundoff", c.special_rounding},
                                           {"measure", measure}, {"poison", {run::kPoisonNan, run::kPoisonFinite}},
                                           {"kernelbench_tolerance", kernelbench_tolerance(c.options.precision)}}, kPatience));
  // Judging took a while: time enough for a thread of the candidate to come back to its output.
  for (int number = slots_ > 1 ? 0 : 1; number < 2; ++number) {
    STITCH_TRY(auto late, reference_.ask({{"op", "late"}, {"outputs", slots_ > 1 ? number : 0}, {"call", number}}, kPatience));
    if (evidence_.late_write.empty()) evidence_.late_write = late.value("late_write", "");
  }
  const auto types = ir::output_types(c.bundle);
  if (item.stored && verdict.at("oracle").is_array() && !verdict.at("oracle").empty())
    return oracle_disagrees(c, item.stored->name, fmt::format("Output \"{}\" differs.", verdict.at("oracle")[0].value("output", "")));
  SetAnswer answer;
  answer.judgement = judgement_from(verdict.at("first"), types);
  answer.output_hash = verdict.at("output_digest").get<std::string>();
  answer.exact_hash = verdict.at("exact_digest").get<std::string>();
  if (verdict.at("second").is_array()) {
    answer.repeats = false;
    if (auto second = judgement_from(verdict.at("second"), types); answer.judgement.ok && !second.ok) answer.judgement = std::move(second);
  }
  if (const Json& k = verdict.at("kernelbench"); k.is_object()) answer.kernelbench = AllClose{k.at("ok").get<bool>(), number(k.at("max_abs_difference"))};
  return Outcome<SetAnswer>(std::move(answer));
}

Status DeviceSession::begin_timing() {
  return reference_.ask({{"op", "timed_begin"}, {"kind", "random"}, {"seed", random_() >> 2}, {"property", "random"}, {"models", to_json(context_.models)}}, kPatience)
      .map([](const auto&) {});
}

Result<Outcome<Session::TimedCall>> DeviceSession::call(uint64_t flush_bytes) {
  using Answer = Outcome<Session::TimedCall>;
  const auto refused = [](const CandidateFailure& f) { return Answer(tl::make_unexpected(f)); };
  const auto in = random_() % static_cast<uint64_t>(slots_), out = random_() % static_cast<uint64_t>(slots_), distance = random_() >> 2;
  STITCH_TRY([[maybe_unused]] auto ready, reference_.ask({{"op", "timed_inputs"}, {"inputs", in}, {"outputs", out}, {"distance", distance},
                                                          {"poison", run::kPoisonNan}}, kPatience));
  if (auto r = worker_->call(run::Op::arm, in, out, flush_bytes); !r) return refused(r.error());
  auto reply = worker_->call(run::Op::go);
  if (!reply) return refused(reply.error());
  if (reply->status != run::WorkerStatus::ok)
    return refused({run::FailureKind::run_failed, fmt::format("stitch_run failed: {}.", reply->message), worker_->printed()});
  ++evidence_.calls;
  const Session::TimedCall timed{reply->value[0], reply->value[1], reply->value[2], worker_->last_wall_ms()};
  STITCH_TRY([[maybe_unused]] auto kept, reference_.ask({{"op", "timed_outputs"}, {"outputs", out}, {"distance", distance}, {"seed", random_() >> 2}}, kPatience));
  return Answer(timed);
}

Result<std::vector<double>> DeviceSession::baseline(const std::string& mode, int calls, uint64_t flush_bytes) {
  STITCH_TRY(auto answer, reference_.ask({{"op", "time_baseline"}, {"mode", mode}, {"distance", random_() >> 2}, {"calls", calls}, {"flush_bytes", flush_bytes}}, kPatience));
  return answer.at("ms").get<std::vector<double>>();
}

Result<TimedSide::Checked> DeviceSession::check() {
  const auto& t = context_.tolerance;
  STITCH_TRY(auto answer, reference_.ask({{"op", "timed_check"}, {"tolerance", {t.max, t.norm}}, {"roundoff", context_.roundoff}, {"poison", run::kPoisonNan},
                                          {"seconds", 3}, {"seed", random_() >> 2}}, kPatience));
  Checked checked{answer.at("checked").get<int>(), answer.at("wrong").get<int>(), ""};
  if (const Json& first = answer.at("first"); first.is_object())
    checked.first_wrong = comparison_from(first, {first.at("elements").get<int64_t>()}).sentence();
  return checked;
}

Result<Outcome<Judgement>> DeviceSession::last_call() {
  using Answer = Outcome<Judgement>;
  STITCH_TRY(auto answer, run({SetItem::Kind::random, "after timing", random_() | 1, Property::none, nullptr, false}, false));
  if (!answer) return Answer(tl::make_unexpected(answer.error()));
  return Answer(std::move(answer->judgement));
}

}  // namespace stitch::verify
