#include "plan/absorb.h"

#include <algorithm>
#include <set>

#include "ir/ops.h"
#include "plan/operand_view.h"

namespace stitch::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueRef;

std::vector<int32_t> groups_of_nodes(const Graph& g, const std::vector<Group>& groups) {
  std::vector<int32_t> out(g.nodes.size(), -1);
  for (size_t id = 0; id < groups.size(); ++id)
    for (int32_t m : groups[id].nodes) out[static_cast<size_t>(m)] = static_cast<int32_t>(id);
  return out;
}

std::vector<bool> outputs_of(const Graph& g) {
  std::vector<bool> out(g.nodes.size(), false);
  for (const ir::Output& o : g.outputs) out[static_cast<size_t>(o.value.node)] = true;
  return out;
}

class Absorber {
 public:
  Absorber(const Graph& g, std::vector<Group>& groups)
      : g_(g), groups_(groups), users_(ir::users(g)), group_of_(groups_of_nodes(g, groups)), is_output_(outputs_of(g)) {}

  void run() {
    for (size_t id = 0; id < groups_.size(); ++id) {
      const TaskKind kind = groups_[id].kind;
      if (groups_[id].nodes.empty() || (kind != TaskKind::gemm && kind != TaskKind::attention)) continue;
      absorb_operands(static_cast<int32_t>(id));
      if (kind == TaskKind::attention) absorb_result(static_cast<int32_t>(id));
    }
  }

 private:
  const Node& node(int32_t i) const { return g_.nodes[static_cast<size_t>(i)]; }

  // All operands together first: they may share the nodes that cut one tensor into queries, keys and values.
  void absorb_operands(int32_t id) {
    const int32_t anchor = groups_[static_cast<size_t>(id)].anchor;
    const std::vector<ValueRef> operands = operands_of(node(anchor));
    std::set<int32_t> taken = views_behind(anchor, operands);
    if (taken.empty() || !reads_in_place(anchor, taken)) {
      taken.clear();
      for (ValueRef v : operands) {
        std::set<int32_t> more = views_behind(anchor, {v});
        more.insert(taken.begin(), taken.end());
        // From the far end on, views that do not fit are left to a copy.
        while (more.size() > taken.size() && !reads_in_place(anchor, more)) {
          const auto farthest = std::find_if(more.begin(), more.end(), [&](int32_t m) { return !taken.count(m); });
          more.erase(farthest);
        }
        taken = more;
      }
    }
    if (std::all_of(taken.begin(), taken.end(), [&](int32_t m) { return node(m).op_name() == "view"; })) return;  // no work as it is
    for (int32_t m : taken) move(m, id);
  }

  static std::vector<ValueRef> operands_of(const Node& n) {
    std::vector<ValueRef> out;
    for (std::string_view name : {"a", "b", "x", "weight", "q", "k", "v"})
      if (n.op->index_of(name) >= 0 && n.has_arg(name)) out.push_back(n.value(name));
    return out;
  }

  static bool is_strided_view(const Node& n) {
    const std::string_view op = n.op_name();
    return op == "view" || op == "permute" || op == "expand" || op == "slice" || op == "select";
  }

  // Views on the way to these operands that nobody else reads.
  std::set<int32_t> views_behind(int32_t anchor, const std::vector<ValueRef>& operands) const {
    std::set<int32_t> waiting, taken;
    for (ValueRef v : operands) waiting.insert(v.node);
    while (!waiting.empty()) {  // readers come before what they read: the largest index is settled first
      const int32_t m = *waiting.rbegin();
      waiting.erase(m);
      const std::vector<int32_t>& users = users_[static_cast<size_t>(m)];
      if (!is_strided_view(node(m)) || is_output_[static_cast<size_t>(m)]) continue;
      if (!std::all_of(users.begin(), users.end(), [&](int32_t u) { return u == anchor || taken.count(u); })) continue;
      if (reads_otherwise(anchor, m)) continue;
      taken.insert(m);
      waiting.insert(node(m).value("x").node);
    }
    return taken;
  }
  // The anchor reads m in another role too (as a mask, a bias, an addend).
  bool reads_otherwise(int32_t anchor, int32_t m) const {
    const auto count = [m](const std::vector<ValueRef>& list) { return std::count_if(list.begin(), list.end(), [m](ValueRef v) { return v.node == m; }); };
    return count(ir::operands(node(anchor))) != count(operands_of(node(anchor)));
  }

