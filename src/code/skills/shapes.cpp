#include "code/skills/shapes.h"

#include <algorithm>

#include "code/skills/common.h"

namespace stitch::code {

const ir::Node* single_node(const TaskContext& context) {
  return context.task.nodes.size() == 1 ? &context.graph.nodes[static_cast<size_t>(context.task.nodes[0])] : nullptr;
}

AroundDim around(const ir::Shape& shape, int64_t dim) {
  AroundDim a;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<int64_t>(i) < dim) a.outer *= shape[i];
    else if (static_cast<int64_t>(i) == dim) a.extent = shape[i];
    else a.inner *= shape[i];
  }
  return a;
}

std::string shape_name(const TaskContext& context) { return context.task.name + "_shape"; }

std::string shape_struct(const TaskContext& context, std::string_view kind, const std::string& fields) {
  return fmt::format("struct {} {{\n  static constexpr stitch::{} value{{{}}};\n}};\n", shape_name(context), kind, fields);
}

std::string launcher(const TaskContext& context, std::string_view skill, const std::string& body) {
  return task_comment(context, skill) + context.signature() + " {\n" + body + "}\n";
}

std::string pointer_or_null(const TaskContext& context, const ir::Node& n, std::string_view argument, ir::DType type) {
  if (n.has_arg(argument)) return context.parameter(n.value(argument));
  return fmt::format("static_cast<const {}*>(nullptr)", cpp_type(type));
}

std::string result_or_null(const TaskContext& context, int32_t output) {
  const ir::ValueRef v{context.task.nodes.back(), output};
  const auto& outputs = context.task.outputs;
  if (std::find(outputs.begin(), outputs.end(), v) != outputs.end()) return context.parameter(v);
  return fmt::format("static_cast<{}*>(nullptr)", cpp_type(context.graph.type_of(v).dtype));
}

std::string Scratch::take(int64_t bytes, std::string_view type) {
  const size_t offset = bytes_;
  bytes_ += (static_cast<size_t>(bytes) + 255) / 256 * 256;
  return fmt::format("reinterpret_cast<{}*>(static_cast<char*>(scratch) + {})", type, offset);
}

std::string result_or_scratch(const TaskContext& context, int32_t output, Scratch& scratch) {
  const ir::ValueRef v{context.task.nodes.back(), output};
  const auto& outputs = context.task.outputs;
  if (std::find(outputs.begin(), outputs.end(), v) != outputs.end()) return context.parameter(v);
  const ir::TensorType& type = context.graph.type_of(v);
  return scratch.take(ir::bytes_of(type), cpp_type(type.dtype));
}

}  // namespace stitch::code
