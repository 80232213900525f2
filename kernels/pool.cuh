#pragma once
// Max and average pooling, fixed and adaptive, in 1 to 3 spatial dims. One thread per window, or a warp when windows are
// large (global pooling).

#include "block.cuh"
#include "stitch/runtime.h"

namespace stitch {

// x (planes, in...), out (planes, out...); fewer than three dims have leading extents of 1. Adaptive pooling derives its
// windows from the extents and ignores the fields after `out`.
struct PoolShape {
  int64_t planes;
  int in[3], out[3];
  bool adaptive;
  int kernel[3], stride[3], padding[3], dilation[3];
  bool count_padding;  // average: padding counts as zeros
  int divisor;         // average: fixed divisor, 0 = the number of elements

  constexpr int64_t in_plane() const { return int64_t{in[0]} * in[1] * in[2]; }
  constexpr int64_t out_plane() const { return int64_t{out[0]} * out[1] * out[2]; }
  constexpr int64_t window() const {
    int64_t n = 1;
    for (int d = 0; d < 3; ++d) n *= adaptive ? ceil_div(in[d], out[d]) : kernel[d];
    return n;
  }
  constexpr int lanes() const { return window() >= 32 ? 32 : 1; }  // threads per window
};

namespace detail {

// Positions of a window in one dim: from, from + step, ... below to; `full` counts the padding too.
struct Span {
  int from, to, step, full;
  STITCH_DEVICE int count() const { return to > from ? (to - from + step - 1) / step : 0; }
};

template <class Shape, int Dim>
STITCH_DEVICE Span window_span(int at) {
  constexpr PoolShape S = Shape::value;
  constexpr int in = S.in[Dim], out = S.out[Dim];
  if constexpr (S.adaptive) {
    const int from = static_cast<int>(int64_t{at} * in / out), to = static_cast<int>((int64_t{at + 1} * in + out - 1) / out);
    return {from, to, 1, to - from};
  } else {
    constexpr int step = S.dilation[Dim], reach = (S.kernel[Dim] - 1) * step + 1;
    int from = at * S.stride[Dim] - S.padding[Dim];
    const int padded_end = from + reach < in + S.padding[Dim] ? from + reach : in + S.padding[Dim];
    const int full = padded_end - from, to = padded_end < in ? padded_end : in;
    if (from < 0) from += (-from + step - 1) / step * step;
    return {from, to, step, full};
  }
}

// The largest value so far and where it was; an earlier place wins among equals, NaN wins over everything.
template <class C>
struct Best {
  using Value = Best;
  C value;
  int at;  // -1: nothing yet
  STITCH_DEVICE static Best identity() { return {C(0), -1}; }
  STITCH_DEVICE static Best combine(Best a, Best b) {
    if (a.at < 0) return b;
    if (b.at < 0) return a;
    const bool a_nan = op::is_nan(a.value), b_nan = op::is_nan(b.value);
    if (a_nan != b_nan) return a_nan ? a : b;
    if (a_nan) return a.at > b.at ? a : b;  // the last NaN, as PyTorch's running comparison
    if (a.value != b.value) return a.value > b.value ? a : b;
    return a.at < b.at ? a : b;
  }
};

// Calls visit(index in the plane) for the part of the window that this lane handles.
template <int Lanes, class Visit>
STITCH_DEVICE void visit_window(Span z, Span y, Span x, int height, int width, int lane, Visit visit) {
  if constexpr (Lanes == 1) {
    for (int k = z.from; k < z.to; k += z.step)
      for (int j = y.from; j < y.to; j += y.step)
        for (int i = x.from; i < x.to; i += x.step) visit((k * height + j) * width + i);
  } else {
    const int rows = y.count(), columns = x.count(), total = z.count() * rows * columns;
    for (int n = lane; n < total; n += Lanes) {
      const int i = n % columns, rest = n / columns, j = rest % rows, k = rest / rows;
      visit(((z.from + k * z.step) * height + y.from + j * y.step) * width + x.from + i * x.step);
    }
  }
}

template <class Shape, bool Max, class T, class Ending>
__global__ void __launch_bounds__(256) pool_kernel(const T* __restrict__ x, int64_t* __restrict__ indices, Ending ending) {
  using C = Compute<T>;
  constexpr PoolShape S = Shape::value;
  constexpr int kLanes = S.lanes();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (at >= S.planes * S.out_plane()) return;  // whole warps when a warp shares a window
  const int place = static_cast<int>(at % S.out_plane());
  const Span span_z = window_span<Shape, 0>(place / (S.out[1] * S.out[2])), span_y = window_span<Shape, 1>(place / S.out[2] % S.out[1]),
             span_x = window_span<Shape, 2>(place % S.out[2]);
  const T* const plane = x + at / S.out_plane() * S.in_plane();
  if constexpr (Max) {
    Best<C> best = Best<C>::identity();
    visit_window<kLanes>(span_z, span_y, span_x, S.in[1], S.in[2], lane,
                         [&](int i) { best = Best<C>::combine(best, {static_cast<C>(widen(plane[i])), i}); });
    if constexpr (kLanes > 1) best = warp_reduce<Best<C>>(best);
    if (lane != 0) return;
    ending(at, best.at < 0 ? -C(INFINITY) : best.value);
    if (indices) indices[at] = best.at;
  } else {
    C sum = 0;
    visit_window<kLanes>(span_z, span_y, span_x, S.in[1], S.in[2], lane, [&](int i) { sum += static_cast<C>(widen(plane[i])); });
    if constexpr (kLanes > 1) sum = warp_reduce<Sum<C>>(sum);
    if (lane != 0) return;
    const int count = S.divisor != 0 ? S.divisor
                      : S.count_padding ? span_z.full * span_y.full * span_x.full
                                        : span_z.count() * span_y.count() * span_x.count();
    ending(at, sum / static_cast<C>(count));
  }
}

template <class Shape, bool Max, class T, class Ending>
Failure pool(const T* x, int64_t* indices, Ending ending, cudaStream_t stream) {
  constexpr PoolShape S = Shape::value;
  const auto blocks = static_cast<unsigned>(ceil_div(S.planes * S.out_plane() * S.lanes(), 256));
  pool_kernel<Shape, Max, T, Ending><<<blocks, 256, 0, stream>>>(x, indices, ending);
  STITCH_CHECK_LAUNCH();
  return nullptr;
}

}  // namespace detail

// indices: flattened over the input's spatial dims; may be null.
template <class Shape, class T, class Ending>
Failure max_pool(const T* x, int64_t* indices, Ending ending, cudaStream_t stream) {
  return detail::pool<Shape, true>(x, indices, ending, stream);
}
template <class Shape, class T, class Ending>
Failure avg_pool(const T* x, Ending ending, cudaStream_t stream) {
  return detail::pool<Shape, false>(x, nullptr, ending, stream);
}

}  // namespace stitch
