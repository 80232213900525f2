#include "plan/plan.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "ir/samples.h"
#include "plan/fusion.h"
#include "plan/kinds.h"
#include "plan/names.h"
#include "plan/prepare.h"

namespace stitch::plan {
namespace {

ir::Graph parsed(const char* text) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  EXPECT_TRUE(ir::validate(*g)) << ir::validate(*g).error().message;
  return *g;
}

Plan planned(const ir::Graph& g) {
  auto plan = plan_builtin(g, "test", {*hw::find_device("h200")});
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  return *plan;
}

std::vector<TaskKind> kinds(const Plan& p) {
  std::vector<TaskKind> out;
  for (const Task& t : p.tasks) out.push_back(t.kind);
  return out;
}

constexpr const char* kBlock = R"(
%0: f32[2,64,128] = input() {name="x"}
%1: f32[128] = weight() {name="ln.weight"}
%2: f32[128] = weight() {name="ln.bias"}
%3: f32[512,128] = weight() {name="up.weight"}
%4: f32[512] = weight() {name="up.bias"}
%5: f32[128,512] = weight() {name="down.weight"}
%6: f32[128] = weight() {name="down.bias"}
%7: f32[2,64,128] = layer_norm(%0, %1, %2, normalized_shape=[128])
%8: f32[2,64,512] = linear(%7, %3, %4)
%9: f32[2,64,512] = gelu(%8)
%10: f32[2,64,128] = linear(%9, %5, %6)
%11: f32[2,64,128] = add(%0, %10)
return %11 {name="output0"}
)";

