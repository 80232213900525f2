// Matrix products through the vendor library, with what follows fused where the library can and in one pointwise pass
// otherwise; products with a few vectors by a kernel of our own, with everything fused.
#include <algorithm>
#include <set>

#include "code/skills/anchored.h"
#include "code/skills/common.h"
#include "code/skills/skills.h"
#include "plan/operand_view.h"

namespace stitch::code {
namespace {

using ir::DType;
using ir::ValueRef;

using plan::MatrixView;

struct Product : plan::ProductView {
  DType dtype = DType::f32;
  double alpha = 1, beta = 0;
  std::optional<ValueRef> bias;    // n elements
  std::optional<ValueRef> c;       // full-size addend
  std::string activation;          // "relu"
  std::vector<int32_t> nodes;      // of the task, covered by the call
  ValueRef result;
};

class Reader {
 public:
  explicit Reader(const TaskContext& context) : context_(context), inside_(context.task.nodes.begin(), context.task.nodes.end()) {}

  std::optional<Product> read(int32_t anchor) {
    const ir::Node& n = context_.graph.nodes[static_cast<size_t>(anchor)];
    p_.result = {anchor, 0};
    p_.dtype = n.type().dtype;
    if (!is_element(p_.dtype) || ir::numel(n.type().shape) == 0) return std::nullopt;
    const std::string_view op = n.op_name();
    const auto view = plan::view_product(context_.graph, anchor, inside_);
    if (!view) return std::nullopt;
    static_cast<plan::ProductView&>(p_) = *view;
    if (op == "linear" && n.has_arg("bias") && !take_bias(n.value("bias"))) return std::nullopt;
    if (op == "addmm" || op == "baddbmm") {
      p_.alpha = n.number("alpha");
      p_.beta = n.number("beta");
      if (p_.beta != 0 && !take_addend(n)) return std::nullopt;
    }
    cover(anchor);
    return p_;
  }

 private:
  bool take_bias(ValueRef v) {
    // The library adds no bias to f64 products.
    if (inside_.count(v.node) || context_.graph.type_of(v).dtype != p_.dtype || p_.dtype == DType::f64) return false;
    p_.bias = v;
    return true;
  }
  bool take_addend(const ir::Node& n) {
    const ValueRef v = n.value("c");
    const ir::Shape& shape = context_.graph.type_of(v).shape;
    const ir::Shape& out = n.type().shape;
    if (inside_.count(v.node) || context_.graph.type_of(v).dtype != p_.dtype) return false;
    if (p_.dtype != DType::f64 && p_.beta == 1 && ir::numel(shape) == out.back() && !shape.empty() && shape.back() == out.back()) {
      p_.bias = v;
      p_.beta = 0;
      return true;
    }
    if (shape != out) return false;
    p_.c = v;
    return true;
  }

  // The anchor, the movement nodes that were read through, and a ReLU that nothing else reads before.
  void cover(int32_t anchor) {
    std::vector<int32_t> stack{anchor};
    std::set<int32_t> nodes;
    while (!stack.empty()) {
      const int32_t n = stack.back();
      stack.pop_back();
      if (!inside_.count(n) || !nodes.insert(n).second) continue;
      for (ValueRef v : ir::operands(context_.graph.nodes[static_cast<size_t>(n)])) stack.push_back(v.node);
    }
    const std::vector<int32_t> after = nodes_after(context_, anchor);
    const bool visible = std::find(context_.task.outputs.begin(), context_.task.outputs.end(), p_.result) != context_.task.outputs.end();
    if (!after.empty() && !visible && p_.dtype != DType::f64) absorb_relu(anchor, after, nodes);
    p_.nodes.assign(nodes.begin(), nodes.end());
  }
  void absorb_relu(int32_t anchor, const std::vector<int32_t>& after, std::set<int32_t>& nodes) {
    int32_t reader = -1;
    for (int32_t n : after)
      for (ValueRef v : ir::operands(context_.graph.nodes[static_cast<size_t>(n)]))
        if (v.node == anchor) {
          if (reader >= 0 && reader != n) return;
          reader = n;
        }
    const ir::Node& n = context_.graph.nodes[static_cast<size_t>(reader)];
    if (n.op_name() != "relu" || n.type().dtype != p_.dtype) return;
    p_.activation = "relu";
    p_.result = {reader, 0};
    nodes.insert(reader);
  }

