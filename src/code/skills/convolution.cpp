// Convolutions: the vendor library with everything after it in one pointwise pass; depthwise layers, f64 and what the
// library refuses by the direct kernel, with everything after it fused.
#include <algorithm>

#include "code/skills/anchored.h"
#include "code/skills/common.h"
#include "code/skills/skills.h"

namespace stitch::code {
namespace {

using ir::DType;
using ir::ValueRef;

struct Layer {
  const ir::Node* node = nullptr;
  int32_t index = -1;
  ir::Shape x, w, y;
  size_t dims = 0;
  int64_t groups = 1;
  bool transposed = false;
  DType dtype = DType::f32;
  bool depthwise() const { return groups == x[1] && groups > 1 && y[1] <= 2 * groups; }
};

bool read(const TaskContext& context, Layer& l) {
  l.index = anchor_of(context, ir::OpClass::convolution);
  if (l.index < 0) return false;
  l.node = &context.graph.nodes[static_cast<size_t>(l.index)];
  const ir::Node& n = *l.node;
  l.x = context.graph.type_of(n.value("x")).shape;
  l.w = context.graph.type_of(n.value("weight")).shape;
  l.y = n.type().shape;
  l.dims = l.x.size() - 2;
  l.groups = n.integer("groups");
  l.transposed = n.boolean("transposed");
  l.dtype = n.type().dtype;
  const auto outside = [&](ValueRef v) { return std::find(context.task.inputs.begin(), context.task.inputs.end(), v) != context.task.inputs.end(); };
  for (ValueRef v : ir::operands(n))
    if (!outside(v) || context.graph.type_of(v).dtype != l.dtype) return false;
  for (const ir::Shape* s : {&l.x, &l.w, &l.y})
    if (ir::numel(*s) == 0 || ir::numel(*s) >= (int64_t{1} << 31)) return false;
  return is_element(l.dtype);
}

bool takes(const TaskContext& context) {
  Layer l;
  return read(context, l);
}


std::string bias_argument(const TaskContext& context, const Layer& l) {
  return l.node->has_arg("bias") ? context.parameter(l.node->value("bias")) : fmt::format("static_cast<const {}*>(nullptr)", cpp_type(l.dtype));
}

// "struct t03_shape { static constexpr stitch::ConvolutionShape value{...}; };"
std::string direct_shape(const Layer& l, const std::string& name) {
  const auto three = [&](const ir::IntList& values, size_t skip, int filler) {
    std::string out;
    for (size_t i = 0; i < 3; ++i) {
      const size_t lead = 3 - l.dims;
      out += fmt::format("{}{}", i ? ", " : "", i < lead ? filler : values[skip + i - lead]);
    }
    return "{" + out + "}";
  };
  const ir::Node& n = *l.node;
  return fmt::format("struct {} {{\n  static constexpr stitch::ConvolutionShape value{{.batch = {}, .in_channels = {}, .out_channels = {}, .groups = {}, .in = {}, .kernel = {}, "
                     ".out = {},\n      .stride = {}, .padding = {}, .dilation = {}, .transposed = {}}};\n}};\n",
                     name, l.x[0], l.x[1], l.y[1], l.groups, three(l.x, 2, 1), three(l.w, 2, 1), three(l.y, 2, 1), three(n.integers("stride"), 0, 1),
                     three(n.integers("padding"), 0, 0), three(n.integers("dilation"), 0, 1), l.transposed);
}

Result<TaskSource> write_direct(const TaskContext& context, const Layer& l) {
  STITCH_TRY(const Ending ending, write_ending(context, {l.index, 0}));
  TaskSource out;
  out.headers = {"convolution.cuh"};
  const std::string shape = context.task.name + "_shape";
  out.kernels = ending.definition + direct_shape(l, shape);
  out.kernels += fmt::format("{}{} {{\n  return stitch::convolution_direct<{}>({}, {}, {}, {}, stream);\n}}\n", task_comment(context, "convolution"), context.signature(),
                             shape, context.parameter(l.node->value("x")), context.parameter(l.node->value("weight")), bias_argument(context, l), ending.value);
  return out;
}

// Memory for the library's algorithms: a few times the tensors. The tensor-core forms copy whole tensors to channels-last and back; with less they
// are not on offer, and what is left is several times slower.
size_t library_scratch(const Layer& l) {
  const double bytes = static_cast<double>((ir::numel(l.x) + ir::numel(l.w) + ir::numel(l.y)) * ir::size_of(l.dtype));
  return (static_cast<size_t>(std::clamp(2.5 * bytes, double(1 << 20), double(int64_t{8} << 30))) + 255) / 256 * 256;
}

// Forms that the library may have no algorithm for.
bool may_be_refused(const Layer& l) {
  const ir::IntList& dilation = l.node->integers("dilation");
  const bool dilated = std::any_of(dilation.begin(), dilation.end(), [](int64_t d) { return d != 1; });
  return (l.transposed || l.dims == 3) && (l.groups > 1 || dilated || (l.transposed && l.dims == 3));
}

// Statements that describe the layer to the library as `c`.
std::string description(const TaskContext& context, const Layer& l) {
  const ir::Node& n = *l.node;
  std::string out = "  stitch::Convolution c;\n";
  out += fmt::format("  c.spatial_dims = {}, c.batch = {}, c.in_channels = {}, c.out_channels = {}, c.groups = {};\n", l.dims, l.x[0], l.x[1], l.y[1], l.groups);
  const auto per_dim = [&](std::string_view field, const ir::IntList& values, size_t skip) {
    std::string text;
    for (size_t i = 0; i < l.dims; ++i) text += fmt::format("{}c.{}[{}] = {}", i ? ", " : "  ", field, i, values[skip + i]);
    out += text + ";\n";
  };
  per_dim("in_size", l.x, 2);
  per_dim("kernel", l.w, 2);
  per_dim("out_size", l.y, 2);
  per_dim("stride", n.integers("stride"), 0);
  per_dim("padding", n.integers("padding"), 0);
  per_dim("dilation", n.integers("dilation"), 0);
  return out + fmt::format("  c.transposed = {}, c.element = {}, c.allow_tf32 = {};\n", l.transposed, element_name(l.dtype), context.precision != hw::PrecisionClass::fp32);
}

// The library and, where it may say that it has no algorithm, the direct kernel; nodes after the convolution, with its
// bias, in one pass over the result.
Result<TaskSource> write_library_call(const TaskContext& context, const Layer& l) {
  const ir::Node& n = *l.node;
  STITCH_TRY(const Ending ending, write_ending(context, {l.index, 0}));
  const bool fused = !ending.definition.empty();
  TaskSource out;
  out.uses_cudnn = true;
  out.scratch_bytes = library_scratch(l);
  const std::string x = context.parameter(n.value("x")), w = context.parameter(n.value("weight")), bias = bias_argument(context, l);
  const std::string null = fmt::format("static_cast<const {}*>(nullptr)", cpp_type(l.dtype));
  std::string body = description(context, l), y = fused ? "result" : context.parameter({l.index, 0});
  const size_t library_bytes = out.scratch_bytes;
  if (fused) {
    body += fmt::format("  auto* const result = reinterpret_cast<{}*>(static_cast<char*>(scratch) + {});\n", cpp_type(l.dtype), library_bytes);
    out.scratch_bytes += static_cast<size_t>(ir::bytes_of(n.type()));
  }
  const std::string call = fmt::format("vendor.convolution(c, {}, {}, {}, {}, scratch, {}, stream)", x, w, fused ? null : bias, y, library_bytes);
  out.kernels = ending.definition;
  if (!may_be_refused(l)) {
    body += fmt::format("  STITCH_TRY_FAILURE({});\n", call);
  } else {
    out.headers.push_back("convolution.cuh");
    out.kernels += direct_shape(l, context.task.name + "_shape");
    body += fmt::format("  stitch::Failure failure = {};\n", call);
    body += fmt::format("  if (failure == stitch::vendor_unsupported) failure = stitch::convolution_direct<{}_shape>({}, {}, {}, stitch::Store{{{}}}, stream);\n",
                        context.task.name, x, w, fused ? null : bias, y);
    body += "  STITCH_TRY_FAILURE(failure);\n";
  }
  if (fused) {
    out.headers.push_back("epilogue.cuh");
    const int64_t elements = ir::numel(l.y);
    body += fmt::format("  return stitch::epilogue<{}, {}, {}>(result, {}, {}, stream);\n", elements, l.y[1], elements / (l.y[0] * l.y[1]), bias, ending.value);
  } else {
    body += "  return nullptr;\n";
  }
  out.kernels += task_comment(context, "convolution") + context.signature() + " {\n" + body + "}\n";
  return out;
}

Result<TaskSource> write(const TaskContext& context) {
  Layer l;
  if (!read(context, l)) return fail(ErrorKind::unsupported, "no plain convolution");
  if (l.depthwise() || l.dtype == DType::f64)
    if (auto source = write_direct(context, l)) return source;
  if (auto source = write_library_call(context, l)) return source;
  // A fused node moves elements: the convolution by itself, then the rest.
  const Writer head = [](const TaskContext& part) -> Result<TaskSource> {
    Layer alone;
    if (!read(part, alone)) return fail(ErrorKind::unsupported, "no plain convolution");
    return write_library_call(part, alone);
  };
  return write_head_and_rest(context, {l.index}, head, "convolution");
}

}  // namespace

Skill convolution_skill() { return {"convolution", takes, write, true}; }

}  // namespace stitch::code
