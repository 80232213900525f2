// Norms whose statistics are gathered by many blocks: train-mode batch norm, and group or layer norms with few, very long
// rows. Pointwise nodes after the norm are fused into its second pass.
#include <algorithm>

#include "code/skills/anchored.h"
#include "code/skills/common.h"
#include "code/skills/shapes.h"
#include "code/skills/skills.h"

namespace stitch::code {
namespace {

using ir::DType;
using ir::ValueRef;

constexpr int64_t kLongRow = 32768;  // elements; below, a block per row keeps the row in registers
constexpr int64_t kFewRows = 264;    // two per multiprocessor

struct Norm {
  const ir::Node* node = nullptr;
  int32_t index = -1;
  int64_t elements = 0, stats = 0, stat_inner = 0, affines = 0, affine_inner = 0;
  double momentum = 0;
  bool running = false;
};

bool read(const TaskContext& context, Norm& out) {
  out.index = anchor_of(context, ir::OpClass::norm);
  if (out.index < 0) return false;
  const ir::Node& n = context.graph.nodes[static_cast<size_t>(out.index)];
  out.node = &n;
  const std::string_view op = n.op_name();
  const ir::Shape& shape = n.type().shape;
  if (!ir::is_floating(n.type().dtype) || ir::numel(shape) == 0 || context.graph.type_of(n.value("x")).dtype != n.type().dtype) return false;
  for (ValueRef v : ir::operands(n))
    if (std::find(context.task.inputs.begin(), context.task.inputs.end(), v) == context.task.inputs.end()) return false;
  if (n.has_arg("weight") && n.op->index_of("bias") >= 0 && n.has_arg("bias") &&
      context.graph.type_of(n.value("weight")).dtype != context.graph.type_of(n.value("bias")).dtype)
    return false;
  out.elements = ir::numel(shape);
  if (op == "batch_norm") {
    if (!n.boolean("training")) return false;
    out.stats = out.affines = shape[1];
    out.stat_inner = out.affine_inner = out.elements / (shape[0] * shape[1]);
    out.momentum = n.number("momentum");
    out.running = n.types.size() > 1;
    return out.elements / out.stats > 1;
  }
  if (op == "rms_norm") return false;
  if (op == "group_norm") {
    out.stats = shape[0] * n.integer("num_groups");
    out.affines = shape[1];
    out.affine_inner = out.elements / (shape[0] * shape[1]);
  } else {
    out.affines = 1;
    for (int64_t e : n.integers("normalized_shape")) out.affines *= e;
    out.affine_inner = 1;
    out.stats = out.elements / out.affines;
  }
  out.stat_inner = out.elements / out.stats;
  return out.stats <= kFewRows && out.stat_inner >= kLongRow;
}

bool takes(const TaskContext& context) {
  Norm n;
  return read(context, n);
}

// Scratch of NormShape::scratch_values().
int64_t scratch_values(const Norm& s) {
  const int64_t wanted = s.stats >= 264 ? 1 : ceil_div(528, s.stats), most = ceil_div(s.elements / s.stats, 8192);
  return s.stats * (3 * std::min(wanted, most) + 2);
}

// Everything after the norm, in the task the ending is for: the running statistics are results of their own.
Result<Ending> ending_of(const TaskContext& context, const Norm& s) {
  plan::Task task = context.task;
  const auto is_statistic = [&](ValueRef v) { return v.node == s.index && v.output > 0; };
  task.outputs.erase(std::remove_if(task.outputs.begin(), task.outputs.end(), is_statistic), task.outputs.end());
  return write_ending({context.graph, task, context.precision}, {s.index, 0});
}

Result<TaskSource> write(const TaskContext& context) {
  Norm s;
  if (!read(context, s)) return fail(ErrorKind::unsupported, "this norm is written by another skill");
  const ir::Node& n = *s.node;
  STITCH_TRY(const Ending ending, ending_of(context, s));
  const DType dtype = n.type().dtype;
  const auto dtype_of = [&](std::string_view p, DType otherwise) { return n.op->index_of(p) >= 0 && n.has_arg(p) ? context.graph.type_of(n.value(p)).dtype : otherwise; };
  const DType affine = dtype_of("weight", dtype_of("bias", dtype)), statistic = dtype_of("running_mean", DType::f32);
  TaskSource out;
  out.headers = {"norm.cuh"};
  out.scratch_bytes = static_cast<size_t>(scratch_values(s) * (dtype == DType::f64 ? 8 : 4));
  out.kernels = ending.definition;
  out.kernels += shape_struct(context, "NormShape",
                              fmt::format(".elements = {}, .stats = {}, .stat_inner = {}, .affines = {}, .affine_inner = {}, .eps = {:.17g}, .momentum = {:.17g}", s.elements,
                                          s.stats, s.stat_inner, s.affines, s.affine_inner, n.number("eps"), s.momentum));
  // Running statistics: all four pointers or none.
  std::string running;
  const bool all = s.running && std::find(context.task.outputs.begin(), context.task.outputs.end(), ValueRef{s.index, 1}) != context.task.outputs.end() &&
                   std::find(context.task.outputs.begin(), context.task.outputs.end(), ValueRef{s.index, 2}) != context.task.outputs.end();
  if (all) {
    running = fmt::format("{}, {}, {}, {}", context.parameter(n.value("running_mean")), context.parameter(n.value("running_var")),
                          context.parameter({s.index, 1}), context.parameter({s.index, 2}));
  } else {
    for (const ValueRef v : {ValueRef{s.index, 1}, ValueRef{s.index, 2}})
      if (std::find(context.task.outputs.begin(), context.task.outputs.end(), v) != context.task.outputs.end())
        return fail(ErrorKind::unsupported, "only one of the running statistics is read");
    const std::string_view type = cpp_type(statistic);
    running = fmt::format("static_cast<const {0}*>(nullptr), static_cast<const {0}*>(nullptr), static_cast<{0}*>(nullptr), static_cast<{0}*>(nullptr)", type);
  }
  const std::string bias = n.op->index_of("bias") >= 0 ? pointer_or_null(context, n, "bias", affine) : fmt::format("static_cast<const {}*>(nullptr)", cpp_type(affine));
  out.kernels += launcher(context, "norm", fmt::format("  return stitch::norm<{}>({}, {}, {},\n      {}, {}, scratch, stream);\n", shape_name(context),
                                                       context.parameter(n.value("x")), pointer_or_null(context, n, "weight", affine), bias, running, ending.value));
  return out;
}

}  // namespace

Skill norm_skill() { return {"norm", takes, write, true}; }

}  // namespace stitch::code
