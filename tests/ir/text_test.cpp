// The text form: printing, parsing, and what the parser says about text that is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>
#include <set>

#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/ops.h"
#include "samples.h"

namespace stitch::ir {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

std::string error_of(std::string_view text) {
  const auto g = parse(text);
  return g ? "parsed" : g.error().message;
}

TEST(Text, EveryOpHasASample) {
  std::set<std::string_view> seen;
  const auto samples = test::all_samples();
  for (const std::string& s : samples) seen.insert(test::op_of(s));
  for (const OpSchema& op : all_ops())
    EXPECT_TRUE(op.params.empty() || seen.count(op.name)) << op.name;
}

TEST(Text, EverySampleIsValidAndRoundTrips) {
  for (const std::string& s : test::all_samples()) {
    const std::string text = test::program_with(s);
    const auto g = parse(text);
    ASSERT_TRUE(g) << s << ": " << g.error().message;
    const auto status = validate(*g);
    EXPECT_TRUE(status) << s << ": " << (status ? "" : status.error().message);
    const std::string printed = print(*g);
    EXPECT_EQ(printed, text);
    const auto again = parse(printed);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, *g) << s;
  }
}

TEST(Text, AttributesAndStringsRoundTrip) {
  GraphBuilder b;
  const auto x = b.input("we\"ird\\ \n\t name é", {DType::f32, {}});
  b.output("out,{}=%\"", b.op("neg", {{"x", x}}));
  Graph g = b.graph();
  g.nodes[1].scope = "blocks.0.attn";
  g.nodes[1].source = "model.py:41";
  g.nodes[1].name = "hint";
  g.outputs.push_back({x, "again", Output::Kind::mutates_input, g.nodes[0].name});
  const auto again = parse(print(g));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, g);
}

