#include "verify/session.h"

#include <cstring>

namespace stitch::verify {
namespace {

using run::CandidateFailure;
using run::Outcome;
using run::Region;
using run::SharedRegion;

constexpr uint64_t kMaxWorkspace = uint64_t{64} << 30;

Region region_id(Region first, int slot) { return static_cast<Region>(static_cast<uint32_t>(first) + static_cast<uint32_t>(slot)); }

// Index of the first byte that differs, or nullopt.
std::optional<size_t> difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0)) return std::nullopt;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return i;
  return a.size();
}

std::string damage_sentence(const char* group, const std::string& name, const SharedRegion::Damage& d, size_t bytes) {
  if (d.offset < 0) return fmt::format("Memory {} bytes before {} \"{}\" was written.", -d.offset, group, name);
  return fmt::format("Memory {} bytes behind the end of {} \"{}\" was written.", d.offset - static_cast<int64_t>(bytes), group, name);
}

}  // namespace

Result<Outcome<std::unique_ptr<Session>>> Session::start(const ir::Bundle& bundle, const run::WorkerSpec& spec,
                                                         const std::vector<ir::Tensor>& weights) {
  using Answer = Outcome<std::unique_ptr<Session>>;
  auto refused = [](const CandidateFailure& f) { return Answer(tl::make_unexpected(f)); };
  if (auto bad = run::check_elf(spec.candidate)) return refused(*bad);

  std::unique_ptr<Session> s(new Session());
  s->bundle_ = &bundle;
  s->weights_ = weights;
  s->cuda_ = spec.cuda;
  STITCH_TRY(auto weights_region, SharedRegion::create("stitch-weights", ir::types_of(bundle.weights)));
  s->weights_region_ = std::make_unique<SharedRegion>(std::move(weights_region));
  for (size_t i = 0; i < weights.size(); ++i) s->weights_region_->fill(i, weights[i].data);
  for (int slot = 0; slot < kSessionInputSlots; ++slot) {
    STITCH_TRY(auto region, SharedRegion::create("stitch-inputs", ir::types_of(bundle.inputs)));
    s->inputs_.push_back(std::move(region));
  }
  const auto output_types = ir::output_types(bundle);
  for (int slot = 0; slot < kSessionOutputSlots; ++slot) {
    STITCH_TRY(auto region, SharedRegion::create("stitch-outputs", output_types));
    s->outputs_.push_back(std::move(region));
  }
  s->last_outputs_.resize(kSessionOutputSlots);

  STITCH_TRY(s->worker_, run::Worker::start(spec));
  auto& worker = *s->worker_;
  auto map = [&](Region id, const SharedRegion& region) { return worker.map(id, region, region.count()); };
  if (auto r = map(Region::weights, *s->weights_region_); !r) return refused(r.error());
  for (int slot = 0; slot < kSessionInputSlots; ++slot)
    if (auto r = map(region_id(Region::inputs0, slot), s->inputs_[static_cast<size_t>(slot)]); !r) return refused(r.error());
  for (int slot = 0; slot < kSessionOutputSlots; ++slot)
    if (auto r = map(region_id(Region::outputs0, slot), s->outputs_[static_cast<size_t>(slot)]); !r) return refused(r.error());

  auto manifest_text = worker.load();
  if (!manifest_text) return refused(manifest_text.error());
  auto manifest = run::check_manifest(*manifest_text, bundle, spec.cuda);
  if (!manifest) return refused(manifest.error());
  s->manifest_ = std::move(*manifest);
  auto created = worker.create();
  if (!created) return refused(created.error());
  s->create_seconds_ = worker.last_wall_ms() / 1000;
  const uint64_t workspace_bytes = created->number[0];
  if (workspace_bytes > kMaxWorkspace || (!spec.cuda && workspace_bytes > spec.memory_limit))
    return refused({run::FailureKind::memory_limit,
                    fmt::format("The candidate asks for a workspace of {} bytes, more than this machine gives it.", workspace_bytes), {}});
  STITCH_TRY(auto workspace, SharedRegion::create_bytes("stitch-workspace", workspace_bytes));
  s->workspace_ = std::make_unique<SharedRegion>(std::move(workspace));
  if (auto r = map(Region::workspace, *s->workspace_); !r) return refused(r.error());
  return Answer(std::move(s));
}

void Session::fill_inputs(const std::vector<ir::Tensor>& inputs, int in) {
  auto& region = inputs_.at(static_cast<size_t>(in));
  for (size_t i = 0; i < inputs.size(); ++i) region.fill(i, inputs[i].data);
}

