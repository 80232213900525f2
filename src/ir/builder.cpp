#include "ir/builder.h"

#include <stdexcept>

#include "ir/ops.h"

namespace stitch::ir {

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
    if (n.op->params[static_cast<size_t>(i)].kind == ParamKind::tensors)
      if (const auto* empty = std::get_if<IntList>(&value); empty && empty->empty()) n.args[static_cast<size_t>(i)] = ValueList{};
  }
  const std::vector<ValueRef> tensors = operands(n);
  const DType first = tensors.empty() ? DType::f32 : g_.type_of(tensors.front()).dtype;
  n.types.assign(static_cast<size_t>(results), {dtype.value_or(first), {}});
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
