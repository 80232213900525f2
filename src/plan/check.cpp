#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>

#include "ir/ops.h"
#include "plan/kinds.h"
#include "plan/task_io.h"

namespace stitch::plan {
namespace {

using ir::Graph;

bool is_leaf(const ir::Node& n) { return n.op_name() == "input" || n.op_name() == "weight"; }

bool is_identifier(const std::string& s) {
  if (s.empty() || s.size() > 120 || std::isdigit(static_cast<unsigned char>(s[0]))) return false;
  return std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

std::string describe(const Graph& g, int32_t node) { return fmt::format("%{} ({})", node, g.nodes[static_cast<size_t>(node)].op_name()); }

Status check_task(const Graph& g, const Task& t, const std::vector<int>& task_of, size_t index) {
  if (!is_identifier(t.name))
    return fail(ErrorKind::bad_input, "Task {} is named \"{}\"; a task's name must be a C identifier.", t.id, t.name);
  if (!kind_fits(g, t))
    return fail(ErrorKind::bad_input, "Task {} has kind \"{}\", which does not fit its nodes; choose another kind.", t.id,
                name_of(t.kind));
  if (!std::is_sorted(t.nodes.begin(), t.nodes.end()))
    return fail(ErrorKind::bad_input, "Task {} lists its nodes out of order; list them ascending.", t.id);
  for (int32_t m : t.nodes)
    for (const ir::ValueRef& v : ir::operands(g.nodes[static_cast<size_t>(m)]))
      if (!is_leaf(g.at(v)) && task_of[static_cast<size_t>(v.node)] > static_cast<int>(index))
        return fail(ErrorKind::bad_input, "Task {} needs {}, which a later task computes; reorder the tasks.", t.id,
                    describe(g, v.node));
  return {};
}

}  // namespace

Status check(const Graph& g, const Plan& plan) {
  std::vector<int> task_of(g.nodes.size(), -1);
  std::set<std::string> ids, names;
  for (size_t i = 0; i < plan.tasks.size(); ++i) {
    const Task& t = plan.tasks[i];
    if (!ids.insert(t.id).second) return fail(ErrorKind::bad_input, "Two tasks have the id {}.", t.id);
    if (!names.insert(t.name).second) return fail(ErrorKind::bad_input, "Two tasks have the name {}.", t.name);
    if (t.nodes.empty()) return fail(ErrorKind::bad_input, "Task {} covers no node; remove it.", t.id);
    for (int32_t m : t.nodes) {
      if (m < 0 || static_cast<size_t>(m) >= g.nodes.size())
        return fail(ErrorKind::bad_input, "Task {} names node %{}, but the graph has only {} nodes.", t.id, m, g.nodes.size());
      if (is_leaf(g.nodes[static_cast<size_t>(m)]))
        return fail(ErrorKind::bad_input, "Task {} covers {}; inputs and weights are nobody's work.", t.id, describe(g, m));
      if (task_of[static_cast<size_t>(m)] >= 0)
        return fail(ErrorKind::bad_input, "Node {} is in tasks {} and {}; every node belongs to exactly one.", describe(g, m),
                    plan.tasks[static_cast<size_t>(task_of[static_cast<size_t>(m)])].id, t.id);
      task_of[static_cast<size_t>(m)] = static_cast<int>(i);
    }
  }
  for (size_t m = 0; m < g.nodes.size(); ++m)
    if (task_of[m] < 0 && !is_leaf(g.nodes[m]))
      return fail(ErrorKind::bad_input, "Node {} is in no task; every node belongs to exactly one.", describe(g, static_cast<int32_t>(m)));
  const TaskIo io(g);
  for (size_t i = 0; i < plan.tasks.size(); ++i) {
    STITCH_CHECK_OK(check_task(g, plan.tasks[i], task_of, i));
    Task expected = plan.tasks[i];
    io.fill(expected);
    if (expected.inputs != plan.tasks[i].inputs || expected.outputs != plan.tasks[i].outputs)
      return fail(ErrorKind::bad_input, "Task {} lists other inputs or outputs than its nodes have; leave them out to have them derived.",
                  plan.tasks[i].id);
  }
  return {};
}

}  // namespace stitch::plan
