#pragma once
// Operands of matrix products as strided views: permutes, views, slices and expands of a task's own nodes are read in place
// instead of being materialised.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace stitch::code {

// Element i of the operand is base[offset + sum(i[d] * strides[d])].
struct OperandView {
  ir::ValueRef base;
  ir::Shape shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;
};

// Follows movement nodes among `inside` down to a value outside of it. nullopt: a node on the way is no strided view.
std::optional<OperandView> view_operand(const ir::Graph&, ir::ValueRef, const std::set<int32_t>& inside);

}  // namespace stitch::code
