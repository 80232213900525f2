// Vendor: products and convolutions against loops in double.
#include "check.h"
#include "reference.h"
#include "stitch/vendor.h"

namespace vendor_test {

using namespace stitch;

template <class T>
Element element() {
  if (std::is_same_v<T, double>) return Element::f64;
  if (std::is_same_v<T, __half>) return Element::f16;
  if (std::is_same_v<T, __nv_bfloat16>) return Element::bf16;
  return Element::f32;
}

template <class T>
void product(Vendor& vendor, Gemm g, bool with_bias, const std::string& what) {
  g.element = element<T>();
  const int64_t lda = g.transpose_a ? g.m : g.k, ldb = g.transpose_b ? g.k : g.n;
  const int64_t batches_a = g.batch_stride_a ? g.batch : 1, batches_b = g.batch_stride_b ? g.batch : 1;
  const Doubles a = random_values<T>(batches_a * g.m * g.k, 1), b = random_values<T>(batches_b * g.k * g.n, 2);
  const Doubles c = random_values<T>(g.batch * g.m * g.n, 3), bias = random_values<T>(g.n, 4);
  Doubles want(g.batch * g.m * g.n);
  for (int64_t s = 0; s < g.batch; ++s)
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < g.k; ++p)
          sum += a[s * g.batch_stride_a + (g.transpose_a ? p * lda + i : i * lda + p)] *
                 b[s * g.batch_stride_b + (g.transpose_b ? j * ldb + p : p * ldb + j)];
        double v = g.alpha * sum + g.beta * c[(s * g.m + i) * g.n + j] + (with_bias ? bias[j] : 0);
        if (g.activation == Activation::relu) v = v < 0 ? 0 : v;
        if (g.activation == Activation::gelu_tanh) v = 0.5 * v * (1 + std::tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v)));
        want[(s * g.m + i) * g.n + j] = v;
      }
  Buffer<T> da(a), db(b), dc(c), dbias(bias), dd(want.size());
  Buffer<char> scratch(1 << 20);
  g.batch_stride_c = g.batch_stride_d = g.batch > 1 ? g.m * g.n : 0;
  require(vendor.gemm(g, da, db, g.beta != 0 ? dc.get() : nullptr, with_bias ? dbias.get() : nullptr, dd, scratch, 1 << 20, nullptr), what);
  expect_close(what, dd.read(), want, tolerance<T>());
}

template <class T>
void convolution(Vendor& vendor, const Convolution& shape, bool with_bias, const std::string& what) {
  Convolution c = shape;
  c.element = element<T>();
  c.allow_tf32 = false;
  const ConvolutionCase reference(c);
  const Doubles x = random_values<T>(reference.x_size, 5), w = random_values<T>(reference.w_size, 6), bias = random_values<T>(c.out_channels, 7);
  Buffer<T> dx(x), dw(w), dbias(bias), dy(reference.y_size);
  Buffer<char> scratch(8 << 20);
  require(vendor.convolution(c, dx, dw, with_bias ? dbias.get() : nullptr, dy, scratch, 8 << 20, nullptr), what);
  expect_close(what, dy.read(), reference.run(x, w, with_bias ? bias : Doubles{}), tolerance<T>());
}

void run() {
  Vendor vendor;
  product<float>(vendor, {.m = 17, .n = 33, .k = 70}, false, "gemm");
  product<float>(vendor, {.m = 16, .n = 24, .k = 40, .transpose_b = true}, true, "gemm, B transposed, bias");
  product<float>(vendor, {.m = 16, .n = 24, .k = 40, .transpose_a = true, .alpha = 0.5, .beta = 2}, false, "gemm, A transposed, alpha, beta");
  product<float>(vendor, {.m = 8, .n = 8, .k = 8, .batch = 3, .batch_stride_a = 64, .batch_stride_b = 0}, false, "gemm, shared B");
  product<float>(vendor, {.m = 8, .n = 8, .k = 8, .activation = Activation::relu}, true, "gemm, bias, relu");
  product<float>(vendor, {.m = 8, .n = 8, .k = 8, .activation = Activation::gelu_tanh}, true, "gemm, bias, gelu");
  product<double>(vendor, {.m = 9, .n = 7, .k = 100}, false, "gemm f64");
  product<__half>(vendor, {.m = 16, .n = 8, .k = 32}, true, "gemm f16");
  product<__nv_bfloat16>(vendor, {.m = 16, .n = 8, .k = 32}, true, "gemm bf16");
  for (const auto& [what, shape] : convolution_cases()) {
    convolution<float>(vendor, shape, true, "vendor convolution " + what);
  }
  convolution<__half>(vendor, convolution_cases()[0].second, false, "vendor convolution f16");
}

}  // namespace vendor_test
