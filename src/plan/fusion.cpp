#include "plan/fusion.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "hw/device.h"
#include "ir/ops.h"
#include "plan/absorb.h"

namespace stitch::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::OpClass;
using ir::ValueRef;

constexpr size_t kMaxNodesPerGroup = 48;   // keeps kernels readable and registers few
constexpr size_t kMaxOperandsPerGroup = 20;
constexpr size_t kConcatenationFactor = 4;  // the branches of a concatenation are short and apart: a group with one may be larger
constexpr int64_t kRecomputeLimit = 2;     // a special-function node may be evaluated this many times more than needed

bool is_leaf(const Node& n) { return n.op_name() == "input" || n.op_name() == "weight"; }

// A result element is a function of few operand elements, so a kernel can compute it wherever it is needed.
bool inlinable(const Node& n) {
  if (n.op->cls == OpClass::pointwise || n.op->cls == OpClass::movement) return true;
  if (n.op->cls == OpClass::source) return !is_leaf(n);
  const std::string_view op = n.op_name();
  return op == "gather" || op == "index_select" || op == "embedding" || op == "index";
}

bool shape_only(const Node& n) { return n.op_name() == "view"; }

TaskKind anchor_kind(const Graph& g, const Node& n) {
  switch (n.op->cls) {
    case OpClass::contraction: return n.op_name() == "einsum" ? TaskKind::generic : TaskKind::gemm;
    case OpClass::convolution: return TaskKind::convolution;
    case OpClass::attention: return TaskKind::attention;
    case OpClass::recurrent: return TaskKind::recurrent;
    case OpClass::reduction:
    case OpClass::row:
    case OpClass::norm:
      if (row_shape(g, n).inner > 0) return TaskKind::row;
      return n.op->cls == OpClass::reduction ? TaskKind::reduction : n.op->cls == OpClass::row ? TaskKind::column : TaskKind::norm;
    case OpClass::arg_reduction: return TaskKind::reduction;
    case OpClass::pool: return TaskKind::pool;
    case OpClass::scan: return TaskKind::scan;
    case OpClass::sort: return TaskKind::sort;
    case OpClass::index: return TaskKind::scatter;
    default: return TaskKind::generic;
  }
}

// Why a kernel of this kind does not compute an operand itself.
const char* why_operands_are_stored(TaskKind kind) {
  switch (kind) {
    case TaskKind::row:
    case TaskKind::reduction: return "it reads this value in another order than its own elements, or as a parameter";
    case TaskKind::gemm:
    case TaskKind::convolution:
    case TaskKind::attention: return "it reads each element of its operands many times, so they are stored once";
    case TaskKind::recurrent: return "it reads its operands in every time step, so they are stored once";
    default: return "it reads its operands several times or out of order, so they are stored once";
  }
}

// Why nothing behind a node of this kind could be computed in its kernel.
const char* why_results_are_stored(TaskKind kind) {
  switch (kind) {
    case TaskKind::row: return "it does not keep to whole rows of this result";
    case TaskKind::reduction: return "it does not work on this result element by element";
    case TaskKind::gemm:
    case TaskKind::convolution: return "an epilogue must be its only reader and go element by element";
    default: return "a kernel of this kind ends with its own result";
  }
}

class Partition {
 public:
  Partition(const Graph& g, bool fuse) : g_(g), fuse_(fuse), users_(ir::users(g)), group_of_(g.nodes.size(), -1), is_output_(g.nodes.size(), false) {
    for (const ir::Output& o : g.outputs) is_output_[static_cast<size_t>(o.value.node)] = true;
  }

  std::vector<Group> run() {
    for (int32_t i = static_cast<int32_t>(g_.nodes.size()) - 1; i >= 0; --i)
      if (!is_leaf(node(i))) place(i);
    for (int32_t i = 0; fuse_ && i < static_cast<int32_t>(g_.nodes.size()); ++i)
      if (!is_leaf(node(i))) absorb_epilogue(i);
    if (fuse_) {
      absorb_views(g_, groups_);
      detach_views(g_, groups_);
      for (size_t id = 0; id < groups_.size(); ++id)
        for (int32_t m : groups_[id].nodes) group_of_[static_cast<size_t>(m)] = static_cast<int32_t>(id);
    }
    return ordered();
  }

 private:
  const Node& node(int32_t i) const { return g_.nodes[static_cast<size_t>(i)]; }
  int32_t group_of(int32_t i) const { return group_of_[static_cast<size_t>(i)]; }
  Group& group(int32_t id) { return groups_[static_cast<size_t>(id)]; }

