// Arithmetic of each op. A multiply-add counts two. Conventions: n = elements of the first result, x = elements of the first operand.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "hw/device.h"
#include "ir/ops.h"

namespace stitch::hw {
namespace {

using ir::Graph;
using ir::Node;

double elements(const ir::Shape& s) { return static_cast<double>(ir::numel(s)); }

// Special-function evaluations (exp, log, sqrt, sin, division ...) per element of a pointwise op.
double specials_per_element(std::string_view op) {
  static const std::unordered_map<std::string_view, double> table = {
      {"exp", 1},     {"exp2", 1},   {"expm1", 2}, {"log", 1},   {"log2", 1},  {"log10", 1},   {"log1p", 2},
      {"sqrt", 1},    {"rsqrt", 1},  {"reciprocal", 1}, {"sin", 1}, {"cos", 1}, {"tan", 2},     {"asin", 2},
      {"acos", 2},    {"atan", 2},   {"sinh", 2},  {"cosh", 2},  {"tanh", 2},  {"asinh", 3},   {"acosh", 3},
      {"atanh", 3},   {"erf", 1},    {"erfc", 1},  {"sigmoid", 2}, {"log_sigmoid", 2}, {"gelu", 1}, {"silu", 2},
      {"mish", 3},    {"elu", 1},    {"softplus", 2}, {"pow", 2}, {"div", 1}, {"atan2", 3},     {"logaddexp", 3},
      {"xlogy", 1},   {"hypot", 1}};
  const auto it = table.find(op);
  return it == table.end() ? 0 : it->second;
}

double last_extent(const Graph& g, ir::ValueRef v) {
  const ir::Shape& s = g.type_of(v).shape;
  return s.empty() ? 1 : static_cast<double>(s.back());
}

// k of the product: the inner dimension. torch.matmul contracts the last dim of a.
Work contraction(const Graph& g, const Node& node) {
  Work w;
  const double n = elements(node.type().shape);
  const std::string_view op = node.op_name();
  if (op == "linear") w.matrix_flops = 2 * n * last_extent(g, node.value("x"));
  else if (op == "matmul") w.matrix_flops = 2 * n * last_extent(g, node.value("a"));
  else if (op == "addmm" || op == "baddbmm") w.matrix_flops = 2 * n * last_extent(g, node.value("a"));
  else if (op == "einsum") {
    // Product over all index extents: each letter counted once.
    std::unordered_map<char, double> extent;
    const std::string& equation = node.text("equation");
    const auto& tensors = std::get<ir::ValueList>(node.arg("tensors"));
    size_t operand = 0, dim = 0;
    for (char c : equation) {
      if (c == '-') break;
      if (c == ',') { ++operand; dim = 0; continue; }
      if (operand < tensors.size() && dim < g.type_of(tensors[operand]).shape.size())
        extent[c] = std::max(extent[c], static_cast<double>(g.type_of(tensors[operand]).shape[dim]));
      ++dim;
    }
    double total = 2 * std::max<double>(1, static_cast<double>(tensors.size()) - 1);
    for (const auto& [letter, e] : extent) total *= e;
    w.matrix_flops = total;
  }
  return w;
}

// Direct convolution: 2 * outputs * (in_channels / groups) * window; transposed: the same with input and output exchanged.
// Faster algorithms may do less: floor.cpp discounts the 3x3 stride-1 case by Winograd F(4x4,3x3)'s factor of 4 so
// that the floor stays a lower bound (Lavin and Gray, 2016).
Work convolution(const Graph& g, const Node& node) {
  Work w;
  w.convolution = true;
  const ir::Shape& weight = g.type_of(node.value("weight")).shape;
  double window = 1;
  for (size_t i = 2; i < weight.size(); ++i) window *= static_cast<double>(weight[i]);
  const bool transposed = node.boolean("transposed");
  const double positions = transposed ? elements(g.type_of(node.value("x")).shape) : elements(node.type().shape);
  w.matrix_flops = 2 * positions * static_cast<double>(weight[1]) * window;
  return w;
}

Work attention(const Graph& g, const Node& node) {
  Work w;
  const ir::Shape& q = g.type_of(node.value("q")).shape;
  const ir::Shape& k = g.type_of(node.value("k")).shape;
  const double scores = elements(q) / static_cast<double>(std::max<int64_t>(1, q.back())) *
                        static_cast<double>(k[k.size() - 2]);
  w.matrix_flops = 2 * scores * (static_cast<double>(q.back()) + last_extent(g, node.value("v")));
  if (node.boolean("is_causal")) w.matrix_flops /= 2;
  w.special_ops = scores;
  return w;
}

// Every weight matrix is applied once per time step and sample.
Work recurrent(const Graph& g, const Node& node) {
  Work w;
  const ir::Shape& x = g.type_of(node.value("x")).shape;
  const double steps = static_cast<double>(x[0]) * static_cast<double>(x[1]);
  for (const ir::ValueRef& p : std::get<ir::ValueList>(node.arg("params"))) {
    if (p.node < 0) continue;
    const ir::Shape& s = g.type_of(p).shape;
    if (s.size() == 2) w.matrix_flops += 2 * steps * elements(s);
  }
  w.special_ops = 4 * elements(node.type().shape);
  return w;
}

}  // namespace

Work work_of(const Graph& g, const Node& node) {
  const double n = elements(node.type().shape);
  const std::vector<ir::ValueRef> args = ir::operands(node);
  const double x = args.empty() ? n : elements(g.type_of(args.front()).shape);
  Work w;
  switch (node.op->cls) {
    case ir::OpClass::source:
    case ir::OpClass::movement:
    case ir::OpClass::index: break;
    case ir::OpClass::pointwise:
      w.vector_flops = n;
      w.special_ops = n * specials_per_element(node.op_name());
      break;
    case ir::OpClass::reduction:
    case ir::OpClass::arg_reduction:
    case ir::OpClass::scan: w.vector_flops = x; break;
    case ir::OpClass::row: w.vector_flops = 4 * x; w.special_ops = x; break;
    case ir::OpClass::norm: w.vector_flops = 6 * x; break;
    case ir::OpClass::contraction: w = contraction(g, node); break;
    case ir::OpClass::convolution: w = convolution(g, node); break;
    case ir::OpClass::pool: w.vector_flops = std::max(n, x); break;
    case ir::OpClass::sort: w.vector_flops = 8 * x; break;
    case ir::OpClass::attention: w = attention(g, node); break;
    case ir::OpClass::recurrent: w = recurrent(g, node); break;
  }
  return w;
}

}  // namespace stitch::hw