std::vector<ir::Tensor> Session::copy_outputs(int out) const {
  const auto& region = outputs_.at(static_cast<size_t>(out));
  std::vector<ir::Tensor> copies;
  for (size_t i = 0; i < region.count(); ++i) {
    const auto& output = bundle_->graph.outputs[i];
    ir::Tensor t{output.name, bundle_->graph.type_of(output.value), {}};
    const auto bytes = region.data(i);
    t.data.assign(bytes.begin(), bytes.end());
    copies.push_back(std::move(t));
  }
  return copies;
}

void Session::inspect(const std::vector<ir::Tensor>& inputs, int in, int out, bool thorough) {
  const auto& region = inputs_.at(static_cast<size_t>(in));
  auto name_input = [&](size_t i) { return bundle_->inputs[i].name; };
  if (evidence_.inputs_modified.empty())
    for (size_t i = 0; i < inputs.size(); ++i)
      if (auto at = difference(region.data(i), inputs[i].data))
        evidence_.inputs_modified = fmt::format("Input \"{}\" was changed by the call, first at byte {}.", name_input(i), *at);
  if (thorough && evidence_.weights_modified.empty())
    for (size_t i = 0; i < weights_.size(); ++i)
      if (auto at = difference(weights_region_->data(i), weights_[i].data))
        evidence_.weights_modified = fmt::format("Weight \"{}\" was changed by the call, first at byte {}.", bundle_->weights[i].name, *at);
  if (!evidence_.out_of_bounds.empty()) return;
  if (auto d = outputs_.at(static_cast<size_t>(out)).damaged_redzone())
    evidence_.out_of_bounds = damage_sentence("output", bundle_->graph.outputs[d->tensor].name, *d, outputs_[0].data(d->tensor).size());
  else if (auto i = region.damaged_redzone())
    evidence_.out_of_bounds = damage_sentence("input", name_input(i->tensor), *i, region.data(i->tensor).size());
  else if (auto w = thorough ? weights_region_->damaged_redzone() : std::nullopt)
    evidence_.out_of_bounds = damage_sentence("weight", bundle_->weights[w->tensor].name, *w, weights_region_->data(w->tensor).size());
  else if (auto s = thorough ? workspace_->damaged_redzone() : std::nullopt)
    evidence_.out_of_bounds = damage_sentence("workspace", "workspace", *s, workspace_->data(0).size());
}

Outcome<std::vector<ir::Tensor>> Session::run(const std::vector<ir::Tensor>& inputs, int in, int out, uint16_t poison, bool thorough) {
  fill_inputs(inputs, in);
  outputs_.at(static_cast<size_t>(out)).poison(poison);
  workspace_->poison(poison);
  auto reply = worker_->run(in, out, poison, thorough);
  if (!reply) return tl::make_unexpected(reply.error());
  ++evidence_.calls;
  auto copies = copy_outputs(out);  // first of all: nothing that happens later may improve them
  inspect(inputs, in, out, thorough);
  last_outputs_[static_cast<size_t>(out)] = copies;
  return copies;
}

void Session::check_unchanged(int out) {
  // On a GPU the shared region is only a copy; look at the device again. A failure shows at the next call.
  if (cuda_ && !worker_->call(run::Op::fetch, static_cast<uint64_t>(out))) return;
  const auto& last = last_outputs_.at(static_cast<size_t>(out));
  const auto& region = outputs_[static_cast<size_t>(out)];
  for (size_t i = 0; i < last.size() && evidence_.late_write.empty(); ++i)
    if (auto at = difference(region.data(i), last[i].data))
      evidence_.late_write = fmt::format("Output \"{}\" changed after the call had returned, first at byte {}.", last[i].name, *at);
}

Outcome<Session::TimedCall> Session::timed_run(const std::vector<ir::Tensor>& inputs, int in, int out, uint64_t flush_bytes) {
  fill_inputs(inputs, in);
  const auto slot_in = static_cast<uint64_t>(in), slot_out = static_cast<uint64_t>(out);
  if (auto r = worker_->call(run::Op::upload, slot_in); !r) return tl::make_unexpected(r.error());
  if (auto r = worker_->call(run::Op::arm, slot_in, slot_out, flush_bytes); !r) return tl::make_unexpected(r.error());
  auto reply = worker_->call(run::Op::go);
  if (!reply) return tl::make_unexpected(reply.error());
  if (reply->status != run::WorkerStatus::ok)
    return tl::make_unexpected(CandidateFailure{run::FailureKind::run_failed, fmt::format("stitch_run failed: {}.", reply->message), worker_->printed()});
  ++evidence_.calls;
  return TimedCall{reply->value[0], reply->value[1], reply->value[2], worker_->last_wall_ms()};
}

Outcome<std::vector<ir::Tensor>> Session::fetch_outputs(int out) {
  if (auto r = worker_->call(run::Op::fetch, static_cast<uint64_t>(out)); !r) return tl::make_unexpected(r.error());
  auto copies = copy_outputs(out);
  last_outputs_[static_cast<size_t>(out)] = copies;
  return copies;
}

}  // namespace stitch::verify
