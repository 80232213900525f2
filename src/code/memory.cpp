#include "code/memory.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace stitch::code {
namespace {

using ir::ValueRef;

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

// Follows alias tasks to the value that really is stored.
class Storage {
 public:
  Storage(const ir::Graph& graph, const plan::Plan& plan) : graph_(graph) {
    for (const plan::Task& t : plan.tasks) {
      if (t.kind != plan::TaskKind::alias) continue;
      for (int32_t n : t.nodes) viewed_[{n, 0}] = graph.nodes[static_cast<size_t>(n)].value("x");
    }
  }
  ValueRef root(ValueRef v) const {
    for (auto it = viewed_.find(v); it != viewed_.end(); it = viewed_.find(v)) v = it->second;
    return v;
  }
  bool is_leaf(ValueRef v) const {
    const std::string_view op = graph_.at(v).op_name();
    return op == "input" || op == "weight";
  }

 private:
  const ir::Graph& graph_;
  std::map<ValueRef, ValueRef> viewed_;
};

struct Span {
  int first = 0, last = 0;
};

}  // namespace

Packing pack(const std::vector<Lifetime>& pieces) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return pieces[a].bytes > pieces[b].bytes; });
  Packing out;
  out.offsets.assign(pieces.size(), 0);
  std::vector<size_t> placed;
  for (const size_t i : order) {
    if (pieces[i].bytes == 0) continue;
    const size_t need = aligned(pieces[i].bytes);
    std::vector<std::pair<size_t, size_t>> taken;  // [begin, end) of live neighbours
    for (const size_t j : placed)
      if (overlap(pieces[i], pieces[j])) taken.emplace_back(out.offsets[j], out.offsets[j] + aligned(pieces[j].bytes));
    std::sort(taken.begin(), taken.end());
    size_t best = SIZE_MAX, best_gap = SIZE_MAX, cursor = 0;
    for (const auto& [begin, end] : taken) {
      if (begin > cursor && begin - cursor >= need && begin - cursor < best_gap) {
        best = cursor;
        best_gap = begin - cursor;
      }
      cursor = std::max(cursor, end);
    }
    out.offsets[i] = best == SIZE_MAX ? cursor : best;
    out.total = std::max(out.total, out.offsets[i] + need);
    placed.push_back(i);
  }
  return out;
}

MemoryPlan plan_memory(const ir::Graph& graph, const plan::Plan& plan, const std::vector<size_t>& scratch_bytes) {
  const Storage storage(graph, plan);
  const int steps = static_cast<int>(plan.tasks.size());
  MemoryPlan memory;

  // Lifetimes of stored values.
  std::map<ValueRef, Span> spans;
  for (int step = 0; step < steps; ++step) {
    const plan::Task& t = plan.tasks[static_cast<size_t>(step)];
    if (t.kind == plan::TaskKind::alias) continue;
    for (ValueRef v : t.outputs) {
      Span& span = spans[v] = {step, step};
      // An integer value may be an index that a task reads memory with. It keeps its place to the end, so that running a task by
      // itself after the program (stitch_run_task) never finds foreign bytes where it expects indices.
      if (ir::is_integral(graph.type_of(v).dtype)) span.last = steps;
    }
    for (ValueRef v : t.inputs)
      if (auto it = spans.find(storage.root(v)); it != spans.end()) it->second.last = std::max(it->second.last, step);
  }

  // Outputs: the first output of a stored value is its place; every further one is a copy.
  std::map<ValueRef, Place> roots;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const ValueRef root = storage.root(graph.outputs[i].value);
    if (!storage.is_leaf(root) && !roots.count(root)) roots[root] = {Place::Kind::output, i, 0};
  }
  std::map<ValueRef, size_t> leaf_index;
  const std::vector<int32_t> inputs = graph.inputs(), weights = graph.weights();
  for (size_t i = 0; i < inputs.size(); ++i) roots[{inputs[i], 0}] = {Place::Kind::input, i, 0};
  for (size_t i = 0; i < weights.size(); ++i) roots[{weights[i], 0}] = {Place::Kind::weight, i, 0};

  // The rest goes to the workspace, together with each task's scratch.
  std::vector<Lifetime> pieces;
  std::vector<ValueRef> stored;
  for (const auto& [v, span] : spans) {
    if (roots.count(v)) continue;
    pieces.push_back({static_cast<size_t>(ir::bytes_of(graph.type_of(v))), span.first, span.last});
    stored.push_back(v);
  }
  for (int step = 0; step < steps; ++step) pieces.push_back({scratch_bytes[static_cast<size_t>(step)], step, step});
  const Packing packing = pack(pieces);
  for (size_t i = 0; i < stored.size(); ++i) roots[stored[i]] = {Place::Kind::workspace, 0, packing.offsets[i]};
  memory.scratch_offsets.assign(packing.offsets.begin() + static_cast<std::ptrdiff_t>(stored.size()), packing.offsets.end());
  memory.workspace_bytes = packing.total;

  const auto place_of = [&](ValueRef v) { return roots.at(storage.root(v)); };
  for (const plan::Task& t : plan.tasks) {
    for (ValueRef v : t.inputs) memory.places[v] = place_of(v);
    for (ValueRef v : t.outputs) memory.places[v] = place_of(v);
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Place place = place_of(graph.outputs[i].value);
    if (place.kind == Place::Kind::output && place.index == i) continue;
    memory.copies.push_back({i, place, static_cast<size_t>(ir::bytes_of(graph.type_of(graph.outputs[i].value)))});
  }
  return memory;
}

}  // namespace stitch::code
