#pragma once
// Shared memory of a block: an arena with redzones between the variables. Storage is placed when a thread of the block
// first reaches the declaration, and filled with 0xff bytes (NaN as float, half or bf16; -1 as int), because a thread-block
// finds garbage there, never zeros. Part of emu_runtime.cpp.

#include <atomic>
#include <mutex>

#include "rt_block.h"

namespace stitch_emu {

inline constexpr size_t kArenaBytes = 1 << 20;
inline constexpr size_t kRedzone = 128;
inline constexpr size_t kSharedAlign = 16;          // what nvcc gives an array in practice
inline constexpr size_t kDynamicAlign = 1024;
inline constexpr size_t kStaticLimit = 48 << 10;    // sm_90
inline constexpr size_t kBlockLimit = 227 << 10;

inline void set_access(char* p, size_t bytes, bool allowed) {
#if defined(__SANITIZE_ADDRESS__)
  if (allowed) ASAN_UNPOISON_MEMORY_REGION(p, bytes);
  else ASAN_POISON_MEMORY_REGION(p, bytes);
#else
  (void)p, (void)bytes, (void)allowed;
#endif
}

inline char* place(Block& block, size_t bytes, size_t align) {
  size_t at = block.arena_used + kRedzone;
  at = (at + align - 1) & ~(align - 1);
  if (at + bytes + kRedzone > kArenaBytes) fatal("shared_too_large", "the block's shared memory does not fit", {nullptr, 0});
  char* p = block.arena + at;
  set_access(p, bytes, true);
  memset(p, 0xff, bytes);
  block.arena_used = at + bytes;
  return p;
}

inline void reset_shared(Block& block, size_t dynamic_bytes) {
  set_access(block.arena, block.arena_used, false);
  block.slots.assign(block.slots.size(), 0);
  block.arena_used = 0;
  block.static_bytes = 0;
  block.dynamic_base = place(block, dynamic_bytes, kDynamicAlign);
}

inline void* shared_storage_impl(SharedSlot* slot, size_t bytes, size_t align, const char* name) {
  static std::mutex mutex;
  static int slots = 0;
  int id = __atomic_load_n(&slot->id, __ATOMIC_ACQUIRE);
  if (id == 0) {
    std::lock_guard lock(mutex);
    if (slot->id == 0) __atomic_store_n(&slot->id, ++slots, __ATOMIC_RELEASE);
    id = slot->id;
  }
  Thread* t = running_thread();
  if (!t) fatal("shared_outside_kernel", (std::string("__shared__ variable ") + name + " used outside a kernel").c_str(), {nullptr, 0});
  Block& block = *t->block;
  if (block.slots.size() <= static_cast<size_t>(id)) block.slots.resize(static_cast<size_t>(id) + 16, 0);
  uint32_t& offset = block.slots[static_cast<size_t>(id)];
  if (offset == 0) {
    block.static_bytes += bytes;
    if (block.static_bytes > kStaticLimit)
      fatal("shared_too_large", (std::string("static shared memory exceeds 48 KB at ") + name +
                                 "; use dynamic shared memory above that").c_str(), {nullptr, 0});
    if (block.static_bytes + worker->config->shared_bytes > kBlockLimit)
      fatal("shared_too_large", "static and dynamic shared memory together exceed 227 KB", {nullptr, 0});
    offset = static_cast<uint32_t>(place(block, bytes, align > kSharedAlign ? align : kSharedAlign) - block.arena);
  }
  return block.arena + offset;
}

}  // namespace stitch_emu
