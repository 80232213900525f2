#pragma once
// Vendor on the host target: the same results from plain loops on the CPU. Sums are kept in float (double for f64), in
// blocks, so that their rounding is like a GPU library's. While a stream is captured the call is recorded as a host function.

#include <cuda_runtime.h>

#include <deque>
#include <functional>

#include "stitch/vendor.h"
#include "stitch/vendor_host_convolution.h"
#include "stitch/vendor_host_gemm.h"

namespace stitch {

const char vendor_unsupported[] = "The vendor library has no kernel for this request.";

struct Vendor::State {
  std::deque<std::function<void()>> recorded;  // what captured graphs call; must outlive them

  Failure enqueue(std::function<void()> work, cudaStream_t stream) {
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    STITCH_TRY_CUDA(cudaStreamIsCapturing(stream, &capturing));
    if (capturing == cudaStreamCaptureStatusNone) {
      STITCH_TRY_CUDA(cudaStreamSynchronize(stream));
      work();
      return nullptr;
    }
    recorded.push_back(std::move(work));
    STITCH_TRY_CUDA(cudaLaunchHostFunc(stream, [](void* f) { (*static_cast<std::function<void()>*>(f))(); }, &recorded.back()));
    return nullptr;
  }
};

Vendor::Vendor() : state_(new State) {}
Vendor::~Vendor() { delete state_; }

Failure Vendor::gemm(const Gemm& g, const void* a, const void* b, const void* c, const void* bias, void* d, void*, size_t,
                     cudaStream_t stream) {
  if (g.activation == Activation::gelu_erf) return vendor_unsupported;  // as cuBLASLt
  return state_->enqueue([=] { vendor_host::gemm(g, a, b, c, bias, d); }, stream);
}

Failure Vendor::convolution(const Convolution& c, const void* x, const void* w, const void* bias, void* y, void*, size_t,
                            cudaStream_t stream) {
  return state_->enqueue([=] { vendor_host::convolution(c, x, w, bias, y); }, stream);
}

}  // namespace stitch