  const TaskContext& context_;
  std::set<int32_t> inside_;
  Product p_;
};

std::optional<Product> read_product(const TaskContext& context) {
  const int32_t anchor = anchor_of(context, ir::OpClass::contraction);
  if (anchor < 0 || context.graph.nodes[static_cast<size_t>(anchor)].op_name() == "einsum") return std::nullopt;
  return Reader(context).read(anchor);
}

std::string pointer(const TaskContext& context, const MatrixView& m, const std::string& step) {
  std::string text = context.parameter(m.base);
  if (m.offset) text += fmt::format(" + {}", m.offset);
  return text + step;
}

// " + i0 * 128" for the batch dims that are looped over on the host.
std::string batch_step(const std::vector<int64_t>& strides) {
  std::string out;
  for (size_t i = 0; i + 1 < strides.size(); ++i)
    if (strides[i]) out += fmt::format(" + b{} * {}", i, strides[i]);
  return out;
}

// Memory for split sums; small results ask for little.
size_t gemm_scratch(const Product& p) {
  const int64_t batch = p.batch.empty() ? 1 : p.batch.back();
  const double results = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(batch);
  return static_cast<size_t>(std::clamp(results * 64, double(1 << 20), double(32 << 20)));
}

Result<TaskSource> write_library_call(const TaskContext& context, const Product& p) {
  TaskSource out;
  out.uses_cublaslt = true;
  out.scratch_bytes = gemm_scratch(p);
  std::string body = "  stitch::Gemm g;\n";
  body += fmt::format("  g.m = {}, g.n = {}, g.k = {};\n", p.m, p.n, p.k);
  body += fmt::format("  g.transpose_a = {}, g.transpose_b = {};\n", p.a.transposed, p.b.transposed);
  body += fmt::format("  g.lda = {}, g.ldb = {};\n", p.a.ld, p.b.ld);
  const size_t dims = p.batch.size();
  if (dims > 0)
    body += fmt::format("  g.batch = {}, g.batch_stride_a = {}, g.batch_stride_b = {}, g.batch_stride_c = g.batch_stride_d = {};\n", p.batch.back(),
                        p.a.batch_strides.back(), p.b.batch_strides.back(), p.m * p.n);
  if (p.alpha != 1) body += fmt::format("  g.alpha = {:.17g};\n", p.alpha);
  if (p.c) body += fmt::format("  g.beta = {:.17g};\n", p.beta);
  body += fmt::format("  g.element = {};\n", element_name(p.dtype));
  const bool tf32 = context.precision != hw::PrecisionClass::fp32 && context.precision != hw::PrecisionClass::default_flags;
  if (tf32 && p.dtype == DType::f32) body += "  g.allow_tf32 = true;  // precision class of the plan\n";
  if (!p.activation.empty()) body += fmt::format("  g.activation = stitch::Activation::{};\n", p.activation);

  std::vector<int64_t> out_strides(dims, 0);
  int64_t stride = p.m * p.n;
  for (size_t i = dims; i-- > 0; stride *= p.batch[i]) out_strides[i] = stride;
  std::string indent = "  ";
  for (size_t i = 0; i + 1 < dims; ++i) {
    body += fmt::format("{}for (int64_t b{} = 0; b{} < {}; ++b{})\n", indent, i, i, p.batch[i], i);
    indent += "  ";
  }
  const std::string step = batch_step(out_strides);
  const auto optional = [&](const std::optional<ValueRef>& v, const std::string& offset) { return v ? context.parameter(*v) + offset : std::string("nullptr"); };
  body += fmt::format("{}STITCH_TRY_FAILURE(vendor.gemm(g, {}, {}, {}, {}, {}{}, scratch, {}, stream));\n", indent,
                      pointer(context, p.a, batch_step(p.a.batch_strides)), pointer(context, p.b, batch_step(p.b.batch_strides)), optional(p.c, step),
                      optional(p.bias, ""), context.parameter(p.result), step, out.scratch_bytes);
  out.kernels = task_comment(context, "gemm") + context.signature() + " {\n" + body + "  return nullptr;\n}\n";
  return out;
}

// One operand is at most 8 vectors and both are contiguous along k: the other one is a matrix whose rows are read once.
struct Gemv {
  const MatrixView *matrix = nullptr, *vectors = nullptr;
  int64_t rows = 0, columns = 0;
};
std::optional<Gemv> as_gemv(const Product& p) {
  if (!p.batch.empty() || p.c || p.k < 64) return std::nullopt;
  const bool a_rows = !p.a.transposed || p.k == 1, b_columns = p.b.transposed || (p.n == 1 && p.b.ld == 1);
  if (!a_rows || !b_columns) return std::nullopt;
  if (p.m <= 8 && p.n >= 64) return Gemv{&p.b, &p.a, p.n, p.m};
  if (p.n <= 8 && p.m >= 64) return Gemv{&p.a, &p.b, p.m, p.n};
  return std::nullopt;
}

Result<TaskSource> write_gemv(const TaskContext& context, const Product& p, const Gemv& v) {
  const int32_t anchor = anchor_of(context, ir::OpClass::contraction);
  STITCH_TRY(const Ending ending, write_ending(context, {anchor, 0}));
  const bool matrix_is_a = v.matrix == &p.a;
  const int64_t vector_ld = v.columns == 1 ? p.k : v.vectors->ld;
  TaskSource out;
  out.headers = {"gemv.cuh"};
  const std::string shape = context.task.name + "_shape";
  out.kernels = ending.definition;
  out.kernels += fmt::format("struct {} {{\n  static constexpr stitch::GemvShape value{{.rows = {}, .k = {}, .ld = {}, .vector_ld = {}, .row_stride = {}, "
                             ".column_stride = {}, .columns = {}, .bias_per_row = {}}};\n}};\n",
                             shape, v.rows, p.k, v.rows == 1 ? p.k : v.matrix->ld, vector_ld, matrix_is_a ? p.n : 1, matrix_is_a ? 1 : p.n, v.columns, !matrix_is_a);
  const std::string null = fmt::format("static_cast<const {}*>(nullptr)", cpp_type(p.dtype));
  out.kernels += fmt::format("{}{} {{\n  return stitch::gemv<{}>({}, {}, {}, {:.17g}, {}, stream);\n}}\n", task_comment(context, "gemm"), context.signature(), shape,
                             pointer(context, *v.matrix, ""), pointer(context, *v.vectors, ""), p.bias ? context.parameter(*p.bias) : null, p.alpha,
                             ending.value);
  return out;
}

bool takes(const TaskContext& context) { return read_product(context).has_value(); }

Result<TaskSource> write(const TaskContext& context) {
  const auto product = read_product(context);
  if (!product) return fail(ErrorKind::unsupported, "no plain matrix product");
  if (const auto gemv = as_gemv(*product))
    if (auto source = write_gemv(context, *product, *gemv)) return source;
  const Writer head = [](const TaskContext& part) -> Result<TaskSource> {
    const auto again = read_product(part);
    if (!again) return fail(ErrorKind::unsupported, "no plain matrix product");
    if (part.task.outputs != std::vector<ValueRef>{again->result}) return fail(ErrorKind::unsupported, "an intermediate of the product is needed elsewhere");
    return write_library_call(part, *again);
  };
  return write_head_and_rest(context, product->nodes, head, "gemm");
}

}  // namespace

Skill gemm_skill() { return {"gemm", takes, write, true}; }

}  // namespace stitch::code
