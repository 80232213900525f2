#pragma once
// Asynchronous copies into shared memory, done at once: a program that is right with any timing of the copy is right here.
// The opposite does not hold: reading before the wait goes unnoticed.

#include "cuda_runtime.h"

STITCH_EMU_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zero_fill = 0, STITCH_EMU_SITE) {
  if (bytes != 4 && bytes != 8 && bytes != 16)
    stitch_emu::fatal("invalid_argument", "__pipeline_memcpy_async copies 4, 8 or 16 bytes", {file, line});
  if (reinterpret_cast<uintptr_t>(to) % bytes || reinterpret_cast<uintptr_t>(from) % bytes)
    stitch_emu::fatal("misaligned", "__pipeline_memcpy_async needs both pointers aligned to the size of the copy", {file, line});
  auto* target = static_cast<unsigned*>(to);
  const auto* source = static_cast<const unsigned*>(from);
  const size_t copied = bytes - zero_fill;
  for (size_t i = 0; i < bytes / 4; ++i) target[i] = i * 4 < copied ? source[i] : 0u;
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(int) {}
