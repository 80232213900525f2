#include "verify/speed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "ir/ops.h"
#include "verify/reference_worker.h"

namespace stitch::verify {
namespace {

using run::CandidateFailure;

constexpr int kBlockCalls = 10;          // calls of one side before the other has its turn
constexpr int64_t kSampleChunks = 64, kChunk = 1024;
constexpr double kInterpreterSeconds = 2; // slower than this per set: timed calls cannot all be checked by it

struct TimedSample {
  std::vector<ir::Tensor> inputs;
  std::vector<ir::Tensor> outputs;        // the sampled elements, 1-d
  std::vector<Samples> where;
};

// New values for a timed call: the base data rotated by a random distance, cheap at any size and never the same twice.
// Data with structure (triangles, rows that sum to one) is drawn afresh instead.
std::vector<ir::Tensor> next_inputs(const CheckContext& c, const std::vector<ir::Tensor>& base, std::mt19937_64& random) {
  const bool structured = std::any_of(c.models.begin(), c.models.end(), [](const InputModel& m) {
    return m.lower_triangular || m.upper_triangular || m.symmetric || m.kind == InputModel::Kind::row_distribution;
  });
  if (structured) return draw_inputs(c.bundle, c.models, random() | 1, Property::none, c.sample);
  std::vector<ir::Tensor> out;
  for (size_t k = 0; k < base.size(); ++k) {
    ir::Tensor t = base[k];
    const auto size = static_cast<size_t>(ir::size_of(t.type.dtype)), n = t.data.size() / std::max<size_t>(1, size);
    if (c.models[k].kind != InputModel::Kind::fixed && n > 1) {
      const size_t shift = (1 + random() % (n - 1)) * size;
      std::memcpy(t.data.data(), base[k].data.data() + shift, t.data.size() - shift);
      std::memcpy(t.data.data() + t.data.size() - shift, base[k].data.data(), shift);
    }
    out.push_back(std::move(t));
  }
  return out;
}

// Where to look at an output: all of it when small, else random pieces chosen after the call.
Samples choose_samples(int64_t elements, std::mt19937_64& random) {
  if (elements <= kSampleChunks * kChunk) return elements ? Samples{{0, elements}} : Samples{};
  Samples pieces;
  for (int64_t i = 0; i < kSampleChunks; ++i)
    pieces.emplace_back(static_cast<int64_t>(random() % static_cast<uint64_t>(elements - kChunk)), kChunk);
  pieces.back().first = elements - kChunk;  // the tail is where code that stops early shows
  return pieces;
}

ir::Tensor sampled(const ir::Tensor& t, const Samples& pieces) {
  ir::Tensor out{t.name, {t.type.dtype, {0}}, {}};
  const auto size = ir::size_of(t.type.dtype);
  for (auto [start, count] : pieces) {
    out.data.insert(out.data.end(), t.data.begin() + start * size, t.data.begin() + (start + count) * size);
    out.type.shape[0] += count;
  }
  return out;
}

struct Measured {
  std::vector<double> event_ms, drain_ms, overhead_ms;  // overhead: parent's wall time beyond the event, less the message
  int checked = 0, wrong = 0;
  std::string first_wrong;
};

double median_of(std::vector<double> v) { return v.empty() ? 0 : summarise(std::move(v)).median; }

// One block of timed calls. Outputs are sampled at once; they are judged after the block, when nobody waits.
std::optional<CandidateFailure> time_block(const CheckContext& c, Session& session, const std::vector<ir::Tensor>& base, uint64_t flush_bytes,
                                           double message_ms, std::mt19937_64& random, Measured& m, std::vector<TimedSample>& samples) {
  for (int k = 0; k < kBlockCalls; ++k) {
    TimedSample s;
    s.inputs = next_inputs(c, base, random);
    const int in = static_cast<int>(random() % kSessionInputSlots), out = static_cast<int>(random() % kSessionOutputSlots);
    auto call = session.timed_run(s.inputs, in, out, flush_bytes);
    if (!call) return call.error();
    auto outputs = session.fetch_outputs(out);
    if (!outputs) return outputs.error();
    m.event_ms.push_back(call->event_ms);
    m.drain_ms.push_back(call->drain_ms);
    m.overhead_ms.push_back(call->wall_ms - message_ms - call->event_ms);
    for (const auto& t : *outputs) {
      s.where.push_back(choose_samples(ir::numel(t.type.shape), random));
      s.outputs.push_back(sampled(t, s.where.back()));
    }
    samples.push_back(std::move(s));
  }
  return std::nullopt;
}

// Judges one timed call against the oracle, on the sampled elements.
Status check_sample(const CheckContext& c, ReferenceWorker* reference, const TimedSample& s, Measured& m) {
  std::vector<ir::Tensor> exact;
  auto answers = [&](bool fp64, int draw) -> Result<std::vector<ir::Tensor>> {
    if (reference) return reference->evaluate(s.inputs, fp64, draw, c.roundoff, &s.where);
    STITCH_TRY(auto whole, fp64 ? c.oracle->exact(s.inputs) : c.oracle->reference(s.inputs, draw, c.roundoff));
    std::vector<ir::Tensor> parts;
    for (size_t i = 0; i < whole.size(); ++i) parts.push_back(sampled(whole[i], s.where[i]));
    return parts;
  };
  STITCH_TRY(exact, answers(true, 0));
  std::vector<std::vector<ir::Tensor>> draws;
  bool ok = true;
  std::string sentence;
  for (int round = 0; round < 2; ++round) {  // the reference's own error is asked for only when the tolerance does not settle it
    ok = true;
    for (size_t i = 0; i < s.outputs.size(); ++i) {
      std::vector<ir::Tensor> references;
      for (const auto& d : draws) references.push_back(d[i]);
      const auto result = compare(s.outputs[i].name, s.outputs[i], exact[i], references, c.tolerance, run::kPoisonNan);
      ok = ok && result.ok;
      if (!result.ok) sentence = result.sentence();
    }
    if (ok || round == 1) break;
    for (int draw = 0; draw < 3; ++draw) {
      STITCH_TRY(auto d, answers(false, draw));
      draws.push_back(std::move(d));
    }
  }
  ++m.checked;
  if (!ok) {
    ++m.wrong;
    if (m.first_wrong.empty()) m.first_wrong = sentence;
  }
  return {};
}

std::optional<hw::Device> device_for(const VerifyOptions& options, const std::string& gpu_name) {
  if (options.device) return options.device;
  std::string key;
  for (char ch : gpu_name) key += static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
  for (const char* known : {"h200", "rtx_pro_6000"}) {
    std::string words = known;
    std::replace(words.begin(), words.end(), '_', ' ');
    if (key.find(words) != std::string::npos)
      if (auto d = hw::find_device(known)) return *d;
  }
  return std::nullopt;
}

// Bytes that must cross DRAM bound the time of any program. Outputs may stay in L2 after the call, so only half of the
// floor is a proof of cheating; arithmetic can be saved by algebra and proves nothing.
void judge_roofline(const CheckContext& c, const std::optional<hw::Device>& device, double median_ms, Verdict& v) {
  if (!device) {
    v.guard("roofline").evidence = fmt::format("No ceilings are known for {}.", v.device);
    return;
  }
  std::vector<int32_t> nodes;
  for (size_t i = 0; i < c.bundle.graph.nodes.size(); ++i) {
    const auto name = c.bundle.graph.nodes[i].op_name();
    if (name != "input" && name != "weight") nodes.push_back(static_cast<int32_t>(i));
  }
  const auto floor = hw::floor_of(c.bundle.graph, nodes, *device, c.options.precision);
  v.floor_ms = floor.seconds * 1000;
  v.of_floor = median_ms > 0 ? *v.floor_ms / median_ms : 0;
  const double memory_ms = floor.memory_seconds * 1000;
  settle(v, "roofline", median_ms < 0.45 * memory_ms
             ? fmt::format("{:.4g} ms is faster than the memory allows: the program must move {:.3g} bytes, which take {:.4g} ms.", median_ms, floor.bytes, memory_ms)
             : "", fmt::format("{:.4g} ms against a floor of {:.4g} ms ({} bound).", median_ms, *v.floor_ms, floor.bound));
  if (median_ms < *v.floor_ms) v.warnings.push_back("The measured time lies below the roofline floor; the ceilings or the work model deserve a look.");
}

void judge_timing(const Measured& m, Verdict& v) {
  const double event = median_of(m.event_ms), drain = median_of(m.drain_ms), overhead = median_of(m.overhead_ms);
  settle(v, "streams_joined", drain > 0.05 + 0.1 * event
             ? fmt::format("{:.3g} ms of device work was still running after the end event: it was not joined to the stream.", drain) : "",
         fmt::format("The device was idle {:.3g} ms after the end event.", drain));
  settle(v, "parent_clock", std::abs(overhead) > 0.25 * event + 0.2
             ? fmt::format("Events say {:.4g} ms a call, the parent's clock {:.4g} ms.", event, event + overhead) : "",
         fmt::format("The parent's clock agrees with the events within {:.3g} ms a call.", std::abs(overhead)));
}

}  // namespace

SpeedRun::~SpeedRun() = default;

Result<std::unique_ptr<SpeedRun>> SpeedRun::start(const ir::Bundle& bundle, const VerifyOptions& options, Verdict& v) {
  std::unique_ptr<SpeedRun> s(new SpeedRun());
  ReferenceWorker::Spec spec;
  spec.source = options.reference_source.empty() ? std::filesystem::path(bundle.origin.file) : options.reference_source;
  if (std::error_code ignored; spec.source.is_relative() && !std::filesystem::exists(spec.source, ignored))
    spec.source = bundle.folder.parent_path() / spec.source;
  spec.precision_class = hw::name_of(options.precision);
  auto reference = ReferenceWorker::start(bundle, spec);
  if (reference) {
    s->reference_ = std::move(*reference);
    v.device = s->reference_->device_name();
  } else {
    s->why_no_reference_ = reference.error().message;
    v.warnings.push_back("PyTorch was not asked: " + s->why_no_reference_);
  }
  return s;
}

std::unique_ptr<Oracle> SpeedRun::oracle() { return reference_ ? torch_oracle(*reference_) : nullptr; }

Result<std::optional<CandidateFailure>> SpeedRun::measure(const CheckContext& c, Session& session, Verdict& v) {
  const std::optional<CandidateFailure> fine;
  auto about = session.worker().call(run::Op::memory);
  if (about && v.device.empty()) v.device = about->message;
  if (!v.correct) {
    for (const char* name : {"timed_outputs", "streams_joined", "parent_clock", "roofline"}) v.guard(name).evidence = "Not timed: the results are wrong.";
    for (const auto& mode : c.options.baselines) v.baselines.push_back({mode, std::nullopt, "Not run: the candidate is wrong."});
    return fine;
  }
  const auto flush_bytes = static_cast<uint64_t>(2 * session.worker().l2_bytes());
  std::mt19937_64 random(c.seed ^ 0x71e5);
  const auto base = draw_inputs(c.bundle, c.models, random() | 1, Property::none, c.sample);

  std::vector<std::pair<std::string, std::vector<double>>> modes;
  for (const auto& mode : c.options.baselines) {
    if (!reference_) {
      v.baselines.push_back({mode, std::nullopt, why_no_reference_});
      continue;
    }
    if (c.progress) c.progress("baseline " + mode, 0);
    if (auto built = reference_->build_baseline(mode); built) modes.emplace_back(mode, std::vector<double>());
    else v.baselines.push_back({mode, std::nullopt, built.error().message});
  }

  std::vector<double> messages;
  for (int k = 0; k < 50; ++k) {
    if (auto r = session.worker().call(run::Op::null_call); !r) return std::optional(r.error());
    messages.push_back(session.worker().last_wall_ms());
  }
  const double message_ms = median_of(messages);
  Measured warm, m;
  std::vector<TimedSample> samples;
  const int warm_blocks = std::max(1, c.options.warmup_calls / kBlockCalls), blocks = std::max(3, c.options.timed_calls / kBlockCalls);
  bool every_call = true;
  for (int block = -warm_blocks; block < blocks; ++block) {
    if (c.progress) c.progress("timing", static_cast<double>(std::max(0, block)) / blocks);
    // Warm-up calls are made and judged like the others; only their times are dropped.
    auto& into = block < 0 ? warm : m;
    if (auto broke = time_block(c, session, base, flush_bytes, message_ms, random, into, samples)) return std::optional(*broke);
    for (auto& [mode, ms] : modes) {
      auto times = reference_->time(mode, next_inputs(c, base, random), kBlockCalls, flush_bytes);
      if (!times) {
        v.baselines.push_back({mode, std::nullopt, times.error().message});
        ms.clear();
        continue;
      }
      if (block >= 0) ms.insert(ms.end(), times->begin(), times->end());
    }
    for (const auto& s : samples) {
      const auto before = c.seconds_spent();
      if (!every_call && random() % 8 != 0) continue;
      STITCH_CHECK_OK(check_sample(c, reference_.get(), s, into));
      if (!reference_ && c.seconds_spent() - before > kInterpreterSeconds) every_call = false;
    }
    samples.clear();
  }
  session.check_unchanged(0);
  session.check_unchanged(1);
  // One more full call after the clock has stopped: what timing left behind must not have changed the program.
  const auto last = next_inputs(c, base, random);
  auto after = session.run(last, 0, 0, run::kPoisonNan);
  if (!after) return std::optional(after.error());
  Judge judge(*c.oracle, c.tolerance, c.roundoff);
  STITCH_CHECK_OK(judge.set_inputs(last));
  STITCH_TRY(auto final_judgement, judge.judge(*after, run::kPoisonNan));
  if (!final_judgement.ok && m.first_wrong.empty()) m.first_wrong = "After timing: " + final_judgement.sentence;

  const int calls = static_cast<int>(m.event_ms.size() + warm.event_ms.size()), checked = m.checked + warm.checked;
  const std::string wrong = !m.first_wrong.empty() ? m.first_wrong : warm.first_wrong;
  if (wrong.empty() && checked < calls)
    v.guard("timed_outputs").evidence = fmt::format("Only {} of {} timed calls were checked: the interpreter is too slow for all, and PyTorch was not there.", checked, calls);
  else
    settle(v, "timed_outputs", wrong.empty() ? "" : fmt::format("{} of {} timed calls gave wrong outputs. {}", m.wrong + warm.wrong, calls, wrong),
           fmt::format("Outputs of all {} timed calls were compared with the oracle, new inputs in each.", calls));
  const auto& e = session.evidence();
  if (!e.inputs_modified.empty()) settle(v, "inputs_unmodified", e.inputs_modified, "");
  if (!e.out_of_bounds.empty()) settle(v, "out_of_bounds_writes", e.out_of_bounds, "");
  if (!e.late_write.empty()) settle(v, "late_writes", e.late_write, "");
  judge_timing(m, v);
  if (auto changed = session.worker().changed_code(); changed && !changed->empty()) settle(v, "code_integrity", *changed, "");
  v.latency_ms = summarise(m.event_ms);
  for (auto& [mode, ms] : modes) {
    if (ms.empty()) continue;
    v.baselines.push_back({mode, summarise(ms), "torch " + reference_->torch_version()});
    v.speedup.push_back(speedup_over(mode, ms, m.event_ms));
  }
  judge_roofline(c, device_for(c.options, v.device), v.latency_ms->median, v);
  for (const char* name : {"kernel_trace", "ghost_replay"}) v.guard(name).evidence = "The profiler was not asked.";
  return fine;
}

}  // namespace stitch::verify
