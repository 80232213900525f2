#pragma once
// What generated kernels.cu and program.cpp share: failure type, checks, the vendor library interface.
// Compiles with nvcc, g++ (cuda target) and the host target.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace stitch {

// nullptr = success, else one sentence with static or thread-local storage.
using Failure = const char*;

// Formats "what: reason" into thread-local storage and returns it.
Failure failure(const char* what, const char* reason);

inline Failure check(cudaError_t error, const char* what) {
  return error == cudaSuccess ? nullptr : failure(what, cudaGetErrorString(error));
}

class Vendor;  // stitch/vendor.h

}  // namespace stitch

#define STITCH_TRY_CUDA(call)                                                   \
  do {                                                                          \
    if (auto stitch_failure_ = ::stitch::check((call), #call)) return stitch_failure_; \
  } while (0)
#define STITCH_TRY_FAILURE(call)                              \
  do {                                                        \
    if (::stitch::Failure stitch_failure_ = (call)) return stitch_failure_; \
  } while (0)
// After every kernel launch: a refused launch must never pass silently.
#define STITCH_CHECK_LAUNCH() STITCH_TRY_CUDA(cudaGetLastError())
