#pragma once
// Stable sort and top-k along one dim, with indices. NaN is the largest value, as in PyTorch.
//
// Tiles of up to 4096 elements are sorted in shared memory (bitonic; ties are broken by index, which makes it stable).
// Longer rows: sort merges sorted tiles pairwise, every element finding its place by binary search in the other run;
// top-k keeps the first k of every tile and starts again with those until one tile is left.

#include "block.cuh"
#include "stitch/runtime.h"

namespace stitch {

// Element (o, e, i) of the input is at (o * extent + e) * inner + i; of the result, with `keep` elements along the dim,
// at (o * keep + e) * inner + i. keep == extent sorts.
struct SortShape {
  int64_t outer, extent, inner, keep;
  bool descending;
  static constexpr int kTile = 4096;
  constexpr int64_t rows() const { return outer * inner; }
  constexpr bool one_tile() const { return extent <= kTile; }
  // Candidates of one row after the first round of top-k.
  constexpr int64_t candidates() const { return ceil_div(extent, kTile) * (keep < kTile ? keep : int64_t{kTile}); }
  constexpr bool by_candidates() const { return keep <= kTile / 4; }
  // Two buffers of (value, index) in scratch.
  constexpr int64_t scratch_entries() const { return one_tile() ? 0 : 2 * rows() * (by_candidates() ? candidates() : extent); }
};

// Small element types are sorted as float or int, and the index is as wide as the value: entries have no padding bytes.
template <class T>
using SortKey = std::conditional_t<(sizeof(T) >= 4), T, std::conditional_t<std::is_integral_v<T>, int, float>>;

// A value of the row and where it came from.
template <class T>
struct Entry {
  using Key = SortKey<T>;
  using Index = std::conditional_t<sizeof(Key) == 8, int64_t, int>;
  Key value;
  Index index;  // >= 0; INT32_MAX pads a tile and goes last
};

namespace detail {

template <bool Descending, class T>
STITCH_DEVICE bool before(const Entry<T>& a, const Entry<T>& b) {
  if (a.index == INT32_MAX || b.index == INT32_MAX) return a.index < b.index;
  const auto x = a.value, y = b.value;
  const bool x_nan = op::is_nan(x), y_nan = op::is_nan(y);
  if (x_nan || y_nan) {
    if (x_nan && y_nan) return a.index < b.index;
    return Descending ? x_nan : y_nan;
  }
  if (x != y) return Descending ? x > y : x < y;
  return a.index < b.index;
}

constexpr int power_of_two(int64_t n) {
  int p = 2;
  while (p < n) p *= 2;
  return p;
}

// Sorts N entries (a power of two) in shared memory by the whole block.
template <int N, bool Descending, class T>
STITCH_DEVICE void bitonic_sort(Entry<T>* entries) {
  for (int size = 2; size <= N; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int p = static_cast<int>(threadIdx.x); p < N / 2; p += static_cast<int>(blockDim.x)) {
        const int low = 2 * p - p % stride, high = low + stride;
        const bool ascending = (low & size) == 0;
        if (before<Descending>(entries[high], entries[low]) == ascending) {
          const Entry<T> t = entries[low];
          entries[low] = entries[high];
          entries[high] = t;
        }
      }
    }
  __syncthreads();
}

// Sorts tile blockIdx.x % tiles of row blockIdx.x / tiles. Reads x when `from` is null, else candidates; writes entries to
// `to` or, when that is null, the final values and indices.
template <class Shape, int N, class T>
__global__ void __launch_bounds__(512) sort_tile_kernel(const T* __restrict__ x, const Entry<T>* __restrict__ from, int64_t length, int64_t tiles,
                                                        int64_t keep, Entry<T>* __restrict__ to, T* __restrict__ values, int64_t* __restrict__ indices) {
  constexpr SortShape S = Shape::value;
  extern __shared__ double sort_shared[];
  Entry<T>* const entries = reinterpret_cast<Entry<T>*>(sort_shared);
  const int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles, first = tile * SortShape::kTile;
  const int64_t base = row / S.inner * (S.extent * S.inner) + row % S.inner;
  const int count = static_cast<int>(length - first < N ? length - first : N);
  for (int i = static_cast<int>(threadIdx.x); i < N; i += static_cast<int>(blockDim.x)) {
    Entry<T> e{0, INT32_MAX};
    if (i < count && from) e = from[row * length + first + i];
    else if (i < count) e = {static_cast<SortKey<T>>(widen(x[base + (first + i) * S.inner])), static_cast<typename Entry<T>::Index>(first + i)};
    entries[i] = e;
  }
  bitonic_sort<N, S.descending>(entries);
  const int64_t kept = keep < N ? keep : N;
  for (int i = static_cast<int>(threadIdx.x); i < kept; i += static_cast<int>(blockDim.x)) {
    if (to) {
      // Whole tiles are written when sorting; top-k writes `keep` entries per tile, padding included.
      const int64_t at = row * (keep < N ? tiles * keep : length) + tile * kept + i;
      if (keep < N || i < count) to[at] = entries[i];
    } else if (i < S.keep) {
      const int64_t at = (row / S.inner * S.keep + i) * S.inner + row % S.inner;
      values[at] = narrow<T>(entries[i].value);
      indices[at] = entries[i].index;
    }
  }
}

// Merges neighbouring sorted runs of `run` entries: one thread per entry.
template <class Shape, class T>
__global__ void __launch_bounds__(256) merge_runs_kernel(const Entry<T>* __restrict__ from, int64_t run, Entry<T>* __restrict__ to) {
  constexpr SortShape S = Shape::value;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (t >= S.rows() * S.extent) return;
  const int64_t row = t / S.extent, at = t % S.extent, pair = at / (2 * run) * (2 * run);
  const Entry<T>* const entries = from + row * S.extent;
  const int64_t middle = pair + run < S.extent ? pair + run : S.extent, end = pair + 2 * run < S.extent ? pair + 2 * run : S.extent;
  const Entry<T> mine = entries[at];
  const bool left = at < middle;
  int64_t low = left ? middle : pair, high = left ? end : middle;  // entries of the other run that go before mine
  const int64_t other = low;
  while (low < high) {
    const int64_t half = (low + high) / 2;
    if (before<S.descending>(entries[half], mine)) low = half + 1;
    else high = half;
  }
  to[row * S.extent + pair + (at - (left ? pair : middle)) + (low - other)] = mine;
}

template <class Shape, class T>
__global__ void __launch_bounds__(256) unpack_kernel(const Entry<T>* __restrict__ from, T* __restrict__ values, int64_t* __restrict__ indices) {
  constexpr SortShape S = Shape::value;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (t >= S.rows() * S.keep) return;
  const int64_t row = t / S.keep, e = t % S.keep, at = (row / S.inner * S.keep + e) * S.inner + row % S.inner;
  values[at] = narrow<T>(from[row * S.extent + e].value);
  indices[at] = from[row * S.extent + e].index;
}

template <class Shape, int N, class T>
Failure sort_tiles(const T* x, const Entry<T>* from, int64_t length, int64_t keep, Entry<T>* to, T* values, int64_t* indices, cudaStream_t stream) {
  auto* const kernel = &sort_tile_kernel<Shape, N, T>;
  constexpr int kBytes = N * static_cast<int>(sizeof(Entry<T>));
  STITCH_TRY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const int64_t tiles = ceil_div(length, SortShape::kTile);
  constexpr unsigned kThreads = N / 2 < 32 ? 32 : (N / 2 > 512 ? 512 : N / 2);
  kernel<<<static_cast<unsigned>(Shape::value.rows() * tiles), kThreads, kBytes, stream>>>(x, from, length, tiles, keep, to, values, indices);
  STITCH_CHECK_LAUNCH();
  return nullptr;
}

}  // namespace detail

