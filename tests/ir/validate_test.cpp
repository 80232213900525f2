// Every rule of the rule table has a graph that breaks it. Most are built by hand: the parser refuses some of them itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/ops.h"
#include "samples.h"

namespace stitch::ir {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Graph good() {
  GraphBuilder b;
  const auto x = b.input("x", {DType::f32, {2, 3}});
  const auto w = b.weight("w", {DType::f32, {3}});
  const auto y = b.op("add", {{"x", x}, {"y", w}});
  b.output("y", b.op("softmax", {{"x", y}, {"dim", int64_t{1}}}));
  b.mutates("w", w);
  Graph g = b.graph();
  g.nodes[3].source = "model.py:12";
  return g;
}

template <class F>
std::string error_after(F change) {
  Graph g = good();
  change(g);
  const auto s = validate(g);
  return s ? "valid" : s.error().message + " " + s.error().detail;
}

TEST(Validate, AcceptsAGoodGraph) { EXPECT_EQ(error_after([](Graph&) {}), "valid"); }

TEST(Validate, ErrorNamesNodeOpSourceAndRule) {
  EXPECT_EQ(error_after([](Graph& g) { g.nodes[3].args[1] = int64_t{2}; }),
            "Node %3 softmax (from model.py:12) does not fit: dim 2 is out of range for rank 2. rule: types follow from the arguments");
}

TEST(Validate, OperandsExistAndPrecede) {
  const char* rule = "rule: operands exist and precede";
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].args[0] = ValueRef{3, 0}; }), AllOf(HasSubstr("reads %3"), HasSubstr(rule)));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].args[0] = ValueRef{2, 0}; }), HasSubstr(rule));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].args[0] = ValueRef{99, 0}; }), HasSubstr(rule));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].args[0] = ValueRef{-1, 0}; }), HasSubstr(rule));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].args[0] = ValueRef{0, 1}; }), AllOf(HasSubstr("reads result 1 of %0"), HasSubstr(rule)));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].args[0] = ValueRef{0, -1}; }), HasSubstr(rule));
}

TEST(Validate, ArgumentsFitTheOp) {
  const char* rule = "rule: arguments fit the op";
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[3].args.pop_back(); }), AllOf(HasSubstr("has 1 arguments"), HasSubstr(rule)));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[3].args[0] = 1.0; }), AllOf(HasSubstr("\"x\" of the wrong kind"), HasSubstr(rule)));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[3].args[1] = None{}; }), HasSubstr(rule));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[3].args[1] = 1.0; }), HasSubstr(rule));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].args[1] = std::string("w"); }), HasSubstr(rule));
}

TEST(Validate, AnyArgumentOfAnyKindIsAnswered) {
  // Type rules read arguments without checking kinds again; a kind that slips through would throw here.
  const Arg values[] = {None{}, ValueRef{0, 0}, ValueList{{-1, 0}, {0, 0}}, true, int64_t{-1}, int64_t{INT64_MAX}, -1.5, std::string("->"), DType::f32, IntList{}, IntList{INT64_MIN, 2}};
  int refused = 0, accepted = 0;
  for (const std::string& sample : test::all_samples()) {
    const Graph g = *parse(test::program_with(sample));
    for (size_t i = 0; i < g.nodes.back().args.size(); ++i) {
      Graph never = g;
      never.nodes.back().args[i] = FloatList{1.0};  // no parameter takes one
      EXPECT_FALSE(validate(never)) << sample;
      for (const Arg& value : values) {
        Graph changed = g;
        changed.nodes.back().args[i] = value;
        EXPECT_NO_THROW(validate(changed) ? ++accepted : ++refused) << sample << " argument " << i;
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 200);
}

TEST(Validate, ExtentsAreSane) {
  const char* rule = "rule: extents are sane";
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[0].types[0].shape = {-1, 3}; }), AllOf(HasSubstr("negative extent"), HasSubstr(rule)));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[0].types[0].shape = {int64_t{1} << 32, int64_t{1} << 32}; }), HasSubstr(rule));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[0].types[0].shape = {0, INT64_MAX}; }), HasSubstr(rule));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].types.clear(); g.outputs.clear(); }), AllOf(HasSubstr("no result"), HasSubstr("rule:")));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].types.push_back(g.nodes[2].types[0]); }), AllOf(HasSubstr("gives at most 1"), HasSubstr(rule)));
  EXPECT_EQ(error_after([](Graph& g) {
              for (size_t i : {0, 2, 3}) g.nodes[i].types[0].shape = {0, 3};
            }),
            "valid");
}

TEST(Validate, TypesFollowFromTheArguments) {
  const char* rule = "rule: types follow from the arguments";
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].types[0].shape = {3, 2}; }), AllOf(HasSubstr("declared as f32[3,2], but its arguments give f32[2,3]"), HasSubstr(rule)));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[2].types[0].dtype = DType::i64; }), HasSubstr(rule));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[1].types[0].shape = {4}; }), AllOf(HasSubstr("do not broadcast"), HasSubstr(rule)));
}

TEST(Validate, LeavesAreNamedAndComeFirst) {
  const char* rule = "rule: inputs and weights are named and come first";
  EXPECT_THAT(error_after([](Graph& g) { g.nodes[1].name.clear(); }), AllOf(HasSubstr("has no name"), HasSubstr(rule)));
  EXPECT_THAT(error_after([](Graph& g) {
                g.nodes.push_back(g.nodes[0]);
                g.nodes.back().name = "late";
              }),
              AllOf(HasSubstr("Node %4 input"), HasSubstr("after a computed value"), HasSubstr(rule)));
  EXPECT_THAT(error_after([](Graph& g) { g.nodes.insert(g.nodes.begin(), g.nodes[0]); for (auto& n : g.nodes) n.args.clear(); }), HasSubstr("Node %"));
  GraphBuilder b;
  b.input("x", {DType::f32, {}});
  b.output("y", b.input("x", {DType::f32, {}}));
  EXPECT_THAT(validate(b.graph()).error().message, HasSubstr("Two inputs are named \"x\""));
}

TEST(Validate, OutputsExistAndTheirTargetsMatch) {
  EXPECT_THAT(error_after([](Graph& g) { g.outputs[0].value.node = 9; }), HasSubstr("Output \"y\" names a value that does not exist"));
  EXPECT_THAT(error_after([](Graph& g) { g.outputs[0].value.output = 1; }), HasSubstr("does not exist"));
  EXPECT_THAT(error_after([](Graph& g) { g.outputs[0].value.node = -1; }), HasSubstr("does not exist"));
  EXPECT_THAT(error_after([](Graph& g) { g.outputs[1].name = "y"; }), HasSubstr("Two outputs are named \"y\""));
  EXPECT_THAT(error_after([](Graph& g) { g.outputs[1].target = "v"; }), HasSubstr("changes the weight \"v\", which does not exist"));
  EXPECT_THAT(error_after([](Graph& g) { g.outputs[1].kind = Output::Kind::mutates_input; }), HasSubstr("changes the input \"w\", which does not exist"));
  EXPECT_THAT(error_after([](Graph& g) { g.outputs[1].value = {0, 0}; }), HasSubstr("is f32[2,3], but the weight it changes is f32[3]"));
  EXPECT_THAT(error_after([](Graph& g) {
                g.outputs.push_back(g.outputs[1]);
                g.outputs[2].name = "other";
              }),
              HasSubstr("Two outputs change the weight \"w\""));
}

}  // namespace
}  // namespace stitch::ir
