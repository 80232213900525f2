#pragma once
// Convolutions through cuDNN; part of vendor_cuda.h. One spatial dim is computed as two with height 1. The transposed
// convolution is the gradient of a convolution with respect to its input: our x is that convolution's output gradient.

#include <cudnn.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "stitch/vendor.h"

namespace stitch::vendor_detail {

inline Failure check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return nullptr;
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return vendor_unsupported;
  return failure(what, cudnnGetErrorString(status));
}
#define STITCH_TRY_DNN(call) STITCH_TRY_FAILURE(::stitch::vendor_detail::check((call), #call))

class Dnn {
 public:
  Dnn() = default;
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;
  ~Dnn() {
    for (Plan& p : plans_) release(p);
    if (handle_) cudnnDestroy(handle_);
  }

  Failure run(const Convolution& c, const void* x, const void* w, const void* bias, void* y, void* scratch,
              size_t scratch_bytes, cudaStream_t stream) {
    if (!scratch) scratch_bytes = 0;
    if (!handle_) STITCH_TRY_DNN(cudnnCreate(&handle_));
    STITCH_TRY_DNN(cudnnSetStream(handle_, stream));
    Plan* plan = nullptr;
    STITCH_TRY_FAILURE(find(c, x, w, y, scratch, scratch_bytes, stream, plan));
    const float one = 1, zero = 0;
    const double one_wide = 1, zero_wide = 0;
    const bool wide = c.element == Element::f64;
    const void* alpha = wide ? static_cast<const void*>(&one_wide) : &one;
    const void* beta = wide ? static_cast<const void*>(&zero_wide) : &zero;
    if (c.transposed)
      STITCH_TRY_DNN(cudnnConvolutionBackwardData(handle_, alpha, plan->w, w, plan->x, x, plan->convolution, plan->backward, scratch,
                                                  scratch_bytes, beta, plan->y, y));
    else
      STITCH_TRY_DNN(cudnnConvolutionForward(handle_, alpha, plan->x, x, plan->w, w, plan->convolution, plan->forward, scratch,
                                             scratch_bytes, beta, plan->y, y));
    if (bias) STITCH_TRY_DNN(cudnnAddTensor(handle_, alpha, plan->bias, bias, alpha, plan->y, y));
    return nullptr;
  }

 private:
  struct Plan {
    Convolution key;
    size_t scratch_bytes = 0;
    cudnnTensorDescriptor_t x = nullptr, y = nullptr, bias = nullptr;
    cudnnFilterDescriptor_t w = nullptr;
    cudnnConvolutionDescriptor_t convolution = nullptr;
    cudnnConvolutionFwdAlgo_t forward{};
    cudnnConvolutionBwdDataAlgo_t backward{};
  };

  static void release(Plan& p) {
    for (cudnnTensorDescriptor_t t : {p.x, p.y, p.bias})
      if (t) cudnnDestroyTensorDescriptor(t);
    if (p.w) cudnnDestroyFilterDescriptor(p.w);
    if (p.convolution) cudnnDestroyConvolutionDescriptor(p.convolution);
  }

  static cudnnDataType_t type_of(Element e) {
    switch (e) {
      case Element::f64: return CUDNN_DATA_DOUBLE;
      case Element::f16: return CUDNN_DATA_HALF;
      case Element::bf16: return CUDNN_DATA_BFLOAT16;
      default: return CUDNN_DATA_FLOAT;
    }
  }

  // `size` has c.spatial_dims entries; a leading 1 is put before a single one.
  static std::vector<int> with_spatial(std::vector<int> head, const Convolution& c, const int64_t* size, int filler) {
    if (c.spatial_dims == 1) head.push_back(filler);
    for (int i = 0; i < c.spatial_dims; ++i) head.push_back(static_cast<int>(size[i]));
    return head;
  }

