#include <gtest/gtest.h>

#include "hw/device.h"

namespace stitch::hw {
namespace {

ir::Graph parsed(const char* text) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return *g;
}

TEST(Floor, ACopyIsBoundByItsBytes) {
  const ir::Graph g = parsed("%0: f32[1048576] = input() {name=\"x\"}\n%1: f32[1048576] = relu(%0)\nreturn %1 {name=\"o\"}\n");
  const Device d = *find_device("h200");
  const Floor f = floor_of(g, {1}, d, PrecisionClass::default_flags);
  EXPECT_DOUBLE_EQ(f.bytes, 2.0 * 4 * 1048576);
  EXPECT_DOUBLE_EQ(f.seconds, f.bytes / d.dram_bytes_per_s);
  EXPECT_STREQ(f.bound, "memory");
  EXPECT_EQ(explain(f, d), fmt::format("Largest of: 8.39 MB read and written / {:.3g} TB/s = {:.3g} us; 1.05 Mflop elementwise / {:.3g} Tflop/s = {:.3g} us.",
                                       d.dram_bytes_per_s / 1e12, f.bytes / d.dram_bytes_per_s * 1e6, d.fp32_flops / 1e12, 1048576 / d.fp32_flops * 1e6));
}

TEST(Floor, ALargeProductIsBoundByArithmeticAndRanksPrecisionClasses) {
  const ir::Graph g = parsed(
      "%0: f32[4096,4096] = input() {name=\"a\"}\n%1: f32[4096,4096] = input() {name=\"b\"}\n"
      "%2: f32[4096,4096] = matmul(%0, %1)\nreturn %2 {name=\"o\"}\n");
  const Device d = *find_device("h200");
  const Floor fp32 = floor_of(g, {2}, d, PrecisionClass::fp32);
  const Floor tf32 = floor_of(g, {2}, d, PrecisionClass::tf32);
  EXPECT_STREQ(fp32.bound, "compute");
  EXPECT_DOUBLE_EQ(fp32.flops, 2.0 * 4096 * 4096 * 4096);
  EXPECT_GT(fp32.seconds, tf32.seconds);
}

TEST(Floor, AGatherReadsOnlyWhatItTakes) {
  const ir::Graph g = parsed(
      "%0: f32[1000000,64] = weight() {name=\"table\"}\n%1: i64[8] = input() {name=\"idx\"}\n"
      "%2: f32[8,64] = embedding(%0, %1)\nreturn %2 {name=\"o\"}\n");
  const Floor f = floor_of(g, {2}, *find_device("h200"), PrecisionClass::fp32);
  EXPECT_DOUBLE_EQ(f.bytes, 2.0 * 8 * 64 * 4 + 8 * 8);
}

TEST(Floor, ValuesKeptInsideAGroupCostNoTraffic) {
  const ir::Graph g = parsed(
      "%0: f32[1024] = input() {name=\"x\"}\n%1: f32[1024] = exp(%0)\n%2: f32[1024] = neg(%1)\nreturn %2 {name=\"o\"}\n");
  const Device d = *find_device("h200");
  const double fused = floor_of(g, {1, 2}, d, PrecisionClass::fp32).bytes;
  const double apart = floor_of(g, {1}, d, PrecisionClass::fp32).bytes + floor_of(g, {2}, d, PrecisionClass::fp32).bytes;
  EXPECT_DOUBLE_EQ(fused, apart / 2);
}

TEST(Device, UnknownNameListsTheKnownOnes) {
  const auto d = find_device("abacus");
  ASSERT_FALSE(d);
  EXPECT_NE(d.error().message.find("h200"), std::string::npos);
}

}  // namespace
}  // namespace stitch::hw
