#pragma once
// The one table of task kinds: names, and what a task of that kind must hold.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/ops.h"
#include "plan/plan.h"

namespace stitch::plan {

struct KindInfo {
  TaskKind kind;
  std::string_view name;
  std::vector<ir::OpClass> anchors;  // a task of this kind has a node of one of these classes; empty: any nodes
  bool only_one = false;             // exactly one such node
};

const std::vector<KindInfo>& task_kinds();
const KindInfo& info_of(TaskKind);
Result<TaskKind> kind_from_name(std::string_view);

// The node that decides the task's kind: the first of one of its anchor classes, or -1.
int32_t anchor_node(const ir::Graph&, const Task&);
// Whether the nodes may be a task of its kind.
bool kind_fits(const ir::Graph&, const Task&);

}  // namespace stitch::plan
