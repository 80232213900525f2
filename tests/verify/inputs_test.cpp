#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace stitch::verify {
namespace {

using ir::DType;

ir::Bundle bundle_of(const std::string& text) {
  ir::Bundle b;
  b.name = "test";
  auto graph = ir::parse(text);
  EXPECT_TRUE(graph) << graph.error().message;
  b.graph = std::move(*graph);
  auto infos = [&](const std::vector<int32_t>& nodes) {
    std::vector<ir::TensorInfo> out;
    for (int32_t n : nodes) out.push_back({b.graph.nodes[static_cast<size_t>(n)].name, b.graph.nodes[static_cast<size_t>(n)].type(), {}});
    return out;
  };
  b.inputs = infos(b.graph.inputs());
  b.weights = infos(b.graph.weights());
  return b;
}

ir::Tensor filled(DType dtype, ir::Shape shape, const std::function<double(int64_t)>& f) {
  auto t = ir::make_tensor("x", {dtype, shape});
  for (int64_t i = 0; i < ir::numel(shape); ++i) ir::set(t, i, f(i));
  return t;
}

const char* kUnary = "%0: f32[64,64] = input() {name=\"x\"}\n%1: f32[64,64] = relu(%0)\nreturn %1 {name=\"y\"}\n";

TEST(Inputs, RecogniseUniformAndNormalData) {
  const auto b = bundle_of(kUnary);
  const auto m = infer_model(b, 0, filled(DType::f32, {64, 64}, [](int64_t i) { return std::fmod(0.6180339887 * static_cast<double>(i), 1.0); }));
  EXPECT_EQ(m.kind, InputModel::Kind::uniform);
  EXPECT_EQ(m.a, 0);
  EXPECT_EQ(m.b, 1);
  EXPECT_TRUE(m.non_negative);
  const auto normal = draw_inputs(b, {InputModel{}}, 7, Property::none, std::nullopt)[0];
  EXPECT_EQ(infer_model(b, 0, normal).kind, InputModel::Kind::normal);
}

TEST(Inputs, AGeneratorsStructureIsKept) {
  auto b = bundle_of(kUnary);
  b.inputs[0].generator = ir::Generator{"uniform", 0, 1, 1, "lower"};
  const auto t = draw_inputs(b, infer_models(b, std::nullopt), 5, Property::none, std::nullopt)[0];
  EXPECT_EQ(ir::get(t, 1), 0);
  EXPECT_NE(ir::get(t, 64), 0);
  b.inputs[0].generator->structure = "rows";
  EXPECT_EQ(infer_model(b, 0, std::nullopt).kind, InputModel::Kind::row_distribution);
}

TEST(Inputs, IndicesStayWithinTheTableTheyIndex) {
  const auto b = bundle_of(
      "%0: i64[4,8] = input() {name=\"ids\"}\n%1: f32[50,16] = weight() {name=\"table\"}\n"
      "%2: f32[4,8,16] = embedding(%1, %0)\nreturn %2 {name=\"y\"}\n");
  const auto m = infer_model(b, 0, filled(DType::i64, {4, 8}, [](int64_t i) { return static_cast<double>(i % 3); }));
  EXPECT_EQ(m.kind, InputModel::Kind::integers);
  EXPECT_EQ(m.b, 50);
  const auto t = draw_inputs(b, {m}, 3, Property::none, std::nullopt)[0];
  double high = 0;
  for (int64_t i = 0; i < 32; ++i) high = std::max(high, ir::get(t, i));
  EXPECT_LT(high, 50);
  EXPECT_GT(high, 2);
}

TEST(Inputs, KeepTriangularAndLabelData) {
  const auto b = bundle_of(kUnary);
  auto m = infer_model(b, 0, filled(DType::f32, {64, 64}, [](int64_t i) { return i % 64 > i / 64 ? 0.0 : std::sin(static_cast<double>(i + 1)); }));
  EXPECT_TRUE(m.lower_triangular);
  const auto t = draw_inputs(b, {m}, 5, Property::none, std::nullopt)[0];
  EXPECT_EQ(ir::get(t, 1), 0);
  EXPECT_NE(ir::get(t, 64), 0);
  m = infer_model(b, 0, filled(DType::f32, {64, 64}, [](int64_t i) { return i % 2 ? 1.0 : -1.0; }));
  EXPECT_EQ(m.kind, InputModel::Kind::choice);
}

TEST(Inputs, SetsDependOnTheSeedAndAreReproducible) {
  const auto b = bundle_of(kUnary);
  const std::vector<InputModel> models = {InputModel{}};
  const auto one = draw_inputs(b, models, 1, Property::none, std::nullopt), again = draw_inputs(b, models, 1, Property::none, std::nullopt),
             two = draw_inputs(b, models, 2, Property::none, std::nullopt);
  EXPECT_EQ(one[0].data, again[0].data);
  EXPECT_NE(one[0].data, two[0].data);
}

TEST(Inputs, PropertiesHaveTheirProperty) {
  const auto b = bundle_of(kUnary);
  const std::vector<InputModel> models = {InputModel{}};
  auto draw = [&](Property p) { return draw_inputs(b, models, 1, p, std::nullopt)[0]; };
  const auto outliers = draw(Property::outliers), rows = draw(Property::constant_rows), zeros = draw(Property::zeros);
  EXPECT_GT(std::abs(ir::get(outliers, 4095)), 10);
  for (int64_t i = 0; i < 2000; ++i) EXPECT_LT(std::abs(ir::get(outliers, i)), 10);
  EXPECT_EQ(ir::get(rows, 0), ir::get(rows, 63));
  EXPECT_NE(ir::get(rows, 0), ir::get(rows, 64));
  EXPECT_EQ(ir::get(zeros, 17), 0);
}

TEST(Inputs, SeedsFromTheKernelDiffer) { EXPECT_NE(random_seed(), random_seed()); }

}  // namespace
}  // namespace stitch::verify
