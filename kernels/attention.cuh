#pragma once
// Attention without the score matrix: a block owns a tile of query rows and walks over the keys in tiles, keeping the
// running maximum and sum of every row (online softmax; Milakov and Gimelshein, 2018; Dao et al., 2022). All arithmetic is
// in float with accurate exp, for every element type.
//
// A row in which every key is masked gives zeros, as PyTorch.

#include "block.cuh"
#include "stitch/runtime.h"

namespace stitch {

// Where (batch, head, row) starts, in elements from the tensor's pointer; columns are contiguous. row == 0: (batch, heads, rows, columns)
// packed.
struct HeadStrides {
  int64_t batch = 0, head = 0, row = 0;
  constexpr HeadStrides or_packed(int heads, int rows, int columns) const {
    return row != 0 ? *this : HeadStrides{int64_t{heads} * rows * columns, int64_t{rows} * columns, columns};
  }
  constexpr int64_t at(int b, int h, int r) const { return b * batch + h * head + r * row; }
};

// q (batch, heads, rows, width), k (batch, kv_heads, keys, width), v (batch, kv_heads, keys, value_width), result (batch, heads, rows,
// value_width), each with its own strides; query head h reads k/v head h / (heads / kv_heads). Mask strides are in elements, 0 where it is
// broadcast; the batch dims of the mask are split in two so that leading dims may be broadcast one by one.
struct AttentionShape {
  int batch_outer, batch_inner, heads, kv_heads, rows, keys, width, value_width;
  bool causal;  // key j is seen by row i when j <= i
  int64_t mask_outer, mask_inner, mask_head, mask_row, mask_key;
  HeadStrides q = {}, k = {}, v = {}, out = {};

  constexpr HeadStrides q_at() const { return q.or_packed(heads, rows, width); }
  constexpr HeadStrides k_at() const { return k.or_packed(kv_heads, keys, width); }
  constexpr HeadStrides v_at() const { return v.or_packed(kv_heads, keys, value_width); }
  constexpr HeadStrides out_at() const { return out.or_packed(heads, rows, value_width); }

