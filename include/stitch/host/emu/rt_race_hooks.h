#pragma once
// The functions that code compiled with -fsanitize=thread calls, under the names and signatures of the compiler's
// interface, and watched copies. Part of emu_runtime.cpp.

#include "rt_race.h"

#if defined(STITCH_EMU_RACE)

#define STITCH_EMU_HOOK extern "C" __attribute__((visibility("hidden")))
#define STITCH_EMU_PLAIN(name, size, write)                                                                       \
  STITCH_EMU_HOOK void name(void* p) {                                                                            \
    stitch_emu::race_access(reinterpret_cast<uintptr_t>(p), size, {write, false}, __builtin_return_address(0));   \
  }
// A volatile access to global memory is how flags are polled: it does not race with another one.
#define STITCH_EMU_VOLATILE(name, size, write)                                                                    \
  STITCH_EMU_HOOK void name(void* p) {                                                                            \
    const auto a = reinterpret_cast<uintptr_t>(p);                                                                \
    stitch_emu::race_access(a, size, {write, !stitch_emu::race_is_shared(a)}, __builtin_return_address(0));       \
  }
#define STITCH_EMU_SIZED(size)                              \
  STITCH_EMU_PLAIN(__tsan_read##size, size, false)          \
  STITCH_EMU_PLAIN(__tsan_write##size, size, true)          \
  STITCH_EMU_PLAIN(__tsan_unaligned_read##size, size, false) \
  STITCH_EMU_PLAIN(__tsan_unaligned_write##size, size, true) \
  STITCH_EMU_VOLATILE(__tsan_volatile_read##size, size, false) \
  STITCH_EMU_VOLATILE(__tsan_volatile_write##size, size, true)
STITCH_EMU_SIZED(1)
STITCH_EMU_SIZED(2)
STITCH_EMU_SIZED(4)
STITCH_EMU_SIZED(8)
STITCH_EMU_SIZED(16)

STITCH_EMU_HOOK void __tsan_read_range(void* p, size_t n) {
  stitch_emu::race_access(reinterpret_cast<uintptr_t>(p), n, {false, false}, __builtin_return_address(0));
}
STITCH_EMU_HOOK void __tsan_write_range(void* p, size_t n) {
  stitch_emu::race_access(reinterpret_cast<uintptr_t>(p), n, {true, false}, __builtin_return_address(0));
}
STITCH_EMU_HOOK void __tsan_init() {}
STITCH_EMU_HOOK void __tsan_func_entry(void*) {}
STITCH_EMU_HOOK void __tsan_func_exit(void*) {}
STITCH_EMU_HOOK void __tsan_vptr_update(void**, void*) {}
STITCH_EMU_HOOK void __tsan_vptr_read(void**) {}
STITCH_EMU_HOOK void __tsan_atomic_thread_fence(int) {}
STITCH_EMU_HOOK void __tsan_atomic_signal_fence(int) {}

#define STITCH_EMU_NOTE(size, write) \
  stitch_emu::race_access(reinterpret_cast<uintptr_t>(p), size, {write, true}, __builtin_return_address(0))
#define STITCH_EMU_RMW(bits, T, op) \
  STITCH_EMU_HOOK T __tsan_atomic##bits##_##op(volatile T* p, T v, int) { STITCH_EMU_NOTE(bits / 8, true); return __atomic_##op(p, v, __ATOMIC_SEQ_CST); }
#define STITCH_EMU_ATOMICS(bits, T)                                                                                             \
  STITCH_EMU_HOOK T __tsan_atomic##bits##_load(const volatile T* p, int) { STITCH_EMU_NOTE(bits / 8, false); return __atomic_load_n(p, __ATOMIC_SEQ_CST); }        \
  STITCH_EMU_HOOK void __tsan_atomic##bits##_store(volatile T* p, T v, int) { STITCH_EMU_NOTE(bits / 8, true); __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }         \
  STITCH_EMU_HOOK T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) { STITCH_EMU_NOTE(bits / 8, true); return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
  STITCH_EMU_RMW(bits, T, fetch_add) STITCH_EMU_RMW(bits, T, fetch_sub) STITCH_EMU_RMW(bits, T, fetch_and)                    \
  STITCH_EMU_RMW(bits, T, fetch_or) STITCH_EMU_RMW(bits, T, fetch_xor) STITCH_EMU_RMW(bits, T, fetch_nand)                    \
  STITCH_EMU_HOOK int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) {               \
    STITCH_EMU_NOTE(bits / 8, true);                                                                                            \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                              \
  }                                                                                                                             \
  STITCH_EMU_HOOK int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int, int) {                 \
    STITCH_EMU_NOTE(bits / 8, true);                                                                                            \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                              \
  }
STITCH_EMU_ATOMICS(8, unsigned char)
STITCH_EMU_ATOMICS(16, unsigned short)
STITCH_EMU_ATOMICS(32, unsigned int)
STITCH_EMU_ATOMICS(64, unsigned long)

// Copies by the C library, see race_prefix.h.
STITCH_EMU_HOOK void* stitch_emu_memcpy(void* to, const void* from, size_t n) {
  stitch_emu::race_access(reinterpret_cast<uintptr_t>(from), n, {false, false}, __builtin_return_address(0));
  stitch_emu::race_access(reinterpret_cast<uintptr_t>(to), n, {true, false}, __builtin_return_address(0));
  return memcpy(to, from, n);
}
STITCH_EMU_HOOK void* stitch_emu_memmove(void* to, const void* from, size_t n) {
  stitch_emu::race_access(reinterpret_cast<uintptr_t>(from), n, {false, false}, __builtin_return_address(0));
  stitch_emu::race_access(reinterpret_cast<uintptr_t>(to), n, {true, false}, __builtin_return_address(0));
  return memmove(to, from, n);
}
STITCH_EMU_HOOK void* stitch_emu_memset(void* to, int value, size_t n) {
  stitch_emu::race_access(reinterpret_cast<uintptr_t>(to), n, {true, false}, __builtin_return_address(0));
  return memset(to, value, n);
}
#endif
