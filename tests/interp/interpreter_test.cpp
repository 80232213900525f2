#include "interp/interpreter.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "interp/rules.h"
#include "ir/builder.h"

namespace stitch::interp {
namespace {

using ir::DType;
using ir::GraphBuilder;
using ir::ValueRef;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Value floats(ir::Shape shape, std::vector<double> v, DType d = DType::f64) { return {{d, std::move(shape)}, std::move(v), {}}; }
Value ints(ir::Shape shape, std::vector<int64_t> v, DType d = DType::i64) { return {{d, std::move(shape)}, {}, std::move(v)}; }

TEST(Interpreter, RunsAChain) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::f64, {2, 2}});
  const auto w = b.weight("w", {DType::f64, {2, 2}});
  b.output("y", b.op("relu", {{"x", b.op("matmul", {{"a", x}, {"b", w}})}}));
  const auto out = run(b.graph(), {floats({2, 2}, {1, 2, 3, 4})}, {floats({2, 2}, {1, -1, 0, -1})});
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_THAT((*out)[0].f, ElementsAre(1, 0, 3, 0));
}

TEST(Interpreter, OutputsMayBeLeavesAndRepeat) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::i64, {2}});
  const auto y = b.op("neg", {{"x", x}});
  b.output("a", x);
  b.output("b", y);
  b.output("c", y);
  const auto out = run(b.graph(), {ints({2}, {1, 2})}, {});
  ASSERT_TRUE(out);
  EXPECT_THAT((*out)[0].i, ElementsAre(1, 2));
  EXPECT_THAT((*out)[1].i, ElementsAre(-1, -2));
  EXPECT_THAT((*out)[2].i, ElementsAre(-1, -2));
}

TEST(Interpreter, WrongInputsAreNamed) {
  GraphBuilder b;
  b.output("y", b.op("neg", {{"x", b.input("x", {DType::f32, {2}})}}));
  const auto dtype = run(b.graph(), {floats({2}, {1, 2})}, {});
  ASSERT_FALSE(dtype);
  EXPECT_EQ(dtype.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(dtype.error().message, HasSubstr("\"x\" must be f32[2], but f64[2]"));
  EXPECT_THAT(run(b.graph(), {floats({2}, {1}, DType::f32)}, {}).error().message, HasSubstr("with 1 elements"));
  EXPECT_THAT(run(b.graph(), {}, {}).error().message, HasSubstr("1 inputs, but 0"));
}

TEST(Interpreter, DataErrorsNameTheNodeAndItsLine) {
  const auto g = ir::parse("%0: f64[3,2] = weight() {name=\"table\"}\n%1: i64[1] = input() {name=\"i\"}\n"
                           "%2: f64[1,2] = embedding(%0, %1) {source=\"model.py:7\"}\nreturn %2 {name=\"y\"}\n");
  ASSERT_TRUE(g) << g.error().message;
  for (int64_t bad : {-1, 3}) {
    const auto out = run(*g, {ints({1}, {bad})}, {floats({3, 2}, {1, 2, 3, 4, 5, 6})});
    ASSERT_FALSE(out);
    EXPECT_EQ(out.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(out.error().message, HasSubstr("%2 embedding (model.py:7): index"));
  }
}

TEST(Interpreter, IntegerDivisionByZeroIsAnError) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::i64, {1}});
  b.output("y", b.op("remainder", {{"x", x}, {"y", int64_t{0}}}));
  const auto out = run(b.graph(), {ints({1}, {1})}, {});
  ASSERT_FALSE(out);
  EXPECT_THAT(out.error().message, HasSubstr("divided by zero"));
}

TEST(Interpreter, MemoryLimitCountsOnlyLiveValues) {
  GraphBuilder b;
  ValueRef x = b.input("x", {DType::f64, {100}});
  for (int i = 0; i < 10; ++i) x = b.op("neg", {{"x", x}});
  b.output("y", x);
  Options o;
  o.memory_limit = 1600;  // two values at a time
  EXPECT_TRUE(run(b.graph(), {floats({100}, std::vector<double>(100))}, {}, o));
  o.memory_limit = 1599;
  const auto out = run(b.graph(), {floats({100}, std::vector<double>(100))}, {}, o);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().kind, ErrorKind::environment);
  EXPECT_THAT(out.error().message, HasSubstr("1599 bytes"));
}

