// Types, tensors, the builder and the small passes.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "ir/builder.h"
#include "ir/fingerprint.h"
#include "ir/ops.h"
#include "ir/passes.h"
#include "ir/tensor.h"

namespace stitch::ir {
namespace {

TEST(Types, SizesAndNames) {
  for (const DType d : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16, DType::i8, DType::u8, DType::b8})
    EXPECT_EQ(dtype_from_name(name_of(d)), d);
  EXPECT_FALSE(dtype_from_name("f8"));
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({2, 0, INT64_MAX}), 0);
  EXPECT_EQ(numel({INT64_MAX, 2}), INT64_MAX);
  EXPECT_EQ(numel({INT64_MAX, INT64_MAX, 0}), 0);
  EXPECT_EQ(bytes_of({DType::f64, {INT64_MAX / 2}}), INT64_MAX);
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(to_string(TensorType{DType::bf16, {2, 3}}), "bf16[2,3]");
}

TEST(Types, Broadcasting) {
  EXPECT_EQ(broadcast({2, 1, 3}, {4, 1}), (Shape{2, 4, 3}));
  EXPECT_EQ(broadcast({}, {5}), (Shape{5}));
  EXPECT_EQ(broadcast({0}, {1}), (Shape{0}));
  EXPECT_FALSE(broadcast({0}, {2}));
  EXPECT_FALSE(broadcast({2}, {3}));
}

TEST(Types, PromotionIsPyTorchs) {
  EXPECT_EQ(promote(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(promote(DType::i64, DType::f16), DType::f16);
  EXPECT_EQ(promote(DType::b8, DType::u8), DType::u8);
  EXPECT_EQ(promote(DType::i8, DType::u8), DType::i16);
  EXPECT_EQ(promote(DType::u8, DType::i32), DType::i32);
  EXPECT_EQ(promote(DType::f64, DType::f32), DType::f64);
}

TEST(Tensor, EveryHalfAndBfloat16RoundTrips) {
  for (uint32_t u = 0; u < 65536; ++u) {
    const auto h = static_cast<uint16_t>(u);
    const float f = half_to_float(h), b = bfloat16_to_float(h);
    if (!std::isnan(f)) EXPECT_EQ(float_to_half(f), h);
    else EXPECT_TRUE(std::isnan(half_to_float(float_to_half(f))));
    if (!std::isnan(b)) EXPECT_EQ(float_to_bfloat16(b), h);
    else EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(b))));
  }
}

// Nearest by search over all finite values of the format, ties to the even encoding.
uint16_t nearest(double v, float (*decode)(uint16_t), uint16_t infinity) {
  uint16_t best = 0;
  double distance = INFINITY;
  for (uint16_t h = 0; h < infinity; ++h) {
    const double d = std::fabs(static_cast<double>(decode(h)) - std::fabs(v));
    if (d < distance || (d == distance && h % 2 == 0)) best = h, distance = d;
  }
  return static_cast<uint16_t>(best | (std::signbit(v) ? 0x8000 : 0));
}

TEST(Tensor, SetRoundsOnceToNearestEven) {
  std::mt19937_64 rng(5);
  Tensor h = make_tensor("h", {DType::f16, {1}}), b = make_tensor("b", {DType::bf16, {1}});
  std::vector<double> values = {1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-40, 1 + 3 * 0x1p-11, 0x1p-25, 0x1p-25 * 1.0000001, 65504, 65519, 1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-45, -0.0};
  for (int i = 0; i < 30; ++i) values.push_back(std::ldexp(static_cast<double>(rng() >> 11) * 0x1p-53 * (rng() % 2 ? 1 : -1), static_cast<int>(rng() % 40) - 24));
  for (const double v : values) {
    set(h, 0, v);
    set(b, 0, v);
    EXPECT_EQ(h.as<uint16_t>()[0], nearest(v, half_to_float, 0x7c00)) << v;
    EXPECT_EQ(b.as<uint16_t>()[0], nearest(v, bfloat16_to_float, 0x7f80)) << v;
  }
  set(h, 0, 65520);
  EXPECT_TRUE(std::isinf(get(h, 0)));
  set(h, 0, -INFINITY);
  EXPECT_EQ(get(h, 0), -INFINITY);
  set(h, 0, NAN);
  EXPECT_TRUE(std::isnan(get(h, 0)));
}

TEST(Tensor, GetAndSetInEveryDtype) {
  for (const DType d : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16, DType::i8, DType::u8}) {
    Tensor t = make_tensor("t", {d, {3}});
    EXPECT_EQ(t.data.size(), static_cast<size_t>(3 * size_of(d)));
    set(t, 1, 100);
    EXPECT_EQ(get(t, 0), 0);
    EXPECT_EQ(get(t, 1), 100) << name_of(d);
    EXPECT_EQ(get(t, 2), 0);
  }
  Tensor t = make_tensor("t", {DType::b8, {1}});
  set(t, 0, 0.25);
  EXPECT_EQ(get(t, 0), 1);
}

