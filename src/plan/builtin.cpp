#include <algorithm>
#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "ir/ops.h"
#include "plan/fusion.h"
#include "plan/names.h"
#include "plan/plan.h"
#include "plan/task_io.h"
#include "plan/why.h"

namespace stitch::plan {
namespace {

using ir::Graph;
using ir::ValueRef;

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

// More would claim a precision that the model of the machine does not have.
double three_digits(double v) { return std::strtod(fmt::format("{:.3g}", v).c_str(), nullptr); }

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

Result<Plan> plan_builtin(const Graph& g, const std::string& program_name, const PlanOptions& options) {
  Plan plan;
  plan.program = program_name;
  plan.planner = "builtin";
  plan.device = options.device.name;
  plan.precision = options.precision;
  std::vector<int32_t> all;
  std::vector<std::string> task_of(g.nodes.size());
  const TaskIo io(g);
  const std::vector<Group> groups = partition(g, options.fuse);
  for (const Group& group : groups) {
    Task t;
    const size_t index = plan.tasks.size();
    t.id = fmt::format("t{:02}", index);
    t.kind = group.kind;
    t.nodes = group.nodes;
    io.fill(t);
    t.name = fmt::format("{}_{}", t.id, describe_task(g, t.nodes, t.outputs));
    t.why = what_is_fused(g, t);
    for (const int32_t m : t.nodes) task_of[static_cast<size_t>(m)] = t.id;
    if (t.kind != TaskKind::alias) {
      const hw::Floor floor = hw::floor_of(g, t.nodes, options.device, options.precision);
      t.floor_us = three_digits(floor.seconds * 1e6);
      t.floor = hw::explain(floor, options.device);
      t.bottleneck = floor.seconds < options.device.launch_seconds ? "launch" : floor.bound;
    } else {
      t.bottleneck = "none";
    }
    t.tolerance = tolerance_for(g, t, options.precision);
    all.insert(all.end(), t.nodes.begin(), t.nodes.end());
    plan.tasks.push_back(std::move(t));
  }
  for (size_t i = 0; i < groups.size(); ++i) plan.tasks[i].why += why_it_stops(g, plan.tasks[i], groups[i].stop, task_of);
  const hw::Floor whole = hw::floor_of(g, all, options.device, options.precision);
  plan.floor_us = three_digits(whole.seconds * 1e6);
  plan.floor = "The whole program as one kernel. " + hw::explain(whole, options.device);
  plan.risks = risks_of(g);
  std::vector<std::string> order;
  for (const Task& t : plan.tasks) order.push_back(t.id);
  plan.host.streams = {order};
  STITCH_CHECK_OK(check(g, plan));
  return plan;
}

}  // namespace stitch::plan
