#include "verify/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "run/protocol.h"
#include "verify/verdict.h"

namespace stitch::verify {
namespace {

using ir::DType;
using ::testing::HasSubstr;

constexpr Tolerance kFp32{1e-4, 2e-5};

ir::Tensor tensor(DType dtype, ir::Shape shape, const std::vector<double>& values) {
  auto t = ir::make_tensor("y", {dtype, std::move(shape)});
  for (size_t i = 0; i < values.size(); ++i) ir::set(t, static_cast<int64_t>(i), values[i]);
  return t;
}

ir::Tensor wave(DType dtype, ir::Shape shape, double scale = 1) {
  auto t = ir::make_tensor("y", {dtype, shape});
  for (int64_t i = 0; i < ir::numel(shape); ++i) ir::set(t, i, scale * std::sin(0.7 * static_cast<double>(i) + 0.3));
  return t;
}

Comparison check(const ir::Tensor& got, const ir::Tensor& exact, std::vector<ir::Tensor> references = {}) {
  return compare("y", got, exact, references, kFp32, run::kPoisonNan);
}

TEST(Compare, RoundingPasses) {
  const auto exact = wave(DType::f64, {64, 64});
  const auto c = check(wave(DType::f32, {64, 64}), exact);
  EXPECT_TRUE(c.ok);
  EXPECT_LT(c.max_error, 1e-7);
}

TEST(Compare, OneWrongElementInAMillionFailsAndIsNamed) {
  const auto exact = wave(DType::f64, {1000, 1000});
  auto got = wave(DType::f32, {1000, 1000});
  ir::set(got, 777123, ir::get(got, 777123) + 0.01);
  const auto c = check(got, exact);
  EXPECT_FALSE(c.ok);
  EXPECT_EQ(c.wrong, 1);
  ASSERT_TRUE(c.first);
  EXPECT_EQ(c.first->index, (std::vector<int64_t>{777, 123}));
  EXPECT_THAT(c.sentence(), HasSubstr("[777,123]"));
}

TEST(Compare, CancellationNearZeroDoesNotFail) {
  // Values of size one; one of them cancels to 1e-9 and carries the rounding error of its terms.
  auto exact = wave(DType::f64, {512});
  ir::set(exact, 100, 1e-9);
  auto got = wave(DType::f32, {512});
  ir::set(got, 100, 6e-8);
  EXPECT_TRUE(check(got, exact).ok);
}

TEST(Compare, OneHugeRowDoesNotExcuseTheOthers) {
  auto exact = wave(DType::f64, {8, 512}), got = wave(DType::f32, {8, 512});
  for (int64_t i = 0; i < 512; ++i) {
    ir::set(exact, i, 1e8 * ir::get(exact, i));
    ir::set(got, i, ir::get(exact, i));
  }
  ASSERT_TRUE(check(got, exact).ok);
  ir::set(got, 3 * 512 + 5, 0.5);
  EXPECT_FALSE(check(got, exact).ok);
}

TEST(Compare, TinyOutputsAreNotExcusedByAnAbsoluteTolerance) {
  const auto exact = wave(DType::f64, {512}, 1e-7);
  EXPECT_TRUE(check(wave(DType::f32, {512}, 1e-7), exact).ok);
  EXPECT_FALSE(check(tensor(DType::f32, {512}, std::vector<double>(512, 0)), exact).ok);
}

TEST(Compare, LowerPrecisionFails) {
  const auto exact = wave(DType::f64, {64, 64});
  auto got = ir::make_tensor("y", {DType::f32, {64, 64}});
  for (int64_t i = 0; i < 4096; ++i) ir::set(got, i, ir::bfloat16_to_float(ir::float_to_bfloat16(static_cast<float>(ir::get(exact, i)))));
  EXPECT_FALSE(check(got, exact).ok);
  for (int64_t i = 0; i < 4096; ++i) ir::set(got, i, ir::get(exact, i) * (1 + (i % 2 ? 9e-5 : -9e-5)));  // each within its bound
  const auto c = check(got, exact);
  EXPECT_EQ(c.wrong, 0);
  EXPECT_FALSE(c.ok);  // but not together
}

TEST(Compare, NanAndInfinityMustAgree) {
  const double nan = std::nan(""), inf = HUGE_VAL;
  const auto exact = tensor(DType::f64, {4}, {1, nan, inf, -inf});
  EXPECT_TRUE(check(tensor(DType::f32, {4}, {1, nan, inf, -inf}), exact).ok);
  EXPECT_FALSE(check(tensor(DType::f32, {4}, {nan, nan, inf, -inf}), exact).ok);
  EXPECT_FALSE(check(tensor(DType::f32, {4}, {1, 0, inf, -inf}), exact).ok);
  EXPECT_FALSE(check(tensor(DType::f32, {4}, {1, nan, -inf, -inf}), exact).ok);
  // 1e39 is infinite in f32, and the oracle's value is understood so.
  EXPECT_TRUE(check(tensor(DType::f32, {1}, {inf}), tensor(DType::f64, {1}, {1e39})).ok);
}

TEST(Compare, OverflowOfTheReferenceIsAccepted) {
  // exp(100)/exp(100) written naively: fp64 gives 1, the program itself in fp32 gives NaN.
  const auto exact = tensor(DType::f64, {2}, {1, 1}), reference = tensor(DType::f64, {2}, {std::nan(""), 1});
  EXPECT_TRUE(check(tensor(DType::f32, {2}, {std::nan(""), 1}), exact, {reference}).ok);
  EXPECT_TRUE(check(tensor(DType::f32, {2}, {1, 1}), exact, {reference}).ok);
  EXPECT_FALSE(check(tensor(DType::f32, {2}, {1, std::nan("")}), exact, {reference}).ok);
}

TEST(Compare, TwiceTheReferencesOwnErrorIsAllowedWhereItErrs) {
  auto exact = wave(DType::f64, {512}), reference = wave(DType::f64, {512});
  ir::set(reference, 9, ir::get(exact, 9) + 0.01);
  auto got = wave(DType::f32, {512});
  ir::set(got, 9, ir::get(exact, 9) - 0.015);
  const auto c = check(got, exact, {reference});
  EXPECT_TRUE(c.ok);
  EXPECT_EQ(c.forgiven, 1);
  ir::set(got, 300, ir::get(exact, 300) - 0.015);  // the reference is exact here
  EXPECT_FALSE(check(got, exact, {reference}).ok);
}

TEST(Compare, IntegersAreExactExceptWhereTheReferenceTies) {
  const auto exact = tensor(DType::i64, {3}, {5, 6, 7}), tie = tensor(DType::i64, {3}, {5, 9, 7});
  EXPECT_TRUE(check(tensor(DType::i64, {3}, {5, 6, 7}), exact).ok);
  EXPECT_FALSE(check(tensor(DType::i64, {3}, {5, 9, 7}), exact).ok);
  EXPECT_TRUE(check(tensor(DType::i64, {3}, {5, 9, 7}), exact, {tie}).ok);
  EXPECT_FALSE(check(tensor(DType::i64, {3}, {9, 6, 7}), exact, {tie}).ok);
}

TEST(Compare, UnwrittenElementsAreCounted) {
  const auto exact = wave(DType::f64, {16});
  auto got = wave(DType::f32, {16});
  for (size_t b = 4 * 10; b < 4 * 12; ++b) got.data[b] = std::byte{0xFF};
  const auto c = check(got, exact);
  EXPECT_FALSE(c.ok);
  EXPECT_EQ(c.unwritten, 2);
  EXPECT_THAT(c.sentence(), HasSubstr("never written"));
}

TEST(Compare, ReducedOutputTypesGetTheirOwnRounding) {
  const auto exact = wave(DType::f64, {64, 64});
  EXPECT_TRUE(check(wave(DType::f16, {64, 64}), exact).ok);
  EXPECT_TRUE(check(wave(DType::bf16, {64, 64}), exact).ok);
  auto got = wave(DType::bf16, {64, 64});
  ir::set(got, 5, ir::get(got, 5) + 0.1);
  EXPECT_FALSE(check(got, exact).ok);
}

TEST(Compare, FlushedDenormalsPass) {
  const auto exact = tensor(DType::f64, {3}, {1e-40, 2e-40, 0});
  EXPECT_TRUE(check(tensor(DType::f32, {3}, {0, 0, 0}), exact).ok);
}

TEST(AllClose, IsKernelBenchsRule) {
  const auto expected = tensor(DType::f32, {2}, {1, 100});
  EXPECT_TRUE(all_close(tensor(DType::f32, {2}, {1.00015, 100.005}), expected, 1e-4).ok);
  EXPECT_FALSE(all_close(tensor(DType::f32, {2}, {1.0003, 100}), expected, 1e-4).ok);
  EXPECT_FALSE(all_close(tensor(DType::f32, {1}, {std::nan("")}), tensor(DType::f32, {1}, {std::nan("")}), 1e-4).ok);
}

TEST(Speedup, IntervalCoversTheRatio) {
  std::vector<double> slow, fast;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(2 + 0.01 * (i % 7));
    fast.push_back(1 + 0.01 * (i % 5));
  }
  const auto s = speedup_over("eager", slow, fast);
  EXPECT_NEAR(s.ratio, 2.03 / 1.02, 0.03);
  EXPECT_LE(s.low, s.ratio);
  EXPECT_GE(s.high, s.ratio);
  EXPECT_LT(s.high - s.low, 0.1);
}

}  // namespace
}  // namespace stitch::verify
