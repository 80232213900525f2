#pragma once
// The seam between translated CUDA source and the emulator's runtime (emu_runtime.cpp): built-in variables, kernel
// launches, shared memory, barriers and warp collectives.
//
// How a launch runs: blocks are spread over OS threads; the CUDA threads of a block run one after the other on a single
// stack until one of them has to wait (a barrier or a warp operation). Only then is another fiber started, so a kernel
// without barriers never pays for a switch. A warp operation is a rendezvous: every lane leaves a pointer to its
// arguments, and the last lane to arrive computes all the results.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "errors.h"
#include "vector_types.h"

#define STITCH_HOST_EMULATOR 1
#ifndef __CUDACC__
#define __CUDACC__ 1
#endif
#ifndef __NVCC__
#define __NVCC__ 1
#endif
// __CUDA_ARCH__ stays undefined: code that needs the device's instructions is guarded by it and has a plain alternative.

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __cluster_dims__(...)
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __restrict__ __restrict
#define __forceinline__ inline __attribute__((always_inline))
#define __inline_hint__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
// Emulator functions that touch user memory must be inlined: a report names the user's line, found through the chain of
// inlined frames.
#define STITCH_EMU_INLINE inline __attribute__((always_inline))
#define STITCH_EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()


extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread dim3 blockDim;
extern __thread dim3 gridDim;
inline constexpr int warpSize = 32;

namespace stitch_emu {

struct Site {
  const char* file;
  int line;
};

// Something a stream executes in order: a kernel, a copy, a host function. A graph keeps them for replay.
struct Work {
  virtual void run() = 0;
  virtual ~Work() = default;
};
template <class F>
struct FunctionWork final : Work {
  F function;
  explicit FunctionWork(F f) : function(static_cast<F&&>(f)) {}
  void run() override { function(); }
};
template <class F>
Work* make_work(F f) {
  return new FunctionWork<F>(static_cast<F&&>(f));
}

struct LaunchConfig {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  Site site{};
  const char* kernel = "";
  const void* function = nullptr;  // null when the kernel's template arguments are deduced at the call
  bool cooperative = false;
};

// Checks the configuration as the CUDA runtime does and runs, or records, the kernel; `body` (owned) runs one thread.
cudaError_t launch(const LaunchConfig& config, Work* body);

// Storage of a __shared__ variable for the running block. `slot` is unique per declaration and instantiation.
struct SharedSlot {
  int id = 0;  // assigned by the runtime at first use; 0 = none yet
};
void* shared_storage(SharedSlot* slot, size_t bytes, size_t align, const char* name);
void* dynamic_shared_storage();
template <class T, class Key>
SharedSlot shared_slot{};
template <class T, class Key>
inline T& shared(Key, const char* name, size_t align = alignof(T)) {
  return *static_cast<T*>(shared_storage(&shared_slot<T, Key>, sizeof(T), align, name));
}
template <class T>
inline T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_storage());
}
// `extern __shared__ T name[];` at namespace scope.
template <class T>
struct DynamicShared {
  operator T*() const { return dynamic_shared<T>(); }
  template <class U>
  explicit operator U*() const { return reinterpret_cast<U*>(dynamic_shared<T>()); }
  T* operator&() const { return dynamic_shared<T>(); }
};

enum class Reduce : int { none, count, all, any };
int block_barrier(Reduce reduce, int predicate, const char* what, Site site);
void grid_barrier(Site site);

// `combine` gets, per lane, the pointer that the lane passed (null for lanes that do not take part).
using Combine = void (*)(void* const* lanes, unsigned participants);
void warp_collective(unsigned mask, const char* what, Combine combine, void* data, Site site);
// A shuffle's combine calls this when lane `lane` reads lane `source`, which does not take part.
void bad_shuffle_source(int lane, int source);
unsigned lane_id();
unsigned active_mask();
void yield_thread();   // lets other threads of the launch run: __nanosleep
void fence();          // __threadfence: orders this block's writes before its later atomics (race check)
[[noreturn]] void fatal(const char* kind, const char* message, Site site);

// Kernel launch syntax, see the translator: kernel(name, pointer or lambda).configure(grid, block, ...)(arguments).
template <class... P>
struct PointerLaunch {
  LaunchConfig config;
  void (*function)(P...);
  cudaError_t operator()(P... arguments) const {
    return launch(config, make_work([f = function, arguments...]() mutable { f(arguments...); }));
  }
};
template <class F>
struct GenericLaunch {
  LaunchConfig config;
  F function;
  template <class... A>
  cudaError_t operator()(A... arguments) const {
    return launch(config, make_work([f = function, arguments...]() mutable { f(arguments...); }));
  }
};
inline LaunchConfig make_config(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, Site site,
                                const char* name, const void* function) {
  LaunchConfig config;
  config.grid = grid;
  config.block = block;
  config.shared_bytes = shared_bytes;
  config.stream = stream;
  config.site = site;
  config.kernel = name;
  config.function = function;
  return config;
}
template <class... P>
struct PointerKernel {
  const char* name;
  void (*function)(P...);
  PointerLaunch<P...> configure(dim3 grid, dim3 block, size_t shared_bytes = 0, cudaStream_t stream = nullptr,
                                STITCH_EMU_SITE) const {
    return {make_config(grid, block, shared_bytes, stream, {file, line}, name, reinterpret_cast<const void*>(function)),
            function};
  }
};
template <class F>
struct GenericKernel {
  const char* name;
  F function;
  GenericLaunch<F> configure(dim3 grid, dim3 block, size_t shared_bytes = 0, cudaStream_t stream = nullptr,
                             STITCH_EMU_SITE) const {
    return {make_config(grid, block, shared_bytes, stream, {file, line}, name, nullptr), function};
  }
};
// `int` makes the call dependent inside the translator's generic lambda, so that a failed deduction is not an error.
template <class... P>
PointerKernel<P...> pointer_kernel(int, const char* name, void (*function)(P...)) {
  return {name, function};
}
template <class F>
GenericKernel<F> generic_kernel(const char* name, F function) {
  return {name, function};
}

}  // namespace stitch_emu


inline void __syncthreads(STITCH_EMU_SITE) {
  stitch_emu::block_barrier(stitch_emu::Reduce::none, 0, "__syncthreads", {file, line});
}
inline int __syncthreads_count(int p, STITCH_EMU_SITE) {
  return stitch_emu::block_barrier(stitch_emu::Reduce::count, p, "__syncthreads_count", {file, line});
}
inline int __syncthreads_and(int p, STITCH_EMU_SITE) {
  return stitch_emu::block_barrier(stitch_emu::Reduce::all, p, "__syncthreads_and", {file, line});
}
inline int __syncthreads_or(int p, STITCH_EMU_SITE) {
  return stitch_emu::block_barrier(stitch_emu::Reduce::any, p, "__syncthreads_or", {file, line});
}
