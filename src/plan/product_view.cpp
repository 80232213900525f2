#include <algorithm>

#include "ir/ops.h"
#include "plan/operand_view.h"

namespace stitch::plan {
namespace {

// Products one task may enqueue when its batch has no single stride. More than a few cost more than copying an operand
// into order first, which is what happens when a permute of the task is not read in place.
constexpr int64_t kMaxCalls = 64, kMaxCallsInPlace = 4;

// A view whose last two dims have extents rows x columns.
std::optional<MatrixView> as_matrix(const OperandView& v, int64_t rows, int64_t columns) {
  const size_t r = v.shape.size();
  const int64_t row = v.strides[r - 2], column = v.strides[r - 1];
  MatrixView m{v.base, v.offset, 0, false, {}};
  if (columns == 1 || column == 1) {
    m.ld = rows == 1 ? columns : row;
    if (columns == 1 && rows > 1 && row == 1) m.ld = 1;
    if (m.ld >= columns) return m;
  }
  if (rows == 1 || row == 1) {
    m.transposed = true;
    m.ld = columns == 1 ? rows : column;
    if (m.ld >= rows) return m;
  }
  return std::nullopt;
}

void prepend(OperandView& v, int64_t extent) {
  v.shape.insert(v.shape.begin(), extent);
  v.strides.insert(v.strides.begin(), 0);
}
void append(OperandView& v, int64_t extent) {
  v.shape.push_back(extent);
  v.strides.push_back(0);
}

// Joins the previous batch dim when both operands step through the two as through one.
void push_batch(ProductView& p, int64_t extent, int64_t stride_a, int64_t stride_b) {
  if (!p.batch.empty() && p.a.batch_strides.back() == extent * stride_a && p.b.batch_strides.back() == extent * stride_b) {
    p.batch.back() *= extent;
    p.a.batch_strides.back() = stride_a;
    p.b.batch_strides.back() = stride_b;
    return;
  }
  p.batch.push_back(extent);
  p.a.batch_strides.push_back(stride_a);
  p.b.batch_strides.push_back(stride_b);
}

void fold_batch_into_rows(ProductView& p) {
  if (p.batch.empty() || p.b.batch_strides.back() != 0 || p.a.transposed) return;
  const int64_t step = p.a.batch_strides.back();
  if (p.m == 1 && step >= p.k) p.a.ld = step;
  else if (step != p.m * p.a.ld) return;
  p.m *= p.batch.back();
  p.batch.pop_back();
  p.a.batch_strides.pop_back();
  p.b.batch_strides.pop_back();
}

std::optional<ProductView> product_of(OperandView& a, OperandView& b) {
  ProductView p;
  p.m = a.shape[a.shape.size() - 2];
  p.k = a.shape.back();
  p.n = b.shape.back();
  if (p.k == 0) return std::nullopt;
  const auto first = as_matrix(a, p.m, p.k), second = as_matrix(b, p.k, p.n);
  if (!first || !second) return std::nullopt;
  p.a = *first;
  p.b = *second;
  const size_t rank = std::max(a.shape.size(), b.shape.size());
  while (a.shape.size() < rank) prepend(a, 1);
  while (b.shape.size() < rank) prepend(b, 1);
  for (size_t i = 0; i + 2 < rank; ++i) {
    const int64_t extent = std::max(a.shape[i], b.shape[i]);
    if (extent == 1) continue;
    push_batch(p, extent, a.shape[i] == 1 ? 0 : a.strides[i], b.shape[i] == 1 ? 0 : b.strides[i]);
  }
  fold_batch_into_rows(p);
  return p;
}

}  // namespace

std::optional<ProductView> view_product(const ir::Graph& g, int32_t contraction, const std::set<int32_t>& inside) {
  const ir::Node& n = g.nodes[static_cast<size_t>(contraction)];
  const bool linear = n.op_name() == "linear";
  if (n.op->cls != ir::OpClass::contraction || n.op_name() == "einsum" || ir::numel(n.type().shape) == 0) return std::nullopt;
  const ir::ValueRef left = n.value(linear ? "x" : "a"), right = n.value(linear ? "weight" : "b");
  for (const ir::ValueRef v : {left, right})
    if (g.type_of(v).dtype != n.type().dtype) return std::nullopt;
  auto a = view_operand(g, left, inside), b = view_operand(g, right, inside);
  if (!a || !b) return std::nullopt;
  if (linear) {  // out = x weight'
    std::swap(b->shape[0], b->shape[1]);
    std::swap(b->strides[0], b->strides[1]);
  }
  if (a->shape.size() == 1) prepend(*a, 1);
  if (b->shape.size() == 1) append(*b, 1);
  auto p = product_of(*a, *b);
  if (!p) return std::nullopt;
  int64_t calls = 1;
  for (size_t i = 0; i + 1 < p->batch.size(); ++i) calls *= p->batch[i];
  const bool in_place = inside.count(left.node) > 0 || inside.count(right.node) > 0;
  if (calls > (in_place ? kMaxCallsInPlace : kMaxCalls)) return std::nullopt;
  return p;
}

}  // namespace stitch::plan