  bool reads_in_place(int32_t anchor, const std::set<int32_t>& inside) const {
    const Node& n = node(anchor);
    if (n.op->cls == ir::OpClass::attention) {
      const std::vector<ValueRef> operands = operands_of(n);
      return std::all_of(operands.begin(), operands.end(), [&](ValueRef v) { return view_heads(g_, v, inside).has_value(); });
    }
    const auto p = view_product(g_, anchor, inside);
    if (!p) return false;
    const bool linear = n.op_name() == "linear";
    return fast_enough(n.value(linear ? "x" : "a"), p->a, inside, p->k) && fast_enough(n.value(linear ? "weight" : "b"), p->b, inside, linear ? p->k : p->n);
  }
  // The library's fast kernels read 16 bytes at a time: an operand that is out of step is better copied, unless the copy were too.
  bool fast_enough(ValueRef operand, const MatrixView& m, const std::set<int32_t>& inside, int64_t copied_ld) const {
    if (!inside.count(operand.node)) return true;
    const int64_t step = std::max<int64_t>(1, 16 / ir::size_of(g_.type_of(operand).dtype));
    const bool aligned = m.offset % step == 0 && m.ld % step == 0 &&
                         std::all_of(m.batch_strides.begin(), m.batch_strides.end(), [&](int64_t s) { return s % step == 0; });
    return aligned || copied_ld % step != 0;
  }

  void absorb_result(int32_t id) {
    const int32_t anchor = groups_[static_cast<size_t>(id)].anchor;
    const std::vector<int32_t>& users = users_[static_cast<size_t>(anchor)];
    if (is_output_[static_cast<size_t>(anchor)] || users.size() != 1 || node(users[0]).op_name() != "permute") return;
    if (!view_permuted_heads(g_, users[0])) return;
    groups_[static_cast<size_t>(id)].stop = groups_[static_cast<size_t>(group_of_[static_cast<size_t>(users[0])])].stop;
    move(users[0], id);
  }

  void move(int32_t m, int32_t id) {
    int32_t& now = group_of_[static_cast<size_t>(m)];
    if (now == id) return;
    std::vector<int32_t>& nodes = groups_[static_cast<size_t>(now)].nodes;
    nodes.erase(std::find(nodes.begin(), nodes.end(), m));
    groups_[static_cast<size_t>(id)].nodes.push_back(m);
    now = id;
  }

  const Graph& g_;
  std::vector<Group>& groups_;
  std::vector<std::vector<int32_t>> users_;
  std::vector<int32_t> group_of_;
  std::vector<bool> is_output_;
};

}  // namespace

void absorb_views(const Graph& g, std::vector<Group>& groups) { Absorber(g, groups).run(); }

void detach_views(const Graph& g, std::vector<Group>& groups) {
  const std::vector<std::vector<int32_t>> users = ir::users(g);
  const std::vector<bool> is_output = outputs_of(g);
  std::vector<int32_t> group_of = groups_of_nodes(g, groups);
  const auto escapes = [&](int32_t m) {
    const auto& readers = users[static_cast<size_t>(m)];
    return is_output[static_cast<size_t>(m)] ||
           std::any_of(readers.begin(), readers.end(), [&](int32_t u) { return group_of[static_cast<size_t>(u)] != group_of[static_cast<size_t>(m)]; });
  };
  // From the last node on: a view of a view is free only after its reader has left.
  for (int32_t m = static_cast<int32_t>(g.nodes.size()) - 1; m >= 0; --m) {
    const int32_t id = group_of[static_cast<size_t>(m)];
    if (id < 0 || g.nodes[static_cast<size_t>(m)].op_name() != "view" || groups[static_cast<size_t>(id)].nodes.size() == 1) continue;
    const int32_t x = g.nodes[static_cast<size_t>(m)].value("x").node;
    if (group_of[static_cast<size_t>(x)] != id || !escapes(x)) continue;
    const auto& readers = users[static_cast<size_t>(m)];
    if (std::any_of(readers.begin(), readers.end(), [&](int32_t u) { return group_of[static_cast<size_t>(u)] == id; })) continue;
    std::vector<int32_t>& nodes = groups[static_cast<size_t>(id)].nodes;
    nodes.erase(std::find(nodes.begin(), nodes.end(), m));
    group_of[static_cast<size_t>(m)] = static_cast<int32_t>(groups.size());
    groups.push_back({TaskKind::pointwise, {m}, -1});
  }
}

}  // namespace stitch::plan
