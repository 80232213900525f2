#include <numeric>

#include "plan/prepare_passes.h"
#include "plan/rewriter.h"

namespace stitch::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueRef;

// Products smaller than this are faster as one product over all batch entries, whose result is turned afterwards.
constexpr int64_t kLeastResult = 128 * 128;

ir::IntList turned(size_t rank) {
  ir::IntList dims(rank);
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[rank - 1], dims[rank - 2]);
  return dims;
}

// A product whose result is only read with its last two dims swapped, and not by kernels that read it in place anyway.
bool is_read_turned(const Graph& g, const std::vector<std::vector<int32_t>>& users, const std::vector<bool>& is_output, int32_t permute) {
  const Node& p = g.nodes[static_cast<size_t>(permute)];
  const size_t rank = p.type().shape.size();
  if (p.op_name() != "permute" || rank < 2 || p.integers("dims") != turned(rank)) return false;
  const ValueRef x = p.value("x");
  const Node& n = g.at(x);
  if (n.op_name() != "linear" && n.op_name() != "matmul") return false;
  if (is_output[static_cast<size_t>(x.node)] || users[static_cast<size_t>(x.node)].size() != 1) return false;
  const ir::Shape& shape = n.type().shape;
  const int64_t matrix = shape[rank - 1] * shape[rank - 2];
  if (matrix < kLeastResult && ir::numel(shape) > matrix) return false;
  if (n.op_name() == "matmul")
    for (std::string_view side : {"a", "b"})
      if (g.type_of(n.value(side)).shape.size() < 2) return false;
  for (int32_t u : users[static_cast<size_t>(permute)]) {
    const ir::OpClass cls = g.nodes[static_cast<size_t>(u)].op->cls;
    if (cls == ir::OpClass::contraction || cls == ir::OpClass::attention) return false;
  }
  return true;
}

// (x w')' = w x', and the bias then belongs to the rows.
ValueRef turned_linear(Rewriter& r, const Node& n, const ir::TensorType& type) {
  const ValueRef x = r.mapped(n.value("x")), w = r.mapped(n.value("weight"));
  ValueRef y = r.emit("matmul", {{"a", w}, {"b", r.permute(x, turned(type.shape.size()), n)}}, type, n);
  if (!n.has_arg("bias")) return y;
  const ValueRef bias = r.view(r.mapped(n.value("bias")), {r.type(w).shape[0], 1}, n);
  return r.binary("add", y, bias, type, n);
}

// (a b)' = b' a'
ValueRef turned_matmul(Rewriter& r, const Node& n, const ir::TensorType& type) {
  const ValueRef a = r.mapped(n.value("a")), b = r.mapped(n.value("b"));
  const ValueRef left = r.permute(b, turned(r.type(b).shape.size()), n), right = r.permute(a, turned(r.type(a).shape.size()), n);
  return r.emit("matmul", {{"a", left}, {"b", right}}, type, n);
}

}  // namespace

Graph turn_products(const Graph& g) {
  const std::vector<std::vector<int32_t>> users = ir::users(g);
  std::vector<bool> is_output(g.nodes.size(), false);
  for (const ir::Output& o : g.outputs) is_output[static_cast<size_t>(o.value.node)] = true;
  Rewriter r(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!is_read_turned(g, users, is_output, id)) {
      r.copy(id);
      continue;
    }
    const Node& product = g.at(g.nodes[i].value("x"));
    const ir::TensorType& type = g.nodes[i].type();
    r.replace({id, 0}, product.op_name() == "linear" ? turned_linear(r, product, type) : turned_matmul(r, product, type));
  }
  return r.finish();
}

}  // namespace stitch::plan
