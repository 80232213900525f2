// Programs whose layout changes the planner leaves to the kernels beside them, against the interpreter.
#include <map>

#include "ir/builder.h"
#include "loop/generated_program.h"
#include "plan/plan.h"
#include "plan/prepare.h"

namespace stitch::testing {
namespace {

using ir::DType;
using ir::GraphBuilder;
using ir::IntList;
using ir::TensorType;
using ir::ValueRef;

TensorType f32(ir::Shape s) { return {DType::f32, std::move(s)}; }

class Program {
 public:
  ValueRef in(const std::string& name, ir::Shape s) { return named_[name] = b.input(name, f32(std::move(s))); }
  ValueRef operator[](const std::string& name) const { return named_.at(name); }  // an input made before
  ValueRef permute(ValueRef x, IntList dims) { return b.op("permute", {{"x", x}, {"dims", std::move(dims)}}); }
  ValueRef view(ValueRef x, IntList size) { return b.op("view", {{"x", x}, {"size", std::move(size)}}); }
  ValueRef expand(ValueRef x, IntList size) { return b.op("expand", {{"x", x}, {"size", std::move(size)}}); }
  ValueRef linear(ValueRef x, ValueRef w) { return b.op("linear", {{"x", x}, {"weight", w}}); }
  void out(ValueRef v) { b.output("out" + std::to_string(outputs_++), v); }

  GraphBuilder b;

