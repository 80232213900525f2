#pragma once
// Operands as strided views: permutes, views, slices and expands of a task's own nodes are read in place instead of being
// materialised. Planner and Coder ask the same functions, so that a task is planned only as it can be written.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace stitch::plan {

// Element i of the operand is base[offset + sum(i[d] * strides[d])].
struct OperandView {
  ir::ValueRef base;
  ir::Shape shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;
};

// Follows movement nodes among `inside` down to a value outside of it. nullopt: a node on the way is no strided view.
std::optional<OperandView> view_operand(const ir::Graph&, ir::ValueRef, const std::set<int32_t>& inside);

// A matrix as the vendor library reads it: row stride ld; transposed when stored the other way round.
struct MatrixView {
  ir::ValueRef base;
  int64_t offset = 0, ld = 0;
  bool transposed = false;
  std::vector<int64_t> batch_strides;  // one per batch dim of the product
};

// The operands of a contraction (matmul, linear, addmm, baddbmm) as batch x (m x k) and batch x (k x n). Batch dims that step
// as one are one, and many products with one B are one with more rows.
struct ProductView {
  int64_t m = 0, n = 0, k = 0;
  MatrixView a, b;
  ir::Shape batch;  // the last one is the library's, the others are loops on the host
};

// nullopt: an operand is no matrix in memory (or of another dtype than the result), or the batch takes too many calls.
std::optional<ProductView> view_product(const ir::Graph&, int32_t contraction, const std::set<int32_t>& inside);

// Heads (batch..., heads, rows, columns) of attention with contiguous columns. Strides in elements.
struct HeadsView {
  ir::ValueRef base;
  int64_t offset = 0, batch = 0, head = 0, row = 0;
};
// nullopt: the columns are apart, rows repeat, or the batch dims do not step as one.
std::optional<HeadsView> view_heads(const ir::Graph&, ir::ValueRef, const std::set<int32_t>& inside);
// Where the elements of a permute's operand, taken as heads, are in the permute's result.
std::optional<HeadsView> view_permuted_heads(const ir::Graph&, int32_t permute);

}  // namespace stitch::plan
