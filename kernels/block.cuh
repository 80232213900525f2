#pragma once
// Building blocks shared by the kernels of this folder: what is done with a finished element, reductions and scans over
// a warp and over a block.
//
// All block-wide functions are called by every thread of a one-dimensional block whose size is a multiple of 32.

#include "pointwise.cuh"

namespace stitch {

// Type arithmetic is done in.
template <class T>
struct ComputeOf { using type = T; };
template <>
struct ComputeOf<__half> { using type = float; };
template <>
struct ComputeOf<__nv_bfloat16> { using type = float; };
template <class T>
using Compute = typename ComputeOf<T>::type;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// An ending is called once per result element with its row-major index and its value in compute precision. This one
// stores it; generated endings apply fused pointwise nodes first.
template <class T>
struct Store {
  T* out;
  template <class C>
  STITCH_DEVICE void operator()(int64_t index, C value) const { out[index] = narrow<T>(value); }
};
template <class T>
Store(T*) -> Store<T>;

// ---------------------------------------------------------------------------------------------------------------------
// Combining operations: identity() op x == x.

template <class C>
struct Sum {
  using Value = C;
  STITCH_DEVICE static C identity() { return C(0); }
  STITCH_DEVICE static C combine(C a, C b) { return a + b; }
};
template <class C>
struct Product {
  using Value = C;
  STITCH_DEVICE static C identity() { return C(1); }
  STITCH_DEVICE static C combine(C a, C b) { return op::mul(a, b); }
};

// Shuffles of structs, word by word.
template <class V>
STITCH_DEVICE V shuffle_xor(V value, int mask) {
  static_assert(sizeof(V) % 4 == 0);
  union Words {
    V value;
    int word[sizeof(V) / 4];
    STITCH_DEVICE Words() {}
  } in, out;
  in.value = value;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(V) / 4); ++i) out.word[i] = __shfl_xor_sync(0xffffffffu, in.word[i], mask);
  return out.value;
}
template <class V>
STITCH_DEVICE V shuffle_up(V value, int delta) {
  static_assert(sizeof(V) % 4 == 0);
  union Words {
    V value;
    int word[sizeof(V) / 4];
    STITCH_DEVICE Words() {}
  } in, out;
  in.value = value;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(V) / 4); ++i) out.word[i] = __shfl_up_sync(0xffffffffu, in.word[i], static_cast<unsigned>(delta));
  return out.value;
}

// Every lane of an aligned group of `Width` lanes gets the combination of the group.
template <class Op, int Width = 32>
STITCH_DEVICE typename Op::Value warp_reduce(typename Op::Value value) {
#pragma unroll
  for (int mask = Width / 2; mask > 0; mask /= 2) value = Op::combine(value, shuffle_xor(value, mask));
  return value;
}

// Every thread gets the combination of the block. `shared` has room for 32 values and may be reused after the call.
template <class Op>
STITCH_DEVICE typename Op::Value block_reduce(typename Op::Value value, typename Op::Value* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  value = warp_reduce<Op>(value);
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / 32 ? shared[lane] : Op::identity();
  value = warp_reduce<Op>(value);
  __syncthreads();
  return value;
}

// Threads 32*p + i for all p < Parts share column i: each gets the combination of its column, in the order of p. `shared` has
// room for 32 * Parts values and may be reused after the call.
template <class Op, int Parts>
STITCH_DEVICE typename Op::Value column_reduce(typename Op::Value value, typename Op::Value* shared) {
  const int column = static_cast<int>(threadIdx.x) % 32;
  shared[threadIdx.x] = value;
  __syncthreads();
  value = shared[column];
#pragma unroll
  for (int p = 1; p < Parts; ++p) value = Op::combine(value, shared[p * 32 + column]);
  __syncthreads();
  return value;
}

// Inclusive scan over the warp: lane i gets v[0] op ... op v[i].
template <class Op>
STITCH_DEVICE typename Op::Value warp_scan(typename Op::Value value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int delta = 1; delta < 32; delta *= 2) {
    const typename Op::Value before = shuffle_up(value, delta);
    if (lane >= delta) value = Op::combine(before, value);
  }
  return value;
}

// Exclusive scan over the block: thread i gets v[0] op ... op v[i-1] (identity for i == 0) and, in `total`, the
// combination of all. `shared` has room for 33 values and may be reused after the call.
template <class Op>
STITCH_DEVICE typename Op::Value block_scan_exclusive(typename Op::Value value, typename Op::Value* shared, typename Op::Value& total) {
  using V = typename Op::Value;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const V inclusive = warp_scan<Op>(value);
  if (lane == 31) shared[warp] = inclusive;
  __syncthreads();
  if (warp == 0) {
    const V scanned = warp_scan<Op>(lane < warps ? shared[lane] : Op::identity());
    __syncwarp();
    if (lane == 0) shared[0] = Op::identity();
    shared[lane + 1] = scanned;
  }
  __syncthreads();
  const V before_warp = shared[warp];
  total = shared[warps];
  const V before_lane = shuffle_up(inclusive, 1);
  __syncthreads();
  return lane == 0 ? before_warp : Op::combine(before_warp, before_lane);
}

}  // namespace stitch