  void put(int32_t i, int32_t id) {
    group_of_[static_cast<size_t>(i)] = id;
    group(id).nodes.push_back(i);
  }

  void place(int32_t i) {
    if (const int32_t target = best_consumer(i); target >= 0) {
      const bool anchors = !inlinable(node(i)) && !joins_by_thread(i, target);
      const TaskKind kind = anchors ? anchor_kind(g_, node(i)) : group(target).kind;
      put(i, target);
      if (anchors) {
        group(target).kind = kind;
        group(target).anchor = i;
      }
      return;
    }
    Group fresh;
    fresh.kind = inlinable(node(i)) ? TaskKind::pointwise : anchor_kind(g_, node(i));
    fresh.anchor = inlinable(node(i)) ? -1 : i;
    fresh.stop = stop_;
    groups_.push_back(fresh);
    put(i, static_cast<int32_t>(groups_.size()) - 1);
  }

  // The consumer group that node i should join, or -1 with the reason in stop_. Groups are tried from the earliest consumer on.
  int32_t best_consumer(int32_t i) {
    stop_ = {-1, fuse_ ? "its result is the program's" : "nothing is fused in this plan"};
    if (!fuse_) return -1;
    std::vector<int32_t> candidates;
    for (int32_t u : users_[static_cast<size_t>(i)])
      if (std::find(candidates.begin(), candidates.end(), group_of(u)) == candidates.end()) candidates.push_back(group_of(u));
    // Rows first: their kernels read every element anyway, so a fused producer is free there.
    std::stable_sort(candidates.begin(), candidates.end(), [&](int32_t a, int32_t b) {
      return (group(a).kind == TaskKind::row) > (group(b).kind == TaskKind::row);
    });
    for (size_t k = 0; k < candidates.size(); ++k) {
      const char* refusal = refusal_of(i, candidates[k], candidates);
      if (!refusal) return candidates[k];
      if (k == 0) stop_ = {reader_in(i, candidates[k]), refusal};
    }
    return -1;
  }
  int32_t reader_in(int32_t i, int32_t id) const {
    for (int32_t u : users_[static_cast<size_t>(i)])
      if (group_of(u) == id) return u;
    return -1;
  }

  // Why node i cannot join this group of its consumers, as half a sentence about their task; null if it can.
  const char* refusal_of(int32_t i, int32_t id, const std::vector<int32_t>& consumer_groups) {
    const Group& target = group(id);
    const Node& n = node(i);
    const size_t room = concatenates(target) ? kConcatenationFactor : 1;
    if (n.types.size() > 1) return "an operation with several results stores them all";
    if (target.nodes.size() >= room * kMaxNodesPerGroup) return "its kernel is as long as a readable kernel should be";
    const bool escapes = is_output_[static_cast<size_t>(i)] || consumer_groups.size() > 1;
    if (operand_count(target, i) > room * kMaxOperandsPerGroup) return "its kernel would read more values than there are registers for";
    if (inlinable(n)) {
      if (!accepts_prologue(target, i)) return why_operands_are_stored(target.kind);
      if (escapes && !same_iteration_space(target, i)) return "others need this result too, and its kernel runs over other elements";
      if (recompute_factor(target, i) > 1 && !cheap_to_recompute(i, target)) return "its kernel would compute each element of this result more than once";
    } else if (!(joins_by_thread(i, id) && !escapes) && !accepts_anchor(target, i)) {
      const bool fuses = target.kind == TaskKind::pointwise || target.kind == TaskKind::row || target.kind == TaskKind::reduction;
      return fuses ? why_results_are_stored(anchor_kind(g_, n)) : why_operands_are_stored(target.kind);
    }
    return escapes && creates_cycle(id, consumer_groups) ? "it also waits for another task that needs this result" : nullptr;
  }

  bool concatenates(const Group& target) const {
    return target.kind == TaskKind::pointwise && std::any_of(target.nodes.begin(), target.nodes.end(), [&](int32_t m) { return node(m).op_name() == "cat"; });
  }
  // Short reductions that are put side by side are computed by the threads of the concatenation instead of a kernel each.
  bool joins_by_thread(int32_t i, int32_t id) {
    if (!is_short_reduction(g_, node(i)) || !concatenates(group(id))) return false;
    const auto put_aside = [&](int32_t u) { return node(u).op_name() == "cat"; };
    for (int32_t u : users_[static_cast<size_t>(i)]) {
      if (put_aside(u)) continue;
      const std::vector<int32_t>& next = users_[static_cast<size_t>(u)];
      if (!shape_only(node(u)) || !std::all_of(next.begin(), next.end(), put_aside)) return false;
    }
    return true;
  }

