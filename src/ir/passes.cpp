#include "ir/passes.h"

#include <algorithm>

namespace stitch::ir {
namespace {

std::vector<bool> live_nodes(const Graph& g, Unused unused) {
  std::vector<bool> live(g.nodes.size(), false);
  for (const Output& o : g.outputs) live[static_cast<size_t>(o.value.node)] = true;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    const bool changed = n.op_name() == "weight" && std::any_of(g.outputs.begin(), g.outputs.end(), [&](const Output& o) {
      return o.kind == Output::Kind::mutates_weight && o.target == n.name;
    });
    if (n.op_name() == "input" || changed || (n.op_name() == "weight" && unused == Unused::keep_leaves)) live[i] = true;
    if (!live[i]) continue;
    for (const ValueRef& v : operands(n)) live[static_cast<size_t>(v.node)] = true;
  }
  return live;
}

}  // namespace

Graph eliminate_dead(const Graph& g, Unused unused) {
  const std::vector<bool> live = live_nodes(g, unused);
  std::vector<int32_t> renumbered(g.nodes.size(), -1);
  const auto rename = [&](ValueRef& v) { if (v.node >= 0) v.node = renumbered[static_cast<size_t>(v.node)]; };
  Graph out;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (!live[i]) continue;
    renumbered[i] = static_cast<int32_t>(out.nodes.size());
    Node n = g.nodes[i];
    for (Arg& a : n.args) {
      if (auto* v = std::get_if<ValueRef>(&a)) rename(*v);
      else if (auto* list = std::get_if<ValueList>(&a)) std::for_each(list->begin(), list->end(), rename);
    }
    out.nodes.push_back(std::move(n));
  }
  out.outputs = g.outputs;
  for (Output& o : out.outputs) rename(o.value);
  return out;
}

}  // namespace stitch::ir
