#pragma once
// A CUDA runtime and driver in host memory, just large enough for the worker, so that the GPU path (device copies, red zones,
// timing, timed checks) runs on a machine without a GPU. It proves the plumbing, not CUDA.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "base/process.h"

namespace stitch::test {

inline const char* kFakeCudart = R"cpp(
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
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
// Driver: memory of another process, a memfd in its place.
int cuMemImportFromShareableHandle(unsigned long long* handle, void* fd, int) { *handle = dup(static_cast<int>(reinterpret_cast<intptr_t>(fd))); return 0; }
int cuMemAddressReserve(unsigned long long* p, size_t n, size_t, unsigned long long, unsigned long long) {
  *p = reinterpret_cast<unsigned long long>(mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  return 0;
}
int cuMemMap(unsigned long long p, size_t n, size_t, unsigned long long handle, unsigned long long) {
  return mmap(reinterpret_cast<void*>(p), n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, static_cast<int>(handle), 0) == MAP_FAILED;
}
int cuMemSetAccess(unsigned long long, size_t, const void*, size_t) { return 0; }
}
)cpp";

// Compiled once per process.
inline std::filesystem::path fake_cudart() {
  static const TempFolder folder = std::move(*TempFolder::create("fake-cudart"));
  const auto library = folder.path() / "libcudart.so";
  if (!std::filesystem::exists(library)) {
    const auto source = folder.path() / "fake.cpp";
    EXPECT_TRUE(write_file(source, kFakeCudart));
    ProcessSpec spec;
    spec.argv = {"g++", "-std=c++20", "-O1", "-fPIC", "-shared", source.string(), "-o", library.string()};
    EXPECT_TRUE(run_process(spec)->ok());
  }
  return library;
}

}  // namespace stitch::test