TEST(Builder, InfersTypesAndPromotes) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::f16, {2, 3}});
  const auto i = b.input("i", {DType::i64, {3}});
  const auto m = b.input("m", {DType::b8, {2, 3}});
  const auto type = [&](ValueRef v) { return to_string(b.graph().type_of(v)); };
  EXPECT_EQ(type(b.op("add", {{"x", x}, {"y", i}})), "f16[2,3]");
  EXPECT_EQ(type(b.op("mul", {{"x", i}, {"y", 0.5}})), "f32[3]");
  EXPECT_EQ(type(b.op("mul", {{"x", i}, {"y", int64_t{2}}})), "i64[3]");
  EXPECT_EQ(type(b.op("where", {{"condition", m}, {"x", x}, {"y", 0.0}})), "f16[2,3]");
  EXPECT_EQ(type(b.op("cast", {{"x", x}}, DType::f32)), "f32[2,3]");
  EXPECT_EQ(type(b.op("sum", {{"x", m}, {"dims", IntList{0}}})), "i64[3]");
  EXPECT_EQ(type(b.op("full", {{"size", IntList{4}}, {"value", 1.0}}, DType::i32)), "i32[4]");
  EXPECT_EQ(type(b.op("lt", {{"x", x}, {"y", 0.0}})), "b8[2,3]");
  const auto top = b.op("topk", {{"x", x}, {"k", int64_t{2}}, {"dim", int64_t{-1}}});
  EXPECT_EQ(type({top.node, 1}), "i64[2,2]");
  EXPECT_TRUE(validate(b.graph())) << validate(b.graph()).error().message;
  EXPECT_THROW(b.op("add", {{"x", x}, {"z", x}}), std::logic_error);
  EXPECT_THROW(b.op("nothing", {}), std::logic_error);
  EXPECT_THROW(b.op("matmul", {{"a", x}, {"b", x}}), std::logic_error);
}

TEST(Graph, OperandsAndUsers) {
  const auto g = parse("%0: f32[2] = input() {name=\"x\"}\n%1: i64[2] = input() {name=\"i\"}\n%2: f32[2] = mul(%0, %0)\n"
                       "%3: f32[4] = cat([%0, %2])\n%4: f32[2] = index(%3, [%1])\nreturn %4\n");
  ASSERT_TRUE(g) << g.error().message;
  EXPECT_EQ(operands(g->nodes[2]), (std::vector<ValueRef>{{0, 0}, {0, 0}}));
  EXPECT_EQ(users(*g), (std::vector<std::vector<int32_t>>{{2, 3}, {4}, {3}, {4}, {}}));
  EXPECT_EQ(g->inputs(), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(g->weights().empty());
  EXPECT_THROW(g->nodes[2].arg("z"), std::logic_error);
  EXPECT_THROW(g->nodes[2].integer("x"), std::logic_error);
  EXPECT_FALSE(g->nodes[2].has_arg("z"));
}

constexpr const char* kWithDead = R"(%0: f32[2] = input() {name="unused"}
%1: f32[2] = weight() {name="w"}
%2: f32[2] = weight() {name="dead"}
%3: f32[2] = weight() {name="changed"}
%4: f32[2] = exp(%2)
%5: f32[4] = cat([%1, %1])
%6: f32[2] = neg(%1)
return %5 {name="y"}, %6 {name="new", mutates_weight="changed"}
)";

TEST(Passes, EliminateDeadKeepsWhatOutputsNeed) {
  const Graph g = *parse(kWithDead);
  EXPECT_EQ(print(eliminate_dead(g)), R"(%0: f32[2] = input() {name="unused"}
%1: f32[2] = weight() {name="w"}
%2: f32[2] = weight() {name="dead"}
%3: f32[2] = weight() {name="changed"}
%4: f32[4] = cat([%1, %1])
%5: f32[2] = neg(%1)
return %4 {name="y"}, %5 {name="new", mutates_weight="changed"}
)");
  EXPECT_EQ(print(eliminate_dead(g, Unused::drop_weights)), R"(%0: f32[2] = input() {name="unused"}
%1: f32[2] = weight() {name="w"}
%2: f32[2] = weight() {name="changed"}
%3: f32[4] = cat([%1, %1])
%4: f32[2] = neg(%1)
return %3 {name="y"}, %4 {name="new", mutates_weight="changed"}
)");
}

TEST(Fingerprint, FollowsMeaningNotOrigin) {
  Graph g = *parse(kWithDead);
  const std::string before = fingerprint(g);
  EXPECT_EQ(before.size(), 64u);
  g.nodes[4].source = "model.py:3";
  g.nodes[4].scope = "a.b";
  g.nodes[4].name = "hint";
  EXPECT_EQ(fingerprint(g), before);
  Graph renamed = g, typed = g, output = g;
  renamed.nodes[1].name = "v";
  typed.nodes[0].types[0].shape = {3};
  output.outputs[0].value = {6, 0};
  for (const Graph& other : {renamed, typed, output}) EXPECT_NE(fingerprint(other), before);
  // Pinned: caches on disk are keyed by it.
  EXPECT_EQ(before, "cec3d06b72dcd0674c9973d008bafebf4484de44ba5433a46a214264701371b5");
}

}  // namespace
}  // namespace stitch::ir
