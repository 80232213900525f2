#pragma once
// A CUDA runtime in host memory, just large enough for the worker, so that the GPU path (device copies, red zones,
// timing, timed checks) runs on a machine without a GPU. It proves the plumbing, not CUDA.

namespace stitch::test {

inline const char* kFakeCudart = R"cpp(
#include <chrono>
#include <cstdlib>
#include <cstring>
using Clock = std::chrono::steady_clock;
struct Event { Clock::time_point at; };
extern "C" {
int cudaMalloc(void** p, size_t n) { return posix_memalign(p, 256, n ? n : 1); }
int cudaMemset(void* p, int v, size_t n) { memset(p, v, n); return 0; }
int cudaMemsetAsync(void* p, int v, size_t n, void*) { memset(p, v, n); return 0; }
int cudaMemcpy(void* d, const void* s, size_t n, int) { memcpy(d, s, n); return 0; }
int cudaStreamCreateWithFlags(void** s, unsigned) { *s = new int(0); return 0; }
int cudaEventCreate(void** e) { *e = new Event(); return 0; }
int cudaEventRecord(void* e, void*) { static_cast<Event*>(e)->at = Clock::now(); return 0; }
int cudaEventSynchronize(void*) { return 0; }
int cudaEventElapsedTime(float* ms, void* a, void* b) {
  *ms = std::chrono::duration<float, std::milli>(static_cast<Event*>(b)->at - static_cast<Event*>(a)->at).count();
  return 0;
}
int cudaDeviceSynchronize() { return 0; }
int cudaGetLastError() { return 0; }
const char* cudaGetErrorString(int) { return "none"; }
int cudaDeviceGetAttribute(int* v, int, int) { *v = 1 << 20; return 0; }
int cudaMemGetInfo(size_t* f, size_t* t) { *f = *t = 1 << 30; return 0; }
int cudaCtxResetPersistingL2Cache() { return 0; }
}
)cpp";

}  // namespace stitch::test
