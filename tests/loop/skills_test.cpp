// Every special skill against the interpreter: a graph as one task, written by the skill registry and run by the CUDA
// emulator on random inputs.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "code/skills/skills.h"
#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/ops.h"
#include "ir/tensor.h"
#include "plan/task_io.h"
#include "run/host/host_program.h"

namespace stitch::code {
namespace {

namespace fs = std::filesystem;
using ir::DType;
using ir::GraphBuilder;
using ir::ValueRef;

struct Case {
  std::string name, skill;  // which skill must have written it
  ir::Graph graph;
  double tolerance = 1e-5;
  std::map<std::string, int64_t> index_range;  // integer inputs are drawn from [0, range)
  hw::PrecisionClass precision = hw::PrecisionClass::fp32;
};

plan::Task task_of(const ir::Graph& g, std::vector<int32_t> nodes, const std::string& name) {
  plan::Task t;
  t.id = name;
  t.name = name;
  t.nodes = std::move(nodes);
  plan::TaskIo(g).fill(t);
  return t;
}

std::vector<int32_t> compute_nodes(const ir::Graph& g) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < g.nodes.size(); ++i)
    if (g.nodes[i].op->cls != ir::OpClass::source || (g.nodes[i].op_name() != "input" && g.nodes[i].op_name() != "weight")) out.push_back(static_cast<int32_t>(i));
  return out;
}

// Inputs of a case: floats in [-1, 1), integers in their range.
ir::Tensor draw(const Case& c, const ir::Node& n, unsigned seed) {
  ir::Tensor t = ir::make_tensor(n.name, n.type());
  std::mt19937 engine(seed);
  const auto range = c.index_range.find(n.name);
  const int64_t most = range != c.index_range.end() ? range->second : n.type().dtype == DType::b8 ? 2 : 100;
  std::uniform_real_distribution<double> real(-1, 1);
  std::uniform_int_distribution<int64_t> whole(0, most - 1);
  for (int64_t i = 0; i < ir::numel(n.type().shape); ++i) ir::set(t, i, ir::is_floating(n.type().dtype) ? real(engine) : static_cast<double>(whole(engine)));
  return t;
}

// The text of a test program, kernels of all cases and a main that runs them, and the files of doubles it reads: inputs
// and what the interpreter makes of them.
class ProgramWriter {
 public:
  explicit ProgramWriter(fs::path folder) : folder_(std::move(folder)) {}

  void add(const Case& c) {
    SCOPED_TRACE(c.name);
    const plan::Task task = task_of(c.graph, compute_nodes(c.graph), fmt::format("c{:02}", count_++));
    auto source = write_task({c.graph, task, c.precision});
    ASSERT_TRUE(source.has_value()) << source.error().message << "\n" << source.error().detail;
    EXPECT_EQ(source->skill, c.skill);
    kernels_ += source->kernels + "\n";
    headers_.insert(source->headers.begin(), source->headers.end());
    ASSERT_NO_FATAL_FAILURE(write_values(c, task));
    body_ += "  {\n";
    for (ValueRef v : task.inputs) body_ += fmt::format("    Buffer<{}> {}(read_values(\"{}\"));\n", cpp_type(c.graph.type_of(v).dtype), name_of(v), file_of(task, v));
    for (ValueRef v : task.outputs) body_ += fmt::format("    Buffer<{}> {}({});\n", cpp_type(c.graph.type_of(v).dtype), name_of(v), ir::numel(c.graph.type_of(v).shape));
    body_ += fmt::format("    Buffer<char> scratch({});\n    require(stitch_program::{}(", std::max<size_t>(source->scratch_bytes, 1), task.name);
    for (ValueRef v : task.inputs) body_ += name_of(v) + ", ";
    for (ValueRef v : task.outputs) body_ += name_of(v) + ", ";
    body_ += fmt::format("scratch, vendor, nullptr), \"{}\");\n", c.name);
    for (ValueRef v : task.outputs)
      body_ += fmt::format("    expect_close(\"{} {}\", {}.read(), read_values(\"{}\"), {});\n", c.name, name_of(v), name_of(v), file_of(task, v),
                           ir::is_floating(c.graph.type_of(v).dtype) ? c.tolerance : 0);
    body_ += "  }\n";
  }

