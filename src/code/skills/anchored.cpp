#include "code/skills/anchored.h"

#include <algorithm>
#include <map>
#include <set>

#include "code/memory.h"
#include "code/skills/common.h"
#include "code/skills/skills.h"
#include "plan/task_io.h"

namespace stitch::code {
namespace {

using ir::ValueRef;

bool contains(const std::vector<ValueRef>& list, ValueRef v) { return std::find(list.begin(), list.end(), v) != list.end(); }

plan::Task part_of(const TaskContext& context, const plan::TaskIo& io, std::vector<int32_t> nodes, std::string_view suffix) {
  plan::Task part = context.task;
  part.name = fmt::format("{}_{}", context.task.name, suffix);
  part.nodes = std::move(nodes);
  part.why.clear();
  part.skill.clear();
  io.fill(part);
  return part;
}

}  // namespace

int32_t anchor_of(const TaskContext& context, ir::OpClass cls) {
  int32_t anchor = -1;
  for (int32_t n : context.task.nodes) {
    if (context.graph.nodes[static_cast<size_t>(n)].op->cls != cls) continue;
    if (anchor >= 0) return -1;
    anchor = n;
  }
  return anchor;
}

std::vector<int32_t> nodes_after(const TaskContext& context, int32_t node) {
  std::set<int32_t> after{node};
  std::vector<int32_t> out;
  for (int32_t n : context.task.nodes) {
    const std::vector<ValueRef> operands = ir::operands(context.graph.nodes[static_cast<size_t>(n)]);
    if (n != node && std::any_of(operands.begin(), operands.end(), [&](ValueRef v) { return after.count(v.node) > 0; })) {
      after.insert(n);
      out.push_back(n);
    }
  }
  return out;
}

Result<TaskSource> write_head_and_rest(const TaskContext& context, const std::vector<int32_t>& head, const Writer& write_head, std::string_view skill) {
  if (head.size() == context.task.nodes.size()) return write_head(context);
  std::vector<int32_t> rest;
  std::set_difference(context.task.nodes.begin(), context.task.nodes.end(), head.begin(), head.end(), std::back_inserter(rest));
  const plan::TaskIo io(context.graph);
  const plan::Task first = part_of(context, io, head, "product"), second = part_of(context, io, rest, "epilogue");
  for (ValueRef v : first.inputs)
    if (contains(second.outputs, v)) return fail(ErrorKind::unsupported, "nodes before and after the heavy node are mixed");
  STITCH_TRY(TaskSource a, write_head({context.graph, first, context.precision}));
  STITCH_TRY(TaskSource b, write_task({context.graph, second, context.precision}));

  std::vector<Lifetime> pieces;
  std::string body;
  for (ValueRef v : first.outputs)
    if (!contains(context.task.outputs, v)) pieces.push_back({static_cast<size_t>(ir::bytes_of(context.graph.type_of(v))), 0, 1});
  pieces.push_back({a.scratch_bytes, 0, 0});
  pieces.push_back({b.scratch_bytes, 1, 1});
  const Packing packing = pack(pieces);
  if (packing.total > 0) body += "  char* const memory = static_cast<char*>(scratch);\n";
  size_t next = 0;
  for (ValueRef v : first.outputs)
    if (!contains(context.task.outputs, v))
      body += fmt::format("  auto* const {} = reinterpret_cast<{}*>(memory + {});\n", context.parameter(v), cpp_type(context.graph.type_of(v).dtype),
                          packing.offsets[next++]);
  const auto call = [&](const plan::Task& part, const TaskSource& source, size_t offset) {
    std::string arguments;
    for (ValueRef v : part.inputs) arguments += context.parameter(v) + ", ";
    for (ValueRef v : part.outputs) arguments += context.parameter(v) + ", ";
    arguments += source.scratch_bytes > 0 ? fmt::format("memory + {}", offset) : "nullptr";
    body += fmt::format("  STITCH_TRY_FAILURE({}({}, vendor, stream));\n", part.name, arguments);
  };
  call(first, a, packing.offsets[next]);
  call(second, b, packing.offsets[next + 1]);

  TaskSource out;
  out.skill = std::string(skill);
  out.scratch_bytes = packing.total;
  out.uses_cublaslt = a.uses_cublaslt || b.uses_cublaslt;
  out.uses_cudnn = a.uses_cudnn || b.uses_cudnn;
  out.headers = a.headers;
  for (const std::string& h : b.headers)
    if (std::find(out.headers.begin(), out.headers.end(), h) == out.headers.end()) out.headers.push_back(h);
  out.kernels = a.kernels + "\n" + b.kernels + "\n" + task_comment(context, skill) + context.signature() + " {\n" + body + "  return nullptr;\n}\n";
  return out;
}

Result<Ending> write_ending(const TaskContext& context, ValueRef anchor) {
  if (context.task.outputs == std::vector<ValueRef>{anchor})
    return Ending{"", fmt::format("stitch::Store{{{}}}", context.parameter(anchor))};
  const ir::Shape& shape = context.graph.type_of(anchor).shape;
  IndexSpace space;
  Emitter e(context.graph, space, true);
  set_up(e, context);
  e.reserve("i");
  e.reserve("value");
  const Index i = space.variable("i", ir::numel(shape));
  e.declare(i);
  e.set_hook([&](ValueRef v, const Coords& coords) -> std::optional<Val> {
    if (v != anchor) return std::nullopt;
    if (space.ravel(coords, shape) != i) e.refuse("a fused node moves the elements of the heavy node");
    return Val{"value", context.graph.type_of(anchor).dtype, 0};
  });
  for (ValueRef out : context.task.outputs) {
    const ir::TensorType& type = context.graph.type_of(out);
    if (ir::numel(type.shape) != ir::numel(shape)) e.refuse("a fused node changes the number of elements");
    if (e.refused()) break;
    const Val v = e.value(out, space.unravel(i, type.shape));
    e.line(fmt::format("{}[i] = {};", context.parameter(out), stored(e, v, type.dtype)));
  }
  if (e.refused()) return fail(ErrorKind::unsupported, "{}", e.refusal());
  const std::string name = context.task.name + "_ending";
  std::string members, arguments;
  const auto member = [&](ValueRef v, const char* qualifier) {
    members += fmt::format("  {}{}* __restrict__ {};\n", qualifier, cpp_type(context.graph.type_of(v).dtype), context.parameter(v));
    arguments += (arguments.empty() ? "" : ", ") + context.parameter(v);
  };
  for (ValueRef v : context.task.inputs)
    if (e.used(v)) member(v, "const ");
  for (ValueRef v : context.task.outputs) member(v, "");
  std::string body;
  for (size_t at = 0, end; at < e.body().size(); at = end + 1) {  // two more columns of indentation
    end = e.body().find('\n', at);
    body += "  " + e.body().substr(at, end - at + 1);
  }
  Ending ending;
  ending.definition = fmt::format("// Fused nodes after each finished element.\nstruct {} {{\n{}  __device__ __forceinline__ void operator()(int64_t i, {} value) const {{\n{}  }}\n}};\n",
                                  name, members, compute_type(context.graph.type_of(anchor).dtype), body);
  ending.value = fmt::format("{}{{{}}}", name, arguments);
  return ending;
}

bool is_element(ir::DType t) { return ir::is_floating(t); }
std::string element_name(ir::DType t) { return fmt::format("stitch::Element::{}", ir::name_of(t)); }

}  // namespace stitch::code
