#pragma once
// Matrix products in fp64: the inner loop of matmul, linear, einsum, convolution, attention and the recurrent layers.

#include <cstdint>

namespace stitch::interp {

// A matrix somewhere in memory: element (i, j) at data[i * row + j * col].
struct MatrixView {
  const double* data;
  int64_t row, col;
};

// c[i * c_row + j] = sum over k of a(i, k) * b(k, j), on the calling thread. Zero times infinity is NaN: nothing is skipped.
void gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, double* c, int64_t c_row);

// `batch` products on all cores; product i uses a + a_offset(i), b + b_offset(i) and writes c densely at c + i*m*n.
struct BatchOffsets {
  const int64_t* a;
  const int64_t* b;
};
void gemm_batched(int64_t batch, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, BatchOffsets offsets, double* c);

}  // namespace stitch::interp