  bool accepts_prologue(const Group& target, int32_t i) const {
    switch (target.kind) {
      case TaskKind::pointwise: return true;
      case TaskKind::row:
      case TaskKind::reduction: return feeds_anchor_elementwise(target, i);
      default: return false;
    }
  }

  // Prologues of reductions are read through the reduction's own coordinates; norm parameters (weight, bias) stay in memory.
  bool feeds_anchor_elementwise(const Group& target, int32_t i) const {
    for (int32_t u : users_[static_cast<size_t>(i)]) {
      if (std::find(target.nodes.begin(), target.nodes.end(), u) == target.nodes.end()) continue;
      const Node& user = node(u);
      if (inlinable(user)) continue;
      if (!user.has_arg("x") || user.value("x").node != i) return false;
      if (user.op->cls == OpClass::norm && (reads_as_parameter(user, i))) return false;
    }
    return true;
  }
  static bool reads_as_parameter(const Node& user, int32_t i) {
    for (std::string_view p : {"weight", "bias"})
      if (user.op->index_of(p) >= 0 && user.has_arg(p) && user.value(p).node == i) return true;
    return false;
  }

  // A reduction joins a pointwise group as its anchor when the group's results have one element per row or one per row
  // element, and every path from the reduction to them keeps coordinates.
  bool accepts_anchor(const Group& target, int32_t i) const {
    const TaskKind kind = anchor_kind(g_, node(i));
    if (kind == TaskKind::row) {
      const RowShape row = row_shape(g_, node(i));
      if (target.kind == TaskKind::row && !(row_shape(g_, node(target.anchor)) == row)) return false;
      if (target.kind != TaskKind::row && target.kind != TaskKind::pointwise) return false;
      return epilogue_keeps_rows(target, i, row);
    }
    if (kind == TaskKind::reduction) return target.kind == TaskKind::pointwise && epilogue_keeps_elements(target, i);
    return false;
  }

  bool epilogue_keeps_rows(const Group& target, int32_t i, const RowShape& row) const {
    for (int32_t m : target.nodes) {
      const int64_t n = ir::numel(node(m).type().shape);
      const bool downstream = depends_on(m, i, target);
      if (!downstream && !(is_output_[static_cast<size_t>(m)] || leaves(m, target))) continue;
      if (n != row.outer && n != row.outer * row.inner) return false;
      if (downstream && node(m).op->cls == OpClass::movement && !row_keeping_movement(m, row)) return false;
      if (downstream && !inlinable(node(m)) && !(row_shape(g_, node(m)) == row)) return false;
      if (downstream && node(m).op->cls == OpClass::index) return false;
    }
    return true;
  }
  // Views keep the linear order; expanding a per-row value over its row is what the row kernel does anyway.
  bool row_keeping_movement(int32_t m, const RowShape& row) const {
    if (shape_only(node(m))) return true;
    if (node(m).op_name() != "expand") return false;
    return ir::numel(g_.type_of(node(m).value("x")).shape) == row.outer && trailing_expand(node(m), row);
  }
  bool trailing_expand(const Node& n, const RowShape& row) const {
    const ir::Shape& from = g_.type_of(n.value("x")).shape;
    const ir::Shape& to = n.type().shape;
    int64_t outer = 1;
    bool expanded = false;
    for (size_t d = 0; d < to.size(); ++d) {
      const size_t lead = to.size() - from.size();
      const int64_t source = d < lead ? 1 : from[d - lead];
      if (source != to[d]) expanded = true;
      else if (to[d] != 1 && expanded) return false;
      if (source == to[d]) outer *= to[d];
    }
    return outer == row.outer;
  }

  bool epilogue_keeps_elements(const Group& target, int32_t i) const {
    const ir::Shape& shape = node(i).type().shape;
    for (int32_t m : target.nodes) {
      if (ir::numel(node(m).type().shape) != ir::numel(shape)) {
        if (depends_on(m, i, target) || is_output_[static_cast<size_t>(m)] || leaves(m, target)) return false;
        continue;
      }
      if (!depends_on(m, i, target)) continue;
      if (node(m).op->cls != OpClass::pointwise && !shape_only(node(m))) return false;
    }
    return true;
  }

  bool leaves(int32_t m, const Group& target) const {
    for (int32_t u : users_[static_cast<size_t>(m)])
      if (std::find(target.nodes.begin(), target.nodes.end(), u) == target.nodes.end()) return true;
    return false;
  }

