#pragma once
// The part of the CUDA runtime API that generated and hand-written programs use. "Device" memory is host memory, streams
// run their work at once and in order, a capturing stream records it for replay.

#include "core.h"

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 13
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedCarveout { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxShared = 100, cudaSharedmemCarveoutMaxL1 = 0 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated };
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor, totalConstMem;
  int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor;
  int maxThreadsDim[3], maxGridSize[3];
  int major, minor, multiProcessorCount, l2CacheSize, memoryBusWidth, cooperativeLaunch, concurrentKernels;
  int maxBlocksPerMultiProcessor, persistingL2CacheMaxSize;
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
};
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
typedef void (*cudaHostFn_t)(void*);

constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
constexpr unsigned cudaMemAttachGlobal = 1, cudaMemAttachHost = 2;
constexpr unsigned cudaEventRecordDefault = 0, cudaEventWaitDefault = 0, cudaOccupancyDefault = 0;
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
#define CUDART_VERSION 13000
#define CUDART_CB


const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaMallocHost(void** pointer, size_t bytes, unsigned flags = 0);
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t);
cudaError_t cudaFree(void*);
cudaError_t cudaFreeHost(void*);
cudaError_t cudaFreeAsync(void*, cudaStream_t);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind, cudaStream_t = nullptr);
cudaError_t cudaMemset(void*, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void*, int value, size_t bytes, cudaStream_t = nullptr);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*);

cudaError_t cudaStreamCreate(cudaStream_t*);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned, int);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void*);
cudaError_t cudaEventCreate(cudaEvent_t*);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long = 0);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, cudaGraphNode_t*, char*, size_t);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t*, cudaGraph_t, unsigned long long = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count);

cudaError_t cudaGetDevice(int*);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDeviceCount(int*);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int);
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int);
cudaError_t cudaDriverGetVersion(int*);
cudaError_t cudaRuntimeGetVersion(int*);
cudaError_t cudaProfilerStart();
cudaError_t cudaProfilerStop();

namespace stitch_emu {
cudaError_t set_function_attribute(const void* function, cudaFuncAttribute, int value);
cudaError_t get_function_attributes(cudaFuncAttributes*, const void* function);
cudaError_t occupancy(int* blocks, int threads, size_t shared_bytes);
cudaError_t copy_symbol(void* to, const void* from, size_t bytes, size_t symbol_bytes, size_t offset, cudaStream_t);
}  // namespace stitch_emu


template <class T> inline cudaError_t cudaMalloc(T** p, size_t n) { return cudaMalloc(reinterpret_cast<void**>(p), n); }
template <class T> inline cudaError_t cudaMallocHost(T** p, size_t n) { return cudaMallocHost(reinterpret_cast<void**>(p), n); }
template <class T> inline cudaError_t cudaHostAlloc(T** p, size_t n, unsigned f) { return cudaMallocHost(reinterpret_cast<void**>(p), n, f); }
template <class T> inline cudaError_t cudaMallocManaged(T** p, size_t n, unsigned f = cudaMemAttachGlobal) { return cudaMallocManaged(reinterpret_cast<void**>(p), n, f); }
template <class T> inline cudaError_t cudaMallocAsync(T** p, size_t n, cudaStream_t s) { return cudaMallocAsync(reinterpret_cast<void**>(p), n, s); }

template <class F>
inline cudaError_t cudaFuncSetAttribute(F* f, cudaFuncAttribute attribute, int value) {
  return stitch_emu::set_function_attribute(reinterpret_cast<const void*>(f), attribute, value);
}
template <class F>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, F* f) {
  return stitch_emu::get_function_attributes(out, reinterpret_cast<const void*>(f));
}
template <class F>
inline cudaError_t cudaFuncSetCacheConfig(F*, cudaFuncCache) { return cudaSuccess; }
template <class F>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F*, int threads, size_t shared_bytes) {
  return stitch_emu::occupancy(blocks, threads, shared_bytes);
}
template <class F>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F*, size_t = 0, int limit = 0) {
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  *grid = 132 * (2048 / *block);
  return cudaSuccess;
}

template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind, cudaStream_t s) {
  auto* base = reinterpret_cast<char*>(const_cast<void*>(static_cast<const volatile void*>(&symbol)));
  return stitch_emu::copy_symbol(base + offset, from, bytes, sizeof(T), offset, s);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind k = cudaMemcpyHostToDevice) {
  return cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, k, nullptr);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  return stitch_emu::copy_symbol(to, reinterpret_cast<const char*>(&symbol) + offset, bytes, sizeof(T), offset, nullptr);
}
template <class T>
inline cudaError_t cudaGetSymbolAddress(void** out, T& symbol) {
  *out = const_cast<void*>(static_cast<const volatile void*>(&symbol));
  return cudaSuccess;
}

namespace stitch_emu {
template <size_t... I> struct Indices {};
template <size_t N, size_t... I> struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <size_t... I> struct MakeIndices<0, I...> { using type = Indices<I...>; };
template <class... P, size_t... I>
cudaError_t launch_array(LaunchConfig config, void (*f)(P...), void** arguments, Indices<I...>) {
  PointerLaunch<P...> ready{config, f};
  (void)arguments;
  return ready(*static_cast<P*>(arguments[I])...);
}
}  // namespace stitch_emu

template <class... P>
inline cudaError_t cudaLaunchKernel(void (*f)(P...), dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0,
                                    cudaStream_t stream = nullptr, STITCH_EMU_SITE) {
  auto config = stitch_emu::make_config(grid, block, shared_bytes, stream, {file, line}, "cudaLaunchKernel",
                                        reinterpret_cast<const void*>(f));
  return stitch_emu::launch_array(config, f, arguments, typename stitch_emu::MakeIndices<sizeof...(P)>::type{});
}
template <class... P>
inline cudaError_t cudaLaunchCooperativeKernel(void (*f)(P...), dim3 grid, dim3 block, void** arguments,
                                               size_t shared_bytes = 0, cudaStream_t stream = nullptr, STITCH_EMU_SITE) {
  auto config = stitch_emu::make_config(grid, block, shared_bytes, stream, {file, line}, "cudaLaunchCooperativeKernel",
                                        reinterpret_cast<const void*>(f));
  config.cooperative = true;
  return stitch_emu::launch_array(config, f, arguments, typename stitch_emu::MakeIndices<sizeof...(P)>::type{});
}

// cudaLaunchKernelEx: of the launch attributes only "cooperative" changes what a program computes.
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributePriority = 8
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  union {
    int cooperative, programmaticStreamSerializationAllowed, priority;
    struct { unsigned x, y, z; } clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
template <class... P, class... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*f)(P...), A&&... arguments) {
  auto config = stitch_emu::make_config(c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream, {"", 0},
                                        "cudaLaunchKernelEx", reinterpret_cast<const void*>(f));
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    if (c->attrs[i].id == cudaLaunchAttributeCooperative) config.cooperative = c->attrs[i].val.cooperative != 0;
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) return cudaErrorNotSupported;
  }
  return stitch_emu::PointerLaunch<P...>{config, f}(static_cast<A&&>(arguments)...);
}
