#include "plan/kinds.h"

#include <algorithm>

#include "ir/ops.h"

namespace stitch::plan {
namespace {

bool is_anchor(const KindInfo& info, const ir::Node& n) { return std::find(info.anchors.begin(), info.anchors.end(), n.op->cls) != info.anchors.end(); }

}  // namespace

const std::vector<KindInfo>& task_kinds() {
  using enum ir::OpClass;
  static const std::vector<KindInfo> table = {
      {TaskKind::pointwise, "pointwise", {}},
      {TaskKind::row, "row", {reduction, row, norm}},
      {TaskKind::column, "column", {row}},
      {TaskKind::reduction, "reduction", {reduction, arg_reduction}},
      {TaskKind::norm, "norm", {norm}},
      {TaskKind::gemm, "gemm", {contraction}, true},
      {TaskKind::convolution, "convolution", {convolution}, true},
      {TaskKind::attention, "attention", {attention}, true},
      {TaskKind::recurrent, "recurrent", {recurrent}, true},
      {TaskKind::pool, "pool", {pool}},
      {TaskKind::scan, "scan", {scan}},
      {TaskKind::sort, "sort", {sort}},
      {TaskKind::scatter, "scatter", {index}},
      {TaskKind::generic, "generic", {}},
      {TaskKind::alias, "alias", {}},
  };
  return table;
}

const KindInfo& info_of(TaskKind kind) {
  return *std::find_if(task_kinds().begin(), task_kinds().end(), [&](const KindInfo& i) { return i.kind == kind; });
}

std::string_view name_of(TaskKind kind) { return info_of(kind).name; }

Result<TaskKind> kind_from_name(std::string_view name) {
  for (const KindInfo& i : task_kinds())
    if (i.name == name) return i.kind;
  return fail(ErrorKind::bad_input, "\"{}\" is not a task kind.", name);
}

int32_t anchor_node(const ir::Graph& g, const Task& t) {
  const KindInfo& info = info_of(t.kind);
  const auto at = std::find_if(t.nodes.begin(), t.nodes.end(), [&](int32_t m) { return is_anchor(info, g.nodes[static_cast<size_t>(m)]); });
  return at == t.nodes.end() ? -1 : *at;
}

bool kind_fits(const ir::Graph& g, const Task& t) {
  const KindInfo& info = info_of(t.kind);
  if (t.kind == TaskKind::alias)
    return std::all_of(t.nodes.begin(), t.nodes.end(), [&](int32_t m) { return g.nodes[static_cast<size_t>(m)].op_name() == "view"; });
  if (info.anchors.empty()) return true;
  const auto count = std::count_if(t.nodes.begin(), t.nodes.end(), [&](int32_t m) { return is_anchor(info, g.nodes[static_cast<size_t>(m)]); });
  return info.only_one ? count == 1 : count >= 1;
}

}  // namespace stitch::plan