TEST(Interpreter, IntegersWrapInTheirDtype) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::i8, {2}});
  const auto u = b.input("u", {DType::u8, {2}});
  const auto l = b.input("l", {DType::i64, {1}});
  b.output("a", b.op("mul", {{"x", x}, {"y", int64_t{2}}}));
  b.output("b", b.op("sub", {{"x", u}, {"y", int64_t{2}}}));
  b.output("c", b.op("add", {{"x", l}, {"y", int64_t{1}}}));
  b.output("d", b.op("div", {{"x", x}, {"y", int64_t{-1}}, {"rounding_mode", std::string("floor")}}, DType::i8));
  const auto out = run(b.graph(), {ints({2}, {100, -128}, DType::i8), ints({2}, {1, 255}, DType::u8), ints({1}, {INT64_MAX})}, {});
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_THAT((*out)[0].i, ElementsAre(-56, 0));
  EXPECT_THAT((*out)[1].i, ElementsAre(255, 253));
  EXPECT_THAT((*out)[2].i, ElementsAre(INT64_MIN));
  EXPECT_THAT((*out)[3].i, ElementsAre(-100, -128));
}

TEST(Interpreter, RoundsEveryResultOnlyIfAsked) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::f32, {1}});
  b.output("y", b.op("sub", {{"x", b.op("add", {{"x", x}, {"y", 1.0}})}, {"y", 1.0}}));
  Options o;
  EXPECT_DOUBLE_EQ((*run(b.graph(), {floats({1}, {0x1p-30}, DType::f32)}, {}, o))[0].f[0], 0x1p-30);
  o.round_to_dtype = true;
  EXPECT_EQ((*run(b.graph(), {floats({1}, {0x1p-30}, DType::f32)}, {}, o))[0].f[0], 0);
}

TEST(Interpreter, CastKeepsFp64UnlessRounding) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::f32, {1}});
  b.output("y", b.op("cast", {{"x", b.op("cast", {{"x", x}}, DType::f16)}}, DType::f32));
  Options o;
  EXPECT_EQ((*run(b.graph(), {floats({1}, {0.1}, DType::f32)}, {}, o))[0].f[0], 0.1);
  o.round_to_dtype = true;
  EXPECT_EQ((*run(b.graph(), {floats({1}, {0.1}, DType::f32)}, {}, o))[0].f[0], 0.0999755859375);
}

TEST(Interpreter, ObserveSeesEveryComputedNode) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::f64, {2}});
  const auto y = b.op("neg", {{"x", x}});
  b.op("exp", {{"x", y}});  // nobody reads it
  b.output("y", y);
  std::vector<int32_t> seen;
  ASSERT_TRUE(run(b.graph(), {floats({2}, {1, 2})}, {}, {}, [&](int32_t n, const Values& v) {
    seen.push_back(n);
    EXPECT_EQ(v.size(), 1u);
  }));
  EXPECT_THAT(seen, ElementsAre(1, 2));
}

// The formats against the tensor layer, which converts through bits.
TEST(RoundTo, AgreesWithTheTensorFormats) {
  for (const DType d : {DType::f32, DType::f16, DType::bf16}) {
    ir::Tensor t = ir::make_tensor("t", {d, {1}});
    uint64_t state = 1;
    for (int i = 0; i < 20000; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double v = std::ldexp(static_cast<double>(static_cast<int64_t>(state)), -63 + static_cast<int>(state >> 8 & 63) - 40);
      ir::set(t, 0, v);
      EXPECT_EQ(round_to(v, d), ir::get(t, 0)) << ir::name_of(d) << " " << v;
    }
    for (double v : {65504.0, 65519.99, 65520.0, 3.39e38, 3.4e38, 1e39, -1e39, 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-133, 0x1p-134, 0.0, -0.0}) {
      ir::set(t, 0, v);
      EXPECT_EQ(round_to(v, d), ir::get(t, 0)) << ir::name_of(d) << " " << v;
    }
  }
  EXPECT_TRUE(std::isnan(round_to(std::numeric_limits<double>::quiet_NaN(), DType::f16)));
}

TEST(Tensors, RoundTripInEveryDtype) {
  for (const DType d : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16, DType::i8, DType::u8, DType::b8}) {
    ir::Tensor t = ir::make_tensor("t", {d, {3}});
    for (int64_t i = 0; i < 3; ++i) ir::set(t, i, static_cast<double>(i));
    EXPECT_EQ(to_tensor(from_tensor(t), "t").data, t.data) << ir::name_of(d);
    EXPECT_EQ(ir::get(to_f64_tensor(from_tensor(t), "t"), 2), d == DType::b8 ? 1 : 2);
  }
  ir::Tensor big = ir::make_tensor("t", {DType::i64, {1}});
  big.as<int64_t>()[0] = (int64_t{1} << 62) + 1;  // no double holds it
  EXPECT_EQ(to_f64_tensor(from_tensor(big), "t").as<int64_t>()[0], (int64_t{1} << 62) + 1);
}

}  // namespace
}  // namespace stitch::interp
