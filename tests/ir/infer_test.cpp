// Type rules against PyTorch's results, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "ir/graph.h"
#include "ir/ops.h"

namespace stitch::ir {
namespace {

using testing::HasSubstr;

// A program of inputs with the given types and one node.
std::string program(const std::string& leaves, const std::string& result, const std::string& node) {
  std::istringstream types(leaves);
  std::string text, type;
  int n = 0;
  for (; types >> type; ++n) text += fmt::format("%{}: {} = input() {{name=\"x{}\"}}\n", n, type, n);
  return text + fmt::format("%{}: {} = {}\nreturn %{}{} {{name=\"y\"}}\n", n, result, node, n, result.front() == '(' ? ".0" : "");
}

struct Known {
  const char* leaves;
  const char* node;
  const char* result;
};
// Results of PyTorch 2.11 for the same calls; convolutions and pools are random draws.
constexpr Known kKnown[] = {
    {"f32[2,1,3] f32[4,1]", "add(%0, %1)", "f32[2,4,3]"},
    {"i64[3] f16[3]", "mul(%0, %1)", "f16[3]"},
    {"f16[3] bf16[3]", "sub(%0, %1)", "f32[3]"},
    {"i32[3] u8[3]", "maximum(%0, %1)", "i32[3]"},
    {"i8[3] u8[3]", "add(%0, %1)", "i16[3]"},
    {"b8[3] i32[1]", "add(%0, %1)", "i32[3]"},
    {"i64[3]", "div(%0, 2)", "f32[3]"},
    {"i64[3]", "add(%0, 1.5)", "f32[3]"},
    {"b8[2] f32[2,2] f32[]", "where(%0, %1, %2)", "f32[2,2]"},
    {"f32[0,3] f32[3]", "add(%0, %1)", "f32[0,3]"},
    {"f32[5] f32[5]", "le(%0, %1)", "b8[5]"},
    {"f32[2,3,4]", "permute(%0, dims=[2,0,1])", "f32[4,2,3]"},
    {"f32[0,4]", "view(%0, size=[2,0,9])", "f32[2,0,9]"},
    {"f32[10]", "slice(%0, dim=0, start=1, end=10, step=4)", "f32[3]"},
    {"f32[10]", "slice(%0, dim=0, start=3, end=3)", "f32[0]"},
    {"f32[2,3] f32[2,5]", "cat([%0, %1], dim=1)", "f32[2,8]"},
    {"f32[2,3,7]", "pad(%0, pad=[2,3,1,0])", "f32[2,4,12]"},
    {"f32[2,3,7]", "pad(%0, pad=[-2,3])", "f32[2,3,8]"},
    {"f32[2,3,7]", "pad(%0, pad=[6,6], mode=\"reflect\")", "f32[2,3,19]"},
    {"f32[2,3,7]", "pad(%0, pad=[7,1], mode=\"circular\")", "f32[2,3,15]"},
    {"f32[2,3,7]", "pad(%0, pad=[9,9], mode=\"replicate\")", "f32[2,3,25]"},
    {"f32[3,4]", "repeat(%0, repeats=[2,0,1,2])", "f32[2,0,3,8]"},
    {"f32[9,4]", "unfold(%0, dim=0, size=4, step=3)", "f32[2,4,4]"},
    {"f32[2,4,6]", "diagonal(%0, offset=-5, dim1=2, dim2=1)", "f32[2,1]"},
    {"f32[2,4,6]", "diagonal(%0, offset=-2, dim1=2, dim2=1)", "f32[2,4]"},
    {"f32[2,4,6]", "diagonal(%0, offset=0, dim1=2, dim2=1)", "f32[2,4]"},
    {"f32[2,4,6]", "diagonal(%0, offset=3, dim1=2, dim2=1)", "f32[2,1]"},
    {"f32[2,4,6]", "diagonal(%0, offset=9, dim1=2, dim2=1)", "f32[2,0]"},
    {"b8[2,3]", "sum(%0, dims=[0])", "i64[3]"},
    {"i32[2,3]", "prod(%0, dims=[1], keepdim=true)", "i64[2,1]"},
    {"f16[2,3,4]", "mean(%0, dims=[0,2])", "f16[3]"},
    {"f32[2,3,4]", "var(%0, dims=[])", "f32[]"},
    {"f32[]", "sum(%0, dims=[0])", "f32[]"},
    {"f32[0,3]", "sum(%0, dims=[0])", "f32[3]"},
    {"f32[0,3]", "amax(%0, dims=[1])", "f32[0]"},
    {"f32[2,3]", "argmax(%0, dim=0, keepdim=true)", "i64[1,3]"},
    {"f32[2,3]", "argmin(%0, keepdim=true)", "i64[1,1]"},
    {"f32[2,3]", "max_dim(%0, dim=0)", "(f32[3], i64[3])"},
    {"i32[2,3]", "cumsum(%0, dim=0)", "i64[2,3]"},
    {"f32[2,3]", "cummax(%0, dim=0)", "(f32[2,3], i64[2,3])"},
    {"f32[2,3]", "vector_norm(%0, ord=0.0, dims=[0])", "f32[3]"},
    {"f32[3] f32[3]", "matmul(%0, %1)", "f32[]"},
    {"f32[2,3] f32[3]", "matmul(%0, %1)", "f32[2]"},
    {"f32[3] f32[3,4]", "matmul(%0, %1)", "f32[4]"},
    {"f32[5,1,2,3] f32[4,3,6]", "matmul(%0, %1)", "f32[5,4,2,6]"},
    {"f32[3] f32[5,3,2]", "matmul(%0, %1)", "f32[5,2]"},
    {"f32[5,2,3] f32[3]", "matmul(%0, %1)", "f32[5,2]"},
    {"f32[0,3] f32[3,2]", "matmul(%0, %1)", "f32[0,2]"},
    {"f32[2,0] f32[0,3]", "matmul(%0, %1)", "f32[2,3]"},
    {"f32[3] f32[5,3] f32[5]", "linear(%0, %1, %2)", "f32[5]"},
    {"f32[2,7,3] f32[5,3]", "linear(%0, %1)", "f32[2,7,5]"},
    {"f32[1,4] f32[2,3] f32[3,4]", "addmm(%0, %1, %2)", "f32[2,4]"},
    {"f32[4] f32[6,2,3] f32[6,3,4]", "baddbmm(%0, %1, %2)", "f32[6,2,4]"},
    {"f32[3,3]", "einsum([%0], equation=\"ii->i\")", "f32[3]"},
    {"f32[2,3] f32[2,3]", "einsum([%0, %1], equation=\"ab,ab->\")", "f32[]"},
    {"f32[2] f32[3]", "einsum([%0, %1], equation=\"a,b->ba\")", "f32[3,2]"},
    {"f32[2,3,4,5] f32[2,3,6,5]", "einsum([%0, %1], equation=\"bhld,bhsd->bhls\")", "f32[2,3,4,6]"},
    {"f32[2,3] f32[3,4] f32[4,5]", "einsum([%0, %1, %2], equation=\"ab,bc,cd->ad\")", "f32[2,5]"},
    {"f32[0,3]", "einsum([%0], equation=\"ab->a\")", "f32[0]"},
    {"f32[1,3] f32[4,1]", "einsum([%0, %1], equation=\"ab,ab->ab\")", "f32[4,3]"},
    {"f32[1,8,10] f32[8,4,3]", "convolution(%0, %1, stride=[3], padding=[0], dilation=[1], transposed=true, output_padding=[2])", "f32[1,4,32]"},
    {"f32[1,4,11,9] f32[4,1,1,1]", "convolution(%0, %1, stride=[1,3], padding=[0,1], dilation=[1,2], transposed=true, output_padding=[0,2], groups=4)", "f32[1,4,11,25]"},
    {"f32[2,8,12,5,8] f32[4,2,1,2,3]", "convolution(%0, %1, stride=[2,1,1], padding=[1,2,1], dilation=[1,2,1], output_padding=[0,0,0], groups=4)", "f32[2,4,7,7,8]"},
    {"f32[1,8,3,12] f32[8,12,1,4]", "convolution(%0, %1, stride=[3,3], padding=[1,2], dilation=[2,1], transposed=true, output_padding=[0,1])", "f32[1,12,5,34]"},
    {"f32[2,4,7] f32[4,4,3]", "convolution(%0, %1, stride=[1], padding=[2], dilation=[1], transposed=true, output_padding=[0])", "f32[2,4,5]"},
    {"f32[2,8,11,9] f32[12,4,1,3]", "convolution(%0, %1, stride=[2,3], padding=[2,2], dilation=[1,2], output_padding=[0,0], groups=2)", "f32[2,12,8,3]"},
    {"f32[2,8,12,8] f32[4,4,1,4]", "convolution(%0, %1, stride=[3,3], padding=[2,0], dilation=[1,2], output_padding=[0,0], groups=2)", "f32[2,4,6,1]"},
    {"f32[2,8,3,12] f32[12,4,1,1]", "convolution(%0, %1, stride=[2,2], padding=[2,1], dilation=[2,2], output_padding=[0,0], groups=2)", "f32[2,12,4,7]"},
    {"f32[2,8,9] f32[8,6,1]", "convolution(%0, %1, stride=[1], padding=[2], dilation=[1], transposed=true, output_padding=[0], groups=2)", "f32[2,12,5]"},
    {"f32[2,8,5,9,4] f32[4,8,1,3,3]", "convolution(%0, %1, stride=[3,1,2], padding=[0,0,1], dilation=[1,2,2], output_padding=[0,0,0])", "f32[2,4,2,5,1]"},
    {"f32[1,4,7] f32[4,12,3]", "convolution(%0, %1, stride=[3], padding=[0], dilation=[2], transposed=true, output_padding=[2])", "f32[1,12,25]"},
    {"f32[2,8,9] f32[8,3,3]", "convolution(%0, %1, stride=[2], padding=[2], dilation=[2], transposed=true, output_padding=[0], groups=4)", "f32[2,12,17]"},
    {"f32[1,8,3,10] f32[8,12,3,3]", "convolution(%0, %1, stride=[1,1], padding=[2,1], dilation=[1,1], transposed=true, output_padding=[0,0])", "f32[1,12,1,10]"},
    {"f32[1,8,10,4,5] f32[4,8,3,2,1]", "convolution(%0, %1, stride=[3,3,2], padding=[0,2,0], dilation=[2,1,2], output_padding=[0,0,0])", "f32[1,4,2,3,3]"},
    {"f32[2,3,8,6,6]", "max_pool(%0, kernel=[1,5,1], stride=[2,2,3], padding=[0,0,0], dilation=[2,1,2])", "(f32[2,3,4,1,2], i64[2,3,4,1,2])"},
    {"f32[2,3,9]", "max_pool(%0, kernel=[1], stride=[4], padding=[0], dilation=[1], ceil_mode=true)", "(f32[2,3,3], i64[2,3,3])"},
    {"f32[2,3,3]", "avg_pool(%0, kernel=[1], stride=[4], padding=[0], ceil_mode=true)", "f32[2,3,1]"},
    {"f32[2,3,8,4,8]", "max_pool(%0, kernel=[4,4,5], stride=[3,3,3], padding=[0,1,1], dilation=[1,1,1], ceil_mode=true)", "(f32[2,3,3,2,3], i64[2,3,3,2,3])"},
    {"f32[2,3,7,4]", "max_pool(%0, kernel=[4,1], stride=[6,6], padding=[2,0], dilation=[1,2])", "(f32[2,3,2,1], i64[2,3,2,1])"},
    {"f32[2,3,3,10,5]", "max_pool(%0, kernel=[2,4,1], stride=[5,1,5], padding=[0,2,0], dilation=[1,1,2])", "(f32[2,3,1,11,1], i64[2,3,1,11,1])"},
    {"f32[2,3,10]", "max_pool(%0, kernel=[3], stride=[5], padding=[1], dilation=[1], ceil_mode=true)", "(f32[2,3,3], i64[2,3,3])"},
    {"f32[2,3,11]", "avg_pool(%0, kernel=[2], stride=[1], padding=[0], ceil_mode=true)", "f32[2,3,10]"},
    {"f32[2,3,4,6,5]", "max_pool(%0, kernel=[2,4,5], stride=[6,4,3], padding=[1,2,1], dilation=[2,2,1], ceil_mode=true)", "(f32[2,3,1,2,2], i64[2,3,1,2,2])"},
    {"f32[2,3,9,5]", "max_pool(%0, kernel=[4,5], stride=[5,6], padding=[2,2], dilation=[2,1])", "(f32[2,3,2,1], i64[2,3,2,1])"},
    {"f32[2,3,13,9,12]", "max_pool(%0, kernel=[5,5,3], stride=[2,3,1], padding=[1,1,1], dilation=[1,1,2])", "(f32[2,3,6,3,10], i64[2,3,6,3,10])"},
    {"f32[2,3,5]", "max_pool(%0, kernel=[4], stride=[6], padding=[1], dilation=[1])", "(f32[2,3,1], i64[2,3,1])"},
    {"f32[2,3,13,11]", "max_pool(%0, kernel=[1,4], stride=[6,1], padding=[0,2], dilation=[1,2])", "(f32[2,3,3,9], i64[2,3,3,9])"},
    {"f32[2,3,13]", "avg_pool(%0, kernel=[1], stride=[2], padding=[0])", "f32[2,3,7]"},
    {"f32[2,3,12]", "avg_pool(%0, kernel=[1], stride=[3], padding=[0], ceil_mode=true)", "f32[2,3,4]"},
    {"f32[2,3,4,4]", "max_pool(%0, kernel=[1,3], stride=[3,1], padding=[0,1], dilation=[2,1], ceil_mode=true)", "(f32[2,3,2,4], i64[2,3,2,4])"},
    {"f32[2,3,7,7]", "adaptive_max_pool(%0, output_size=[3,9])", "(f32[2,3,3,9], i64[2,3,3,9])"},
    {"f32[5,6,7] i64[2,1] i64[3]", "index(%0, [%1, %2])", "f32[2,3,7]"},
    {"f32[5,6,7] i64[2,1] i64[3]", "index(%0, [%1, none, %2])", "f32[2,3,6]"},
    {"f32[5,6,7] i64[4]", "index(%0, [none, none, %1])", "f32[5,6,4]"},
    {"f32[5,6,7,8] i64[2] i64[2]", "index(%0, [none, %1, %2])", "f32[5,2,8]"},
    {"f32[5,6] i64[3,2]", "gather(%0, %1, dim=0)", "f32[3,2]"},
    {"f32[5,6] i64[3]", "index_select(%0, %1, dim=1)", "f32[5,3]"},
    {"f32[5,6] i64[]", "index_select(%0, %1, dim=1)", "f32[5,1]"},
    {"f16[9,6] i64[2,3]", "embedding(%0, %1)", "f16[2,3,6]"},
    {"f32[5,6] i64[2,3] f32[4,4]", "scatter(%0, %1, %2, dim=0)", "f32[5,6]"},
    {"f32[5,6]", "topk(%0, k=0, dim=0)", "(f32[0,6], i64[0,6])"},
    {"f32[]", "topk(%0, k=1, dim=0)", "(f32[], i64[])"},
    {"f32[5,6]", "sort(%0, dim=0)", "(f32[5,6], i64[5,6])"},
    {"f32[2,8,5,16] f32[2,2,7,16] f32[2,2,7,24]", "scaled_dot_product_attention(%0, %1, %2, enable_gqa=true)", "f32[2,8,5,24]"},
    {"f32[5,16] f32[7,16] f32[7,3] b8[7]", "scaled_dot_product_attention(%0, %1, %2, %3)", "f32[5,3]"},
    {"f32[2,5,3] f32[4,2,4] f32[4,2,4] f32[16,3] f32[16,4] f32[16] f32[16] f32[16,3] f32[16,4] f32[16] f32[16] f32[16,8] f32[16,4] f32[16] f32[16] f32[16,8] f32[16,4] f32[16] f32[16]", "lstm(%0, %1, %2, [%3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18], has_biases=true, num_layers=2, bidirectional=true, batch_first=true)", "(f32[2,5,8], f32[4,2,4], f32[4,2,4])"},
    {"f32[2,5,3] f32[1,5,4] f32[1,5,4] f32[16,3] f32[16,4]", "lstm(%0, %1, %2, [%3, %4], has_biases=false, num_layers=1)", "(f32[2,5,4], f32[1,5,4], f32[1,5,4])"},
    {"f32[2,5,3] f32[3,2,4] f32[12,3] f32[12,4] f32[12] f32[12] f32[12,4] f32[12,4] f32[12] f32[12] f32[12,4] f32[12,4] f32[12] f32[12]", "gru(%0, %1, [%2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13], has_biases=true, num_layers=3, batch_first=true)", "(f32[2,5,4], f32[3,2,4])"},
    {"f32[2,5,3] f32[4,5,4] f32[4,3] f32[4,4] f32[4] f32[4] f32[4,3] f32[4,4] f32[4] f32[4] f32[4,8] f32[4,4] f32[4] f32[4] f32[4,8] f32[4,4] f32[4] f32[4]", "rnn(%0, %1, [%2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17], nonlinearity=\"tanh\", has_biases=true, num_layers=2, bidirectional=true)", "(f32[2,5,8], f32[4,5,4])"},
    {"f32[2,3,4,5]", "upsample_nearest(%0, size=[9,2])", "f32[2,3,9,2]"},
    {"f32[2,3,4]", "upsample_linear(%0, size=[7], align_corners=true)", "f32[2,3,7]"},
};

TEST(Infer, AgreesWithPyTorch) {
  for (const Known& k : kKnown) {
    const auto g = parse(program(k.leaves, k.result, k.node));
    ASSERT_TRUE(g) << k.node << ": " << g.error().message;
    const auto types = infer_types(*g, g->nodes.back());
    ASSERT_TRUE(types) << k.node << ": " << types.error().message;
    EXPECT_EQ(*types, g->nodes.back().types) << k.node << " on " << k.leaves;
    EXPECT_TRUE(validate(*g)) << k.node;
  }
}

struct Refused {
  const char* leaves;
  const char* node;
  const char* message;
  const char* result = "f32[2,3]";
};
constexpr Refused kRefused[] = {
    {"f32[2,3] f32[2,4]", "add(%0, %1)", "do not broadcast"},
    {"f32[2,3]", "exp(%0)", "the result is a float, but i64 is declared", "i64[2,3]"},
    {"f32[2,3]", "add(%0, 1)", "the result is a float", "i32[2,3]"},
    {"i64[2,3]", "div(%0, 2)", "the result is a float", "i64[2,3]"},
    {"f32[2,3]", "bitwise_not(%0)", "integers and bools only"},
    {"f32[2,3]", "lt(%0, 0.0)", "its arguments give b8[2,3]"},
    {"f32[2,3] f32[2,3]", "where(%0, %0, %1)", "the condition must be b8"},
    {"f32[2,3]", "gelu(%0, approximate=\"fast\")", "approximate \"fast\" is unknown"},
    {"f32[2,3]", "div(%0, 2, rounding_mode=\"ceil\")", "rounding_mode \"ceil\" is unknown"},
    {"f32[2,3]", "arange(start=0.0, end=1.0, step=0.0)", "step not 0"},
    {"f32[2,3]", "arange(start=0.0, end=1e300)", "more than 2^48"},
    {"f32[2,3]", "arange(start=0.0, end=nan)", "finite"},
    {"f32[2,3]", "full(size=[2,-3], value=0.0)", "negative extent"},
    {"f32[2,3]", "full(size=[16777216,16777216,2], value=0.0)", "2^48"},
    {"f32[2,3]", "full(size=[9223372036854775807], value=0.0)", "beyond 2^48"},
    {"f32[2,3]", "view(%0, size=[4])", "cannot be viewed"},
    {"f32[2,3]", "view(%0, size=[-2,-3])", "cannot be viewed"},
    {"f32[2,3]", "view(%0, size=[-1])", "cannot be viewed"},
    {"f32[2,3]", "expand(%0, size=[3,3])", "does not expand"},
    {"f32[2,3]", "expand(%0, size=[3])", "does not expand"},
    {"f32[2,3]", "permute(%0, dims=[0])", "must name each"},
    {"f32[2,3]", "permute(%0, dims=[0,0])", "must name each"},
    {"f32[2,3]", "permute(%0, dims=[5,0])", "must name each"},
    {"f32[2,3]", "slice(%0, dim=1, start=0, end=4)", "does not fit extent 3"},
    {"f32[2,3]", "slice(%0, dim=1, start=2, end=1)", "does not fit"},
    {"f32[2,3]", "slice(%0, dim=1, start=0, end=3, step=0)", "does not fit"},
    {"f32[2,3]", "slice(%0, dim=2, start=0, end=1)", "dim 2 is out of range for rank 2"},
    {"f32[]", "slice(%0, dim=0, start=0, end=1)", "a scalar has no dims"},
    {"f32[2,3]", "select(%0, dim=0, index=2)", "index 2 is out of range"},
    {"f32[2,3] f32[3]", "cat([%0, %1])", "one rank"},
    {"f32[2,3] f32[2,4]", "cat([%0, %1])", "must agree"},
    {"f32[2,3] f16[2,3]", "cat([%0, %1])", "cast them"},
    {"f32[2,3]", "cat([])", "at least one tensor"},
    {"f32[2,3]", "cat([%0, none])", "takes no none"},
    {"f32[2,3]", "pad(%0, pad=[1])", "pair per dim"},
    {"f32[2,3]", "pad(%0, pad=[3,0], mode=\"reflect\")", "cannot pad extent 3"},
    {"f32[2,3]", "pad(%0, pad=[-1,0], mode=\"circular\")", "only constant mode crops"},
    {"f32[2,3]", "pad(%0, pad=[-4,4])", "crops more"},
    {"f32[2,3]", "pad(%0, pad=[1,1], mode=\"mirror\")", "mode \"mirror\" is unknown"},
    {"f32[2,3]", "flip(%0, dims=[1,1])", "named twice"},
    {"f32[2,3]", "roll(%0, shifts=[1,2], dims=[1])", "one shift per dim"},
    {"f32[2,3]", "repeat(%0, repeats=[2])", "a repeat for each"},
    {"f32[2,3]", "repeat(%0, repeats=[281474976710656,2])", "too large"},
    {"f32[2,3]", "unfold(%0, dim=0, size=3, step=1)", "does not fit extent 2"},
    {"f32[3]", "tril(%0)", "at least two dims"},
    {"f32[2,3]", "diagonal(%0, dim1=1)", "two different dims"},
    {"f32[2,3]", "sum(%0, dims=[0,0])", "named twice"},
    {"f32[2,3]", "sum(%0, dims=[-3])", "out of range"},
    {"i64[2,3]", "sum(%0, dims=[0])", "its arguments give i64[3]", "b8[3]"},
    {"i64[2,3]", "mean(%0, dims=[0])", "x must be a float", "f32[3]"},
    {"f32[0,3]", "amax(%0, dims=[0])", "zero elements", "f32[3]"},
    {"f32[0,3]", "argmax(%0)", "zero elements", "i64[]"},
    {"f32[2,3]", "argmax(%0)", "its arguments give i64[]", "f32[]"},
    {"f32[2,3]", "max_dim(%0, dim=1)", "declares 1 results", "f32[2]"},
    {"i64[2,3]", "softmax(%0, dim=1)", "the result is a float", "i64[2,3]"},
    {"f32[2,3]", "layer_norm(%0, normalized_shape=[2])", "last extents"},
    {"f32[2,3] f32[2]", "layer_norm(%0, %1, normalized_shape=[3])", "weight must have shape [3]"},
    {"f32[2,3]", "group_norm(%0, num_groups=2)", "must divide"},
    {"f32[2,3]", "batch_norm(%0, training=false)", "needs running statistics"},
    {"f32[2,3] f32[3]", "batch_norm(%0, none, none, %1, training=true)", "come together"},
    {"f32[2,3] f32[3]", "batch_norm(%0, none, none, %1, %1, training=true)", "declares 1 results"},
    {"f32[2,3] f32[2,3]", "matmul(%0, %1)", "inner extents"},
    {"f32[2,2,3] f32[3,3,2]", "matmul(%0, %1)", "batch dims"},
    {"f32[2,3] f32[]", "matmul(%0, %1)", "no scalars"},
    {"f32[2,3] f16[3,2]", "matmul(%0, %1)", "cast one of them"},
    {"i64[2,3] i64[3,2]", "matmul(%0, %1)", "multiplies i64, but f32 is declared", "f32[2,2]"},
    {"f32[2,3] f32[4,2]", "linear(%0, %1)", "does not fit weight"},
    {"f32[3] f32[2,3] f32[3,2]", "addmm(%0, %1, %2)", "does not broadcast"},
    {"f32[1] f32[2,2,3] f32[3,2]", "addmm(%0, %1, %2)", "rank 2"},
    {"f32[1] f32[1,2,3] f32[4,3,2]", "baddbmm(%0, %1, %2)", "batch extents"},
    {"f32[2,3]", "einsum([%0], equation=\"ab\")", "explicit"},
    {"f32[2,3]", "einsum([%0], equation=\"a->a\")", "does not fit"},
    {"f32[2,3]", "einsum([%0], equation=\"ab,->a\")", "does not fit"},
    {"f32[2,3]", "einsum([%0, %0], equation=\"ab->a\")", "does not fit"},
    {"f32[2,3]", "einsum([%0], equation=\"abc->a\")", "does not fit"},
    {"f32[2,3]", "einsum([%0], equation=\"aa->a\")", "has the extents 2 and 3"},
    {"f32[2,3]", "einsum([%0], equation=\"ab->c\")", "in no operand"},
    {"f32[2,3]", "einsum([%0], equation=\"ab->aa\")", "twice"},
    {"f32[2,3]", "einsum([], equation=\"->\")", "at least one"},
    {"f32[1,4,8] f32[4,4,3]", "convolution(%0, %1, stride=[1,1], padding=[0], dilation=[1], output_padding=[0])", "stride needs one entry"},
    {"f32[1,4,8] f32[4,4,3]", "convolution(%0, %1, stride=[0], padding=[0], dilation=[1], output_padding=[0])", "must be positive"},
    {"f32[1,4,8] f32[4,4,9]", "convolution(%0, %1, stride=[1], padding=[0], dilation=[1], output_padding=[0])", "larger than the input"},
    {"f32[1,4,8] f32[4,3,3]", "convolution(%0, %1, stride=[1], padding=[0], dilation=[1], output_padding=[0])", "does not fit x"},
    {"f32[1,4,8] f32[4,4,3]", "convolution(%0, %1, stride=[1], padding=[0], dilation=[1], output_padding=[0], groups=3)", "must divide"},
    {"f32[1,4,8] f32[4,4,3]", "convolution(%0, %1, stride=[2], padding=[0], dilation=[1], transposed=true, output_padding=[2])", "output_padding must be smaller"},
    {"f32[1,4,8] f32[4,4,3]", "convolution(%0, %1, stride=[281474976710656], padding=[0], dilation=[1], transposed=true, output_padding=[0])", "too large"},
    {"f32[1,4,8] f32[4,4,3]", "convolution(%0, %1, stride=[1], padding=[0], dilation=[281474976710656], output_padding=[0])", "larger than the input"},
    {"f32[4,8] f32[4,4,3]", "convolution(%0, %1, stride=[1], padding=[0], dilation=[1], output_padding=[0])", "1 to 3 spatial"},
    {"f32[1,4,8]", "max_pool(%0, kernel=[3], stride=[1], padding=[2], dilation=[1])", "half the window"},
    {"f32[1,4,8]", "max_pool(%0, kernel=[3], stride=[1], padding=[0], dilation=[1,1])", "dilation needs one entry"},
    {"f32[1,4,8]", "max_pool(%0, kernel=[9], stride=[1], padding=[0], dilation=[1])", "larger than the input"},
    {"f32[1,4,8]", "avg_pool(%0, kernel=[2], stride=[1], padding=[0], divisor_override=0)", "must not be 0"},
    {"f32[1,4,8]", "adaptive_avg_pool(%0, output_size=[0])", "must be positive"},
    {"f32[1,4,8]", "upsample_linear(%0, size=[16,16])", "size needs one entry"},
    {"f32[1,4,8]", "upsample_nearest(%0, size=[16], scales=\"2.0,2.0\")", "scales needs one number"},
    {"f32[1,4,8]", "upsample_nearest(%0, size=[16], scales=\"two\")", "positive numbers"},
    {"f32[1,4,8]", "upsample_bicubic(%0, size=[16])", "two spatial dims"},
    {"f32[2,3] i64[3,3]", "gather(%0, %1, dim=1)", "larger than x"},
    {"f32[2,3] i64[3]", "gather(%0, %1, dim=1)", "rank of x"},
    {"f32[2,3] f32[2,3]", "gather(%0, %1, dim=1)", "must be an integer tensor"},
    {"f32[2,3] i64[2,2]", "index_select(%0, %1, dim=1)", "at most one"},
    {"f32[2,3] i64[2,3] f32[1,3]", "scatter(%0, %1, %2, dim=0)", "larger than src"},
    {"f32[2,3] i64[2,3] f16[2,3]", "scatter_add(%0, %1, %2, dim=0)", "cast one of them"},
    {"f32[2,3] f32[2]", "embedding(%0, %1)", "must be integers"},
    {"f32[2,3] b8[2]", "index(%0, [%1])", "must be integers"},
    {"f32[2,3] i64[2]", "index(%0, [none, none])", "needs an index tensor"},
    {"f32[2,3] i64[2]", "index(%0, [%1, %1, %1])", "3 indices"},
    {"f32[2,3] i64[2] i64[3]", "index(%0, [%1, %2])", "do not broadcast"},
    {"f32[2,3] i64[4] f32[4,2]", "index_put(%0, [%1], %2)", "do not broadcast"},
    {"f32[2,3]", "topk(%0, k=4, dim=1)", "k = 4 is out of range"},
    {"f32[2,3] f32[2,4]", "scaled_dot_product_attention(%0, %1, %1)", "do not fit together"},
    {"f32[3,2,5,4] f32[3,1,5,4]", "scaled_dot_product_attention(%0, %1, %1)", "do not fit together"},
    {"f32[3,5,4] f32[2,5,4]", "scaled_dot_product_attention(%0, %1, %1, enable_gqa=true)", "do not fit together"},
    {"f32[2,3] i64[2,2]", "scaled_dot_product_attention(%0, %0, %0, %1)", "b8 or a float"},
    {"f32[2,3] f32[3,2]", "scaled_dot_product_attention(%0, %0, %0, %1)", "does not broadcast"},
    {"f32[5,2,3] f32[2,2,4] f32[4,3] f32[4,4]", "rnn(%0, %1, [%2, %3], nonlinearity=\"relu\", has_biases=false, num_layers=1)", "h0 must be [1,2,hidden]"},
    {"f32[5,2,3] f32[1,2,4] f32[4,3] f32[4,4]", "rnn(%0, %1, [%2], nonlinearity=\"relu\", has_biases=false, num_layers=1)", "params needs 2"},
    {"f32[5,2,3] f32[1,2,4] f32[4,3] f32[4,4]", "rnn(%0, %1, [%3, %2], nonlinearity=\"relu\", has_biases=false, num_layers=1)", "entry 0 must have shape [4,3]"},
    {"f32[5,2,3] f32[1,2,4] f32[4,3] f32[4,4]", "rnn(%0, %1, [%2, %3], nonlinearity=\"elu\", has_biases=false, num_layers=1)", "nonlinearity"},
    {"f32[5,2,3] f32[1,2,4] f32[1,2,5]", "lstm(%0, %1, %2, [], has_biases=false, num_layers=1)", "c0 must have shape"},
};

TEST(Infer, RefusesWhatPyTorchRefuses) {
  for (const Refused& r : kRefused) {
    const auto g = parse(program(r.leaves, r.result, r.node));
    ASSERT_TRUE(g) << r.node << ": " << g.error().message;
    const auto status = validate(*g);
    ASSERT_FALSE(status) << r.node << " on " << r.leaves;
    EXPECT_THAT(status.error().message, HasSubstr(r.message)) << r.node;
    EXPECT_LT(status.error().message.size(), 400u);
  }
}

}  // namespace
}  // namespace stitch::ir
