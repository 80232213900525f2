#include "ir/builder.h"

#include <stdexcept>

#include "ir/ops.h"

namespace stitch::ir {

namespace {

// Result dtype where the caller names none: pointwise ops promote their tensors (but for where's condition) and, as a Python
// scalar would, a float immediate makes a float of ints; the rest follow their first tensor.
DType natural_dtype(const Graph& g, const Node& n) {
  const std::vector<ValueRef> tensors = operands(n);
  if (tensors.empty()) return DType::f32;
  if (n.op->cls != OpClass::pointwise) return g.type_of(tensors.front()).dtype;
  std::optional<DType> all;
  bool float_immediate = false;
  for (size_t i = n.op_name() == "where" ? 1 : 0; i < n.args.size(); ++i) {
    if (!is_positional(n.op->params[i].kind)) continue;
    if (std::holds_alternative<double>(n.args[i])) float_immediate = true;
    if (const auto* v = std::get_if<ValueRef>(&n.args[i])) all = all ? promote(*all, g.type_of(*v).dtype) : g.type_of(*v).dtype;
  }
  const DType d = all.value_or(float_immediate ? DType::f32 : DType::i64);
  return float_immediate && !is_floating(d) ? DType::f32 : d;
}

}  // namespace

ValueRef GraphBuilder::leaf(const char* op, std::string name, TensorType type) {
  Node n;
  n.op = find_op(op);
  n.types = {std::move(type)};
  n.name = std::move(name);
  g_.nodes.push_back(std::move(n));
  return {static_cast<int32_t>(g_.nodes.size()) - 1, 0};
}
ValueRef GraphBuilder::input(std::string name, TensorType type) { return leaf("input", std::move(name), std::move(type)); }
ValueRef GraphBuilder::weight(std::string name, TensorType type) { return leaf("weight", std::move(name), std::move(type)); }

ValueRef GraphBuilder::op(std::string_view name, std::initializer_list<NamedArg> args, std::optional<DType> dtype, int results) {
  Node n;
  n.op = find_op(name);
  if (!n.op) throw std::logic_error(fmt::format("no op {}", name));
  for (const Param& p : n.op->params) n.args.push_back(p.default_value);
  for (const auto& [key, value] : args) {
    const int i = n.op->index_of(key);
    if (i < 0) throw std::logic_error(fmt::format("op {} has no parameter {}", name, key));
    n.args[static_cast<size_t>(i)] = value;
  }
  canonicalise(g_, n);
  n.types.assign(static_cast<size_t>(results), {dtype ? *dtype : natural_dtype(g_, n), {}});
  const auto types = infer_types(g_, n);
  if (!types) throw std::logic_error(types.error().message);
  n.types = *types;
  g_.nodes.push_back(std::move(n));
  return {static_cast<int32_t>(g_.nodes.size()) - 1, 0};
}

void GraphBuilder::output(std::string name, ValueRef value) { g_.outputs.push_back({value, std::move(name), Output::Kind::user, ""}); }
void GraphBuilder::mutates(std::string weight, ValueRef value) {
  g_.outputs.push_back({value, "new_" + weight, Output::Kind::mutates_weight, weight});
}

}  // namespace stitch::ir