  static Failure tensor(cudnnTensorDescriptor_t& out, Element e, const std::vector<int>& shape) {
    std::vector<int> strides(shape.size(), 1);
    for (size_t i = shape.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
    STITCH_TRY_DNN(cudnnCreateTensorDescriptor(&out));
    STITCH_TRY_DNN(cudnnSetTensorNdDescriptor(out, type_of(e), static_cast<int>(shape.size()), shape.data(), strides.data()));
    return nullptr;
  }

  static Failure describe(Plan& p) {
    const Convolution& c = p.key;
    const auto as_int = [](int64_t v) { return static_cast<int>(v); };
    STITCH_TRY_FAILURE(tensor(p.x, c.element, with_spatial({as_int(c.batch), as_int(c.in_channels)}, c, c.in_size, 1)));
    const std::vector<int> out = with_spatial({as_int(c.batch), as_int(c.out_channels)}, c, c.out_size, 1);
    STITCH_TRY_FAILURE(tensor(p.y, c.element, out));
    std::vector<int> per_channel(out.size(), 1);
    per_channel[1] = out[1];
    STITCH_TRY_FAILURE(tensor(p.bias, c.element, per_channel));
    const std::vector<int> head = c.transposed ? std::vector<int>{as_int(c.in_channels), as_int(c.out_channels / c.groups)}
                                               : std::vector<int>{as_int(c.out_channels), as_int(c.in_channels / c.groups)};
    const std::vector<int> filter = with_spatial(head, c, c.kernel, 1);
    STITCH_TRY_DNN(cudnnCreateFilterDescriptor(&p.w));
    STITCH_TRY_DNN(cudnnSetFilterNdDescriptor(p.w, type_of(c.element), CUDNN_TENSOR_NCHW, static_cast<int>(filter.size()), filter.data()));
    const std::vector<int> padding = with_spatial({}, c, c.padding, 0), stride = with_spatial({}, c, c.stride, 1), dilation = with_spatial({}, c, c.dilation, 1);
    const cudnnDataType_t compute = c.element == Element::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    STITCH_TRY_DNN(cudnnCreateConvolutionDescriptor(&p.convolution));
    STITCH_TRY_DNN(cudnnSetConvolutionNdDescriptor(p.convolution, static_cast<int>(padding.size()), padding.data(), stride.data(), dilation.data(),
                                                   CUDNN_CROSS_CORRELATION, compute));
    STITCH_TRY_DNN(cudnnSetConvolutionGroupCount(p.convolution, static_cast<int>(c.groups)));
    STITCH_TRY_DNN(cudnnSetConvolutionMathType(p.convolution, math_of(c)));
    return nullptr;
  }

  // Default math may use TF32 for f32; FMA math never does.
  static cudnnMathType_t math_of(const Convolution& c) {
    if (c.element == Element::f16 || c.element == Element::bf16) return CUDNN_TENSOR_OP_MATH;
    return c.allow_tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
  }

  Failure find(const Convolution& c, const void* x, const void* w, void* y, void* scratch, size_t scratch_bytes, cudaStream_t stream, Plan*& plan) {
    for (Plan& p : plans_)
      if (p.key == c && p.scratch_bytes == scratch_bytes) {
        plan = &p;
        return nullptr;
      }
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    STITCH_TRY_CUDA(cudaStreamIsCapturing(stream, &capturing));
    const bool measure = capturing == cudaStreamCaptureStatusNone;
    plans_.push_back(Plan{c, scratch_bytes});
    Plan& p = plans_.back();
    Failure f = describe(p);
    if (!f) f = c.transposed ? choose_backward(p, x, w, y, scratch, measure) : choose_forward(p, x, w, y, scratch, measure);
    if (f) {
      release(p);
      plans_.pop_back();
      return f;
    }
    plan = &p;
    return nullptr;
  }

  // Measured candidates come fastest first, guessed ones best first. Results must repeat bit for bit and keep to the
  // math asked for.
  template <class Perf>
  static const Perf* pick(const Plan& p, const std::vector<Perf>& found) {
    for (const Perf& f : found)
      if (f.status == CUDNN_STATUS_SUCCESS && f.memory <= p.scratch_bytes && f.determinism == CUDNN_DETERMINISTIC &&
          (math_of(p.key) != CUDNN_FMA_MATH || f.mathType == CUDNN_FMA_MATH || f.mathType == CUDNN_DEFAULT_MATH))
        return &f;
    return nullptr;
  }

  static Failure keep_math(Plan& p, cudnnMathType_t found) {
    if (math_of(p.key) != CUDNN_FMA_MATH) STITCH_TRY_DNN(cudnnSetConvolutionMathType(p.convolution, found));
    return nullptr;
  }

  Failure choose_forward(Plan& p, const void* x, const void* w, void* y, void* scratch, bool measure) {
    std::vector<cudnnConvolutionFwdAlgoPerf_t> found(CUDNN_CONVOLUTION_FWD_ALGO_COUNT * 2);
    int count = 0;
    if (measure)
      STITCH_TRY_DNN(cudnnFindConvolutionForwardAlgorithmEx(handle_, p.x, x, p.w, w, p.convolution, p.y, y, static_cast<int>(found.size()),
                                                            &count, found.data(), scratch, p.scratch_bytes));
    else
      STITCH_TRY_DNN(cudnnGetConvolutionForwardAlgorithm_v7(handle_, p.x, p.w, p.convolution, p.y, static_cast<int>(found.size()), &count,
                                                            found.data()));
    found.resize(static_cast<size_t>(count));
    const auto* best = pick(p, found);
    if (!best) return vendor_unsupported;
    p.forward = best->algo;
    return keep_math(p, best->mathType);
  }

  Failure choose_backward(Plan& p, const void* x, const void* w, void* y, void* scratch, bool measure) {
    std::vector<cudnnConvolutionBwdDataAlgoPerf_t> found(CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT * 2);
    int count = 0;
    if (measure)
      STITCH_TRY_DNN(cudnnFindConvolutionBackwardDataAlgorithmEx(handle_, p.w, w, p.x, x, p.convolution, p.y, y, static_cast<int>(found.size()),
                                                                 &count, found.data(), scratch, p.scratch_bytes));
    else
      STITCH_TRY_DNN(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle_, p.w, p.x, p.convolution, p.y, static_cast<int>(found.size()),
                                                                 &count, found.data()));
    found.resize(static_cast<size_t>(count));
    const auto* best = pick(p, found);
    if (!best) return vendor_unsupported;
    p.backward = best->algo;
    return keep_math(p, best->mathType);
  }

  cudnnHandle_t handle_ = nullptr;
  std::deque<Plan> plans_;
};

}  // namespace stitch::vendor_detail
