#pragma once
// What follows a library call: one pass over its result that adds a per-channel bias and applies an ending.

#include "block.cuh"
#include "stitch/runtime.h"

namespace stitch {

namespace detail {

constexpr int kEpilogueItems = 4;  // elements per thread, a block apart: loads overlap and stay coalesced

template <int64_t Elements, int64_t Channels, int64_t Inner, class T, class Ending>
__global__ void __launch_bounds__(256) epilogue_kernel(const T* __restrict__ from, const T* __restrict__ bias, Ending ending) {
  using C = Compute<T>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (256 * kEpilogueItems) + threadIdx.x;
  C value[kEpilogueItems];
#pragma unroll
  for (int i = 0; i < kEpilogueItems; ++i) {
    const int64_t at = first + i * 256;
    value[i] = at < Elements ? static_cast<C>(widen(from[at])) : C(0);
    if (bias && at < Elements) value[i] += static_cast<C>(widen(bias[at / Inner % Channels]));
  }
#pragma unroll
  for (int i = 0; i < kEpilogueItems; ++i)
    if (first + i * 256 < Elements) ending(first + i * 256, value[i]);
}

}  // namespace detail

// from: (batch, Channels, Inner) with Elements in all. bias: Channels elements, may be null.
template <int64_t Elements, int64_t Channels, int64_t Inner, class T, class Ending>
Failure epilogue(const T* from, const T* bias, Ending ending, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(Elements, 256 * detail::kEpilogueItems));
  detail::epilogue_kernel<Elements, Channels, Inner, T, Ending><<<blocks, 256, 0, stream>>>(from, bias, ending);
  STITCH_CHECK_LAUNCH();
  return nullptr;
}

}  // namespace stitch
