#pragma once
// Matrix-vector products and products with a few vectors: memory-bound, each row of the matrix is read once.

#include "block.cuh"
#include "stitch/runtime.h"

namespace stitch {

// out(r, c) = sum over k of matrix[r * ld + k] * vectors[c * vector_ld + k] + bias, given to the ending at index
// r * row_stride + c * column_stride.
struct GemvShape {
  int64_t rows, k, ld, vector_ld, row_stride, column_stride;
  int columns;             // vectors, 1 to 8
  bool bias_per_row;       // else per column
  constexpr int threads() const { return k >= 4096 || (rows < 4096 && k >= 1024) ? 256 : 32; }  // per row
  // Elements per load: the widest that keeps every row aligned.
  constexpr int width(int element_bytes) const {
    const int most = 16 / element_bytes;
    return k % most == 0 && ld % most == 0 && vector_ld % most == 0 ? most : 1;
  }
};

namespace detail {

template <class Shape, int Width, class T, class Ending>
__global__ void __launch_bounds__(256) gemv_kernel(const T* __restrict__ matrix, const T* __restrict__ vectors, const T* __restrict__ bias,
                                                   double alpha, Ending ending) {
  using C = Compute<T>;
  constexpr GemvShape S = Shape::value;
  constexpr int kThreads = S.threads(), kRowsPerBlock = 256 / kThreads;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + static_cast<int>(threadIdx.x) / kThreads;
  const int lane = static_cast<int>(threadIdx.x) % kThreads;
  if (kThreads == 32 && row >= S.rows) return;  // whole warps leave; with one row per block there is no spare row
  C acc[S.columns] = {};
  const T* const m = matrix + row * S.ld;
  for (int64_t k = int64_t{lane} * Width; k < S.k; k += kThreads * Width) {
    const Vec<T, Width> a = load_vec<Width>(m + k);
#pragma unroll
    for (int c = 0; c < S.columns; ++c) {
      const Vec<T, Width> b = load_vec<Width>(vectors + c * S.vector_ld + k);
#pragma unroll
      for (int i = 0; i < Width; ++i) acc[c] += static_cast<C>(widen(a[i])) * static_cast<C>(widen(b[i]));
    }
  }
  if constexpr (kThreads == 32) {
#pragma unroll
    for (int c = 0; c < S.columns; ++c) acc[c] = warp_reduce<Sum<C>>(acc[c]);
  } else {
    __shared__ C shared[32];
    for (int c = 0; c < S.columns; ++c) acc[c] = block_reduce<Sum<C>>(acc[c], shared);
  }
  if (lane != 0) return;
#pragma unroll
  for (int c = 0; c < S.columns; ++c) {
    const C shift = bias ? static_cast<C>(widen(bias[S.bias_per_row ? row : int64_t{c}])) : C(0);
    ending(row * S.row_stride + c * S.column_stride, static_cast<C>(alpha) * acc[c] + shift);
  }
}

}  // namespace detail

// bias may be null.
template <class Shape, class T, class Ending>
Failure gemv(const T* matrix, const T* vectors, const T* bias, double alpha, Ending ending, cudaStream_t stream) {
  constexpr GemvShape S = Shape::value;
  constexpr int kWidth = S.width(sizeof(T));
  const auto blocks = static_cast<unsigned>(ceil_div(S.rows, 256 / S.threads()));
  const bool aligned = (reinterpret_cast<uintptr_t>(matrix) | reinterpret_cast<uintptr_t>(vectors)) % 16 == 0;
  if (aligned) detail::gemv_kernel<Shape, kWidth, T, Ending><<<blocks, 256, 0, stream>>>(matrix, vectors, bias, alpha, ending);
  else detail::gemv_kernel<Shape, 1, T, Ending><<<blocks, 256, 0, stream>>>(matrix, vectors, bias, alpha, ending);
  STITCH_CHECK_LAUNCH();
  return nullptr;
}

}  // namespace stitch
