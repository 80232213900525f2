#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "ir/ops.h"
#include "plan/fusion.h"
#include "plan/names.h"
#include "plan/plan.h"
#include "plan/task_io.h"

namespace stitch::plan {
namespace {

using ir::Graph;
using ir::ValueRef;

std::string why(const Graph& g, const Task& t) {
  const auto count = static_cast<int>(t.nodes.size());
  const auto views = std::count_if(t.nodes.begin(), t.nodes.end(), [&](int32_t m) {
    const ir::Node& n = g.nodes[static_cast<size_t>(m)];
    return n.op->cls == ir::OpClass::movement && n.op_name() != "view";
  });
  const std::string shape = ir::to_string(g.type_of({t.nodes.back(), 0}));
  switch (t.kind) {
    case TaskKind::alias: return "A view of contiguous data: no work, the result shares its operand's storage.";
    case TaskKind::pointwise:
      return count == 1 ? fmt::format("One elementwise pass over {}.", shape)
                        : fmt::format("{} elementwise nodes over {} in one pass: intermediates stay in registers.", count, shape);
    case TaskKind::row:
      return fmt::format("Reduction along rows with its elementwise neighbours ({} nodes): each row is read once.", count);
    case TaskKind::reduction:
      return fmt::format("Reduction with its elementwise producers and consumers ({} nodes): the full-size intermediates are never stored.", count);
    case TaskKind::gemm: {
      const auto fused = std::count_if(t.nodes.begin(), t.nodes.end(), [&](int32_t m) { return g.nodes[static_cast<size_t>(m)].op->cls == ir::OpClass::pointwise; });
      std::string text = fused == 0 ? "Matrix product" : fmt::format("Matrix product with {} elementwise nodes as its epilogue", fused);
      return text + (views > 0 ? ", layouts changed on the way." : ".");
    }
    case TaskKind::convolution:
      return count == 1 ? "Convolution." : fmt::format("Convolution with {} elementwise nodes as its epilogue.", count - 1);
    case TaskKind::attention:
      return views > 0 ? "Attention without storing the score matrix; operands and result in the layouts of their neighbours."
                       : "Attention without storing the score matrix.";
    case TaskKind::recurrent: return "Recurrent layer: input products hoisted out of the time loop.";
    case TaskKind::generic: return "No fusion partner: computed by itself.";
  }
  return "";
}

std::vector<std::string> skills_for(TaskKind kind) {
  switch (kind) {
    case TaskKind::pointwise: return {"pointwise"};
    case TaskKind::row: return {"row", "generic"};
    case TaskKind::reduction: return {"reduction", "generic"};
    case TaskKind::gemm: return {"gemm", "generic"};
    case TaskKind::convolution: return {"convolution", "generic"};
    case TaskKind::attention: return {"attention", "generic"};
    case TaskKind::recurrent: return {"recurrent", "generic"};
    case TaskKind::generic: return {"generic"};
    case TaskKind::alias: return {};
  }
  return {};
}

// Relative error against fp64 that a task may show: the unit roundoff of its dtype and class, with room for accumulation.
double tolerance_for(const Graph& g, const Task& t, hw::PrecisionClass c) {
  double tolerance = 0;
  for (const ValueRef& v : t.outputs) {
    switch (g.type_of(v).dtype) {
      case ir::DType::f64: tolerance = std::max(tolerance, 1e-12); break;
      case ir::DType::f32: tolerance = std::max(tolerance, 1e-5); break;
      case ir::DType::f16: tolerance = std::max(tolerance, 2e-3); break;
      case ir::DType::bf16: tolerance = std::max(tolerance, 1.6e-2); break;
      default: break;
    }
  }
  const bool tf32 = c == hw::PrecisionClass::tf32 || (c == hw::PrecisionClass::default_flags && t.kind == TaskKind::convolution);
  if (tf32 && (t.kind == TaskKind::convolution || t.kind == TaskKind::gemm)) tolerance = std::max(tolerance, 2e-3);
  if (c == hw::PrecisionClass::bf16) tolerance = std::max(tolerance, 1.6e-2);
  if (c == hw::PrecisionClass::fp16) tolerance = std::max(tolerance, 2e-3);
  return tolerance;
}

std::vector<std::string> risks_of(const Graph& g) {
  std::vector<std::string> risks;
  std::set<std::string> reduced;
  for (const ir::Node& n : g.nodes) {
    const ir::DType d = n.types.front().dtype;
    if (d == ir::DType::f16 || d == ir::DType::bf16) reduced.insert(std::string(ir::name_of(d)));
    if (n.op_name() == "sort" || n.op_name() == "topk" || n.op->cls == ir::OpClass::arg_reduction)
      risks.push_back(fmt::format("{} is discontinuous: near-ties may pick another index than the reference.", n.op_name()));
    if (n.op_name() == "scatter_add" || n.op_name() == "index_put")
      risks.push_back(fmt::format("{} may use atomics: sums can differ in the last bits between runs.", n.op_name()));
  }
  for (const std::string& d : reduced) risks.push_back(fmt::format("Values of type {}: fused code rounds less often than the reference.", d));
  std::sort(risks.begin(), risks.end());
  risks.erase(std::unique(risks.begin(), risks.end()), risks.end());
  return risks;
}

}  // namespace

std::string_view name_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::pointwise: return "pointwise";
    case TaskKind::row: return "row";
    case TaskKind::reduction: return "reduction";
    case TaskKind::gemm: return "gemm";
    case TaskKind::convolution: return "convolution";
    case TaskKind::attention: return "attention";
    case TaskKind::recurrent: return "recurrent";
    case TaskKind::generic: return "generic";
    case TaskKind::alias: return "alias";
  }
  return "generic";
}

Result<Plan> plan_builtin(const Graph& g, const std::string& program_name, const PlanOptions& options) {
  Plan plan;
  plan.program = program_name;
  plan.planner = "builtin";
  plan.device = options.device.name;
  plan.precision = options.precision;
  std::vector<int32_t> all;
  const TaskIo io(g);
  for (const Group& group : partition(g, options.fuse)) {
    Task t;
    const size_t index = plan.tasks.size();
    t.id = fmt::format("t{:02}", index);
    t.kind = group.kind;
    t.nodes = group.nodes;
    io.fill(t);
    t.name = fmt::format("{}_{}", t.id, describe_task(g, t.nodes, t.outputs));
    t.why = why(g, t);
    t.skills = skills_for(t.kind);
    if (t.kind != TaskKind::alias) {
      const hw::Floor floor = hw::floor_of(g, t.nodes, options.device, options.precision);
      t.floor_us = floor.seconds * 1e6;
      t.bottleneck = floor.seconds < options.device.launch_seconds ? "launch" : floor.bound;
    } else {
      t.bottleneck = "none";
    }
    t.tolerance = tolerance_for(g, t, options.precision);
    all.insert(all.end(), t.nodes.begin(), t.nodes.end());
    plan.tasks.push_back(std::move(t));
  }
  plan.floor_us = hw::floor_of(g, all, options.device, options.precision).seconds * 1e6;
  plan.risks = risks_of(g);
  std::vector<std::string> order;
  for (const Task& t : plan.tasks) order.push_back(t.id);
  plan.host.streams = {order};
  STITCH_CHECK_OK(check(g, plan));
  return plan;
}

}  // namespace stitch::plan
