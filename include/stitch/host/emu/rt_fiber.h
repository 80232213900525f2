#pragma once
// Stack switching for the emulator: one fiber is one stack that runs CUDA threads. Part of emu_runtime.cpp.

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace stitch_emu {

struct Thread;

struct Fiber {
  void* stack_pointer = nullptr;  // saved while the fiber is switched out
  char* bottom = nullptr;
  size_t bytes = 0;
  Thread* thread = nullptr;  // the CUDA thread that is running, or suspended, on this stack
#if !defined(__x86_64__)
  ucontext_t context{};
#endif
};

#if defined(__x86_64__)
// Saves the callee-saved registers on the current stack, stores its pointer in *save and continues on `target`.
extern "C" void stitch_emu_switch(void** save, void* target);
asm(R"(
.text
.hidden stitch_emu_switch
.globl stitch_emu_switch
.type stitch_emu_switch,@function
stitch_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size stitch_emu_switch,.-stitch_emu_switch
)");
#endif

inline void fiber_prepare(Fiber* fiber, void (*entry)()) {
#if defined(__x86_64__)
  auto** top = reinterpret_cast<void**>(fiber->bottom + fiber->bytes);
  *--top = nullptr;  // return address of `entry`; leaves the stack as the ABI wants it at a function's entry
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber->stack_pointer = top;
#else
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->bottom;
  fiber->context.uc_stack.ss_size = fiber->bytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, entry, 0);
#endif
}

// `from` keeps its state; returns when something switches back to it.
inline void fiber_switch(Fiber* from, Fiber* to) {
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, to->bottom, to->bytes);
#endif
#if defined(__x86_64__)
  stitch_emu_switch(&from->stack_pointer, to->stack_pointer);
#else
  swapcontext(&from->context, &to->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

// Stacks are carved from large lazily committed mappings: a page that no thread touches costs nothing.
class StackPool {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kStackBytes = 256 << 10;
#else
  static constexpr size_t kStackBytes = 128 << 10;
#endif
  static constexpr size_t kGuardBytes = 4096;
  static constexpr size_t kPerChunk = 64;

  ~StackPool() {
    for (char* chunk : chunks_) munmap(chunk, kStackBytes * kPerChunk);
    for (Fiber* fiber : all_) delete fiber;
  }
  Fiber* take(void (*entry)()) {
    if (free_.empty()) grow(entry);
    Fiber* fiber = free_.back();
    free_.pop_back();
    return fiber;
  }
  void give_back(Fiber* fiber) { free_.push_back(fiber); }
  bool contains(uintptr_t address) const {
    for (char* chunk : chunks_)
      if (address - reinterpret_cast<uintptr_t>(chunk) < kStackBytes * kPerChunk) return true;
    return false;
  }

 private:
  void grow(void (*entry)()) {
    void* memory = mmap(nullptr, kStackBytes * kPerChunk, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      fputs("stitch host target: no memory for thread stacks\n", stderr);
      abort();
    }
    chunks_.push_back(static_cast<char*>(memory));
    for (size_t i = kPerChunk; i-- > 0;) {
      auto* fiber = new Fiber;
      fiber->bottom = chunks_.back() + i * kStackBytes + kGuardBytes;
      fiber->bytes = kStackBytes - kGuardBytes;
      mprotect(fiber->bottom - kGuardBytes, kGuardBytes, PROT_NONE);  // a kernel that overflows its stack crashes
      fiber_prepare(fiber, entry);
      all_.push_back(fiber);
      free_.push_back(fiber);
    }
  }
  std::vector<char*> chunks_;
  std::vector<Fiber*> all_, free_;
};

}  // namespace stitch_emu