TEST(Text, NumbersKeepTheirKindAndEveryBit) {
  for (const double v : {0.0, -0.0, 1.0, 0.1, 1e300, -1e-300, 5e-324, 123456789012345680.0, 1.0 / 3, std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    GraphBuilder b;
    const auto x = b.input("x", {DType::f32, {2}});
    b.output("y", b.op("pad", {{"x", b.op("add", {{"x", x}, {"y", v}})}, {"pad", IntList{1, 1}}, {"value", v}}));
    const auto g = parse(print(b.graph()));
    ASSERT_TRUE(g) << g.error().message;
    for (const Arg& a : {g->nodes[1].arg("y"), g->nodes[2].arg("value")}) {
      ASSERT_TRUE(std::holds_alternative<double>(a)) << v;
      const double r = std::get<double>(a);
      EXPECT_TRUE(std::isnan(v) ? std::isnan(r) : r == v && std::signbit(r) == std::signbit(v)) << v << " " << r;
    }
  }
  GraphBuilder b;
  const auto x = b.input("x", {DType::i64, {2}});
  b.output("y", b.op("add", {{"x", x}, {"y", int64_t{INT64_MIN}}}));
  EXPECT_EQ(std::get<int64_t>(parse(print(b.graph()))->nodes[1].arg("y")), INT64_MIN);
}

TEST(Text, HandWrittenFormsAreNormalised) {
  const auto g = parse(R"(
# a comment
   %0 : f32[ 2 , 3 ]=input( ){ name = "x" }   # trailing comment
%1: f32[2,3] = softmax(%0, dim=-1)
%2: (f32[2,2], i64[2,2]) = topk(%1, k=2)
%3: f32[] = sum(%2.0, dims=[-1,-2])
%4: f32[] = leaky_relu(%3, negative_slope=1)
return %4
)");
  ASSERT_TRUE(g) << g.error().message;
  EXPECT_TRUE(validate(*g)) << validate(*g).error().message;
  EXPECT_EQ(g->nodes[1].integer("dim"), 1);
  EXPECT_EQ(g->nodes[2].integer("dim"), 1);
  EXPECT_EQ(g->nodes[3].integers("dims"), (IntList{1, 0}));
  EXPECT_TRUE(std::holds_alternative<double>(g->nodes[4].arg("negative_slope")));
  EXPECT_EQ(*parse(print(*g)), *g);
}

TEST(Text, ErrorsNameLineAndExpectation) {
  const std::string x = "%0: f32[2] = input() {name=\"x\"}\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "ends without a return line"},
      {x, "ends without a return line"},
      {"%1: f32[2] = input()\nreturn %0\n", "line 1: expected node number %0"},
      {"0: f32[2] = input()\n", "line 1: expected '%'"},
      {"%0 f32[2] = input()\n", "line 1: expected ':'"},
      {"%0: q32[2] = input()\n", "expected a type such as f32[2,3]"},
      {"%0: f32[2 = input()\n", "line 1: expected ','"},
      {"%0: f32[a] = input()\n", "expected an integer"},
      {"%0: f32[99999999999999999999] = input()\n", "expected an integer"},
      {"%0: f32[1,1,1,1,1,1,1,1,1,1,1,1,1] = input()\n", "at most 12 dimensions"},
      {"%0: f32[2] = softmux(%0)\n", "there is no op \"softmux\"; did you mean \"softmax\"?"},
      {"%0: f32[2] = zzzzzzzzzz(%0)\n", "there is no op \"zzzzzzzzzz\"."},
      {x + "%1: f32[2] = neg(%1)\n", "line 2: expected an earlier node"},
      {x + "%1: f32[2] = neg(%0.1)\n", "a result of %0"},
      {x + "%1: f32[2] = neg(%-1)\n", "line 2: expected an earlier node"},
      {x + "%1: f32[2] = neg(%0, %0)\n", "expected no more arguments of neg"},
      {x + "%1: f32[2] = neg()\n", "line 2: neg needs the argument \"x\""},
      {x + "%1: f32[2] = softmax(%0)\n", "softmax needs the argument \"dim\""},
      {x + "%1: f32[2] = softmax(%0, dim=0, dim=0)\n", "each argument of softmax once"},
      {x + "%1: f32[2] = softmax(%0, dum=0)\n", "it has no \"dum\""},
      {x + "%1: f32[2] = softmax(%0, dim=zero)\n", "expected a value"},
      {x + "%1: f32[2] = add(%0, 1.2.3)\n", "expected a number"},
      {x + "%1: f32[2] = add(%0, 1e999)\n", "expected a number"},
      {x + "%1: f32[2] = view(%0, size=[2,%0])\n", "entries of one kind"},
      {x + "%1: f32[2] = view(%0, size=[2\n", "expected ','"},
      {x + "%1: f32[2] = neg(%0\n", "expected ','"},
      {x + "%1: f32[2] = neg(%0) {name=\"open}\n", "a closing quote"},
      {x + "%1: f32[2] = neg(%0) {name=\"\\q\"}\n", "line 2"},
      {x + "%1: f32[2] = neg(%0) {colour=\"red\"}\n", "\"colour\" is none"},
      {x + "%1: f32[2] = neg(%0) {name=3}\n", "a string in quotes"},
      {x + "%1: f32[2] = neg(%0) extra\n", "the end of the line"},
      {x + "return %0 %0\n", "line 2: expected ','"},
      {x + "return %0\n%1: f32[2] = neg(%0)\n", "line 3: nothing may follow the return line"},
      {x + "%1: f32[2] = neg(%0)\0junk\nreturn %1\n"s, "zero byte"},
  };
  for (const auto& [text, expected] : cases) EXPECT_THAT(error_of(text), HasSubstr(expected)) << text;
}

// Random programs over all samples: leaves, then random sample lines.
std::string random_program(std::mt19937& rng, const std::vector<std::string>& samples) {
  std::string text = test::kLeaves;
  const int count = 1 + static_cast<int>(rng() % 8);
  for (int i = 0; i < count; ++i) text += "%" + std::to_string(test::kLeafCount + i) + ": " + samples[rng() % samples.size()] + " {scope=\"s\"}\n";
  return text + "return %0 {name=\"a\"}, %4 {name=\"b\"}\n";
}

