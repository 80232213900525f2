#pragma once
// One or more sample nodes of every op in the table, over a common set of leaves.

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/ops.h"

namespace stitch::ir::test {

inline constexpr const char* kLeaves = R"(%0: f32[2,3] = input() {name="x"}
%1: f32[2,3] = input() {name="y"}
%2: i64[2,3] = input() {name="i"}
%3: b8[2,3] = input() {name="b"}
%4: f32[2,4,8,8] = input() {name="image"}
%5: f32[6,2,3,3] = weight() {name="conv"}
%6: f32[4] = weight() {name="channels"}
%7: f32[3,4] = weight() {name="matrix"}
%8: f32[5,2,3] = input() {name="batch"}
%9: i64[4] = input() {name="rows"}
%10: f32[2,4,5,8] = input() {name="q"}
%11: f32[2,2,7,8] = input() {name="kv"}
%12: f32[2,2,4] = input() {name="h0"}
%13: f32[16,3] = weight() {name="w4x"}
%14: f32[16,4] = weight() {name="w4h"}
%15: f32[16] = weight() {name="b4"}
%16: f32[12,3] = weight() {name="w3x"}
%17: f32[12,4] = weight() {name="w3h"}
%18: f32[4,3] = weight() {name="w1x"}
%19: f32[4,4] = weight() {name="w1h"}
%20: f32[2,4,8] = input() {name="signal"}
%21: f32[4,3,2] = weight() {name="deconv"}
%22: f32[2,3] = weight() {name="src"}
%23: f32[1,2,3] = input() {name="short"}
%24: f32[5,3,2] = input() {name="turned"}
%25: f32[3] = input() {name="values"}
%26: f32[2] = input() {name="pair"}
)";
inline constexpr int kLeafCount = 27;

