#include "plan/task_io.h"

#include <algorithm>
#include <unordered_set>

namespace stitch::plan {

TaskIo::TaskIo(const ir::Graph& g) : g_(g), users_(ir::users(g)) {
  for (const ir::Node& n : g.nodes) is_output_.emplace_back(n.types.size(), false);
  for (const ir::Output& o : g.outputs)
    is_output_[static_cast<size_t>(o.value.node)][static_cast<size_t>(o.value.output)] = true;
}

void TaskIo::fill(Task& t) const {
  t.inputs.clear();
  t.outputs.clear();
  const std::unordered_set<int32_t> inside(t.nodes.begin(), t.nodes.end());
  std::unordered_set<ir::ValueRef> seen;
  for (int32_t m : t.nodes)
    for (const ir::ValueRef& v : ir::operands(g_.nodes[static_cast<size_t>(m)]))
      if (!inside.count(v.node) && seen.insert(v).second) t.inputs.push_back(v);
  for (int32_t m : t.nodes) {
    const auto i = static_cast<size_t>(m);
    for (int32_t k = 0; k < static_cast<int32_t>(g_.nodes[i].types.size()); ++k) {
      bool needed = is_output_[i][static_cast<size_t>(k)];
      for (int32_t u : users_[i]) {
        if (inside.count(u) || needed) continue;
        const std::vector<ir::ValueRef> reads = ir::operands(g_.nodes[static_cast<size_t>(u)]);
        needed = std::find(reads.begin(), reads.end(), ir::ValueRef{m, k}) != reads.end();
      }
      if (needed) t.outputs.push_back({m, k});
    }
  }
}

}  // namespace stitch::plan