  std::string text() const {
    std::string out = "#define STITCH_USE_CUBLASLT 1\n#define STITCH_USE_CUDNN 1\n#include \"stitch/runtime_impl.h\"\n#include \"stitch/vendor_impl.h\"\n#include \"pointwise.cuh\"\n";
    for (const std::string& h : headers_) out += fmt::format("#include \"{}\"\n", h);
    out += "#include \"check.h\"\n\nnamespace stitch_program {\nusing namespace stitch;\n" + kernels_ + "}  // namespace stitch_program\n\n";
    out += "int main() {\n  stitch::Vendor vendor;\n" + body_ + "  if (failures == 0) std::printf(\"all passed\\n\");\n  return failures == 0 ? 0 : 1;\n}\n";
    return out;
  }

 private:
  static std::string name_of(ValueRef v) { return fmt::format("v{}_{}", v.node, v.output); }
  std::string file_of(const plan::Task& task, ValueRef v) const { return (folder_ / fmt::format("{}_{}", task.name, name_of(v))).string(); }

  void write_file_of(const plan::Task& task, ValueRef v, const interp::Value& value) {
    std::vector<double> values = value.f;
    for (int64_t i : value.i) values.push_back(static_cast<double>(i));
    ASSERT_TRUE(write_file(file_of(task, v), std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double))).has_value());
  }
  void write_values(const Case& c, const plan::Task& task) {
    std::vector<interp::Value> inputs;
    for (int32_t n : c.graph.inputs()) {
      inputs.push_back(interp::from_tensor(draw(c, c.graph.nodes[static_cast<size_t>(n)], static_cast<unsigned>(n) + 1)));
      write_file_of(task, {n, 0}, inputs.back());
    }
    const auto results = interp::run(c.graph, inputs, {});
    ASSERT_TRUE(results.has_value()) << results.error().message;
    for (size_t i = 0; i < c.graph.outputs.size(); ++i) write_file_of(task, c.graph.outputs[i].value, (*results)[i]);
  }

  fs::path folder_;
  int count_ = 0;
  std::string kernels_, body_;
  std::set<std::string> headers_;
};

using Named = std::initializer_list<GraphBuilder::NamedArg>;
ir::TensorType f32(ir::Shape s) { return {DType::f32, std::move(s)}; }
ir::TensorType of(DType t, ir::Shape s) { return {t, std::move(s)}; }
using I = ir::IntList;

void add_products(std::vector<Case>& cases) {
  const auto product = [&](const std::string& name, ir::Shape a, ir::Shape b, DType t = DType::f32, double tolerance = 1e-5) {
    GraphBuilder g;
    const auto x = g.input("x", of(t, a)), y = g.input("y", of(t, b));
    g.output("out", g.op("matmul", {{"a", x}, {"b", y}}));
    cases.push_back({"matmul " + name, "gemm", g.graph(), tolerance, {}});
  };
  product("2d", {9, 17}, {17, 12});
  product("f64", {9, 17}, {17, 12}, DType::f64, 1e-12);
  product("bf16", {9, 17}, {17, 12}, DType::bf16, 2e-2);
  product("batched", {3, 2, 5, 7}, {3, 2, 7, 4});
  product("shared right side", {3, 2, 5, 7}, {7, 4});
  product("shared left side", {5, 7}, {3, 7, 4});
  product("crossed broadcast", {3, 1, 5, 7}, {1, 4, 7, 6});
  product("row by matrix", {7}, {7, 70});
  product("matrix by column", {80, 70}, {70});
  product("dot", {70}, {70});
  product("batched by column", {4, 5, 7}, {7});
  {
    GraphBuilder g;
    const auto x = g.input("x", f32({2, 5, 3, 8})), y = g.input("y", f32({2, 6, 3, 8}));
    const auto q = g.op("permute", {{"x", x}, {"dims", I{0, 2, 1, 3}}}), k = g.op("permute", {{"x", y}, {"dims", I{0, 2, 3, 1}}});
    g.output("out", g.op("matmul", {{"a", q}, {"b", k}}));
    cases.push_back({"matmul of permuted heads", "gemm", g.graph()});
  }
  {
    GraphBuilder g;
    const auto x = g.input("x", f32({12, 20})), w = g.input("w", f32({16, 20})), b = g.input("b", f32({16})), r = g.input("r", f32({12, 16}));
    const auto linear = g.op("relu", {{"x", g.op("linear", {{"x", x}, {"weight", w}, {"bias", b}})}});
    g.output("out", g.op("mul", {{"x", g.op("gelu", {{"x", linear}})}, {"y", r}}));
    g.output("hidden", linear);
    cases.push_back({"linear, relu, gelu, product", "gemm", g.graph()});
  }
  {
    GraphBuilder g;
    const auto x = g.input("x", f32({3, 100})), w = g.input("w", f32({64, 100})), b = g.input("b", f32({64})), r = g.input("r", f32({3, 64}));
    g.output("out", g.op("add", {{"x", g.op("silu", {{"x", g.op("linear", {{"x", x}, {"weight", w}, {"bias", b}})}})}, {"y", r}}));
    cases.push_back({"linear of three rows with fused nodes", "gemm", g.graph()});
  }
  {
    GraphBuilder g;
    const auto c = g.input("c", f32({6, 5})), a = g.input("a", f32({6, 7})), b = g.input("b", f32({7, 5}));
    g.output("out", g.op("addmm", {{"c", c}, {"a", a}, {"b", b}, {"beta", 0.5}, {"alpha", 2.0}}));
    cases.push_back({"addmm", "gemm", g.graph()});
  }
  {
    GraphBuilder g;
    const auto c = g.input("c", f32({5})), a = g.input("a", f32({6, 7})), b = g.input("b", f32({7, 5}));
    g.output("out", g.op("tanh", {{"x", g.op("addmm", {{"c", c}, {"a", a}, {"b", b}})}}));
    cases.push_back({"addmm with a bias", "gemm", g.graph()});
  }
}