TEST(Text, RandomProgramsRoundTrip) {
  std::mt19937 rng(7);
  const auto samples = test::all_samples();
  for (int i = 0; i < 200; ++i) {
    const std::string text = random_program(rng, samples);
    const auto g = parse(text);
    ASSERT_TRUE(g) << g.error().message << "\n" << text;
    EXPECT_TRUE(validate(*g));
    EXPECT_EQ(print(*g), text);
  }
}

// Bytes flipped, cut, doubled; numbers made extreme; pieces of other lines spliced in.
std::string mutated(std::mt19937& rng, std::string text) {
  static const char* const extremes[] = {"-1", "0", "9223372036854775807", "-9223372036854775808", "281474976710656", "1e308", "nan", "none", "%0", "[]", "[1,2]", "true", "\"a\""};
  static const char symbols[] = "%()[]{}=,.:-\"\\#0123456789 \nenf";
  const int edits = 1 + static_cast<int>(rng() % 2);
  for (int e = 0; e < edits && !text.empty(); ++e) {
    const size_t at = rng() % text.size();
    switch (rng() % 9) {
      case 0: text[at] = static_cast<char>(rng()); break;
      case 1: text[at] = symbols[rng() % (sizeof symbols - 1)]; break;
      case 2: text.erase(at, 1 + rng() % 8); break;
      case 3: text.insert(at, text.substr(rng() % text.size(), rng() % 24)); break;
      case 4: text.resize(at); break;
      default: {  // replace a number
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit == text.npos) break;
        const size_t end = text.find_first_not_of("0123456789.e", digit);
        text.replace(digit, (end == text.npos ? text.size() : end) - digit, extremes[rng() % std::size(extremes)]);
      }
    }
  }
  return text;
}

TEST(Text, MutatedProgramsNeverCrash) {
  const char* rounds = std::getenv("STITCH_FUZZ_ROUNDS");
  const int n = rounds ? std::atoi(rounds) : 2000;
  std::mt19937 rng(11);
  const auto samples = test::all_samples();
  int parsed = 0, valid = 0;
  for (int i = 0; i < n; ++i) {
    // Most text is leaves; mutating the part after them reaches the ops' own rules.
    const std::string whole = test::program_with(samples[static_cast<size_t>(i) % samples.size()]);
    const size_t head = i % 3 == 0 ? 0 : std::string_view(test::kLeaves).size();
    const auto g = parse(whole.substr(0, head) + mutated(rng, whole.substr(head)));
    if (!g) {
      EXPECT_FALSE(g.error().message.empty());
      continue;
    }
    ++parsed;
    if (!validate(*g)) continue;
    ++valid;
    const std::string printed = print(*g);
    const auto again = parse(printed);
    ASSERT_TRUE(again) << again.error().message << "\n" << printed;
    EXPECT_EQ(print(*again), printed);
  }
  EXPECT_GT(parsed, n / 20);
  EXPECT_GT(valid, n / 50);
}

TEST(Text, LongHostileInputIsRefusedQuickly) {
  const auto started = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of("%0: f32[2] = neg(" + std::string(1 << 20, '[') + "\n"), HasSubstr("line 1"));
  EXPECT_THAT(error_of(std::string(1 << 20, '(')), HasSubstr("line 1"));
  EXPECT_THAT(error_of("%0: f32[2] = " + std::string(1 << 20, 'a') + "()\n"), HasSubstr("there is no op"));
  EXPECT_THAT(error_of("%0: f32[2] = input() {name=\"" + std::string(1 << 20, '\\') + "\n"), HasSubstr("line 1"));
  EXPECT_LT(error_of("%0: f32[2] = input() {" + std::string(1 << 20, 'a') + "=\"\"}\n").size(), 400u);
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(5));
}

}  // namespace
}  // namespace stitch::ir
