#pragma once
// Errors, memory and device queries of the host API. Part of emu_runtime.cpp.

#include "rt_api.h"

using namespace stitch_emu;

#define STITCH_EMU_ERRORS(X)                                                        \
  X(cudaSuccess, "no error") X(cudaErrorInvalidValue, "invalid argument")           \
  X(cudaErrorMemoryAllocation, "out of memory")                                     \
  X(cudaErrorInitializationError, "initialization error")                           \
  X(cudaErrorInvalidConfiguration, "invalid configuration argument")                \
  X(cudaErrorInvalidSymbol, "invalid device symbol")                                \
  X(cudaErrorInvalidDeviceFunction, "invalid device function")                      \
  X(cudaErrorInvalidDevice, "invalid device ordinal")                               \
  X(cudaErrorInvalidResourceHandle, "invalid resource handle")                      \
  X(cudaErrorNotReady, "device not ready")                                          \
  X(cudaErrorIllegalAddress, "an illegal memory access was encountered")            \
  X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")       \
  X(cudaErrorLaunchFailure, "unspecified launch failure")                           \
  X(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch")    \
  X(cudaErrorNotSupported, "operation not supported")                               \
  X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing") \
  X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture") \
  X(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream")

const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
#define X(code, text) case code: return text;
    STITCH_EMU_ERRORS(X)
#undef X
    default: return "unrecognized error code";
  }
}
const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
#define X(code, text) case code: return #code;
    STITCH_EMU_ERRORS(X)
#undef X
    default: return "unrecognized error code";
  }
}
cudaError_t cudaGetLastError() {
  const cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaMalloc(void** p, size_t n) { return allocate(p, n); }
cudaError_t cudaMallocHost(void** p, size_t n, unsigned) { return allocate(p, n); }
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return allocate(p, n); }
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t s) {
  return capturing(s) ? set_error(cudaErrorStreamCaptureUnsupported) : allocate(p, n);
}
cudaError_t cudaFree(void* p) { return release(p); }
cudaError_t cudaFreeHost(void* p) { return release(p); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
  return capturing(s) ? set_error(cudaErrorStreamCaptureUnsupported) : release(p);
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  *free_bytes = static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page;
  *total_bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind, cudaStream_t s) {
  if (n && (!to || !from)) return set_error(cudaErrorInvalidValue);
  return enqueue(s, make_work([=] { memmove(to, from, n); }));
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind k) { return cudaMemcpyAsync(to, from, n, k, nullptr); }
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind, cudaStream_t s) {
  if (width > to_pitch || width > from_pitch) return set_error(cudaErrorInvalidPitchValue);
  return enqueue(s, make_work([=] {
    for (size_t i = 0; i < height; ++i)
      memmove(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * from_pitch, width);
  }));
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t s) {
  if (n && !p) return set_error(cudaErrorInvalidValue);
  return enqueue(s, make_work([=] { memset(p, value, n); }));
}
cudaError_t cudaMemset(void* p, int value, size_t n) { return cudaMemsetAsync(p, value, n, nullptr); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  std::lock_guard lock(api().mutex);
  const auto after = api().allocations.upper_bound(p);
  bool known = false;
  if (after != api().allocations.begin()) {
    const auto& [base, bytes] = *std::prev(after);
    known = static_cast<const char*>(p) < static_cast<const char*>(base) + bytes;
  }
  *out = {known ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0, const_cast<void*>(p), const_cast<void*>(p)};
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* d) { *d = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int d) { return d == 0 ? cudaSuccess : set_error(cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceCount(int* n) { *n = 1; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* v) { *v = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) { *v = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

// Limits of compute capability 9.0 (CUDA Programming Guide, table of technical specifications), so that a program that
// sizes itself by the device takes the same path here.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return set_error(cudaErrorInvalidDevice);
  *p = {};
  snprintf(p->name, sizeof p->name, "stitchcuda host emulator (sm_90)");
  size_t free_bytes = 0;
  cudaMemGetInfo(&free_bytes, &p->totalGlobalMem);
  p->sharedMemPerBlock = kStaticLimit;
  p->sharedMemPerBlockOptin = kBlockLimit;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->totalConstMem = 64 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = 9;
  p->multiProcessorCount = 132;
  p->l2CacheSize = 50 << 20;
  p->cooperativeLaunch = p->concurrentKernels = 1;
  p->maxBlocksPerMultiProcessor = 32;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t e = cudaGetDeviceProperties(&p, device)) return e;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = 1000000; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(p.sharedMemPerMultiprocessor); break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(p.sharedMemPerBlockOptin); break;
    default: return set_error(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