void add_convolutions(std::vector<Case>& cases) {
  const auto layer = [&](const std::string& name, ir::Shape x, ir::Shape w, I stride, I padding, I dilation, bool transposed, I extra, int64_t groups, bool fused,
                         DType t = DType::f32, double tolerance = 1e-5) {
    GraphBuilder g;
    const auto in = g.input("x", of(t, x)), weight = g.input("w", of(t, w)), bias = g.input("b", of(t, {transposed ? w[1] * groups : w[0]}));
    auto y = g.op("convolution", {{"x", in}, {"weight", weight}, {"bias", bias}, {"stride", stride}, {"padding", padding}, {"dilation", dilation},
                                  {"transposed", transposed}, {"output_padding", extra}, {"groups", groups}});
    if (fused) {
      const auto r = g.input("r", g.graph().type_of(y));
      y = g.op("add", {{"x", g.op("relu", {{"x", y}})}, {"y", r}});
    }
    g.output("out", y);
    cases.push_back({"convolution " + name, "convolution", g.graph(), tolerance, {}});
  };
  layer("2d", {2, 3, 8, 9}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1, false);
  layer("2d with fused nodes", {2, 3, 8, 9}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1, true);
  layer("transposed, dilated, with fused nodes", {1, 4, 5, 4}, {4, 2, 3, 3}, {2, 2}, {1, 1}, {2, 2}, true, {1, 1}, 2, true);
  layer("1d, stride", {2, 3, 20}, {4, 3, 5}, {2}, {1}, {1}, false, {0}, 1, false);
  layer("depthwise with fused nodes", {1, 4, 8, 9}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 4, true);
  layer("f64", {1, 4, 6, 6}, {4, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 2, false, DType::f64, 1e-12);
  layer("transposed", {1, 3, 5, 4}, {3, 2, 3, 3}, {2, 2}, {1, 1}, {1, 1}, true, {1, 1}, 1, false);
  layer("3d f16", {1, 2, 4, 5, 5}, {2, 2, 2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, false, {0, 0, 0}, 1, false, DType::f16, 2e-3);
}

void add_attention(std::vector<Case>& cases) {
  const auto attention = [&](const std::string& name, ir::Shape q, ir::Shape k, bool causal, bool gqa, std::optional<ir::TensorType> mask) {
    GraphBuilder g;
    const auto x = g.input("q", f32(q)), y = g.input("k", f32(k)), z = g.input("v", f32(k));
    if (mask) g.output("out", g.op("scaled_dot_product_attention", {{"q", x}, {"k", y}, {"v", z}, {"mask", g.input("m", *mask)}, {"enable_gqa", gqa}}));
    else g.output("out", g.op("scaled_dot_product_attention", {{"q", x}, {"k", y}, {"v", z}, {"is_causal", causal}, {"enable_gqa", gqa}}));
    cases.push_back({"attention " + name, "attention", g.graph()});
  };
  attention("plain", {2, 3, 10, 16}, {2, 3, 12, 16}, false, false, std::nullopt);
  attention("causal, grouped heads", {1, 4, 40, 8}, {1, 2, 40, 8}, true, true, std::nullopt);
  attention("additive mask", {2, 2, 5, 8}, {2, 2, 6, 8}, false, false, f32({2, 1, 1, 6}));
  attention("bool mask", {2, 2, 5, 8}, {2, 2, 9, 8}, false, false, of(DType::b8, {5, 9}));
  attention("two batch dims", {2, 3, 2, 5, 8}, {2, 3, 2, 9, 8}, false, false, f32({3, 1, 5, 9}));
  attention("three dims", {3, 5, 8}, {3, 9, 8}, false, false, std::nullopt);
  {
    // Queries, keys and values in one tensor, heads merged in the result.
    GraphBuilder g;
    const auto x = g.input("x", f32({2, 11, 3, 2, 8}));
    const auto turned = g.op("permute", {{"x", x}, {"dims", I{2, 0, 3, 1, 4}}});
    const auto part = [&](int64_t i) { return g.op("select", {{"x", turned}, {"dim", int64_t{0}}, {"index", i}}); };
    const auto q = part(0), k = part(1), v = part(2);
    const auto y = g.op("scaled_dot_product_attention", {{"q", q}, {"k", k}, {"v", v}});
    g.output("out", g.op("permute", {{"x", y}, {"dims", I{0, 2, 1, 3}}}));
    cases.push_back({"attention of packed heads", "attention", g.graph()});
  }
  {
    // Grouped heads, keys cut out of a longer memory, an additive mask.
    GraphBuilder g;
    const auto q = g.input("q", f32({2, 40, 4, 8})), k = g.input("k", f32({2, 60, 2, 8})), v = g.input("v", f32({2, 2, 50, 8})), m = g.input("m", f32({4, 40, 50}));
    const auto turned = g.op("permute", {{"x", q}, {"dims", I{0, 2, 1, 3}}}), keys = g.op("permute", {{"x", k}, {"dims", I{0, 2, 1, 3}}});
    const auto recent = g.op("slice", {{"x", keys}, {"dim", int64_t{2}}, {"start", int64_t{10}}, {"end", int64_t{60}}});
    const auto y = g.op("scaled_dot_product_attention", {{"q", turned}, {"k", recent}, {"v", v}, {"mask", m}, {"enable_gqa", true}});
    g.output("out", g.op("permute", {{"x", y}, {"dims", I{2, 0, 1, 3}}}));
    cases.push_back({"attention of strided grouped heads", "attention", g.graph()});
  }
}

void add_along_dim(std::vector<Case>& cases) {
  const auto unary = [&](const std::string& name, const std::string& skill, const char* op, ir::TensorType x, Named args, int results = 1,
                         std::optional<DType> dtype = std::nullopt, double tolerance = 1e-5) {
    GraphBuilder g;
    const auto in = g.input("x", x);
    ValueRef y;
    // The builder takes an initializer list, so the input is put in by hand for each number of arguments.
    const auto* a = args.begin();
    switch (args.size()) {
      case 1: y = g.op(op, {{"x", in}, a[0]}, dtype, results); break;
      case 2: y = g.op(op, {{"x", in}, a[0], a[1]}, dtype, results); break;
      case 3: y = g.op(op, {{"x", in}, a[0], a[1], a[2]}, dtype, results); break;
      default: y = g.op(op, {{"x", in}, a[0], a[1], a[2], a[3]}, dtype, results); break;
    }
    for (int k = 0; k < results; ++k) g.output("out" + std::to_string(k), {y.node, k});
    cases.push_back({name, skill, g.graph(), tolerance, {}});
  };
  unary("softmax along channels", "softmax_columns", "softmax", f32({2, 7, 5}), {{"dim", int64_t{1}}});
  unary("log_softmax along the batch", "softmax_columns", "log_softmax", f32({7, 5}), {{"dim", int64_t{0}}});
  unary("long group_norm", "norm", "group_norm", f32({1, 4, 130, 130}), {{"num_groups", int64_t{2}}});
  unary("cumsum", "scan", "cumsum", f32({3, 40}), {{"dim", int64_t{1}}});
  unary("cumsum of an outer dim, integers", "scan", "cumsum", of(DType::i32, {3, 40}), {{"dim", int64_t{0}}}, 1, DType::i64);
  unary("cumprod", "scan", "cumprod", f32({3, 20}), {{"dim", int64_t{1}}});
  unary("logcumsumexp", "scan", "logcumsumexp", f32({3, 20}), {{"dim", int64_t{1}}});
  unary("cummax", "scan", "cummax", f32({3, 20}), {{"dim", int64_t{1}}}, 2);
  unary("cummin", "scan", "cummin", f32({3, 20}), {{"dim", int64_t{0}}}, 2);
  unary("max_pool", "pool", "max_pool", f32({2, 3, 9, 8}), {{"kernel", I{3, 2}}, {"stride", I{2, 2}}, {"padding", I{1, 0}}, {"dilation", I{1, 2}}}, 2);
  unary("avg_pool", "pool", "avg_pool", f32({2, 3, 9, 8}), {{"kernel", I{3, 2}}, {"stride", I{2, 2}}, {"padding", I{1, 0}}, {"ceil_mode", true}});
  unary("avg_pool 1d", "pool", "avg_pool", f32({2, 3, 9}), {{"kernel", I{3}}, {"stride", I{2}}, {"padding", I{1}}, {"count_include_pad", false}});
  unary("adaptive_avg_pool", "pool", "adaptive_avg_pool", f32({2, 3, 9, 8}), {{"output_size", I{2, 3}}});
  unary("global average", "pool", "adaptive_avg_pool", f32({2, 3, 9, 8}), {{"output_size", I{1, 1}}});
  unary("adaptive_max_pool", "pool", "adaptive_max_pool", f32({2, 3, 9, 8}), {{"output_size", I{2, 3}}}, 2);
}

void add_norms(std::vector<Case>& cases) {
  GraphBuilder g;
  const auto x = g.input("x", f32({3, 4, 6, 5})), w = g.input("w", f32({4})), b = g.input("b", f32({4})), m = g.input("m", f32({4})), v = g.input("v", f32({4}));
  const auto y = g.op("batch_norm", {{"x", x}, {"weight", w}, {"bias", b}, {"running_mean", m}, {"running_var", v}, {"training", true}}, std::nullopt, 3);
  const auto r = g.input("r", f32({3, 4, 6, 5}));
  g.output("out", g.op("add", {{"x", g.op("relu", {{"x", y}})}, {"y", r}}));
  g.output("mean", {y.node, 1});
  g.output("var", {y.node, 2});
  cases.push_back({"batch_norm in training, with fused nodes", "norm", g.graph()});
}

void add_recurrent(std::vector<Case>& cases) {
  GraphBuilder g;
  const auto x = g.input("x", f32({2, 5, 3})), h = g.input("h", f32({4, 2, 6})), c = g.input("c", f32({4, 2, 6}));
  ir::ValueList params;
  for (int layer = 0; layer < 2; ++layer)
    for (int direction = 0; direction < 2; ++direction)
      for (const ir::Shape& shape : {ir::Shape{24, layer == 0 ? 3 : 12}, {24, 6}, {24}, {24}}) params.push_back(g.input(fmt::format("p{}", params.size()), f32(shape)));
  const auto y = g.op("lstm", {{"x", x}, {"h0", h}, {"c0", c}, {"params", params}, {"has_biases", true}, {"num_layers", int64_t{2}}, {"bidirectional", true}, {"batch_first", true}},
                      std::nullopt, 3);
  g.output("y", y);
  g.output("c_n", {y.node, 2});  // nobody reads h_n
  cases.push_back({"lstm", "recurrent", g.graph()});
}

void add_indexing(std::vector<Case>& cases) {
  {
    GraphBuilder g;
    const auto x = g.input("x", f32({6, 5})), i = g.input("i", of(DType::i64, {4, 5})), s = g.input("s", f32({4, 5}));
    g.output("out", g.op("scatter_add", {{"x", x}, {"dim", int64_t{0}}, {"index", i}, {"src", s}}));
    cases.push_back({"scatter_add", "scatter", g.graph(), 1e-5, {{"i", 6}}});
  }
  {
    GraphBuilder g;
    const auto x = g.input("x", f32({6, 5})), i = g.input("i", of(DType::i64, {6, 1}));
    g.output("out", g.op("scatter", {{"x", x}, {"dim", int64_t{1}}, {"index", i}, {"src", 3.0}}));
    cases.push_back({"scatter of a number", "scatter", g.graph(), 1e-5, {{"i", 5}}});
  }
  {
    GraphBuilder g;
    const auto x = g.input("x", f32({4, 6, 5})), i = g.input("i", of(DType::i64, {3})), j = g.input("j", of(DType::i64, {2, 1})), s = g.input("s", f32({5}));
    g.output("out", g.op("index_put", {{"x", x}, {"indices", ir::ValueList{i, j}}, {"values", s}, {"accumulate", true}}));
    cases.push_back({"index_put, accumulated", "scatter", g.graph(), 1e-5, {{"i", 4}, {"j", 6}}});
  }
  {
    GraphBuilder g;
    const auto x = g.input("x", f32({4, 6, 5})), i = g.input("i", of(DType::i64, {1})), j = g.input("j", of(DType::i64, {1})), s = g.input("s", f32({1, 6}));
    g.output("out", g.op("index_put", {{"x", x}, {"indices", ir::ValueList{i, {-1, 0}, j}}, {"values", s}}));
    cases.push_back({"index_put around a dim", "scatter", g.graph(), 1e-5, {{"i", 4}, {"j", 5}}});
  }
}

testing::AssertionResult build_and_run(const ProgramWriter& writer, TempFolder& folder) {
  const fs::path root = host::testing::repository(), source = folder.path() / "program.cu";
  if (auto s = write_file(source, writer.text()); !s) return testing::AssertionFailure() << s.error().message;
  auto translated = host::translate_files({source}, {root / "kernels", root / "tests/run/kernels", root / "include"}, folder.path() / "translated");
  if (!translated) return testing::AssertionFailure() << translated.error().message;
  host::HostCompileOptions options;
  options.shared_library = false;
  options.optimize = 0;
  options.include_root = root / "include";
  options.include_folders = {root / "kernels", root / "tests/run/kernels"};
  options.runtime_cache = host::testing::runtime_cache();
  auto lock = host::testing::lock_runtime_cache();
  auto plan = host::plan_build(*translated, folder.path() / "program", options);
  if (!plan) return testing::AssertionFailure() << plan.error().message;
  std::vector<host::Command> commands = plan->compile;
  commands.push_back(plan->link);
  for (const host::Command& command : commands) {
    ProcessSpec spec;
    spec.argv = command;
    auto result = run_process(spec);
    if (!result) return testing::AssertionFailure() << result.error().message;
    if (!result->ok()) {
      folder.keep();
      return testing::AssertionFailure() << result->err.substr(0, 3000);
    }
  }
  const auto outcome = host::testing::run({plan->output, ""}, host::Sanitize::none);
  if (outcome.process.ok() && outcome.process.out.find("all passed") != std::string::npos) return testing::AssertionSuccess();
  folder.keep();
  return testing::AssertionFailure() << outcome.process.out << outcome.process.err << "\nsource: " << source;
}

TEST(Skills, AgreeWithTheInterpreter) {
  std::vector<Case> cases;
  add_products(cases);
  add_convolutions(cases);
  add_attention(cases);
  add_along_dim(cases);
  add_norms(cases);
  add_recurrent(cases);
  add_indexing(cases);
  auto folder = TempFolder::create("skills");
  ASSERT_TRUE(folder.has_value());
  ProgramWriter writer(folder->path());
  for (const Case& c : cases) writer.add(c);
  if (HasFatalFailure()) return;
  EXPECT_TRUE(build_and_run(writer, *folder));
}

}  // namespace
}  // namespace stitch::code
