#pragma once
// Derives what a task reads and writes from the nodes it covers.

#include <vector>

#include "plan/plan.h"

namespace stitch::plan {

class TaskIo {
 public:
  explicit TaskIo(const ir::Graph&);
  // Sets inputs (first use order, each once) and outputs (node order) from `nodes`.
  void fill(Task&) const;

 private:
  const ir::Graph& g_;
  std::vector<std::vector<int32_t>> users_;
  std::vector<std::vector<bool>> is_output_;  // per node, per result
};

}  // namespace stitch::plan
