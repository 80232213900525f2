// Every layout of the reduction skill: rows of lanes, warps and blocks, columns, shared rows, each with the ops that
// reduce, normalise and carry neighbours along.
#include <algorithm>
#include <functional>

#include "ir/builder.h"
#include "loop/generated_program.h"

namespace stitch::testing {
namespace {

using ir::DType;
using ir::GraphBuilder;
using ir::IntList;
using ir::Shape;
using ir::ValueRef;

// Statistics of several kinds and a normalisation over `dims`, with pointwise nodes before and after.
void add_case(GraphBuilder& b, const std::string& name, ValueRef x, IntList dims) {
  const Shape shape = b.graph().type_of(x).shape;
  auto out = [&, n = 0](ValueRef v) mutable { b.output(fmt::format("{}_{}", name, n++), v); };
  const auto reduce = [&](const char* op, ValueRef v, bool keepdim) { return b.op(op, {{"x", v}, {"dims", dims}, {"keepdim", keepdim}}); };
  const ValueRef shifted = b.op("mul", {{"x", x}, {"y", 0.5}});
  const ValueRef mean = reduce("mean", shifted, true);
  const ValueRef centred = b.op("sub", {{"x", shifted}, {"y", mean}});
  out(b.op("mul", {{"x", centred}, {"y", b.op("rsqrt", {{"x", b.op("add", {{"x", reduce("mean", b.op("mul", {{"x", centred}, {"y", centred}}), true)}, {"y", 1e-3}})}})}}));
  out(reduce("amax", x, false));
  out(reduce("sum", b.op("exp", {{"x", x}}), true));
  out(b.op("sqrt", {{"x", b.op("var", {{"x", x}, {"dims", dims}, {"correction", 1.0}})}}));
  out(reduce("logsumexp", x, false));
  out(b.op("any", {{"x", b.op("gt", {{"x", x}, {"y", 1.9}})}, {"dims", dims}}));
  if (dims.size() != 1) return;
  const int64_t d = dims[0];
  out(b.op("softmax", {{"x", b.op("add", {{"x", x}, {"y", x}})}, {"dim", d}}));
  out(b.op("relu", {{"x", b.op("log_softmax", {{"x", x}, {"dim", d}})}}));
  const ValueRef best = b.op("max_dim", {{"x", x}, {"dim", d}}, std::nullopt, 2);
  out(best);
  out({best.node, 1});
  out(b.op("argmin", {{"x", x}, {"dim", d}, {"keepdim", true}}));
}

void add_norms(GraphBuilder& b, const std::string& name, ValueRef x) {
  const Shape shape = b.graph().type_of(x).shape;
  const ValueRef row = b.op("select", {{"x", b.op("view", {{"x", x}, {"size", IntList{ir::numel(shape) / shape.back(), shape.back()}}})}, {"dim", int64_t{0}}, {"index", int64_t{0}}});
  b.output(name + "_layer", b.op("gelu", {{"x", b.op("layer_norm", {{"x", b.op("add", {{"x", x}, {"y", 0.25}})}, {"normalized_shape", IntList{shape.back()}}, {"weight", row}, {"bias", row}})}}));
  b.output(name + "_rms", b.op("rms_norm", {{"x", x}, {"normalized_shape", IntList{shape.back()}}, {"weight", row}, {"eps", 1e-5}}));
}

TEST(GeneratedProgram, RowsOfEveryLength) {
  GraphBuilder b;
  std::vector<std::pair<std::string, ValueRef>> inputs;
  for (const Shape& s : {Shape{300, 3}, Shape{70, 8}, Shape{33, 64}, Shape{9, 130}, Shape{5, 1024}, Shape{3, 2050}, Shape{2, 9000}, Shape{1, 40}})
    inputs.emplace_back(fmt::format("rows{}x{}", s[0], s[1]), b.input(fmt::format("x{}", s[1]), {DType::f32, s}));
  inputs.emplace_back("half", b.input("h", {DType::f16, {11, 264}}));
  inputs.emplace_back("double", b.input("d", {DType::f64, {6, 66}}));
  for (const auto& [name, x] : inputs) {
    add_case(b, name, x, {1});
    add_norms(b, name, x);
  }
  EXPECT_TRUE(agrees_with_interpreter(b.graph(), {}, 3));
}

TEST(GeneratedProgram, ColumnsAndMiddleDims) {
  GraphBuilder b;
  const ValueRef x = b.input("x", {DType::f32, {37, 40}}), y = b.input("y", {DType::f32, {3, 17, 24}}), z = b.input("z", {DType::f32, {4, 6, 5, 8}}), w = b.input("w", {DType::f32, {600, 9}});
  add_case(b, "columns", x, {0});
  add_case(b, "middle", y, {1});
  add_case(b, "narrow", w, {0});
  add_case(b, "outer", z, {0, 2});
  add_case(b, "batch", z, {0, 2, 3});
  add_case(b, "all", z, {0, 1, 2, 3});
  EXPECT_TRUE(agrees_with_interpreter(b.graph(), {}, 4));
}

TEST(GeneratedProgram, RowsSharedByBlocks) {
  GraphBuilder b;
  const ValueRef x = b.input("x", {DType::f32, {2, 150000}}), y = b.input("y", {DType::f32, {3000, 40}}), z = b.input("z", {DType::f32, {8, 3, 20000}});
  add_case(b, "long", x, {1});
  add_case(b, "tall", y, {0});
  add_case(b, "channels", z, {0, 2});
  add_case(b, "everything", x, {0, 1});
  EXPECT_TRUE(agrees_with_interpreter(b.graph(), {}, 5));
}

// Rounding in a mean, times 1 / sqrt(eps), must not look like a signal: PyTorch gives exact zeros here too.
TEST(GeneratedProgram, RowsOfEqualValuesHaveNoVariance) {
  GraphBuilder b;
  std::vector<ir::Tensor> inputs;
  std::vector<std::function<void()>> outputs_of;  // the graph's inputs come first
  const auto add = [&](const Shape& shape, const std::function<void(const std::string&, ValueRef)>& reductions, bool columns = false) {
    const std::string name = fmt::format("x{}", inputs.size());
    ir::Tensor t = ir::make_tensor(name, {DType::f32, shape});
    const int64_t inner = columns ? shape[1] : ir::numel(shape) / shape[0];
    for (int64_t i = 0; i < ir::numel(shape); ++i) ir::set(t, i, 0.1 + 0.37 * static_cast<double>(columns ? i % inner : i / inner));
    inputs.push_back(std::move(t));
    outputs_of.push_back([=, x = b.input(name, {DType::f32, shape})] { reductions(name, x); });
  };
  const auto rows = [&](const std::string& name, ValueRef x) {
    const int64_t length = b.graph().type_of(x).shape.back();
    b.output(name + "_layer", b.op("layer_norm", {{"x", x}, {"normalized_shape", IntList{length}}}));
    b.output(name + "_std", b.op("sqrt", {{"x", b.op("var", {{"x", x}, {"dims", IntList{1}}, {"correction", 1.0}})}}));
  };
  // Every way to share a row: one thread, lanes, a warp, a block, several blocks; with and without room in registers.
  for (const Shape& s : {Shape{300, 3}, Shape{70, 8}, Shape{33, 60}, Shape{33, 64}, Shape{9, 130}, Shape{5, 1023}, Shape{5, 1024}, Shape{3, 2050}, Shape{2, 9000}, Shape{2, 70000}, Shape{2, 150001}}) add(s, rows);
  const auto columns = [&](const std::string& name, ValueRef x) {
    const ValueRef variance = b.op("var", {{"x", x}, {"dims", IntList{0}}, {"correction", 0.0}, {"keepdim", true}});
    b.output(name + "_columns", b.op("mul", {{"x", b.op("sub", {{"x", x}, {"y", b.op("mean", {{"x", x}, {"dims", IntList{0}}, {"keepdim", true}})}})}, {"y", variance}}));
    b.output(name + "_deviation", b.op("sqrt", {{"x", variance}}));
  };
  for (const Shape& s : {Shape{37, 40}, Shape{600, 9}, Shape{3000, 40}}) add(s, columns, true);
  for (const auto& add_outputs : outputs_of) add_outputs();
  auto program = HostProgram::make(b.graph(), {});
  ASSERT_TRUE(program.has_value()) << program.error().message;
  const auto outputs = program->run(inputs, {});
  ASSERT_TRUE(outputs.has_value()) << outputs.error().message;
  for (const ir::Tensor& t : *outputs)
    for (int64_t i = 0; i < ir::numel(t.type.shape); ++i) ASSERT_EQ(ir::get(t, i), 0.0) << t.name << " at " << i;
}

}  // namespace
}  // namespace stitch::testing
