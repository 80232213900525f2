#pragma once
// Matrix products through cuBLASLt; part of vendor_cuda.h.
//
// cuBLASLt is column-major: a row-major m x n matrix is its transpose there, so D = op(A) op(B) is computed as
// D' = op(B)' op(A)' with the operands exchanged and no data moved. The bias of n elements is then one per row of D',
// which is what the library's bias epilogue adds.

#include <cublasLt.h>

#include <cstdint>
#include <deque>

#include "stitch/vendor.h"

namespace stitch::vendor_detail {

inline Failure check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return nullptr;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return vendor_unsupported;
  return failure(what, cublasLtGetStatusString(status));
}
#define STITCH_TRY_BLAS(call) STITCH_TRY_FAILURE(::stitch::vendor_detail::check((call), #call))

inline cudaDataType blas_type(Element e) {
  switch (e) {
    case Element::f64: return CUDA_R_64F;
    case Element::f16: return CUDA_R_16F;
    case Element::bf16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

// Largest power of two up to 256 that divides the address; algorithms are chosen by it.
inline uint32_t alignment_of(const void* p) {
  const auto low = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p) & 255);
  return low == 0 ? 256 : low & -low;
}

class Blas {
 public:
  Blas() = default;
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() {
    for (Plan& p : plans_) release(p);
    if (handle_) cublasLtDestroy(handle_);
  }

  Failure run(const Gemm& g, const void* a, const void* b, const void* c, const void* bias, void* d, void* scratch,
              size_t scratch_bytes, cudaStream_t stream) {
    if (g.m == 0 || g.n == 0 || g.batch == 0) return nullptr;
    if (!scratch) scratch_bytes = 0;
    if (!c) c = d;  // read only when beta != 0
    Plan* plan = nullptr;
    const Key key{g, bias != nullptr, alignment_of(a), alignment_of(b), alignment_of(c), alignment_of(d), scratch_bytes};
    STITCH_TRY_FAILURE(find(key, plan));
    // The pointer is part of the operation, so it is set at every call; the library copies the operation when it launches.
    if (bias) STITCH_TRY_BLAS(cublasLtMatmulDescSetAttribute(plan->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    const float alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
    const bool wide = g.element == Element::f64;
    const void* alpha_at = wide ? static_cast<const void*>(&g.alpha) : &alpha;
    const void* beta_at = wide ? static_cast<const void*>(&g.beta) : &beta;
    STITCH_TRY_BLAS(cublasLtMatmul(handle_, plan->op, alpha_at, b, plan->b, a, plan->a, beta_at, c, plan->c, d, plan->d,
                                   &plan->algorithm, scratch, scratch_bytes, stream));
    return nullptr;
  }

 private:
  struct Key {
    Gemm gemm;
    bool bias;
    uint32_t align_a, align_b, align_c, align_d;
    size_t scratch_bytes;
    bool operator==(const Key&) const = default;
  };
  struct Plan {
    Key key;
    cublasLtMatmulDesc_t op = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };

  static void release(Plan& p) {
    for (cublasLtMatrixLayout_t layout : {p.a, p.b, p.c, p.d})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (p.op) cublasLtMatmulDescDestroy(p.op);
  }

  Failure find(const Key& key, Plan*& plan) {
    for (Plan& p : plans_)
      if (p.key == key) {
        plan = &p;
        return nullptr;
      }
    if (!handle_) STITCH_TRY_BLAS(cublasLtCreate(&handle_));
    plans_.push_back(Plan{key});
    const Failure f = prepare(plans_.back());
    if (f) {
      release(plans_.back());
      plans_.pop_back();
      return f;
    }
    plan = &plans_.back();
    return nullptr;
  }

  // Layout of the row-major matrix rows x columns as the column-major columns x rows.
  static Failure layout(cublasLtMatrixLayout_t& out, const Gemm& g, int64_t rows, int64_t columns, int64_t ld, int64_t batch_stride) {
    STITCH_TRY_BLAS(cublasLtMatrixLayoutCreate(&out, blas_type(g.element), static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), ld ? ld : columns));
    if (g.batch > 1) {
      const int32_t count = static_cast<int32_t>(g.batch);
      STITCH_TRY_BLAS(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
      STITCH_TRY_BLAS(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride, sizeof batch_stride));
    }
    return nullptr;
  }

  static Failure epilogue(const Key& key, cublasLtEpilogue_t& out) {
    switch (key.gemm.activation) {
      case Activation::none: out = key.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT; return nullptr;
      case Activation::relu: out = key.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU; return nullptr;
      case Activation::gelu_tanh: out = key.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU; return nullptr;
      case Activation::gelu_erf: return vendor_unsupported;
    }
    return vendor_unsupported;
  }

  Failure prepare(Plan& p) {
    const Gemm& g = p.key.gemm;
    cublasComputeType_t compute = g.allow_tf32 && g.element == Element::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    if (g.element == Element::f64) compute = CUBLAS_COMPUTE_64F;
    STITCH_TRY_BLAS(cublasLtMatmulDescCreate(&p.op, compute, g.element == Element::f64 ? CUDA_R_64F : CUDA_R_32F));
    const cublasOperation_t first = g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    STITCH_TRY_BLAS(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    STITCH_TRY_BLAS(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    cublasLtEpilogue_t ending{};
    STITCH_TRY_FAILURE(epilogue(p.key, ending));
    STITCH_TRY_BLAS(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_EPILOGUE, &ending, sizeof ending));
    STITCH_TRY_FAILURE(layout(p.a, g, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k, g.lda, g.batch_stride_a));
    STITCH_TRY_FAILURE(layout(p.b, g, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n, g.ldb, g.batch_stride_b));
    STITCH_TRY_FAILURE(layout(p.c, g, g.m, g.n, g.ldc, g.batch_stride_c));
    STITCH_TRY_FAILURE(layout(p.d, g, g.m, g.n, g.ldd, g.batch_stride_d));
    return choose(p);
  }

  Failure choose(Plan& p) {
    cublasLtMatmulPreference_t preference = nullptr;
    STITCH_TRY_BLAS(cublasLtMatmulPreferenceCreate(&preference));
    const Failure f = choose_by(p, preference);
    cublasLtMatmulPreferenceDestroy(preference);
    return f;
  }

  Failure choose_by(Plan& p, cublasLtMatmulPreference_t preference) {
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
    };
    STITCH_TRY_BLAS(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(p.key.scratch_bytes)));
    // Operands are exchanged here as well: the library's A is our B.
    STITCH_TRY_BLAS(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.key.align_b));
    STITCH_TRY_BLAS(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.key.align_a));
    STITCH_TRY_BLAS(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.key.align_c));
    STITCH_TRY_BLAS(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.key.align_d));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    STITCH_TRY_BLAS(cublasLtMatmulAlgoGetHeuristic(handle_, p.op, p.b, p.a, p.c, p.d, preference, 1, &best, &found));
    if (found == 0) return vendor_unsupported;
    p.algorithm = best.algo;
    return nullptr;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::deque<Plan> plans_;
};

}  // namespace stitch::vendor_detail