  // m reads i directly or through nodes of the group (node i itself is not in the group yet).
  bool depends_on(int32_t m, int32_t i, const Group& target) const {
    for (const ValueRef& v : ir::operands(node(m))) {
      if (v.node == i) return true;
      if (v.node > i && std::find(target.nodes.begin(), target.nodes.end(), v.node) != target.nodes.end() &&
          depends_on(v.node, i, target))
        return true;
    }
    return false;
  }

  // A value that others read too becomes a second result of the kernel: it must have one element per iteration.
  bool same_iteration_space(const Group& target, int32_t i) const {
    const int64_t n = ir::numel(node(i).type().shape);
    if (target.kind == TaskKind::row) {
      const RowShape row = row_shape(g_, node(target.anchor));
      if (n != row.outer * row.inner) return false;
    } else if (target.kind == TaskKind::reduction) {
      return false;
    } else {
      for (int32_t m : target.nodes)
        if ((is_output_[static_cast<size_t>(m)] || leaves(m, target)) && ir::numel(node(m).type().shape) != n) return false;
    }
    // Every reader inside must see it at the kernel's own coordinates.
    for (int32_t u : users_[static_cast<size_t>(i)]) {
      if (std::find(target.nodes.begin(), target.nodes.end(), u) == target.nodes.end()) continue;
      if (!identity_path(target, u, n)) return false;
    }
    return true;
  }
  bool identity_path(const Group& target, int32_t u, int64_t elements) const {
    const Node& n = node(u);
    if (!inlinable(n)) return true;  // the anchor reads its rows in order
    if (n.op->cls == OpClass::movement && !shape_only(n)) return false;
    if (n.op->cls == OpClass::index || ir::numel(n.type().shape) != elements) return false;
    for (int32_t next : users_[static_cast<size_t>(u)])
      if (std::find(target.nodes.begin(), target.nodes.end(), next) != target.nodes.end() &&
          !identity_path(target, next, elements))
        return false;
    return true;
  }

  size_t operand_count(const Group& target, int32_t i) const {
    std::unordered_set<ValueRef> values;
    const auto add = [&](int32_t m) {
      for (const ValueRef& v : ir::operands(node(m)))
        if (v.node != i && std::find(target.nodes.begin(), target.nodes.end(), v.node) == target.nodes.end()) values.insert(v);
    };
    for (int32_t m : target.nodes) add(m);
    add(i);
    return values.size();
  }

  // How many times an element of node i would be computed: by the extents it is read at, and once more per reader that moves coordinates.
  int64_t recompute_factor(const Group& target, int32_t i) const {
    const int64_t own = std::max<int64_t>(1, ir::numel(node(i).type().shape));
    int64_t moved = 0, straight = 0;
    for (int32_t u : users_[static_cast<size_t>(i)]) {
      if (std::find(target.nodes.begin(), target.nodes.end(), u) == target.nodes.end()) continue;
      const int64_t reads = inlinable(node(u)) ? ir::numel(node(u).type().shape) : own;
      const bool moves = node(u).op->cls == OpClass::movement && !shape_only(node(u));
      if (moves && node(u).op_name() != "cat") moved += (reads + own - 1) / own;
      else straight = std::max(straight, (reads + own - 1) / own);
    }
    return moved + straight;
  }

  bool cheap_to_recompute(int32_t i, const Group& target) const {
    if (node(i).op->cls == OpClass::source) return true;
    const int64_t factor = recompute_factor(target, i);
    const hw::Work work = hw::work_of(g_, node(i));
    if (work.special_ops == 0 && only_reads_memory(i)) return true;
    // Small vectors (per channel, per row) stay in cache: recomputing them is cheaper than a kernel of their own.
    const int64_t own = ir::numel(node(i).type().shape);
    if (own <= 65536 && work.special_ops <= static_cast<double>(own) && operands_small(i)) return true;
    return factor <= kRecomputeLimit && work.special_ops == 0;
  }
  bool only_reads_memory(int32_t i) const {
    return node(i).op->cls == OpClass::movement || node(i).op->cls == OpClass::index;
  }
  bool operands_small(int32_t i) const {
    for (const ValueRef& v : ir::operands(node(i)))
      if (ir::numel(g_.type_of(v).shape) > 65536) return false;
    return true;
  }

