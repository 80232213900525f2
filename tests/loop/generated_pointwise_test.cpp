// Pointwise kernels large enough for wide accesses: aligned and odd sizes, broadcasts, movement inside, several dtypes and results.
#include "ir/builder.h"
#include "loop/generated_program.h"

namespace stitch::testing {
namespace {

using ir::DType;
using ir::GraphBuilder;
using ir::IntList;
using ir::ValueRef;

class Outputs {
 public:
  explicit Outputs(GraphBuilder& b) : b_(b) {}
  void add(ValueRef v) { b_.output("out" + std::to_string(n_++), v); }

 private:
  GraphBuilder& b_;
  int n_ = 0;
};

TEST(GeneratedProgram, WidePointwiseKernels) {
  GraphBuilder b;
  Outputs out(b);
  const ValueRef x = b.input("x", {DType::f32, {128, 520}}), y = b.input("y", {DType::f32, {128, 520}}), bias = b.input("bias", {DType::f32, {520}}), column = b.input("column", {DType::f32, {128, 1}});
  const ValueRef odd = b.input("odd", {DType::f32, {3, 23333}}), half = b.input("half", {DType::f16, {256, 264}}), bytes = b.input("bytes", {DType::u8, {128, 520}}), wide = b.input("wide", {DType::f64, {64, 1026}});
  // Two results of one pass; a bias along the innermost dim, a scale per row.
  const ValueRef scaled = b.op("mul", {{"x", b.op("add", {{"x", x}, {"y", bias}})}, {"y", column}});
  out.add(scaled);
  out.add(b.op("gelu", {{"x", b.op("sub", {{"x", scaled}, {"y", y}})}}));
  out.add(b.op("gt", {{"x", x}, {"y", y}}));
  out.add(b.op("add", {{"x", odd}, {"y", 1.0}}));                       // a tail
  out.add(b.op("silu", {{"x", half}}));
  out.add(b.op("cast", {{"x", b.op("mul", {{"x", half}, {"y", 3.0}})}}, DType::f32));
  out.add(b.op("add", {{"x", bytes}, {"y", int64_t{200}}}));             // wraps
  out.add(b.op("tanh", {{"x", wide}}));
  // Movement: unaligned, strided, branching, and cancelling.
  out.add(b.op("relu", {{"x", b.op("permute", {{"x", x}, {"dims", IntList{1, 0}}})}}));
  out.add(b.op("neg", {{"x", b.op("slice", {{"x", odd}, {"dim", int64_t{1}}, {"start", int64_t{3}}, {"end", int64_t{22003}}})}}));
  out.add(b.op("exp", {{"x", b.op("cat", {{"tensors", ir::ValueList{x, y, x}}, {"dim", int64_t{1}}})}}));
  out.add(b.op("exp", {{"x", b.op("cat", {{"tensors", ir::ValueList{x, y}}, {"dim", int64_t{0}}})}}));
  out.add(b.op("abs", {{"x", b.op("pad", {{"x", x}, {"pad", IntList{2, 2, 1, 0}}, {"value", -7.0}})}}));
  out.add(b.op("sin", {{"x", b.op("roll", {{"x", x}, {"shifts", IntList{5}}, {"dims", IntList{1}}})}}));
  const ValueRef image = b.op("view", {{"x", x}, {"size", IntList{4, 32, 20, 26}}});
  out.add(b.op("relu", {{"x", b.op("upsample_nearest", {{"x", image}, {"size", IntList{40, 52}}})}}));
  const ValueRef there = b.op("permute", {{"x", image}, {"dims", IntList{0, 2, 3, 1}}});
  out.add(b.op("relu", {{"x", b.op("permute", {{"x", b.op("mul", {{"x", there}, {"y", 2.0}})}, {"dims", IntList{0, 3, 1, 2}}})}}));
  EXPECT_TRUE(agrees_with_interpreter(b.graph(), {}, 11));
}

TEST(GeneratedProgram, OperandsReadAcrossTheirLayout) {
  GraphBuilder b;
  Outputs out(b);
  const ValueRef x = b.input("x", {DType::f32, {520, 516}}), y = b.input("y", {DType::f32, {516, 520}}), half = b.input("half", {DType::f16, {3, 33, 70, 64}}), t = b.input("t", {DType::f32, {4, 64, 40, 32}});
  const ValueRef turned = b.op("permute", {{"x", x}, {"dims", IntList{1, 0}}});
  out.add(b.op("gelu", {{"x", b.op("add", {{"x", turned}, {"y", y}})}}));
  out.add(b.op("exp", {{"x", b.op("permute", {{"x", half}, {"dims", IntList{0, 3, 1, 2}}})}}));   // channels last to first
  out.add(b.op("mul", {{"x", b.op("permute", {{"x", t}, {"dims", IntList{0, 2, 3, 1}}})}, {"y", 2.0}}));
  out.add(b.op("mul", {{"x", b.op("permute", {{"x", t}, {"dims", IntList{3, 2, 1, 0}}})}, {"y", 2.0}}));
  EXPECT_TRUE(agrees_with_interpreter(b.graph(), {}, 12));
}

// The second side of a choice may be the first to need an index of the whole element: `cat` of a broadcast and a batched tensor.
TEST(GeneratedProgram, SidesOfAChoiceThatNeedOtherIndices) {
  GraphBuilder b;
  Outputs out(b);
  const ValueRef token = b.input("token", {DType::f32, {1, 1, 24}}), patches = b.input("patches", {DType::f32, {3, 10, 24}}), place = b.input("place", {DType::f32, {1, 11, 24}});
  const ValueRef tokens = b.op("expand", {{"x", token}, {"size", IntList{3, 1, 24}}});
  const ValueRef joined = b.op("cat", {{"tensors", ir::ValueList{tokens, patches}}, {"dim", int64_t{1}}});
  out.add(b.op("add", {{"x", joined}, {"y", place}}));
  out.add(b.op("cat", {{"tensors", ir::ValueList{patches, tokens}}, {"dim", int64_t{1}}}));
  EXPECT_TRUE(agrees_with_interpreter(b.graph(), {}, 13));
}

// Inputs may be called anything, also what a kernel calls its own variables.
TEST(GeneratedProgram, InputsNamedLikeTheLocalsOfKernels) {
  for (const char* const shared : {"x", "tile0", "first", "params"}) {
    GraphBuilder b;
    Outputs out(b);
    const std::string name = shared;
    const ValueRef wide = b.input(name, {DType::f32, {520, 516}});
    out.add(b.op("gelu", {{"x", b.op("permute", {{"x", wide}, {"dims", IntList{1, 0}}})}}));
    out.add(b.op("sum", {{"x", wide}, {"dims", IntList{1}}, {"keepdim", false}}));
    out.add(b.op("softmax", {{"x", wide}, {"dim", int64_t{0}}}));
    out.add(b.op("cumsum", {{"x", wide}, {"dim", int64_t{1}}}));
    auto program = HostProgram::make(b.graph(), {});
    EXPECT_TRUE(program) << shared << ": " << program.error().message;
  }
}

}  // namespace
}  // namespace stitch::testing
