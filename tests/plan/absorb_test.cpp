// Layout changes that the kernels beside them do for nothing: operands read in place, results written in place, views that are no work.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "plan/prepare.h"

namespace stitch::plan {
namespace {

ir::Graph prepared(const char* text) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  auto p = prepare(*g);
  EXPECT_TRUE(p) << (p ? "" : p.error().message);
  return *p;
}

// "gemm: permute matmul relu" for every task.
std::vector<std::string> tasks(const char* text) {
  const ir::Graph g = prepared(text);
  auto plan = plan_builtin(g, "test", {*hw::find_device("h200")});
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  std::vector<std::string> out;
  for (const Task& t : plan->tasks) {
    std::string text_of = std::string(name_of(t.kind)) + ":";
    for (int32_t n : t.nodes) text_of += " " + std::string(g.nodes[static_cast<size_t>(n)].op_name());
    out.push_back(text_of);
  }
  return out;
}
using Tasks = std::vector<std::string>;

TEST(Absorb, TransposedOperandsAreReadInPlace) {
  EXPECT_EQ(tasks(R"(
%0: f32[64,32] = input() {name="a"}
%1: f32[48,64] = input() {name="b"}
%2: f32[32,64] = permute(%0, dims=[1,0])
%3: f32[64,48] = permute(%1, dims=[1,0])
%4: f32[32,48] = matmul(%2, %3)
%5: f32[32,48] = relu(%4)
return %5 {name="o"}
)"),
            Tasks{"gemm: permute permute matmul relu"});
}

TEST(Absorb, HeadsOfABatchedProduct) {
  EXPECT_EQ(tasks(R"(
%0: f32[2,20,96] = input() {name="x"}
%1: f32[96,96] = weight() {name="w"}
%2: f32[2,20,96] = linear(%0, %1)
%3: f32[2,20,3,32] = view(%2, size=[2,20,3,32])
%4: f32[2,3,20,32] = permute(%3, dims=[0,2,1,3])
%5: f32[2,20,3,32] = view(%0, size=[2,20,3,32])
%6: f32[2,3,32,20] = permute(%5, dims=[0,2,3,1])
%7: f32[2,3,20,20] = matmul(%4, %6)
return %7 {name="o"}
)"),
            (Tasks{"gemm: linear", "gemm: view permute view permute matmul"}));
}

TEST(Absorb, ATransposeThatOthersReadStays) {
  EXPECT_EQ(tasks(R"(
%0: f32[64,32] = input() {name="a"}
%1: f32[64,48] = input() {name="b"}
%2: f32[64,32] = exp(%0)
%3: f32[32,64] = permute(%2, dims=[1,0])
%4: f32[32,48] = matmul(%3, %1)
return %3 {name="p"}, %4 {name="o"}
)"),
            (Tasks{"pointwise: exp permute", "gemm: matmul"}));
}

TEST(Absorb, AnOperandOutOfStepIsCopied) {  // rows of 33 floats start at odd addresses: the library would fall back to slow kernels
  EXPECT_EQ(tasks(R"(
%0: f32[64,33] = input() {name="a"}
%1: f32[32,48] = input() {name="b"}
%2: f32[64,32] = slice(%0, dim=1, start=1, end=33)
%3: f32[64,48] = matmul(%2, %1)
return %3 {name="o"}
)"),
            (Tasks{"pointwise: slice", "gemm: matmul"}));
}

TEST(Absorb, OneOperandThoughTheOtherCannotBeRead) {
  EXPECT_EQ(tasks(R"(
%0: f32[64,32] = input() {name="a"}
%1: f32[64,48,2] = input() {name="b"}
%2: f32[32,64] = permute(%0, dims=[1,0])
%3: f32[64,48] = select(%1, dim=2, index=1)
%4: f32[32,48] = matmul(%2, %3)
return %4 {name="o"}
)"),
            (Tasks{"pointwise: select", "gemm: permute matmul"}));
}

TEST(Absorb, AttentionReadsPackedHeadsAndWritesMergedOnes) {
  EXPECT_EQ(tasks(R"(
%0: f32[2,20,96] = input() {name="x"}
%1: f32[288,96] = weight() {name="qkv"}
%2: f32[96,96] = weight() {name="proj"}
%3: f32[2,20,288] = linear(%0, %1)
%4: f32[2,20,3,3,32] = view(%3, size=[2,20,3,3,32])
%5: f32[3,2,3,20,32] = permute(%4, dims=[2,0,3,1,4])
%6: f32[2,3,20,32] = select(%5, dim=0, index=0)
%7: f32[2,3,20,32] = select(%5, dim=0, index=1)
%8: f32[2,3,20,32] = select(%5, dim=0, index=2)
%9: f32[2,3,20,32] = scaled_dot_product_attention(%6, %7, %8)
%10: f32[2,20,3,32] = permute(%9, dims=[0,2,1,3])
%11: f32[2,20,96] = view(%10, size=[2,20,96])
%12: f32[2,20,96] = linear(%11, %2)
return %12 {name="o"}
)"),
            (Tasks{"gemm: linear", "attention: view permute select select select scaled_dot_product_attention permute", "alias: view", "gemm: linear"}));
}

TEST(Absorb, ColumnsOfHeadsThatAreApartAreCopied) {
  EXPECT_EQ(tasks(R"(
%0: f32[2,32,20] = input() {name="q"}
%1: f32[2,20,32] = input() {name="k"}
%2: f32[2,20,32] = permute(%0, dims=[0,2,1])
%3: f32[2,20,32] = scaled_dot_product_attention(%2, %1, %1)
return %3 {name="o"}
)"),
            (Tasks{"pointwise: permute", "attention: scaled_dot_product_attention"}));
}

TEST(Absorb, AMaskStaysAnOperandOfItsOwn) {
  EXPECT_EQ(tasks(R"(
%0: f32[1,2,20,20] = input() {name="q"}
%1: f32[1,20,2,20] = input() {name="m"}
%2: f32[1,2,20,20] = permute(%1, dims=[0,2,1,3])
%3: f32[1,2,20,20] = scaled_dot_product_attention(%2, %0, %0, %2)
return %3 {name="o"}
)"),
            (Tasks{"pointwise: permute", "attention: scaled_dot_product_attention"}));
}

TEST(Absorb, AViewOfAStoredResultIsNoSecondResult) {
  EXPECT_EQ(tasks(R"(
%0: f32[8,16] = input() {name="x"}
%1: f32[2,16,4] = input() {name="y"}
%2: f32[16,16] = weight() {name="w"}
%3: f32[16,16] = weight() {name="u"}
%4: f32[8,16] = linear(%0, %2)
%5: f32[8,16] = tanh(%4)
%6: f32[2,4,16] = view(%5, size=[2,4,16])
%7: f32[2,4,4] = matmul(%6, %1)
%8: f32[8,16] = linear(%5, %3)
return %7 {name="p"}, %8 {name="o"}
)"),
            (Tasks{"gemm: linear tanh", "alias: view", "gemm: matmul", "gemm: linear"}));
}

TEST(Prepare, AProductThatIsOnlyReadTransposedIsComputedTransposed) {
  const Tasks turned = tasks(R"(
%0: f32[4,512,256] = input() {name="x"}
%1: f32[4,196,512] = input() {name="r"}
%2: f32[196,256] = weight() {name="w"}
%3: f32[196] = weight() {name="b"}
%4: f32[512] = weight() {name="g"}
%5: f32[4,512,196] = linear(%0, %2, %3)
%6: f32[4,196,512] = permute(%5, dims=[0,2,1])
%7: f32[4,196,512] = add(%6, %1)
%8: f32[4,196,512] = layer_norm(%7, %4, normalized_shape=[512])
return %8 {name="o"}
)");
  EXPECT_EQ(turned, (Tasks{"gemm: permute matmul", "row: view add add layer_norm"}));
  // Read by a product, which turns it for nothing; too small, so that one product over the batch is faster.
  EXPECT_EQ(tasks(R"(
%0: f32[4,512,256] = input() {name="x"}
%1: f32[4,512,64] = input() {name="y"}
%2: f32[196,256] = weight() {name="w"}
%3: f32[4,512,196] = linear(%0, %2)
%4: f32[4,196,512] = permute(%3, dims=[0,2,1])
%5: f32[4,196,64] = matmul(%4, %1)
return %5 {name="o"}
)"),
            (Tasks{"gemm: linear", "gemm: permute matmul"}));
  EXPECT_EQ(tasks(R"(
%0: f32[900,8,16] = input() {name="x"}
%1: f32[4,16] = weight() {name="w"}
%2: f32[900,8,4] = linear(%0, %1)
%3: f32[900,4,8] = permute(%2, dims=[0,2,1])
%4: f32[900,4,8] = softmax(%3, dim=2)
return %4 {name="o"}
)"),
            (Tasks{"gemm: linear", "row: permute softmax"}));
}

TEST(Plan, ShortReductionsBesideEachOtherAreOneTask) {
  EXPECT_EQ(tasks(R"(
%0: f32[64,8] = input() {name="dense"}
%1: i64[64,3] = input() {name="i"}
%2: i64[64,3] = input() {name="j"}
%3: f32[10,8] = weight() {name="first"}
%4: f32[10,8] = weight() {name="second"}
%5: f32[64,3,8] = embedding(%3, %1)
%6: f32[64,8] = sum(%5, dims=[1])
%7: f32[64,3,8] = embedding(%4, %2)
%8: f32[64,8] = mean(%7, dims=[1])
%9: f32[64,24] = cat([%0, %6, %8], dim=1)
return %9 {name="o"}
)"),
            (Tasks{"pointwise: embedding sum embedding mean cat"}));
  // A long reduction, and one that is a result of its own, keep their kernels.
  EXPECT_EQ(tasks(R"(
%0: f32[64,8,4] = input() {name="x"}
%1: f32[64,32,8] = input() {name="y"}
%2: f32[64,8] = sum(%0, dims=[2])
%3: f32[64,8] = sum(%1, dims=[1])
%4: f32[64,16] = cat([%2, %3], dim=1)
return %2 {name="p"}, %4 {name="o"}
)"),
            (Tasks{"row: sum", "reduction: sum", "pointwise: cat"}));
}

// (batch, heads / 3, keys, width) repeated three times over, as expand + reshape and repeat_interleave do.
TEST(Prepare, RepeatedHeadsBecomeGroupedAttention) {
  const ir::Graph g = prepared(R"(
%0: f32[2,6,20,32] = input() {name="q"}
%1: f32[2,2,20,32] = input() {name="k"}
%2: f32[2,20,2,32] = input() {name="v"}
%3: f32[2,2,1,20,32] = view(%1, size=[2,2,1,20,32])
%4: f32[2,2,3,20,32] = expand(%3, size=[2,2,3,20,32])
%5: f32[2,6,20,32] = view(%4, size=[2,6,20,32])
%6: f32[2,20,2,1,32] = view(%2, size=[2,20,2,1,32])
%7: f32[2,20,2,3,32] = expand(%6, size=[2,20,2,3,32])
%8: f32[2,20,6,32] = view(%7, size=[2,20,6,32])
%9: f32[2,6,20,32] = permute(%8, dims=[0,2,1,3])
%10: f32[2,6,20,32] = scaled_dot_product_attention(%0, %5, %9, is_causal=true, scale=0.5)
return %10 {name="o"}
)");
  const ir::Node& n = g.nodes.back();
  ASSERT_EQ(n.op_name(), "scaled_dot_product_attention");
  EXPECT_TRUE(n.boolean("enable_gqa") && n.boolean("is_causal"));
  EXPECT_EQ(n.number("scale"), 0.5);
  EXPECT_EQ(g.at(n.value("k")).op_name(), "input");
  EXPECT_EQ(g.at(n.value("v")).op_name(), "permute");
  EXPECT_EQ(g.type_of(n.value("v")).shape, (ir::Shape{2, 2, 20, 32}));
}

TEST(Prepare, HeadsTiledInAnotherOrderStayAsTheyAre) {  // (groups, heads): query head h reads k head h % 2, not h / 3
  const ir::Graph g = prepared(R"(
%0: f32[2,6,20,32] = input() {name="q"}
%1: f32[2,2,20,32] = input() {name="k"}
%2: f32[2,1,2,20,32] = view(%1, size=[2,1,2,20,32])
%3: f32[2,3,2,20,32] = expand(%2, size=[2,3,2,20,32])
%4: f32[2,6,20,32] = view(%3, size=[2,6,20,32])
%5: f32[2,6,20,32] = scaled_dot_product_attention(%0, %4, %4)
return %5 {name="o"}
)");
  EXPECT_FALSE(g.nodes.back().boolean("enable_gqa"));
}

}  // namespace
}  // namespace stitch::plan
