#pragma once
// Device atomics. Blocks run on several OS threads, so they are real atomics; relaxed order as on the device.

#include "core.h"

namespace stitch_emu {

template <class T>
struct Bits;
template <> struct Bits<float> { using type = unsigned; };
template <> struct Bits<double> { using type = unsigned long long; };

// Applies `change` in a compare-and-swap loop and returns the old value; works for any 2, 4 or 8 byte type.
template <class T, class Word, class F>
STITCH_EMU_INLINE T atomic_change(T* address, F change) {
  auto* word = reinterpret_cast<Word*>(address);
  Word seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    T old;
    __builtin_memcpy(&old, &seen, sizeof(T));
    const T next = change(old);
    Word wanted;
    __builtin_memcpy(&wanted, &next, sizeof(T));
    if (__atomic_compare_exchange_n(word, &seen, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
  }
}

}  // namespace stitch_emu

#define STITCH_EMU_ATOMIC(name, builtin, T) \
  STITCH_EMU_INLINE T name(T* address, T value) { return builtin(address, value, __ATOMIC_RELAXED); }
#define STITCH_EMU_ATOMIC_CAS(name, T, Word, expression)                                         \
  STITCH_EMU_INLINE T name(T* address, T value) {                                                \
    return stitch_emu::atomic_change<T, Word>(address, [&](T old) -> T { return expression; });  \
  }
#define STITCH_EMU_ATOMIC_INT(T)                                                  \
  STITCH_EMU_ATOMIC(atomicAdd, __atomic_fetch_add, T)                             \
  STITCH_EMU_ATOMIC(atomicAnd, __atomic_fetch_and, T)                             \
  STITCH_EMU_ATOMIC(atomicOr, __atomic_fetch_or, T)                               \
  STITCH_EMU_ATOMIC(atomicXor, __atomic_fetch_xor, T)                             \
  STITCH_EMU_ATOMIC(atomicExch, __atomic_exchange_n, T)                           \
  STITCH_EMU_ATOMIC_CAS(atomicMax, T, T, old < value ? value : old)               \
  STITCH_EMU_ATOMIC_CAS(atomicMin, T, T, value < old ? value : old)               \
  STITCH_EMU_INLINE T atomicCAS(T* address, T compare, T value) {                 \
    __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    return compare;                                                               \
  }

STITCH_EMU_ATOMIC_INT(int)
STITCH_EMU_ATOMIC_INT(unsigned int)
STITCH_EMU_ATOMIC_INT(long long)
STITCH_EMU_ATOMIC_INT(unsigned long long)
STITCH_EMU_ATOMIC_INT(unsigned long)
STITCH_EMU_ATOMIC(atomicSub, __atomic_fetch_sub, int)
STITCH_EMU_ATOMIC(atomicSub, __atomic_fetch_sub, unsigned int)
STITCH_EMU_ATOMIC_CAS(atomicInc, unsigned, unsigned, old >= value ? 0u : old + 1)
STITCH_EMU_ATOMIC_CAS(atomicDec, unsigned, unsigned, old == 0 || old > value ? value : old - 1)
STITCH_EMU_ATOMIC_CAS(atomicAdd, float, unsigned, old + value)
STITCH_EMU_ATOMIC_CAS(atomicAdd, double, unsigned long long, old + value)
STITCH_EMU_ATOMIC_CAS(atomicExch, float, unsigned, ((void)old, value))

STITCH_EMU_INLINE unsigned short atomicCAS(unsigned short* address, unsigned short compare, unsigned short value) {
  __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}
STITCH_EMU_INLINE float2 atomicAdd(float2* address, float2 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
}
STITCH_EMU_INLINE float4 atomicAdd(float4* address, float4 value) {
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y), atomicAdd(&address->z, value.z),
          atomicAdd(&address->w, value.w)};
}

#define STITCH_EMU_SCOPED(name)                                                                             \
  template <class P, class T> STITCH_EMU_INLINE auto name##_block(P* a, T v) { return name(a, static_cast<P>(v)); }  \
  template <class P, class T> STITCH_EMU_INLINE auto name##_system(P* a, T v) { return name(a, static_cast<P>(v)); }
STITCH_EMU_SCOPED(atomicAdd)
STITCH_EMU_SCOPED(atomicMax)
STITCH_EMU_SCOPED(atomicMin)
STITCH_EMU_SCOPED(atomicOr)
STITCH_EMU_SCOPED(atomicAnd)
STITCH_EMU_SCOPED(atomicExch)
#undef STITCH_EMU_SCOPED
#undef STITCH_EMU_ATOMIC_INT
#undef STITCH_EMU_ATOMIC

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); stitch_emu::fence(); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __threadfence(); }
inline void __nanosleep(unsigned) { stitch_emu::yield_thread(); }
