#pragma once
// Atomic addition for the element types that scatters are written for.

#include "pointwise.cuh"

namespace stitch {

template <class T>
STITCH_DEVICE void atomic_add(T* at, T value) {
  if constexpr (std::is_same_v<T, int64_t>) {
    atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));  // two's complement wraps
  } else {
    atomicAdd(at, value);
  }
}

}  // namespace stitch