 private:
  std::map<std::string, ValueRef> named_;
  int outputs_ = 0;
};

// Skills of the tasks, in order, without building the program.
std::vector<std::string> skills_of(const ir::Graph& graph) {
  const auto g = plan::prepare(graph);
  EXPECT_TRUE(g) << g.error().message;
  const auto plan = plan::plan_builtin(*g, "test", {*hw::find_device("h200")});
  EXPECT_TRUE(plan) << plan.error().message;
  const auto sources = code::code_builtin(*g, *plan, {});
  EXPECT_TRUE(sources) << sources.error().message;
  std::vector<std::string> out;
  for (const code::TaskSource& t : sources->tasks) out.push_back(t.skill);
  return out;
}

void add_turned_products(Program& p) {
  const ValueRef x = p["x"], y = p["y"], z = p["z"];
  const ValueRef w = p["w"], bias = p["bias"], mix = p["mix"];
  p.out(p.linear(p.permute(x, {0, 2, 1}), mix));                                                       // tokens mixed, not channels
  p.out(p.b.op("matmul", {{"a", p.permute(y, {0, 2, 1})}, {"b", p.permute(x, {0, 2, 1})}}));
  p.out(p.b.op("matmul", {{"a", p.b.op("slice", {{"x", x}, {"dim", int64_t{2}}, {"start", int64_t{8}}, {"end", int64_t{28}}})}, {"b", p.permute(y, {0, 2, 1})}}));
  const ValueRef mixed = p.b.op("linear", {{"x", p.permute(z, {0, 2, 1})}, {"weight", w}, {"bias", bias}});  // (3, 150, 140)
  p.out(p.b.op("softmax", {{"x", p.permute(mixed, {0, 2, 1})}, {"dim", int64_t{2}}}));
  const ValueRef product = p.b.op("matmul", {{"a", z}, {"b", p.permute(z, {0, 2, 1})}});
  p.out(p.b.op("relu", {{"x", p.permute(product, {0, 2, 1})}}));
}

void add_packed_attention(Program& p) {
  const ValueRef x = p["tokens"], qkv = p["qkv"], proj = p["proj"];
  const ValueRef packed = p.permute(p.view(p.linear(x, qkv), {2, 20, 3, 3, 16}), {2, 0, 3, 1, 4});
  const auto part = [&](int64_t i) { return p.b.op("select", {{"x", packed}, {"dim", int64_t{0}}, {"index", i}}); };
  const ValueRef q = part(0), k = part(1), v = part(2);
  const ValueRef y = p.b.op("scaled_dot_product_attention", {{"q", q}, {"k", k}, {"v", v}, {"is_causal", true}});
  p.out(p.linear(p.view(p.permute(y, {0, 2, 1, 3}), {2, 20, 48}), proj));
}

void add_repeated_heads(Program& p) {
  const ValueRef q = p["q"], k = p["k"], v = p["v"];
  // Every head three times in a row, repeated before or after heads and tokens change places.
  const ValueRef keys = p.view(p.expand(p.view(k, {2, 2, 1, 20, 16}), {2, 2, 3, 20, 16}), {2, 6, 20, 16});
  const ValueRef values = p.permute(p.view(p.expand(p.view(v, {2, 20, 2, 1, 16}), {2, 20, 2, 3, 16}), {2, 20, 6, 16}), {0, 2, 1, 3});
  p.out(p.b.op("scaled_dot_product_attention", {{"q", q}, {"k", keys}, {"v", values}, {"is_causal", true}}));
  // All heads three times over: another program.
  const ValueRef tiled = p.view(p.expand(p.view(k, {2, 1, 2, 20, 16}), {2, 3, 2, 20, 16}), {2, 6, 20, 16});
  p.out(p.b.op("scaled_dot_product_attention", {{"q", q}, {"k", tiled}, {"v", tiled}}));
}

TEST(GeneratedProgram, LayoutsOfNeighbours) {
  Program p;
  p.in("x", {3, 12, 40});
  p.in("y", {3, 40, 20});
  p.in("z", {3, 200, 150});
  p.in("w", {140, 200});
  p.in("bias", {140});
  p.in("mix", {16, 12});
  p.in("tokens", {2, 20, 48});
  p.in("qkv", {144, 48});
  p.in("proj", {48, 48});
  p.in("q", {2, 6, 20, 16});
  p.in("k", {2, 2, 20, 16});
  p.in("v", {2, 20, 2, 16});
  add_turned_products(p);
  add_packed_attention(p);
  add_repeated_heads(p);
  EXPECT_TRUE(agrees_with_interpreter(p.b.graph(), {}, 21));
}

TEST(GeneratedProgram, ImagesBetweenChannelsFirstAndLast) {  // no single dim is long enough for a tile, two together are
  Program p;
  const ValueRef last = p.in("last", {2, 28, 28, 180}), first = p.in("first", {2, 180, 28, 28}), scale = p.in("scale", {180});
  p.out(p.b.op("add", {{"x", first}, {"y", p.permute(p.b.op("mul", {{"x", last}, {"y", scale}}), {0, 3, 1, 2})}}));
  p.out(p.b.op("relu", {{"x", p.permute(first, {0, 2, 3, 1})}}));
  EXPECT_EQ(skills_of(p.b.graph()), (std::vector<std::string>{"transpose", "transpose"}));
  EXPECT_TRUE(agrees_with_interpreter(p.b.graph(), {}, 24));
}

// As embedding bags that are put side by side.
TEST(GeneratedProgram, ShortReductionsBesideEachOther) {
  Program p;
  const std::vector<std::string> ops{"sum", "mean", "amax", "amin"};
  const ValueRef dense = p.in("dense", {10, 16}), half = p.b.input("half", {DType::f16, {10, 2, 2, 16}});
  std::vector<ValueRef> tables, rows;
  for (const std::string& op : ops) {
    tables.push_back(p.in("table_" + op, {7, 16}));
    rows.push_back(p.b.input("rows_" + op, {DType::i64, {10, 5}}));
  }
  ir::ValueList parts{p.view(dense, {10, 1, 16})};
  for (size_t i = 0; i < ops.size(); ++i) {
    const ValueRef picked = p.b.op("embedding", {{"weight", tables[i]}, {"indices", rows[i]}});
    parts.push_back(p.view(p.b.op(ops[i], {{"x", picked}, {"dims", IntList{1}}}), {10, 1, 16}));
  }
  const ValueRef kept = p.b.op("sum", {{"x", half}, {"dims", IntList{1, 2}}, {"keepdim", true}});
  const ValueRef halves = p.b.op("cat", {{"tensors", ir::ValueList{kept, kept}}, {"dim", int64_t{1}}});
  p.out(p.b.op("cat", {{"tensors", parts}, {"dim", int64_t{1}}}));
  p.out(halves);
  EXPECT_EQ(skills_of(p.b.graph()), (std::vector<std::string>{"pointwise", "pointwise"}));
  EXPECT_TRUE(agrees_with_interpreter(p.b.graph(), {}, 25, 7));
}

}  // namespace
}  // namespace stitch::testing
