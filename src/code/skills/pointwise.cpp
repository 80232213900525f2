// Fused pointwise and movement kernels: one pass, intermediates in registers, 16-byte accesses where the layout allows.
#include <algorithm>
#include <map>

#include "code/skills/common.h"
#include "code/skills/skills.h"
#include "ir/ops.h"
#include "plan/fusion.h"

namespace stitch::code {
namespace {

constexpr int kBlock = 256;
constexpr int64_t kVectorThreshold = 1 << 16;  // below, more threads beat wider accesses

struct Attempt {
  const TaskContext& context;
  const std::string& name;
  const std::vector<ir::ValueRef>& outputs;
  bool loops;
  int64_t elements;

  bool has_loops() const {
    return loops || std::any_of(context.task.nodes.begin(), context.task.nodes.end(),
                                [&](int32_t n) { return context.graph.nodes[static_cast<size_t>(n)].op->cls == ir::OpClass::reduction; });
  }
  int widest_vector() const {
    if (has_loops() || elements < kVectorThreshold) return 1;
    int64_t bytes = 1;
    for (ir::ValueRef v : outputs) bytes = std::max(bytes, ir::size_of(context.graph.type_of(v).dtype));
    for (ir::ValueRef v : context.task.inputs)
      if (ir::numel(context.graph.type_of(v).shape) * 4 >= elements)
        bytes = std::max(bytes, ir::size_of(context.graph.type_of(v).dtype));
    return static_cast<int>(16 / bytes);
  }

  // One element of every output at linear index `at`, assigned to `target(output)`.
  template <class Target>
  void elements_at(Emitter& e, const Index& at, Target target) const {
    for (ir::ValueRef v : outputs) {
      const ir::TensorType& type = context.graph.type_of(v);
      const Val value = e.value(v, e.space().unravel(at, type.shape));
      e.line(fmt::format("{} = {};", target(v), stored(e, value, type.dtype)));
    }
  }

  void vector_body(Emitter& e, const Index& chunk, int width) const {
    const Index lane = e.space().variable("k", width);
    const Index base = e.space().scale(chunk, width);
    for (ir::ValueRef v : outputs)
      e.line(fmt::format("Vec<{}, {}> {}_vec;", cpp_type(context.graph.type_of(v).dtype), width, context.parameter(v)));
    e.open(fmt::format("for (int k = 0; k < {}; ++k)", width), false, "unroll");
    e.declare(lane);
    e.set_lanes(lane, width);
    elements_at(e, e.space().add(base, lane), [&](ir::ValueRef v) { return context.parameter(v) + "_vec[k]"; });
    e.clear_lanes();
    e.close();
    for (ir::ValueRef v : outputs)
      e.line(fmt::format("store_vec({0} + {1}, {0}_vec);", context.parameter(v), e.text(base)));
  }

  void scalar_body(Emitter& e, const Index& at) const {
    const std::string where = e.text(at);
    elements_at(e, at, [&](ir::ValueRef v) { return fmt::format("{}[{}]", context.parameter(v), where); });
  }

  KernelText finish(Emitter& e, int64_t threads) const {
    KernelParams params;
    for (ir::ValueRef v : context.task.inputs)
      if (e.used(v)) params.input(context, v);
    for (ir::ValueRef v : outputs) params.output(context, v);
    KernelText text;
    text.device = fmt::format("__global__ void __launch_bounds__({}) {}({}) {{\n{}}}\n", kBlock, name, params.declarations(), e.body());
    text.launch = fmt::format("  {}<<<{}, {}, 0, stream>>>({});\n  STITCH_CHECK_LAUNCH();\n", name, ceil_div(threads, kBlock), kBlock,
                              params.arguments());
    return text;
  }

  Result<KernelText> run(int width, bool& worthwhile) const {
    IndexSpace space;
    Emitter e(context.graph, space, needs_wide_index(context));
    set_up(e, context);
    if (loops) e.allow_loops();
    const std::string_view type = e.index_type();
    const int64_t chunks = elements / width, tail = elements % width, threads = chunks + tail;
    for (std::string_view reserved : {"i", "k", "t"}) e.reserve(reserved);
    e.line(fmt::format("const {0} t = static_cast<{0}>(blockIdx.x) * {1} + static_cast<{0}>(threadIdx.x);", type, kBlock));
    if (width == 1) {
      e.line(fmt::format("if (t >= {}) return;", elements));
      const Index i = space.variable("t", elements);
      e.declare(i);
      scalar_body(e, i);
    } else if (tail == 0) {
      e.line(fmt::format("if (t >= {}) return;  // {} elements per thread", chunks, width));
      const Index chunk = space.variable("t", chunks);
      e.declare(chunk);
      vector_body(e, chunk, width);
    } else {
      const Index chunk = space.variable("t", chunks), rest = space.variable("i", tail);
      e.open(fmt::format("if (t < {})", chunks), true);
      e.declare(chunk);
      vector_body(e, chunk, width);
      e.close();
      e.open(fmt::format("else if (t < {})", threads), true);
      e.line(fmt::format("const {} i = t - {};  // the last elements, one per thread", type, chunks));
      e.declare(rest);
      scalar_body(e, space.add(rest, chunks * width));
      e.close();
    }
    if (e.refused()) return fail(ErrorKind::unsupported, "{}", e.refusal());
    worthwhile = width == 1 || e.loads().scalar_elements * 8 <= elements;
    return finish(e, threads);
  }
};

// Short reductions only beside a concatenation: by themselves, kernels that share the elements among threads do better.
bool takes(const TaskContext& context) {
  bool reductions = false, concatenates = false;
  for (int32_t m : context.task.nodes) {
    const ir::Node& n = context.graph.nodes[static_cast<size_t>(m)];
    concatenates = concatenates || n.op_name() == "cat";
    if (is_inline(n)) continue;
    if (!plan::is_short_reduction(context.graph, n)) return false;
    reductions = true;
  }
  return !reductions || concatenates;
}

Result<TaskSource> write(const TaskContext& context) { return elementwise_task(context, "pointwise", false); }

}  // namespace

Result<KernelText> elementwise_kernel(const TaskContext& context, const std::string& kernel_name,
                                      const std::vector<ir::ValueRef>& outputs, bool loops) {
  const Attempt attempt{context, kernel_name, outputs, loops, ir::numel(context.graph.type_of(outputs[0]).shape)};
  if (attempt.elements == 0) return KernelText{};
  bool worthwhile = false;
  if (const int width = attempt.widest_vector(); width > 1) {
    auto text = attempt.run(width, worthwhile);
    if (!text || worthwhile) return text;
  }
  return attempt.run(1, worthwhile);
}

Result<TaskSource> elementwise_task(const TaskContext& context, std::string_view skill, bool loops) {
  std::map<int64_t, std::vector<ir::ValueRef>> by_size;
  for (ir::ValueRef v : context.task.outputs) by_size[ir::numel(context.graph.type_of(v).shape)].push_back(v);
  TaskSource source;
  source.skill = std::string(skill);
  std::string launches;
  for (const auto& [size, outputs] : by_size) {
    const std::string name = context.task.name + (by_size.size() == 1 ? "_kernel" : fmt::format("_kernel_{}", size));
    STITCH_TRY(const KernelText text, elementwise_kernel(context, name, outputs, loops));
    if (!text.device.empty()) source.kernels += text.device + "\n";
    launches += text.launch;
  }
  source.kernels += fmt::format("{}{} {{\n{}  return nullptr;\n}}\n", task_comment(context, skill), context.signature(), launches);
  return source;
}

Skill pointwise_skill() { return {"pointwise", takes, write}; }

}  // namespace stitch::code
