#include <algorithm>

#include "ir/ops.h"
#include "plan/fusion.h"

namespace stitch::plan {
namespace {

// dims (empty = all) are exactly the last ones, ignoring extents of 1.
RowShape trailing(const ir::Shape& shape, const ir::IntList& dims) {
  const auto reduced = [&](size_t i) {
    return dims.empty() || std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) != dims.end();
  };
  RowShape row{1, 1};
  bool seen_reduced = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (reduced(i)) {
      row.inner *= shape[i];
      seen_reduced = true;
    } else if (seen_reduced) {
      return {};
    } else {
      row.outer *= shape[i];
    }
  }
  return row;
}

}  // namespace

RowShape row_shape(const ir::Graph& g, const ir::Node& n) {
  const std::string_view op = n.op_name();
  if (n.op->cls == ir::OpClass::reduction) return trailing(g.type_of(n.value("x")).shape, n.integers("dims"));
  if (n.op->cls == ir::OpClass::row) return trailing(n.type().shape, {n.integer("dim")});
  if (op == "layer_norm" || op == "rms_norm") {
    int64_t inner = 1;
    for (int64_t e : n.integers("normalized_shape")) inner *= e;
    return inner > 0 ? RowShape{ir::numel(n.type().shape) / inner, inner} : RowShape{};
  }
  if (op == "group_norm") {
    const int64_t rows = n.type().shape[0] * n.integer("num_groups");
    return rows > 0 ? RowShape{rows, ir::numel(n.type().shape) / rows} : RowShape{};
  }
  return {};
}

bool is_short_reduction(const ir::Graph& g, const ir::Node& n) {
  constexpr int64_t kFewElements = 16;
  const std::string_view op = n.op_name();
  if (op != "sum" && op != "mean" && op != "amax" && op != "amin") return false;
  const ir::TensorType& x = g.type_of(n.value("x"));
  const int64_t results = ir::numel(n.type().shape), elements = ir::numel(x.shape);
  return ir::is_floating(n.type().dtype) && x.dtype == n.type().dtype && results > 0 && elements > 0 && elements / results <= kFewElements;
}

}  // namespace stitch::plan
