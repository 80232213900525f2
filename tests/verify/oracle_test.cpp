// What the interpreter's draws of the reference's own rounding errors look like.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/builder.h"
#include "verify/oracle.h"

namespace stitch::verify {
namespace {

// Noise of single elements averages out in a sum; the rounding errors of a sum of equal terms do not. Both kinds are drawn.
TEST(Oracle, DisturbsElementsAndWholeRowsInTurn) {
  ir::GraphBuilder b;
  const auto x = b.input("x", {ir::DType::f64, {3, 50}}), scalar = b.input("s", {ir::DType::f64, {}});
  b.output("y", b.op("neg", {{"x", x}}));
  b.output("z", b.op("neg", {{"x", scalar}}));
  std::vector<ir::Tensor> inputs = {ir::make_tensor("x", {ir::DType::f64, {3, 50}}), ir::make_tensor("s", {ir::DType::f64, {}})};
  for (auto& t : inputs)
    for (int64_t i = 0; i < ir::numel(t.type.shape); ++i) ir::set(t, i, 1.0);
  const auto oracle = interpreter_oracle(b.graph(), {}, int64_t{1} << 30);
  const double size = 1e-3;
  for (int draw = 0; draw < 5; ++draw) {
    const auto out = oracle->reference(inputs, draw, size);
    ASSERT_TRUE(out.has_value()) << out.error().message;
    const auto at = [&](int64_t r, int64_t c) { return ir::get(out->at(0), r * 50 + c); };
    EXPECT_LE(std::abs(ir::get(out->at(1), 0) + 1), 2 * size);
    for (int64_t r = 0; r < 3; ++r) {
      double low = 0, high = -2;
      for (int64_t c = 0; c < 50; ++c) low = std::min(low, at(r, c)), high = std::max(high, at(r, c));
      EXPECT_LE(std::abs(low + 1), 2 * size);
      EXPECT_EQ(at(r, 7) == -1, draw == 0);
      EXPECT_EQ(high - low > size, draw % 2 == 1);
      EXPECT_EQ(high == low, draw % 2 == 0);
    }
    EXPECT_EQ(at(0, 0) == at(1, 0), draw == 0);
  }
}

}  // namespace
}  // namespace stitch::verify
