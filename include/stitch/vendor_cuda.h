#pragma once
// Vendor on the cuda target. Handles are created on first use; plans (descriptors and the chosen algorithm) are kept per
// description and live as long as the Vendor.

#include <cuda_runtime.h>

#include "stitch/vendor.h"
#ifdef STITCH_USE_CUBLASLT
#include "stitch/vendor_cublaslt.h"
#endif
#ifdef STITCH_USE_CUDNN
#include "stitch/vendor_cudnn.h"
#endif

namespace stitch {

const char vendor_unsupported[] = "The vendor library has no kernel for this request.";

struct Vendor::State {
#ifdef STITCH_USE_CUBLASLT
  vendor_detail::Blas blas;
#endif
#ifdef STITCH_USE_CUDNN
  vendor_detail::Dnn dnn;
#endif
};

Vendor::Vendor() : state_(new State) {}
Vendor::~Vendor() { delete state_; }

#ifdef STITCH_USE_CUBLASLT
Failure Vendor::gemm(const Gemm& g, const void* a, const void* b, const void* c, const void* bias, void* d,
                     void* scratch, size_t scratch_bytes, cudaStream_t stream) {
  return state_->blas.run(g, a, b, c, bias, d, scratch, scratch_bytes, stream);
}
#endif

#ifdef STITCH_USE_CUDNN
Failure Vendor::convolution(const Convolution& c, const void* x, const void* w, const void* bias, void* y,
                            void* scratch, size_t scratch_bytes, cudaStream_t stream) {
  return state_->dnn.run(c, x, w, bias, y, scratch, scratch_bytes, stream);
}
#endif

}  // namespace stitch
