#include "interp/gemm.h"

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "interp/rules.h"

namespace stitch::interp {
namespace {

constexpr int64_t kRows = 4, kCols = 8;             // the tile that is held in registers
constexpr int64_t kDepth = 256;                     // k of a packed block: both fit the first cache levels
constexpr int64_t kBlockRows = 64, kBlockCols = 256;

using Vector [[gnu::vector_size(32)]] = double;

// acc (4 x 8, dense) = sum over k of the column a[k*4..] times the row b[k*8..].
[[gnu::always_inline]] inline void tile_body(int64_t k, const double* a, const double* b, double* acc) {
  Vector c[kRows][2] = {};
  for (int64_t p = 0; p < k; ++p, a += kRows, b += kCols) {
    Vector b0, b1;
    __builtin_memcpy(&b0, b, sizeof b0);
    __builtin_memcpy(&b1, b + 4, sizeof b1);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {  // unrolled, or the tile would live in memory
      c[i][0] += a[i] * b0;
      c[i][1] += a[i] * b1;
    }
  }
  __builtin_memcpy(acc, c, sizeof c);
}

// One build runs on any x86-64 and still uses AVX2 where there is one.
void tile_plain(int64_t k, const double* a, const double* b, double* acc) { tile_body(k, a, b, acc); }
#ifdef __x86_64__
[[gnu::target("avx2,fma")]] void tile_avx2(int64_t k, const double* a, const double* b, double* acc) { tile_body(k, a, b, acc); }
const auto tile = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? tile_avx2 : tile_plain;
#else
const auto tile = tile_plain;
#endif

// Packs up to `width` lines of a strided matrix so that the tile reads them in order; short blocks are filled up with zeros,
// which only meet each other's results that nobody reads.
void pack(const double* from, int64_t line, int64_t step, int64_t lines, int64_t k, int64_t width, double* to) {
  for (int64_t base = 0; base < lines; base += width) {
    const int64_t have = std::min(width, lines - base);
    for (int64_t p = 0; p < k; ++p, to += width) {
      const double* q = from + base * line + p * step;
      for (int64_t i = 0; i < have; ++i) to[i] = q[i * line];
      for (int64_t i = have; i < width; ++i) to[i] = 0;
    }
  }
}

struct Buffers {
  std::vector<double> a = std::vector<double>(kBlockRows * kDepth), b = std::vector<double>(kBlockCols * kDepth);
};

// A block of at most 64 x 256 results.
void block(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, double* c, int64_t c_row, Buffers& buffers) {
  if (k == 0)
    for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * c_row, n, 0.0);
  for (int64_t p = 0; p < k; p += kDepth) {
    const int64_t depth = std::min(kDepth, k - p);
    pack(a.data + p * a.col, a.row, a.col, m, depth, kRows, buffers.a.data());
    pack(b.data + p * b.row, b.col, b.row, n, depth, kCols, buffers.b.data());
    for (int64_t j = 0; j < n; j += kCols)
      for (int64_t i = 0; i < m; i += kRows) {
        double acc[kRows * kCols];
        tile(depth, buffers.a.data() + i * depth, buffers.b.data() + j * depth, acc);
        const int64_t cols = std::min(kCols, n - j);
        for (int64_t r = 0; r < std::min(kRows, m - i); ++r) {
          double* to = c + (i + r) * c_row + j;
          for (int64_t q = 0; q < cols; ++q) to[q] = p == 0 ? acc[r * kCols + q] : to[q] + acc[r * kCols + q];
        }
      }
  }
}

}  // namespace

void gemm(int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, double* c, int64_t c_row) {
  Buffers buffers;
  for (int64_t j = 0; j < n; j += kBlockCols)
    for (int64_t i = 0; i < m; i += kBlockRows)
      block(std::min(kBlockRows, m - i), std::min(kBlockCols, n - j), k, {a.data + i * a.row, a.row, a.col}, {b.data + j * b.col, b.row, b.col},
            c + i * c_row + j, c_row, buffers);
}

void gemm_batched(int64_t batch, int64_t m, int64_t n, int64_t k, MatrixView a, MatrixView b, BatchOffsets offsets, double* c) {
  const int64_t down = (m + kBlockRows - 1) / kBlockRows, across = (n + kBlockCols - 1) / kBlockCols;
  const int64_t work = std::min(m, kBlockRows) * std::min(n, kBlockCols) * std::max<int64_t>(k, 1) / 4;
  parallel_for(batch * down * across, grain_for(work), [&](int64_t begin, int64_t end) {
    Buffers buffers;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t product = t / (down * across), i = t / across % down * kBlockRows, j = t % across * kBlockCols;
      block(std::min(kBlockRows, m - i), std::min(kBlockCols, n - j), k, {a.data + offsets.a[product] + i * a.row, a.row, a.col},
            {b.data + offsets.b[product] + j * b.col, b.row, b.col}, c + (product * m + i) * n + j, n, buffers);
    }
  });
}

}  // namespace stitch::interp