// values and indices have `keep` entries along the dim. scratch: scratch_entries() entries.
template <class Shape, class T>
Failure sort(const T* x, T* values, int64_t* indices, void* scratch, cudaStream_t stream) {
  constexpr SortShape S = Shape::value;
  constexpr int kTile = SortShape::kTile;
  if constexpr (S.one_tile()) {
    return detail::sort_tiles<Shape, detail::power_of_two(S.extent)>(x, static_cast<const Entry<T>*>(nullptr), S.extent, S.extent,
                                                                     static_cast<Entry<T>*>(nullptr), values, indices, stream);
  } else {
    auto* from = static_cast<Entry<T>*>(scratch);
    auto* to = from + S.scratch_entries() / 2;
    if constexpr (S.by_candidates()) {
      int64_t length = S.extent;
      const Entry<T>* source = nullptr;
      while (length > kTile) {
        STITCH_TRY_FAILURE((detail::sort_tiles<Shape, kTile>(x, source, length, S.keep, to, values, indices, stream)));
        length = ceil_div(length, kTile) * S.keep;
        source = to;
        to = from;
        from = const_cast<Entry<T>*>(source);
      }
      return detail::sort_tiles<Shape, kTile>(x, source, length, S.keep, static_cast<Entry<T>*>(nullptr), values, indices, stream);
    } else {
      STITCH_TRY_FAILURE((detail::sort_tiles<Shape, kTile>(x, static_cast<const Entry<T>*>(nullptr), S.extent, S.extent, from, values, indices, stream)));
      const auto blocks = static_cast<unsigned>(ceil_div(S.rows() * S.extent, 256));
      for (int64_t run = kTile; run < S.extent; run *= 2) {
        detail::merge_runs_kernel<Shape, T><<<blocks, 256, 0, stream>>>(from, run, to);
        STITCH_CHECK_LAUNCH();
        Entry<T>* const t = from;
        from = to;
        to = t;
      }
      detail::unpack_kernel<Shape, T><<<static_cast<unsigned>(ceil_div(S.rows() * S.keep, 256)), 256, 0, stream>>>(from, values, indices);
      STITCH_CHECK_LAUNCH();
      return nullptr;
    }
  }
}

}  // namespace stitch
