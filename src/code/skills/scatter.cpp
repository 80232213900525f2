// scatter, scatter_add, index_put: a copy of x, then one thread per update. Updates that hit the same element are added
// atomically where the op adds; otherwise any one of them stays, as in PyTorch on a GPU.
#include <algorithm>

#include "code/skills/common.h"
#include "code/skills/shapes.h"
#include "code/skills/skills.h"

namespace stitch::code {
namespace {

using ir::DType;
using ir::ValueRef;

bool adds(const ir::Node& n) { return n.op_name() == "scatter_add" || (n.op_name() == "index_put" && n.boolean("accumulate")); }

bool takes(const TaskContext& context) {
  const ir::Node* n = single_node(context);
  if (!n || (n->op_name() != "scatter" && n->op_name() != "scatter_add" && n->op_name() != "index_put")) return false;
  const DType t = n->type().dtype;
  if (context.graph.type_of(n->value("x")).dtype != t || ir::numel(n->type().shape) == 0) return false;
  // Atomic addition needs a word, or a 16-bit float.
  return !adds(*n) || ir::is_floating(t) || t == DType::i32 || t == DType::i64;
}

// Shape of the updates: of the index tensor, or of x[indices] for index_put, with the place of the joint index dims in it.
struct Updates {
  ir::Shape shape;
  size_t joint_at = 0, joint_rank = 0;
  std::vector<size_t> indexed;  // dims of x that have an index tensor
};

Updates index_put_updates(const TaskContext& context, const ir::Node& n) {
  const ir::Shape& x = n.type().shape;
  const auto& list = std::get<ir::ValueList>(n.arg("indices"));
  Updates u;
  ir::Shape joint;
  for (size_t d = 0; d < list.size(); ++d) {
    if (list[d].node < 0) continue;
    u.indexed.push_back(d);
    joint = *ir::broadcast(joint, context.graph.type_of(list[d]).shape);
  }
  u.joint_rank = joint.size();
  // Index dims that are next to each other keep their place; otherwise the joint dims go first.
  const bool adjacent = u.indexed.empty() || u.indexed.back() - u.indexed.front() + 1 == u.indexed.size();
  u.joint_at = adjacent && !u.indexed.empty() ? u.indexed.front() : 0;
  for (size_t d = 0; d < x.size(); ++d)
    if (std::find(u.indexed.begin(), u.indexed.end(), d) == u.indexed.end()) u.shape.push_back(x[d]);
  u.shape.insert(u.shape.begin() + static_cast<ptrdiff_t>(u.joint_at), joint.begin(), joint.end());
  return u;
}

// Coordinates of a tensor that broadcasts to `shape` at `coords` of it.
Coords broadcast_coords(const Coords& coords, const ir::Shape& from) {
  Coords out;
  for (size_t i = 0; i < from.size(); ++i) out.push_back(from[i] == 1 ? IndexSpace::constant(0) : coords[coords.size() - from.size() + i]);
  return out;
}

// Where update `coords` goes in x.
Coords target_of(Emitter& e, const TaskContext& context, const ir::Node& n, const Updates& u, const Coords& coords) {
  const ir::Shape& x = n.type().shape;
  if (n.op_name() != "index_put") {
    const auto dim = static_cast<size_t>(n.integer("dim"));
    Coords out = coords;
    const Val index = e.load(n.value("index"), coords);
    if (!out.empty()) out[dim] = e.opaque("at", fmt::format("wrap_index({}, {})", index.text, x[dim]), index.depth, x[dim]);
    return out;
  }
  const auto& list = std::get<ir::ValueList>(n.arg("indices"));
  const auto first = coords.begin() + static_cast<ptrdiff_t>(u.joint_at), last = first + static_cast<ptrdiff_t>(u.joint_rank);
  const Coords joint(first, last);
  Coords rest(coords.begin(), first), out;
  rest.insert(rest.end(), last, coords.end());
  size_t next = 0;
  for (size_t d = 0; d < x.size(); ++d) {
    if (std::find(u.indexed.begin(), u.indexed.end(), d) == u.indexed.end()) {
      out.push_back(rest[next++]);
      continue;
    }
    const Val index = e.load(list[d], broadcast_coords(joint, context.graph.type_of(list[d]).shape));
    out.push_back(e.opaque("at", fmt::format("wrap_index({}, {})", index.text, x[d]), index.depth, x[d]));
  }
  return out;
}

Result<TaskSource> write(const TaskContext& context) {
  if (!takes(context)) return fail(ErrorKind::unsupported, "this scatter has no kernel");
  const ir::Node& n = *single_node(context);
  const ir::Shape& shape = n.type().shape;
  const DType dtype = n.type().dtype;
  Updates u;
  if (n.op_name() == "index_put") u = index_put_updates(context, n);
  else u.shape = context.graph.type_of(n.value("index")).shape;
  const ValueRef x = n.value("x"), result{context.task.nodes[0], 0};
  const int64_t count = ir::numel(u.shape);

  IndexSpace space;
  Emitter e(context.graph, space, needs_wide_index(context));
  set_up(e, context);
  e.reserve("t");
  e.line(fmt::format("const {0} t = static_cast<{0}>(blockIdx.x) * 256 + static_cast<{0}>(threadIdx.x);", e.index_type()));
  e.line(fmt::format("if (t >= {}) return;", count));
  const Index t = space.variable("t", std::max<int64_t>(count, 1));
  e.declare(t);
  const Coords coords = space.unravel(t, u.shape);
  const Coords target = target_of(e, context, n, u, coords);
  const ir::Arg& source = n.arg(n.op_name() == "index_put" ? "values" : "src");
  Val value = e.zero(dtype);
  if (const auto* v = std::get_if<ValueRef>(&source)) {
    // scatter reads src at the update's coordinates, which may be fewer than src has; index_put broadcasts values.
    const Coords at = n.op_name() == "index_put" ? broadcast_coords(coords, context.graph.type_of(*v).shape) : coords;
    value = e.load(*v, at);
  } else {
    value = e.operand(source, coords, u.shape, dtype);
  }
  const std::string place = fmt::format("{} + {}", context.parameter(result), e.text(space.ravel(target, shape)));
  const std::string text = stored(e, value, dtype);
  e.line(adds(n) ? fmt::format("stitch::atomic_add({}, {});", place, text) : fmt::format("*({}) = {};", place, text));
  if (e.refused()) return fail(ErrorKind::unsupported, "{}", e.refusal());

  KernelParams params;
  for (ValueRef v : context.task.inputs)
    if (e.used(v)) params.input(context, v);
  params.output(context, result);
  TaskSource out;
  out.headers = {"atomics.cuh"};
  std::string body = fmt::format("  STITCH_TRY_CUDA(cudaMemcpyAsync({}, {}, {}, cudaMemcpyDeviceToDevice, stream));\n", context.parameter(result), context.parameter(x),
                                 ir::bytes_of(n.type()));
  if (count > 0) {
    out.kernels = fmt::format("__global__ void __launch_bounds__(256) {}_kernel({}) {{\n{}}}\n", context.task.name, params.declarations(), e.body());
    body += fmt::format("  {}_kernel<<<{}, 256, 0, stream>>>({});\n  STITCH_CHECK_LAUNCH();\n", context.task.name, ceil_div(count, 256), params.arguments());
  }
  out.kernels += launcher(context, "scatter", body + "  return nullptr;\n");
  return out;
}

}  // namespace

Skill scatter_skill() { return {"scatter", takes, write, true}; }

}  // namespace stitch::code
