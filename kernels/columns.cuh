#pragma once
// Softmax and log-softmax along a dim that is not the innermost: neighbouring threads work on neighbouring columns, so that
// every access is coalesced; several threads share a long column.

#include "reduce.cuh"
#include "stitch/runtime.h"

namespace stitch {

// Element (o, e, i) is at (o * extent + e) * inner + i; e is the dim of the softmax.
struct ColumnShape {
  int64_t outer, extent, inner;
  bool log;  // log-softmax
  constexpr int parts() const { return extent >= 64 && outer * inner < 132 * 2048 ? 8 : 1; }  // threads per column
};

namespace detail {

template <class Shape, class T, class Ending>
__global__ void __launch_bounds__(256) softmax_columns_kernel(const T* __restrict__ x, Ending ending) {
  using C = Compute<T>;
  constexpr ColumnShape S = Shape::value;
  constexpr int kParts = S.parts(), kColumns = 256 / kParts;
  const int part = static_cast<int>(threadIdx.x) / kColumns, lane = static_cast<int>(threadIdx.x) % kColumns;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumns + lane;
  const bool inside = column < S.outer * S.inner;
  const int64_t base = inside ? column / S.inner * (S.extent * S.inner) + column % S.inner : 0;
  LogSum<C> total = LogSum<C>::identity();
  if (inside)
    for (int64_t e = part; e < S.extent; e += kParts) total.add(static_cast<C>(widen(x[base + e * S.inner])));
  if constexpr (kParts > 1) {
    __shared__ LogSum<C> shared[256];
    shared[threadIdx.x] = total;
    __syncthreads();
    total = shared[lane];
    for (int p = 1; p < kParts; ++p) total = LogSum<C>::combine(total, shared[p * kColumns + lane]);
  }
  if (!inside) return;
  const C shift = S.log ? total.top + log(total.sum) : total.top, scale = C(1) / total.sum;
  for (int64_t e = part; e < S.extent; e += kParts) {
    const C v = static_cast<C>(widen(x[base + e * S.inner]));
    ending(base + e * S.inner, S.log ? v - shift : exp(v - shift) * scale);
  }
}

}  // namespace detail

template <class Shape, class T, class Ending>
Failure softmax_columns(const T* x, Ending ending, cudaStream_t stream) {
  constexpr ColumnShape S = Shape::value;
  const auto blocks = static_cast<unsigned>(ceil_div(S.outer * S.inner, 256 / S.parts()));
  detail::softmax_columns_kernel<Shape, T, Ending><<<blocks, 256, 0, stream>>>(x, ending);
  STITCH_CHECK_LAUNCH();
  return nullptr;
}

}  // namespace stitch
