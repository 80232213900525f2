#pragma once
// Inclusive scans along one dim: sums, products, log-sums of exponentials, running extrema with their places.
//
// Innermost dim: a block walks along its row in tiles and carries the total. Other dims: neighbouring threads walk down
// neighbouring columns, so that every access is coalesced.

#include "reduce.cuh"
#include "stitch/runtime.h"

namespace stitch {

// Element (o, e, i) is at (o * extent + e) * inner + i; the scan goes along e.
struct ScanShape {
  int64_t outer, extent, inner;
};

template <class C>
struct LogAddExp {
  using Value = C;
  STITCH_DEVICE static C identity() { return -C(INFINITY); }
  STITCH_DEVICE static C combine(C a, C b) { return op::logaddexp(a, b); }
};

// The later of equal elements wins, and NaN wins over everything, as PyTorch's cummax and cummin.
template <class C, bool Max>
struct RunningExtremum {
  using Value = Placed<C>;
  STITCH_DEVICE static Value identity() { return {C(0), -1}; }  // index -1: nothing yet
  STITCH_DEVICE static Value combine(Value a, Value b) {
    if (b.index < 0) return a;
    if (a.index < 0 || op::is_nan(b.value)) return b;
    if (op::is_nan(a.value)) return a;
    return (Max ? b.value >= a.value : b.value <= a.value) ? b : a;
  }
};

namespace detail {

template <class V, class C>
STITCH_DEVICE V make_scan_value(C x, int64_t at) {
  if constexpr (std::is_same_v<V, Placed<C>>) return {x, at};
  else return static_cast<V>(x);
}
template <class V, class T>
STITCH_DEVICE void store_scan_value(V v, int64_t at, T* out, int64_t* places) {
  if constexpr (std::is_class_v<V>) {
    out[at] = narrow<T>(v.value);
    places[at] = v.index;
  } else {
    out[at] = narrow<T>(v);
  }
}
template <class Op>
struct ScanCompute { using type = typename Op::Value; };
template <class C, bool Max>
struct ScanCompute<RunningExtremum<C, Max>> { using type = C; };

template <class Shape, class Op, class T, class R>
__global__ void __launch_bounds__(256) scan_rows_kernel(const T* __restrict__ x, R* __restrict__ out, int64_t* __restrict__ places) {
  using V = typename Op::Value;
  using C = typename ScanCompute<Op>::type;
  constexpr ScanShape S = Shape::value;
  constexpr int kItems = 4;
  __shared__ V shared[33];
  const int64_t base = static_cast<int64_t>(blockIdx.x) * S.extent;
  V carry = Op::identity();
  for (int64_t tile = 0; tile < S.extent; tile += 256 * kItems) {
    const int64_t first = tile + static_cast<int64_t>(threadIdx.x) * kItems;
    V item[kItems], sum = Op::identity();
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      item[i] = first + i < S.extent ? make_scan_value<V, C>(static_cast<C>(widen(x[base + first + i])), first + i) : Op::identity();
      sum = Op::combine(sum, item[i]);
    }
    V total;
    V running = Op::combine(carry, block_scan_exclusive<Op>(sum, shared, total));
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      running = Op::combine(running, item[i]);
      if (first + i < S.extent) store_scan_value(running, base + first + i, out, places);
    }
    carry = Op::combine(carry, total);
  }
}

template <class Shape, class Op, class T, class R>
__global__ void __launch_bounds__(256) scan_columns_kernel(const T* __restrict__ x, R* __restrict__ out, int64_t* __restrict__ places) {
  using V = typename Op::Value;
  using C = typename ScanCompute<Op>::type;
  constexpr ScanShape S = Shape::value;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (column >= S.outer * S.inner) return;
  const int64_t base = column / S.inner * (S.extent * S.inner) + column % S.inner;
  V running = Op::identity();
#pragma unroll 4
  for (int64_t e = 0; e < S.extent; ++e) {
    const int64_t at = base + e * S.inner;
    running = Op::combine(running, make_scan_value<V, C>(static_cast<C>(widen(x[at])), e));
    store_scan_value(running, at, out, places);
  }
}

}  // namespace detail

// places: positions along the dim, only for RunningExtremum (else null).
template <class Shape, class Op, class T, class R>
Failure scan(const T* x, R* out, int64_t* places, cudaStream_t stream) {
  constexpr ScanShape S = Shape::value;
  if constexpr (S.inner == 1) {
    detail::scan_rows_kernel<Shape, Op, T, R><<<static_cast<unsigned>(S.outer), 256, 0, stream>>>(x, out, places);
  } else {
    const auto blocks = static_cast<unsigned>(ceil_div(S.outer * S.inner, 256));
    detail::scan_columns_kernel<Shape, Op, T, R><<<blocks, 256, 0, stream>>>(x, out, places);
  }
  STITCH_CHECK_LAUNCH();
  return nullptr;
}

}  // namespace stitch
