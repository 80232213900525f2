#pragma once
// Vendor libraries behind one narrow interface: cuBLASLt and cuDNN on the cuda target (vendor_cuda.h), plain CPU code on
// the host target (vendor_host.h). program.cpp owns one Vendor; tasks receive it by reference.

#include "stitch/runtime.h"

namespace stitch {

enum class Element : int8_t { f64, f32, f16, bf16 };
enum class Activation : int8_t { none, relu, gelu_tanh, gelu_erf };

// D = act(alpha * op(A) op(B) + beta * C + bias), batched and strided, all row-major.
// A is m x k (or k x m when transposed), B k x n (or n x k), C and D m x n. Strides in elements.
struct Gemm {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;
  int64_t lda = 0, ldb = 0, ldc = 0, ldd = 0;              // row strides; 0 = packed
  int64_t batch_stride_a = 0, batch_stride_b = 0, batch_stride_c = 0, batch_stride_d = 0;  // 0 = shared
  double alpha = 1, beta = 0;
  Element element = Element::f32;                          // of A, B, C, D and bias; accumulation in f32 (f64 for f64)
  bool allow_tf32 = false;
  Activation activation = Activation::none;
  bool operator==(const Gemm&) const = default;
};

// Convolution of 1 to 3 spatial dims, NC(D)(H)W; `transposed` gives the gradient-of-convolution form of torch.
struct Convolution {
  int spatial_dims = 2;
  int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  int64_t in_size[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, out_size[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  bool transposed = false;
  Element element = Element::f32;
  bool allow_tf32 = true;
  bool operator==(const Convolution&) const = default;
};

// What gemm() and convolution() return (this very pointer) when the library has no kernel for the request, so that a
// task can fall back to a kernel of its own. Nothing has been enqueued then.
extern const char vendor_unsupported[];

// Neither call allocates device memory: `scratch` is all the library may use, so tasks on different streams never share
// it. The first call with a given description picks the algorithm and may time candidates and synchronise; outside of graph
// capture that should have happened once. Later calls only enqueue, and can be captured.
class Vendor {
 public:
  Vendor();
  ~Vendor();
  Vendor(const Vendor&) = delete;
  Vendor& operator=(const Vendor&) = delete;

  // bias: n elements added to every row, may be null. c may be null when beta == 0. scratch may be null.
  Failure gemm(const Gemm&, const void* a, const void* b, const void* c, const void* bias, void* d, void* scratch,
               size_t scratch_bytes, cudaStream_t stream);
  // bias: out_channels elements, may be null.
  Failure convolution(const Convolution&, const void* x, const void* w, const void* bias, void* y, void* scratch,
                      size_t scratch_bytes, cudaStream_t stream);

 private:
  struct State;
  State* state_;
};

}  // namespace stitch
