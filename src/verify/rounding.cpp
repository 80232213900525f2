#include "verify/rounding.h"

#include <algorithm>
#include <cmath>

#include "ir/ops.h"

namespace stitch::verify {
namespace {

using ir::DType;

bool has_convolution(const ir::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const ir::Node& n) { return n.op && n.op->cls == ir::OpClass::convolution; });
}

// 0 = fp64 graph, 1 = fp32, 2 = tf32, 3 = fp16, 4 = bf16.
int coarseness(hw::PrecisionClass precision, const ir::Graph& graph, const ir::PrecisionFlags& flags) {
  bool any_float = false, only_f64 = true;
  int level = 1;
  for (const auto& node : graph.nodes)
    for (const auto& type : node.types) {
      if (!ir::is_floating(type.dtype)) continue;
      any_float = true;
      only_f64 = only_f64 && type.dtype == DType::f64;
      if (type.dtype == DType::f16) level = std::max(level, 3);
      if (type.dtype == DType::bf16) level = 4;
    }
  if (any_float && only_f64) return 0;
  switch (precision) {
    case hw::PrecisionClass::fp32: break;
    case hw::PrecisionClass::default_flags:
      if ((flags.allow_tf32_conv && has_convolution(graph)) || flags.allow_tf32_matmul) level = std::max(level, 2);
      break;
    case hw::PrecisionClass::tf32: level = std::max(level, 2); break;
    case hw::PrecisionClass::fp16: level = std::max(level, 3); break;
    case hw::PrecisionClass::bf16: level = 4; break;
  }
  return level;
}

// Terms that one result of this node adds up.
double terms_of(const ir::Graph& graph, const ir::Node& node) {
  const auto out = static_cast<double>(std::max<int64_t>(1, ir::numel(node.type().shape)));
  double largest = 1;
  for (const auto& v : ir::operands(node)) largest = std::max(largest, static_cast<double>(ir::numel(graph.type_of(v).shape)));
  switch (node.op->cls) {
    case ir::OpClass::contraction: case ir::OpClass::convolution: case ir::OpClass::attention:
      return hw::work_of(graph, node).matrix_flops / 2 / out;
    case ir::OpClass::reduction: case ir::OpClass::pool: return largest / out;
    case ir::OpClass::recurrent: return static_cast<double>(node.type().shape.empty() ? 1 : node.type().shape.back());
    // Results as large as the operand: at most everything but the channels is summed; the exact share does not matter.
    case ir::OpClass::row: case ir::OpClass::scan: case ir::OpClass::norm: {
      const auto& shape = node.type().shape;
      int64_t extent = 1;
      for (int64_t e : shape) extent = std::max(extent, e);
      return node.op->cls == ir::OpClass::norm ? out / static_cast<double>(std::max<int64_t>(1, shape.empty() ? 1 : shape.front())) : static_cast<double>(extent);
    }
    default: return 1;
  }
}

}  // namespace

Tolerance tolerance_of(hw::PrecisionClass precision, const ir::Graph& graph, const ir::PrecisionFlags& flags) {
  static const Tolerance table[] = {{1e-10, 1e-11}, {1e-4, 2e-5}, {5e-3, 1e-3}, {1e-2, 2e-3}, {5e-2, 1e-2}};
  return table[coarseness(precision, graph, flags)];
}

double roundoff_of(hw::PrecisionClass precision, const ir::Graph& graph, const ir::PrecisionFlags& flags) {
  static const double table[] = {0x1p-53, 0x1p-24, 0x1p-11, 0x1p-11, 0x1p-8};
  return table[coarseness(precision, graph, flags)];
}

double longest_sum(const ir::Graph& graph) {
  double terms = 1;
  for (const auto& node : graph.nodes)
    if (node.op && node.op_name() != "input" && node.op_name() != "weight") terms = std::max(terms, terms_of(graph, node));
  return terms;
}

double summation_error(double roundoff, double terms) {
  return std::min(roundoff * std::clamp(std::sqrt(terms), 16.0, 1024.0), std::max(roundoff, 0x1p-6));
}

}  // namespace stitch::verify
