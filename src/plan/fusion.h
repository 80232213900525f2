#pragma once
// The fusion partition: which nodes are computed by one task. Walks the graph from the outputs to the inputs and puts each node
// into the group of its consumers where that saves memory traffic and costs little recomputation.

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "plan/plan.h"

namespace stitch::plan {

// Why a group does not go on into the next one.
struct Stop {
  int32_t reader = -1;  // the node that would have been next; -1: none
  std::string reason;   // half a sentence, "" where nothing was tried
};

struct Group {
  TaskKind kind = TaskKind::generic;
  std::vector<int32_t> nodes;   // ascending
  int32_t anchor = -1;          // the node that decides the kind (product, convolution, first reduction); -1 if pointwise
  Stop stop;
};

// A sum, mean or extremum of floats over so few elements that each thread of a pointwise kernel can compute it where it is needed.
bool is_short_reduction(const ir::Graph&, const ir::Node&);

// Groups in execution order; every node except inputs and weights is in exactly one. Without fusion, one node a group.
std::vector<Group> partition(const ir::Graph&, bool fuse = true);

// Rows of a reduction, softmax or norm whose reduced dims are the trailing ones: outer rows of `inner` contiguous
// elements. inner == 0 when the op does not reduce trailing dims.
struct RowShape {
  int64_t outer = 0, inner = 0;
  bool operator==(const RowShape&) const = default;
};
RowShape row_shape(const ir::Graph&, const ir::Node&);

}  // namespace stitch::plan