TEST(Plan, MlpBlockIsThreeTasks) {
  const ir::Graph g = parsed(kBlock);
  const Plan p = planned(g);
  EXPECT_EQ(kinds(p), (std::vector{TaskKind::row, TaskKind::gemm, TaskKind::gemm}));
  EXPECT_EQ(p.tasks[1].nodes, (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(p.tasks[1].name, "t01_linear_gelu");
  EXPECT_EQ(p.tasks[2].inputs.size(), 4u);
  EXPECT_GT(p.floor_us, 0);
}

TEST(Plan, PointwiseChainIsOneTask) {
  const Plan p = planned(parsed(R"(
%0: f32[8,16] = input() {name="x"}
%1: f32[16] = input() {name="y"}
%2: f32[8,16] = mul(%0, %1)
%3: f32[8,16] = tanh(%2)
%4: f32[16,8] = permute(%3, dims=[1,0])
return %4 {name="output0"}
)"));
  EXPECT_EQ(kinds(p), std::vector{TaskKind::pointwise});
}

TEST(Plan, ResidualSharedByNormAndLaterAddIsWrittenByTheNormKernel) {
  const Plan p = planned(parsed(R"(
%0: f32[4,32] = input() {name="x"}
%1: f32[4,32] = input() {name="y"}
%2: f32[32,32] = weight() {name="w"}
%3: f32[4,32] = add(%0, %1)
%4: f32[4,32] = layer_norm(%3, normalized_shape=[32])
%5: f32[4,32] = linear(%4, %2)
%6: f32[4,32] = add(%3, %5)
return %6 {name="output0"}
)"));
  ASSERT_EQ(kinds(p), (std::vector{TaskKind::row, TaskKind::gemm}));
  EXPECT_EQ(p.tasks[0].nodes, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(p.tasks[0].outputs.size(), 2u);
}

TEST(Plan, AValueNeededBeforeItsConsumerGroupStaysApart) {
  // %2 feeds the product whose result joins %2 again: fusing %2 with the last add would be a cycle.
  const Plan p = planned(parsed(R"(
%0: f32[32,32] = input() {name="x"}
%1: f32[32,32] = weight() {name="w"}
%2: f32[32,32] = exp(%0)
%3: f32[32,32] = linear(%2, %1)
%4: f32[32,32] = mul(%3, %2)
%5: f32[32,32] = softmax(%4, dim=1)
return %5 {name="output0"}
)"));
  ASSERT_EQ(p.tasks.size(), 3u);
  EXPECT_EQ(p.tasks[0].nodes, std::vector<int32_t>{2});
  EXPECT_EQ(p.tasks[2].nodes, (std::vector<int32_t>{4, 5}));
}

TEST(Plan, SoftmaxOverAMiddleDimIsNotARow) {
  const Plan p = planned(parsed(R"(
%0: f32[4,8,16] = input() {name="x"}
%1: f32[4,8,16] = softmax(%0, dim=1)
return %1 {name="output0"}
)"));
  EXPECT_EQ(kinds(p), std::vector{TaskKind::column});
}

TEST(Plan, ViewAloneIsAnAlias) {
  const Plan p = planned(parsed(R"(
%0: f32[4,8] = input() {name="x"}
%1: f32[8,4] = weight() {name="w"}
%2: f32[4,4] = matmul(%0, %1)
%3: f32[16] = view(%2, size=[16])
return %3 {name="output0"}
)"));
  EXPECT_EQ(kinds(p), (std::vector{TaskKind::gemm, TaskKind::alias}));
}

TEST(Plan, JsonRoundTripsAndIsCheckedAgainstTheSchema) {
  const ir::Graph g = parsed(kBlock);
  const Plan p = planned(g);
  Json j = to_json(g, p);
  const auto back = from_json(g, j);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_json(g, *back), j);

  Json wrong = j;
  wrong["tasks"][0]["kind"] = "magic";
  EXPECT_FALSE(from_json(g, wrong));
  wrong = j;
  wrong["tasks"].erase(0);
  const auto missing = from_json(g, wrong);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("is in no task"), std::string::npos) << missing.error().message;
}

TEST(Plan, KindsOfTheTableAreThoseOfTheSchema) {
  const auto text = read_file(source_root() / "schemas/plan.schema.json");
  ASSERT_TRUE(text) << text.error().message;
  const auto schema = parse_json(*text, "schema");
  ASSERT_TRUE(schema);
  std::vector<std::string> names;
  for (const KindInfo& k : task_kinds()) names.emplace_back(k.name);
  EXPECT_EQ((*schema)["$defs"]["task"]["properties"]["kind"]["enum"].get<std::vector<std::string>>(), names);
}

TEST(Plan, EachTaskSaysWhatItFusesAndWhyItStops) {
  const Plan p = planned(parsed(kBlock));
  EXPECT_EQ(p.tasks[0].why, "layer_norm f32[2,64,128] over 128 rows of 128. Stops before linear (t01): it reads each element of its operands many times, so they are stored once.");
  EXPECT_EQ(p.tasks[1].why, "linear f32[2,64,512] with gelu in its epilogue; 1 intermediate (262.1 kB) is never stored."
                            " Stops before linear (t02): it reads each element of its operands many times, so they are stored once.");
  EXPECT_EQ(p.tasks[2].why, "linear f32[2,64,128] with add in its epilogue; 1 intermediate (65.5 kB) is never stored. Stops there: its result is the program's.");
  PlanOptions apart{*hw::find_device("h200")};
  apart.fuse = false;
  const auto single = plan_builtin(parsed(kBlock), "test", apart);
  ASSERT_TRUE(single);
  EXPECT_EQ(single->tasks[2].why, "gelu over f32[2,64,512] in one pass. Stops there: nothing is fused in this plan.");
}

// Every op, among others that could be fused with it: no task is left without its own reason and figures.
TEST(Plan, NoTaskIsWithoutReasonAndFigures) {
  for (const std::string& sample : ir::test::all_samples()) {
    const ir::Graph g = parsed(ir::test::program_with(sample).c_str());
    const auto prepared = prepare(g);
    ASSERT_TRUE(prepared);
    const Plan p = planned(*prepared);
    for (const Task& t : p.tasks) {
      if (t.kind == TaskKind::alias) continue;
      EXPECT_NE(t.why.find(word_for(*prepared, prepared->nodes[static_cast<size_t>(t.nodes.back())])), std::string::npos) << sample << ": " << t.why;
      EXPECT_NE(t.why.find(" Stops "), std::string::npos) << sample << ": " << t.why;
      EXPECT_EQ(t.floor.find("Largest of: "), 0u) << sample << ": " << t.floor;
      EXPECT_NE(t.floor.find(fmt::format(" = {:.3g} us", t.floor_us)), std::string::npos) << sample << ": " << t.floor_us << ", " << t.floor;
      EXPECT_EQ(fmt::format("{}", t.floor_us), fmt::format("{}", std::strtod(fmt::format("{:.3g}", t.floor_us).c_str(), nullptr))) << sample;
    }
  }
}

struct Breach {
  const char* what;
  void (*spoil)(Plan&);
  const char* message;
};

TEST(Plan, EveryRuleOfTheCheckHasItsSentence) {
  const ir::Graph g = parsed(kBlock);
  const Breach breaches[] = {
      {"node twice", [](Plan& p) { p.tasks[1].nodes = {7, 8, 9}; }, "exactly one"},
      {"node missing", [](Plan& p) { p.tasks[1].nodes = {8}; }, "in no task"},
      {"leaf", [](Plan& p) { p.tasks[0].nodes = {0, 7}; }, "nobody's work"},
      {"out of range", [](Plan& p) { p.tasks[0].nodes = {700}; }, "has only"},
      {"order", [](Plan& p) { std::swap(p.tasks[0], p.tasks[1]); }, "reorder"},
      {"name", [](Plan& p) { p.tasks[0].name = "1; rm -rf"; }, "C identifier"},
      {"same name", [](Plan& p) { p.tasks[0].name = p.tasks[1].name; }, "Two tasks have the name"},
      {"same id", [](Plan& p) { p.tasks[0].id = p.tasks[1].id; }, "Two tasks have the id"},
      {"kind", [](Plan& p) { p.tasks[0].kind = TaskKind::gemm; }, "does not fit"},
      {"inputs", [](Plan& p) { p.tasks[1].inputs.pop_back(); }, "derived"},
      {"empty", [](Plan& p) { p.tasks.push_back({"t9", "t9"}); }, "covers no node"},
  };
  for (const Breach& b : breaches) {
    Plan p = planned(g);
    b.spoil(p);
    const Status s = check(g, p);
    ASSERT_FALSE(s) << b.what;
    EXPECT_NE(s.error().message.find(b.message), std::string::npos) << b.what << ": " << s.error().message;
  }
}

TEST(Prepare, EvalBatchNormBecomesPointwiseAndFusesIntoTheConvolution) {
  const ir::Graph g = parsed(R"(
%0: f32[2,3,8,8] = input() {name="x"}
%1: f32[4,3,3,3] = weight() {name="conv.weight"}
%2: f32[4] = weight() {name="bn.weight"}
%3: f32[4] = weight() {name="bn.bias"}
%4: f32[4] = weight() {name="bn.running_mean"}
%5: f32[4] = weight() {name="bn.running_var"}
%6: f32[2,4,8,8] = convolution(%0, %1, stride=[1,1], padding=[1,1], dilation=[1,1], output_padding=[0,0])
%7: f32[2,4,8,8] = batch_norm(%6, %2, %3, %4, %5, training=false)
%8: f32[2,4,8,8] = relu(%7)
return %8 {name="output0"}
)");
  const auto prepared = prepare(g);
  ASSERT_TRUE(prepared) << prepared.error().message;
  const Plan p = planned(*prepared);
  EXPECT_EQ(kinds(p), std::vector{TaskKind::convolution});
}

TEST(Prepare, EinsumBecomesAProduct) {
  const auto prepared = prepare(parsed(R"(
%0: f32[2,3,4,5] = input() {name="x"}
%1: f32[5,6] = input() {name="y"}
%2: f32[2,6,3,4] = einsum([%0, %1], equation="bijl,lk->bkij")
return %2 {name="output0"}
)"));
  ASSERT_TRUE(prepared) << prepared.error().message;
  for (const ir::Node& n : prepared->nodes) EXPECT_NE(n.op_name(), "einsum");
}

TEST(Prepare, CommonSubexpressionsMergeAndDeadNodesGo) {
  const auto prepared = prepare(parsed(R"(
%0: f32[4] = input() {name="x"}
%1: f32[4] = exp(%0)
%2: f32[4] = exp(%0)
%3: f32[4] = log(%0)
%4: f32[4] = add(%1, %2)
return %4 {name="output0"}
)"));
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ(prepared->nodes.size(), 3u);
}

TEST(Prepare, SharedConstantsAreCopiedPerConsumer) {
  const auto prepared = prepare(parsed(R"(
%0: f32[4,4] = input() {name="x"}
%1: f32[4,4] = weight() {name="w"}
%2: f32[4,4] = full(size=[4,4], value=2.0)
%3: f32[4,4] = mul(%0, %2)
%4: f32[4,4] = matmul(%3, %1)
%5: f32[4,4] = mul(%4, %2)
%6: f32[4,4] = matmul(%5, %1)
return %6 {name="output0"}
)"));
  ASSERT_TRUE(prepared) << prepared.error().message;
  for (const Task& t : planned(*prepared).tasks) EXPECT_NE(t.name.find("t"), std::string::npos);
  int fills = 0;
  for (const ir::Node& n : prepared->nodes) fills += n.op_name() == "full";
  EXPECT_EQ(fills, 2);
}

TEST(Prepare, AttentionWithWideHeadsBecomesProducts) {
  const auto prepared = prepare(parsed(R"(
%0: f32[2,3,8,300] = input() {name="q"}
%1: f32[2,3,9,300] = input() {name="k"}
%2: f32[2,3,9,40] = input() {name="v"}
%3: f32[2,3,8,40] = scaled_dot_product_attention(%0, %1, %2)
return %3 {name="output0"}
)"));
  ASSERT_TRUE(prepared) << prepared.error().message;
  std::vector<std::string> ops;
  for (const ir::Node& n : prepared->nodes) ops.emplace_back(n.op_name());
  EXPECT_EQ(ops, (std::vector<std::string>{"input", "input", "input", "permute", "matmul", "mul", "softmax", "matmul"}));
}

TEST(Prepare, OtherAttentionStaysWhole) {
  for (const char* text : {R"(
%0: f32[2,8,256] = input() {name="q"}
%1: f32[2,8,256] = scaled_dot_product_attention(%0, %0, %0)
return %1 {name="output0"}
)",
                           R"(
%0: f32[2,8,300] = input() {name="q"}
%1: f32[2,8,300] = scaled_dot_product_attention(%0, %0, %0, is_causal=true)
return %1 {name="output0"}
)",
                           R"(
%0: f32[2,8,300] = input() {name="q"}
%1: b8[8,8] = input() {name="mask"}
%2: f32[2,8,300] = scaled_dot_product_attention(%0, %0, %0, %1)
return %2 {name="output0"}
)"}) {
    const auto prepared = prepare(parsed(text));
    ASSERT_TRUE(prepared) << prepared.error().message;
    EXPECT_EQ(prepared->nodes.back().op_name(), "scaled_dot_product_attention");
  }
}

std::string word_of_last(const char* text) {
  const ir::Graph g = parsed(text);
  return word_for(g, g.nodes.back());
}

TEST(Names, SayWhatANodeComputes) {
  EXPECT_EQ(word_of_last("%0: f32[4,4] = input() {name=\"x\"}\n%1: f32[4,4] = pow(%0, 2)\nreturn %1 {name=\"o\"}\n"), "square");
  EXPECT_EQ(word_of_last("%0: f32[4,4] = input() {name=\"x\"}\n%1: f32[4,4] = pow(%0, 2.5)\nreturn %1 {name=\"o\"}\n"), "pow");
  EXPECT_EQ(word_of_last("%0: f32[4,4] = input() {name=\"x\"}\n%1: f32[4,1] = input() {name=\"y\"}\n%2: f32[4,1] = matmul(%0, %1)\nreturn %2 {name=\"o\"}\n"), "matvec");
  EXPECT_EQ(word_of_last(R"(
%0: f32[1,4,8,8] = input() {name="x"}
%1: f32[4,1,3,3] = weight() {name="w"}
%2: f32[1,4,6,6] = convolution(%0, %1, stride=[1,1], padding=[0,0], dilation=[1,1], output_padding=[0,0], groups=4)
return %2 {name="o"}
)"),
            "depthwise_conv2d");
  EXPECT_EQ(word_of_last(R"(
%0: f32[1,4,8] = input() {name="x"}
%1: f32[4,2,3] = weight() {name="w"}
%2: f32[1,2,10] = convolution(%0, %1, stride=[1], padding=[0], dilation=[1], transposed=true, output_padding=[0], groups=1)
return %2 {name="o"}
)"),
            "conv_transpose1d");
}

TEST(Names, OfATaskThatOnlyChangesStateIsTheState) {
  const Plan p = planned(parsed(R"(
%0: f32[4,8] = input() {name="x"}
%1: i64[] = weight() {name="bn.num_batches_tracked"}
%2: i64[] = add(%1, 1)
%3: f32[4,8] = relu(%0)
return %3 {name="output0"}, %2 {name="new_count", mutates_weight="bn.num_batches_tracked"}
)"));
  std::vector<std::string> names;
  for (const Task& t : p.tasks) names.push_back(t.name.substr(4));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"relu", "update_bn_num_batches_tracked"}));
}

TEST(Names, OfManyNodesKeepTheReductions) {
  const ir::Graph g = parsed(R"(
%0: f32[4,8] = input() {name="x"}
%1: f32[4,8] = neg(%0)
%2: f32[4,8] = exp(%1)
%3: f32[4,8] = abs(%2)
%4: f32[4,8] = tanh(%3)
%5: f32[4] = sum(%4, dims=[1])
%6: f32[4] = log(%5)
return %6 {name="o"}
)");
  EXPECT_EQ(describe_nodes(g, {1, 2, 5}), "neg_exp_sum");
  EXPECT_EQ(describe_nodes(g, {1, 2, 3, 4, 5, 6}), "neg_exp_sum_and_3_more");
}

}  // namespace
}  // namespace stitch::plan