  constexpr int round_up(int n, int to) const { return (n + to - 1) / to * to; }
  constexpr int rows_per_thread() const { return rows > 32 ? 4 : 1; }
  constexpr int tile_rows() const { return 16 * rows_per_thread(); }
  static constexpr int kTileKeys = 64;
  constexpr int padded_width() const { return round_up(width, 4); }
  constexpr int padded_value_width() const { return round_up(value_width, 64); }
  // Strides in shared memory: 4 more than a multiple of 32 words spread neighbouring rows over the banks.
  constexpr int q_stride() const { return padded_width() + 4; }
  constexpr int p_stride() const { return kTileKeys + 4; }
  constexpr int kv_stride() const { return (padded_width() > padded_value_width() ? padded_width() : padded_value_width()) + 4; }
  constexpr int shared_bytes() const {
    return (tile_rows() * (q_stride() + p_stride()) + kTileKeys * kv_stride()) * static_cast<int>(sizeof(float));
  }
};

struct NoMask {};  // mask element type of attention without a mask

namespace detail {

struct alignas(16) Float4 {
  float x, y, z, w;
};
STITCH_DEVICE Float4 load4(const float* p) { return *reinterpret_cast<const Float4*>(p); }
STITCH_DEVICE float dot4(Float4 a, Float4 b, float acc) {
  acc += a.x * b.x;
  acc += a.y * b.y;
  acc += a.z * b.z;
  return acc + a.w * b.w;
}

// Copies `Rows` rows of Width elements, `step` apart, into shared memory as floats, zeros beyond `valid` rows and beyond Width.
template <int Rows, int Width, int Padded, int Stride, class T>
STITCH_DEVICE void fill_tile(float* __restrict__ to, const T* __restrict__ from, int64_t step, int valid, float scale) {
  for (int i = static_cast<int>(threadIdx.x); i < Rows * Padded; i += 256) {
    const int row = i / Padded, column = i % Padded;
    to[row * Stride + column] = row < valid && (Padded == Width || column < Width) ? widen(from[row * step + column]) * scale : 0.0f;
  }
}

// What is added to a score: 0 or -inf for a bool mask, the value of an additive one.
STITCH_DEVICE float mask_term(bool m) { return m ? 0.0f : -INFINITY; }
template <class M>
STITCH_DEVICE float mask_term(M m) { return static_cast<float>(widen(m)); }

// 256 threads as 16 x 16: thread (ty, tx) owns rows ty * R + 0..R-1 and keys tx + 16 * 0..3 of a score tile, and of the
// output columns 4 * tx + 64 * g + 0..3.
template <class Shape, class T, class M, class Ending>
__global__ void __launch_bounds__(256) attention_kernel(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                                        const M* __restrict__ mask, float scale, Ending ending) {
  constexpr AttentionShape S = Shape::value;
  constexpr int R = S.rows_per_thread(), kRows = S.tile_rows(), kKeys = AttentionShape::kTileKeys, kGroups = S.padded_value_width() / 64;
  extern __shared__ float attention_shared[];
  float* const q_tile = attention_shared;                 // kRows x q_stride
  float* const p_tile = q_tile + kRows * S.q_stride();    // kRows x p_stride
  float* const kv_tile = p_tile + kRows * S.p_stride();   // kKeys x kv_stride, keys first and then values
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  constexpr int kRowTiles = (S.rows + kRows - 1) / kRows;
  // The last tiles have the most keys under a causal mask: they start first.
  const int tile = kRowTiles - 1 - static_cast<int>(blockIdx.x % kRowTiles), head_index = static_cast<int>(blockIdx.x / kRowTiles);
  const int head = head_index % S.heads, batch = head_index / S.heads, first_row = tile * kRows;
  constexpr HeadStrides kQ = S.q_at(), kK = S.k_at(), kV = S.v_at(), kOut = S.out_at();
  const int kv_head = head / (S.heads / S.kv_heads);
  const T* const k_head = k + kK.at(batch, kv_head, 0);
  const T* const v_head = v + kV.at(batch, kv_head, 0);
  const M* mask_head = nullptr;
  if constexpr (!std::is_same_v<M, NoMask>) mask_head = mask + batch / S.batch_inner * S.mask_outer + batch % S.batch_inner * S.mask_inner + head * S.mask_head;

  fill_tile<kRows, S.width, S.padded_width(), S.q_stride()>(q_tile, q + kQ.at(batch, head, first_row), kQ.row, S.rows - first_row, scale);
  float top[R], sum[R], acc[R][kGroups][4] = {};
#pragma unroll
  for (int r = 0; r < R; ++r) {
    top[r] = -INFINITY;
    sum[r] = 0;
  }
  const int last_row = first_row + kRows < S.rows ? first_row + kRows : S.rows;
  const int end = S.causal && last_row < S.keys ? last_row : S.keys;
  for (int first_key = 0; first_key < end; first_key += kKeys) {
    __syncthreads();  // the value tile of the step before is done with
    fill_tile<kKeys, S.width, S.padded_width(), S.kv_stride()>(kv_tile, k_head + first_key * kK.row, kK.row, S.keys - first_key, 1.0f);
    __syncthreads();
    float score[R][4] = {};
    for (int e = 0; e < S.padded_width(); e += 4) {
      Float4 a[R], b[4];
#pragma unroll
      for (int r = 0; r < R; ++r) a[r] = load4(q_tile + (ty * R + r) * S.q_stride() + e);
#pragma unroll
      for (int j = 0; j < 4; ++j) b[j] = load4(kv_tile + (tx + 16 * j) * S.kv_stride() + e);
#pragma unroll
      for (int r = 0; r < R; ++r)
#pragma unroll
        for (int j = 0; j < 4; ++j) score[r][j] = dot4(a[r], b[j], score[r][j]);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int row = first_row + ty * R + r;
      float high = top[r];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int key = first_key + tx + 16 * j;
        const bool seen = key < S.keys && (!S.causal || key <= row) && row < S.rows;
        if constexpr (!std::is_same_v<M, NoMask>)
          if (seen) score[r][j] += mask_term(mask_head[row * S.mask_row + key * S.mask_key]);
        if (!seen) score[r][j] = -INFINITY;
        high = op::maximum(high, score[r][j]);
      }
#pragma unroll
      for (int m = 8; m > 0; m /= 2) high = op::maximum(high, __shfl_xor_sync(0xffffffffu, high, m));  // the row's 16 threads
      const float base = high == -INFINITY ? 0.0f : high;  // nothing seen yet: exp(-inf - 0) is 0
      const float keep = expf(top[r] - base);
      float part = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float p = expf(score[r][j] - base);
        part += p;
        p_tile[(ty * R + r) * S.p_stride() + tx + 16 * j] = p;
      }
#pragma unroll
      for (int m = 8; m > 0; m /= 2) part += __shfl_xor_sync(0xffffffffu, part, m);
      sum[r] = sum[r] * keep + part;
      top[r] = high;
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int c = 0; c < 4; ++c) acc[r][g][c] *= keep;
    }
    __syncthreads();  // scores are read, the key tile is done with
    fill_tile<kKeys, S.value_width, S.padded_value_width(), S.kv_stride()>(kv_tile, v_head + first_key * kV.row, kV.row, S.keys - first_key, 1.0f);
    __syncthreads();
    for (int key = 0; key < kKeys; key += 4) {
      Float4 p[R];
#pragma unroll
      for (int r = 0; r < R; ++r) p[r] = load4(p_tile + (ty * R + r) * S.p_stride() + key);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float* const column = kv_tile + key * S.kv_stride() + 4 * tx + 64 * g;
        const Float4 v0 = load4(column), v1 = load4(column + S.kv_stride()), v2 = load4(column + 2 * S.kv_stride()), v3 = load4(column + 3 * S.kv_stride());
#pragma unroll
        for (int r = 0; r < R; ++r) {
          acc[r][g][0] = dot4(p[r], {v0.x, v1.x, v2.x, v3.x}, acc[r][g][0]);
          acc[r][g][1] = dot4(p[r], {v0.y, v1.y, v2.y, v3.y}, acc[r][g][1]);
          acc[r][g][2] = dot4(p[r], {v0.z, v1.z, v2.z, v3.z}, acc[r][g][2]);
          acc[r][g][3] = dot4(p[r], {v0.w, v1.w, v2.w, v3.w}, acc[r][g][3]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int row = first_row + ty * R + r;
    if (row >= S.rows) continue;
    const float scale_out = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = 4 * tx + 64 * g + c;
        if (column < S.value_width) ending(kOut.at(batch, head, row) + column, acc[r][g][c] * scale_out);
      }
  }
}

}  // namespace detail

// mask: bool (true = attend), a float type (added), or a null const NoMask*. Needs shared_bytes() <= 227 KiB.
template <class Shape, class T, class M, class Ending>
Failure attention(const T* q, const T* k, const T* v, const M* mask, float scale, Ending ending, cudaStream_t stream) {
  constexpr AttentionShape S = Shape::value;
  constexpr int kRowTiles = (S.rows + S.tile_rows() - 1) / S.tile_rows();
  auto* const kernel = &detail::attention_kernel<Shape, T, M, Ending>;
  STITCH_TRY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S.shared_bytes()));
  const unsigned blocks = static_cast<unsigned>(int64_t{S.batch_outer} * S.batch_inner * S.heads * kRowTiles);
  kernel<<<blocks, 256, S.shared_bytes(), stream>>>(q, k, v, mask, scale, ending);
  STITCH_CHECK_LAUNCH();
  return nullptr;
}

}  // namespace stitch
