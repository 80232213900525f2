// LSTM, GRU and RNN: input products of all steps at once, then a kernel per step.
#include "code/skills/anchored.h"
#include "code/skills/common.h"
#include "code/skills/shapes.h"
#include "code/skills/skills.h"

namespace stitch::code {
namespace {

using ir::DType;
using ir::ValueRef;

bool takes(const TaskContext& context) {
  const ir::Node* n = single_node(context);
  if (!n || n->op->cls != ir::OpClass::recurrent) return false;
  for (ValueRef v : ir::operands(*n))
    if (context.graph.type_of(v).dtype != n->type().dtype) return false;
  const ir::Shape& x = context.graph.type_of(n->value("x")).shape;
  return is_element(n->type().dtype) && ir::numel(n->type().shape) > 0 && x[2] > 0;
}

std::string_view cell_of(const ir::Node& n) {
  if (n.op_name() == "lstm") return "lstm";
  if (n.op_name() == "gru") return "gru";
  return n.text("nonlinearity") == "relu" ? "relu" : "tanh";
}

Result<TaskSource> write(const TaskContext& context) {
  if (!takes(context)) return fail(ErrorKind::unsupported, "recurrent layer of this form has no kernel");
  const ir::Node& n = *single_node(context);
  const ir::Shape &x = context.graph.type_of(n.value("x")).shape, &h = context.graph.type_of(n.value("h0")).shape;
  const bool lstm = n.op_name() == "lstm", batch_first = n.boolean("batch_first"), biases = n.boolean("has_biases");
  const int64_t layers = n.integer("num_layers"), directions = n.boolean("bidirectional") ? 2 : 1, hidden = h[2];
  const DType dtype = n.type().dtype;
  const std::string_view type = cpp_type(dtype);
  TaskSource out;
  out.headers = {"recurrent.cuh"};
  out.uses_cublaslt = true;
  // As RecurrentShape::scratch_bytes().
  const int64_t steps = x[batch_first ? 1 : 0], batch = x[batch_first ? 0 : 1], element = ir::size_of(dtype), compute = dtype == DType::f64 ? 8 : 4;
  const int64_t gates = lstm ? 4 : n.op_name() == "gru" ? 3 : 1;
  const auto round = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  int64_t bytes = round(directions * steps * batch * gates * hidden * element) + (layers > 1 ? 2 * round(steps * batch * directions * hidden * element) : 0) +
                  round(3 * directions * batch * hidden * compute);
  out.kernels = shape_struct(context, "RecurrentShape",
                             fmt::format(".cell = stitch::Cell::{}, .steps = {}, .batch = {}, .input = {}, .hidden = {}, .directions = {}, .layers = {}, .batch_first = {}, .biases = {}",
                                         cell_of(n), steps, batch, x[2], hidden, directions, layers, batch_first, biases));
  std::string params;
  for (ValueRef v : std::get<ir::ValueList>(n.arg("params"))) params += (params.empty() ? "" : ", ") + context.parameter(v);
  std::string body = fmt::format("  const {}* const params[] = {{{}}};\n", type, params);
  // Last states that nobody reads go to scratch.
  const auto state = [&](int32_t output) {
    const std::string parameter = result_or_null(context, output);
    if (parameter.rfind("static_cast", 0) != 0) return parameter;
    const int64_t offset = bytes;
    bytes += round(ir::bytes_of(n.types[static_cast<size_t>(output)]));
    return fmt::format("reinterpret_cast<{}*>(static_cast<char*>(scratch) + {})", type, offset);
  };
  const std::string y = state(0), h_n = state(1), c_n = lstm ? state(2) : fmt::format("static_cast<{}*>(nullptr)", type);
  const std::string c0 = lstm ? context.parameter(n.value("c0")) : fmt::format("static_cast<const {}*>(nullptr)", type);
  const bool tf32 = context.precision != hw::PrecisionClass::fp32 && context.precision != hw::PrecisionClass::default_flags;
  body += fmt::format("  return stitch::recurrent<{}>({}, {}, {}, params, {}, {}, {},\n      {}, /*allow_tf32=*/{}, scratch, vendor, stream);\n", shape_name(context),
                      context.parameter(n.value("x")), context.parameter(n.value("h0")), c0, y, h_n, c_n, element_name(dtype), tf32);
  out.scratch_bytes = static_cast<size_t>(bytes);
  out.kernels += launcher(context, "recurrent", body);
  return out;
}

}  // namespace

Skill recurrent_skill() { return {"recurrent", takes, write, true}; }

}  // namespace stitch::code