  // Would another consumer group, which will read a result of group id, have to run before it?
  bool creates_cycle(int32_t id, const std::vector<int32_t>& consumer_groups) {
    for (int32_t other : consumer_groups)
      if (other != id && reaches(other, id)) return true;
    return false;
  }
  bool reaches(int32_t from, int32_t to) {
    std::vector<int32_t> stack{from};
    std::unordered_set<int32_t> seen{from};
    while (!stack.empty()) {
      const int32_t id = stack.back();
      stack.pop_back();
      if (id == to) return true;
      for (int32_t m : group(id).nodes)
        for (int32_t u : users_[static_cast<size_t>(m)])
          if (const int32_t next = group_of(u); next >= 0 && seen.insert(next).second) stack.push_back(next);
    }
    return false;
  }

  // A product or convolution takes over the pointwise group that consumes it alone and element by element.
  void absorb_epilogue(int32_t i) {
    const int32_t id = group_of(i);
    if (group(id).anchor != i || group(id).nodes.size() != 1 || is_output_[static_cast<size_t>(i)]) return;
    if (group(id).kind != TaskKind::gemm && group(id).kind != TaskKind::convolution) return;
    int32_t consumer = -1;
    for (int32_t u : users_[static_cast<size_t>(i)]) {
      if (consumer >= 0 && group_of(u) != consumer) return;
      consumer = group_of(u);
    }
    if (consumer < 0 || group(consumer).kind != TaskKind::pointwise) return;
    if (!has_arithmetic(consumer) || waits_for_other_anchor(consumer, i)) return;
    group(consumer).kind = group(id).kind;
    group(consumer).anchor = i;
    group(id).nodes.clear();
    put(i, consumer);
  }
  bool has_arithmetic(int32_t id) {
    for (int32_t m : group(id).nodes)
      if (node(m).op->cls == OpClass::pointwise) return true;
    return false;
  }
  // Only the last product before the epilogue may take it: all other operands must be ready by then.
  bool waits_for_other_anchor(int32_t consumer, int32_t i) {
    for (int32_t m : group(consumer).nodes)
      for (const ValueRef& v : ir::operands(node(m)))
        if (v.node > i && group_of(v.node) != consumer) return true;
    return false;
  }

  // Kahn's algorithm over groups; ties by smallest node, so that the order follows the program.
  std::vector<Group> ordered() {
    for (Group& g : groups_) std::sort(g.nodes.begin(), g.nodes.end());
    std::vector<int> waiting(groups_.size(), 0);
    std::vector<std::vector<int32_t>> next(groups_.size());
    for (size_t id = 0; id < groups_.size(); ++id) {
      std::unordered_set<int32_t> sources;
      for (int32_t m : groups_[id].nodes)
        for (const ValueRef& v : ir::operands(node(m)))
          if (const int32_t s = group_of(v.node); s >= 0 && s != static_cast<int32_t>(id)) sources.insert(s);
      waiting[id] = static_cast<int>(sources.size());
      for (int32_t s : sources) next[static_cast<size_t>(s)].push_back(static_cast<int32_t>(id));
    }
    const auto last = [&](int32_t id) { return groups_[static_cast<size_t>(id)].nodes.back(); };
    std::vector<int32_t> ready;
    for (size_t id = 0; id < groups_.size(); ++id)
      if (waiting[id] == 0 && !groups_[id].nodes.empty()) ready.push_back(static_cast<int32_t>(id));
    std::vector<Group> out;
    while (!ready.empty()) {
      const auto it = std::min_element(ready.begin(), ready.end(), [&](int32_t a, int32_t b) { return last(a) < last(b); });
      const int32_t id = *it;
      ready.erase(it);
      out.push_back(groups_[static_cast<size_t>(id)]);
      for (int32_t n : next[static_cast<size_t>(id)])
        if (--waiting[static_cast<size_t>(n)] == 0) ready.push_back(n);
    }
    return out;
  }

  const Graph& g_;
  bool fuse_;
  std::vector<std::vector<int32_t>> users_;
  std::vector<int32_t> group_of_;
  std::vector<bool> is_output_;
  std::vector<Group> groups_;
  Stop stop_;  // of the node that was placed last
};

// A view by itself is no work: its result is the operand's storage.
void mark_aliases(const Graph& g, std::vector<Group>& groups) {
  for (Group& group : groups) {
    const bool only_views = std::all_of(group.nodes.begin(), group.nodes.end(),
                                        [&](int32_t m) { return shape_only(g.nodes[static_cast<size_t>(m)]); });
    if (only_views && group.kind == TaskKind::pointwise) group.kind = TaskKind::alias;
  }
}

}  // namespace

std::vector<Group> partition(const Graph& g, bool fuse) {
  std::vector<Group> groups = Partition(g, fuse).run();
  mark_aliases(g, groups);
  return groups;
}

}  // namespace stitch::plan