// "TYPE = op(...)" for every op that is no plain elementwise function of its operands.
inline constexpr const char* kSamples[] = {
    "f32[2,3] = full(size=[2,3], value=-1.5)",
    "i64[] = full(size=[], value=7.0)",
    "i64[5] = arange(start=0.0, end=10.0, step=2.0)",
    "f32[3] = arange(start=1.0, end=-0.1, step=-0.5)",
    "f32[3,4] = eye(rows=3, cols=4)",
    "f32[2,3] = add(%0, 2.5, alpha=0.5)",
    "f32[2,3] = add(%0, -3)",
    "f32[2,3] = sub(1.0, %0)",
    "f32[2,3] = clamp(%0, 0.0)",
    "f32[2,3] = clamp(%0, none, 6.0)",
    "f32[2,3] = clamp(%0, %1, inf)",
    "f32[2,3] = where(%3, %0, -inf)",
    "f32[2,3] = div(%0, %1, rounding_mode=\"floor\")",
    "f32[2,3] = gelu(%0, approximate=\"tanh\")",
    "f32[2,3] = nan_to_num(%0, nan=0.0, neginf=-1e+30)",
    "f32[2,3] = threshold(%0, threshold=0.1, value=20.0)",
    "f16[2,3] = cast(%0)",
    "b8[2,3] = lt(%2, 5)",
    "b8[2,3] = logical_and(%3, true)",
    "i64[2,3] = bitwise_left_shift(%2, 3)",
    "i64[2,3] = bitwise_not(%2)",
    "f32[5,2,3] = mul(%8, %0)",
    "f32[3,2] = view(%0, size=[3,2])",
    "f32[8,2,8,4] = permute(%4, dims=[2,0,3,1])",
    "f32[5,2,3] = expand(%23, size=[5,2,3])",
    "f32[2,2] = slice(%0, dim=1, start=0, end=3, step=2)",
    "f32[3] = select(%0, dim=0, index=1)",
    "f32[4,3] = cat([%0, %1])",
    "f32[2,9] = cat([%0, %1, %0], dim=1)",
    "f32[3,5] = pad(%0, pad=[1,1,0,1], value=-2.0)",
    "f32[2,4,12,6] = pad(%4, pad=[-1,-1,2,2])",
    "f32[2,4,12] = pad(%20, pad=[2,2], mode=\"reflect\")",
    "f32[2,3] = flip(%0, dims=[0,1])",
    "f32[2,3] = roll(%0, shifts=[1,-2], dims=[0,1])",
    "f32[2,4,3] = repeat(%0, repeats=[2,2,1])",
    "f32[2,4,3,4] = unfold(%20, dim=2, size=4, step=2)",
    "f32[2,3] = tril(%0, diagonal=-1)",
    "f32[2,3] = triu(%0)",
    "f32[2] = diagonal(%0, offset=1)",
    "f32[2,4,4] = diagonal(%4, offset=4, dim1=2, dim2=3)",
    "f32[2,3] = slice_scatter(%0, %22, dim=0, start=0, end=2)",
    "f32[5,2,3] = select_scatter(%8, %0, dim=0, index=4)",
    "f32[2,4,16,16] = upsample_nearest(%4, size=[16,16], scales=\"2.0,2.0\")",
    "f32[2] = sum(%0, dims=[1])",
    "f32[1,1] = mean(%0, dims=[], keepdim=true)",
    "i64[2] = prod(%2, dims=[1])",
    "f32[3] = amax(%0, dims=[0])",
    "f32[] = amin(%0, dims=[0,1])",
    "f32[2,1] = var(%0, dims=[1], correction=0.0, keepdim=true)",
    "f32[2] = std(%0, dims=[1])",
    "b8[2] = any(%3, dims=[1])",
    "b8[] = all(%0, dims=[])",
    "f32[2] = logsumexp(%0, dims=[1])",
    "f32[2] = vector_norm(%0, ord=inf, dims=[1])",
    "i64[] = argmax(%0)",
    "i64[2,1] = argmin(%0, dim=1, keepdim=true)",
    "(f32[2], i64[2]) = max_dim(%0, dim=1)",
    "(f32[1,3], i64[1,3]) = min_dim(%0, dim=0, keepdim=true)",
    "i64[2,3] = cumsum(%3, dim=1)",
    "f32[2,3] = cumprod(%0, dim=0)",
    "f32[2,3] = logcumsumexp(%0, dim=1)",
    "(f32[2,3], i64[2,3]) = cummax(%0, dim=1)",
    "(f32[2,3], i64[2,3]) = cummin(%0, dim=0)",
    "f32[2,3] = softmax(%0, dim=1)",
    "f32[2,3] = log_softmax(%0, dim=0)",
    "f32[2,4,8,8] = layer_norm(%4, normalized_shape=[8,8])",
    "f32[3,4] = layer_norm(%7, %6, %6, normalized_shape=[4], eps=1e-06)",
    "f32[3,4] = layer_norm(%7, none, %6, normalized_shape=[4])",
    "f32[3,4] = rms_norm(%7, %6, normalized_shape=[4], eps=1.1920928955078125e-07)",
    "f32[2,4,8,8] = group_norm(%4, %6, %6, num_groups=2)",
    "f32[2,4,8,8] = batch_norm(%4, none, none, %6, %6, training=false)",
    "f32[2,4,8,8] = batch_norm(%4, %6, %6, training=true)",
    "(f32[2,4,8,8], f32[4], f32[4]) = batch_norm(%4, %6, %6, %6, %6, training=true, momentum=0.2)",
    "f32[5,2,4] = matmul(%8, %7)",
    "f32[5,2,16] = linear(%8, %13, %15)",
    "f32[2,4] = addmm(%6, %0, %7, beta=0.5)",
    "f32[5,2,2] = baddbmm(%26, %8, %24, alpha=2.0)",
    "f32[5,2,4] = einsum([%8, %7], equation=\"abc,cd->abd\")",
    "f32[2,6,6,6] = convolution(%4, %5, stride=[1,1], padding=[0,0], dilation=[1,1], output_padding=[0,0], groups=2)",
    "f32[2,3,17] = convolution(%20, %21, stride=[2], padding=[0], dilation=[2], transposed=true, output_padding=[0])",
    "f32[2,4,4,4] = max_pool(%4, kernel=[2,2], stride=[2,2], padding=[0,0], dilation=[1,1])",
    "(f32[2,4,5,3], i64[2,4,5,3]) = max_pool(%4, kernel=[2,3], stride=[2,3], padding=[1,1], dilation=[1,1], ceil_mode=true)",
    "f32[2,4,4] = avg_pool(%20, kernel=[3], stride=[2], padding=[1], count_include_pad=false)",
    "f32[2,4,3,3] = avg_pool(%4, kernel=[3,3], stride=[3,3], padding=[0,0], ceil_mode=true, divisor_override=5)",
    "f32[2,4,3,5] = adaptive_avg_pool(%4, output_size=[3,5])",
    "(f32[2,4,1], i64[2,4,1]) = adaptive_max_pool(%20, output_size=[1])",
    "f32[2,4,16] = upsample_linear(%20, size=[16])",
    "f32[2,4,4,4] = upsample_bicubic(%4, size=[4,4], align_corners=true)",
    "f32[2,3] = gather(%0, %2, dim=1)",
    "f32[4,3] = index_select(%0, %9, dim=0)",
    "f32[2,3,4] = embedding(%7, %2)",
    "f32[4,3] = index(%0, [%9])",
    "f32[5,4,3] = index(%8, [none, %9, none])",
    "f32[2,3] = scatter(%0, %2, 0.5, dim=1)",
    "f32[2,3] = scatter(%0, %2, %1, dim=0)",
    "f32[2,3] = scatter_add(%0, %2, %1, dim=1)",
    "f32[2,3] = index_put(%0, [%9], %25, accumulate=true)",
    "(f32[2,2], i64[2,2]) = topk(%0, k=2, dim=1, largest=false)",
    "(f32[2,3], i64[2,3]) = sort(%0, dim=0, descending=true)",
    "f32[2,4,5,8] = scaled_dot_product_attention(%10, %11, %11, is_causal=true, scale=0.25, enable_gqa=true)",
    "(f32[5,2,8], f32[2,2,4], f32[2,2,4]) = lstm(%8, %12, %12, [%13, %14, %15, %15, %13, %14, %15, %15], has_biases=true, num_layers=1, bidirectional=true)",
    "(f32[5,2,8], f32[2,2,4]) = gru(%8, %12, [%16, %17, %16, %17], has_biases=false, num_layers=1, bidirectional=true)",
    "(f32[5,2,8], f32[2,2,4]) = rnn(%8, %12, [%18, %19, %18, %19], nonlinearity=\"relu\", has_biases=false, num_layers=1, bidirectional=true)",
};

