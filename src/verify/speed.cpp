#include "verify/speed.h"

#include <algorithm>
#include <cmath>

#include "verify/reference_worker.h"

namespace stitch::verify {
namespace {

using run::CandidateFailure;

constexpr int kBlockCalls = 10;          // calls of one side before the other has its turn

struct Measured {
  std::vector<double> event_ms, drain_ms, overhead_ms;  // overhead: parent's wall time beyond the event, less the message
};

double median_of(std::vector<double> v) { return v.empty() ? 0 : summarise(std::move(v)).median; }

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

Result<std::optional<CandidateFailure>> SpeedRun::measure(const CheckContext& c, TimedSide& side, Verdict& v) {
  const std::optional<CandidateFailure> fine;
  auto about = side.worker().call(run::Op::memory);
  if (about && v.device.empty()) v.device = about->message;
  const auto flush_bytes = static_cast<uint64_t>(2 * side.worker().l2_bytes());

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
    if (auto r = side.worker().call(run::Op::null_call); !r) return std::optional(r.error());
    messages.push_back(side.worker().last_wall_ms());
  }
  const double message_ms = median_of(messages);
  Measured m;
  TimedSide::Checked all;
  int calls = 0;
  const int warm_blocks = std::max(1, c.options.warmup_calls / kBlockCalls), blocks = std::max(3, c.options.timed_calls / kBlockCalls);
  for (int block = -warm_blocks; block < blocks; ++block) {
    if (c.progress) c.progress("timing", static_cast<double>(std::max(0, block)) / blocks);
    // Warm-up calls are made and judged like the others; only their times are dropped.
    for (int k = 0; k < kBlockCalls; ++k, ++calls) {
      STITCH_TRY(auto call, side.call(flush_bytes));
      if (!call) return std::optional(call.error());
      if (block < 0) continue;
      m.event_ms.push_back(call->event_ms);
      m.drain_ms.push_back(call->drain_ms);
      m.overhead_ms.push_back(call->wall_ms - message_ms - call->event_ms);
    }
    std::erase_if(modes, [&](auto& entry) {
      auto& [mode, ms] = entry;
      auto times = side.baseline(mode, kBlockCalls, flush_bytes);
      if (!times) v.baselines.push_back({mode, std::nullopt, times.error().message});
      else if (block >= 0) ms.insert(ms.end(), times->begin(), times->end());
      return !times;
    });
    STITCH_TRY(auto checked, side.check());
    all.checked += checked.checked;
    all.wrong += checked.wrong;
    if (all.first_wrong.empty()) all.first_wrong = checked.first_wrong;
  }
  STITCH_TRY(auto last, side.last_call());
  if (!last) return std::optional(last.error());
  if (!last->ok && all.first_wrong.empty()) all.first_wrong = "After timing: " + last->sentence;

  const std::string which = all.checked < calls ? fmt::format("{} of {} timed calls, chosen at random afterwards,", all.checked, calls) : fmt::format("all {} timed calls", calls);
  settle(v, "timed_outputs", all.first_wrong.empty() ? "" : fmt::format("{} of {} timed calls looked at gave wrong outputs. {}", all.wrong, all.checked, all.first_wrong),
         fmt::format("Outputs of {} were compared with the oracle, new inputs in each.", which));
  const auto& e = side.evidence();
  if (!e.inputs_modified.empty()) settle(v, "inputs_unmodified", e.inputs_modified, "");
  if (!e.out_of_bounds.empty()) settle(v, "out_of_bounds_writes", e.out_of_bounds, "");
  if (!e.late_write.empty()) settle(v, "late_writes", e.late_write, "");
  judge_timing(m, v);
  if (auto changed = side.worker().changed_code(); changed && !changed->empty()) settle(v, "code_integrity", *changed, "");
  v.latency_ms = summarise(m.event_ms);
  for (auto& [mode, ms] : modes) {
    v.baselines.push_back({mode, summarise(ms), "torch " + reference_->torch_version()});
    v.speedup.push_back(speedup_over(mode, ms, m.event_ms));
  }
  judge_roofline(c, device_for(c.options, v.device), v.latency_ms->median, v);
  return fine;
}

}  // namespace stitch::verify
