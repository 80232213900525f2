#include "plan/rewriter.h"

#include <stdexcept>
#include <string>

namespace stitch::plan {

ir::ValueRef Rewriter::mapped(ir::ValueRef old) const {
  const auto it = map_.find(old);
  if (it == map_.end()) throw std::logic_error("rewriter: value of node " + std::to_string(old.node) + " was dropped");
  return it->second;
}

int32_t Rewriter::copy(int32_t old_node) {
  ir::Node node = from_.nodes[static_cast<size_t>(old_node)];
  for_each_operand(node, [&](ir::ValueRef& v) { v = mapped(v); });
  const auto index = static_cast<int32_t>(to_.nodes.size());
  for (size_t k = 0; k < node.types.size(); ++k)
    map_[{old_node, static_cast<int32_t>(k)}] = {index, static_cast<int32_t>(k)};
  to_.nodes.push_back(std::move(node));
  return index;
}

ir::ValueRef Rewriter::emit(std::string_view op, std::initializer_list<NamedArg> args, ir::TensorType type,
                            const ir::Node& like) {
  ir::Node node;
  node.op = ir::find_op(op);
  if (!node.op) throw std::logic_error("rewriter: unknown op " + std::string(op));
  for (const ir::Param& p : node.op->params) node.args.push_back(p.default_value);
  for (const auto& [name, value] : args) {
    const int i = node.op->index_of(name);
    if (i < 0) throw std::logic_error("rewriter: " + std::string(op) + " has no parameter " + std::string(name));
    node.args[static_cast<size_t>(i)] = value;
  }
  node.types = {std::move(type)};
  node.scope = like.scope;
  node.source = like.source;
  to_.nodes.push_back(std::move(node));
  return {static_cast<int32_t>(to_.nodes.size()) - 1, 0};
}

ir::ValueRef Rewriter::view(ir::ValueRef x, ir::Shape size, const ir::Node& like) {
  if (type(x).shape == size) return x;
  ir::TensorType t{type(x).dtype, size};
  return emit("view", {{"x", x}, {"size", std::move(size)}}, std::move(t), like);
}

ir::ValueRef Rewriter::permute(ir::ValueRef x, const ir::IntList& dims, const ir::Node& like) {
  bool identity = true;
  ir::Shape shape;
  for (size_t i = 0; i < dims.size(); ++i) {
    identity = identity && dims[i] == static_cast<int64_t>(i);
    shape.push_back(type(x).shape[static_cast<size_t>(dims[i])]);
  }
  if (identity) return x;
  ir::TensorType t{type(x).dtype, std::move(shape)};
  return emit("permute", {{"x", x}, {"dims", dims}}, std::move(t), like);
}

ir::ValueRef Rewriter::binary(std::string_view op, ir::ValueRef x, ir::Arg y, ir::TensorType type, const ir::Node& like) {
  return emit(op, {{"x", x}, {"y", std::move(y)}}, std::move(type), like);
}

ir::Graph Rewriter::finish() {
  to_.outputs = from_.outputs;
  for (ir::Output& o : to_.outputs) o.value = mapped(o.value);
  return std::move(to_);
}

}  // namespace stitch::plan