inline std::string_view op_of(std::string_view sample) {
  const size_t equals = sample.find("= ");
  return sample.substr(equals + 2, sample.find('(', equals) - equals - 2);
}

// The samples above and a plain one for every pointwise op that has none.
inline std::vector<std::string> all_samples() {
  std::vector<std::string> out(std::begin(kSamples), std::end(kSamples));
  for (const OpSchema& op : all_ops()) {
    if (op.cls != OpClass::pointwise) continue;
    bool have = false;
    for (const char* s : kSamples) have = have || op_of(s) == op.name;
    if (have) continue;
    const std::string name(op.name);
    const bool compares = name.starts_with("logical") || name.starts_with("is") || name.size() == 2;
    const bool bits = name.starts_with("bitwise");
    std::string args;
    int operands = 0;
    for (const Param& p : op.params)
      if (is_positional(p.kind)) args += (args.empty() ? "%" : ", %") + std::to_string(bits ? 2 : operands++ % 2);
    out.push_back((compares ? "b8[2,3] = " : bits ? "i64[2,3] = " : "f32[2,3] = ") + name + "(" + args + ")");
  }
  return out;
}

inline std::string program_with(std::string_view sample) {
  return std::string(kLeaves) + "%" + std::to_string(kLeafCount) + ": " + std::string(sample) + "\nreturn %" + std::to_string(kLeafCount) + (sample.front() == '(' ? ".0" : "") + " {name=\"output0\"}\n";
}

}  // namespace stitch::ir::test
