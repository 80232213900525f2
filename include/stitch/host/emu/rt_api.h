#pragma once
// The host API: errors, memory, streams, events, graphs, device properties. Part of emu_runtime.cpp.

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "rt_launch.h"

namespace stitch_emu {
using OwnedWork = std::shared_ptr<Work>;
using WorkList = std::shared_ptr<std::vector<OwnedWork>>;
}  // namespace stitch_emu

struct CUstream_st { stitch_emu::WorkList capture; bool capture_origin = false; };
struct CUevent_st {
  stitch_emu::WorkList capture;  // recorded in a capturing stream: waiting on it joins that capture
  std::chrono::steady_clock::time_point time{};
  bool recorded = false, timing = true;
};
struct CUgraph_st { stitch_emu::WorkList work; };
struct CUgraphExec_st { stitch_emu::WorkList work; };

namespace stitch_emu {

inline thread_local cudaError_t last_error = cudaSuccess;
inline cudaError_t set_error(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

struct ApiState {
  std::mutex mutex;
  std::map<const void*, size_t> allocations;
  std::map<const void*, int> dynamic_shared_limit;  // cudaFuncAttributeMaxDynamicSharedMemorySize per kernel
  int deduced_limit = 0;  // largest such limit; used for kernels whose address is not known at the launch
  std::vector<cudaStream_t> streams;
};
inline ApiState& api() {
  static ApiState* state = new ApiState;
  return *state;
}

inline bool is_default(cudaStream_t s) { return reinterpret_cast<uintptr_t>(s) <= 2; }
inline CUstream_st* default_stream() {
  static CUstream_st stream;
  return &stream;
}
inline CUstream_st* resolve(cudaStream_t s) { return is_default(s) ? default_stream() : s; }

inline cudaError_t enqueue(cudaStream_t stream, Work* work) {
  OwnedWork owned(work);
  if (auto& capture = resolve(stream)->capture)
    capture->push_back(std::move(owned));
  else
    owned->run();
  return cudaSuccess;
}

// The order of the checks and the codes are those of the CUDA runtime on sm_90.
inline cudaError_t check_launch(const LaunchConfig& c) {
  const auto volume = [](const dim3& d) { return uint64_t{d.x} * d.y * d.z; };
  if (volume(c.grid) == 0 || volume(c.block) == 0) return cudaErrorInvalidConfiguration;
  if (c.block.x > 1024 || c.block.y > 1024 || c.block.z > 64 || volume(c.block) > 1024) return cudaErrorInvalidConfiguration;
  if (c.grid.x > 0x7fffffffu || c.grid.y > 65535 || c.grid.z > 65535) return cudaErrorInvalidConfiguration;
  size_t limit = kStaticLimit;
  {
    std::lock_guard lock(api().mutex);
    const auto& limits = api().dynamic_shared_limit;
    const auto found = limits.find(c.function);
    const int raised = c.function ? (found == limits.end() ? 0 : found->second) : api().deduced_limit;
    if (raised > static_cast<int>(limit)) limit = static_cast<size_t>(raised);
  }
  if (c.shared_bytes > limit) return cudaErrorInvalidValue;
  if (c.cooperative && volume(c.grid) > 132ull * (2048 / ((volume(c.block) + 31) / 32 * 32))) return cudaErrorCooperativeLaunchTooLarge;
  return cudaSuccess;
}

inline cudaError_t allocate(void** out, size_t bytes) {
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  // Exactly `bytes` long, so that the sanitizer sees an access one element past the end.
  void* p = nullptr;
  if (bytes > (size_t{1} << 46) || posix_memalign(&p, 256, bytes) != 0) return set_error(cudaErrorMemoryAllocation);
  memset(p, 0xff, bytes);
  std::lock_guard lock(api().mutex);
  api().allocations[p] = bytes;
  *out = p;
  return cudaSuccess;
}
inline cudaError_t release(void* p) {
  if (!p) return cudaSuccess;
  {
    std::lock_guard lock(api().mutex);
    const auto found = api().allocations.find(p);
    if (found == api().allocations.end()) return set_error(cudaErrorInvalidValue);
    race_forget(p, found->second);
    api().allocations.erase(found);
  }
  free(p);
  return cudaSuccess;
}

cudaError_t set_function_attribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (!function) return set_error(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > kBlockLimit) return set_error(cudaErrorInvalidValue);
  std::lock_guard lock(api().mutex);
  api().dynamic_shared_limit[function] = value;
  if (value > api().deduced_limit) api().deduced_limit = value;
  return cudaSuccess;
}
cudaError_t get_function_attributes(cudaFuncAttributes* out, const void* function) {
  *out = {};
  std::lock_guard lock(api().mutex);
  const auto found = api().dynamic_shared_limit.find(function);
  out->maxThreadsPerBlock = 1024;
  out->numRegs = 32;
  out->ptxVersion = out->binaryVersion = 90;
  out->maxDynamicSharedSizeBytes = found == api().dynamic_shared_limit.end() ? static_cast<int>(kStaticLimit) : found->second;
  return cudaSuccess;
}
cudaError_t occupancy(int* blocks, int threads, size_t shared_bytes) {
  *blocks = 0;
  if (threads <= 0 || threads > 1024) return set_error(cudaErrorInvalidValue);
  const int by_threads = 2048 / ((threads + 31) / 32 * 32);
  const int by_shared = shared_bytes > kBlockLimit ? 0 : static_cast<int>((228u << 10) / (shared_bytes + 1024));
  *blocks = by_threads < by_shared ? by_threads : by_shared;
  if (*blocks > 32) *blocks = 32;
  return cudaSuccess;
}
cudaError_t copy_symbol(void* to, const void* from, size_t bytes, size_t symbol_bytes, size_t offset, cudaStream_t s) {
  if (offset + bytes > symbol_bytes) return set_error(cudaErrorInvalidValue);
  return enqueue(s, make_work([=] { memcpy(to, from, bytes); }));
}

inline bool capturing(cudaStream_t s) { return resolve(s)->capture != nullptr; }

}  // namespace stitch_emu

#include "rt_api_device.h"
#include "rt_api_stream.h"
