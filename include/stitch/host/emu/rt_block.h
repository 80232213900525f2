#pragma once
// State of the running launch: threads, warps, blocks, and the worker (OS thread) that runs them.
// Part of emu_runtime.cpp.

#include <memory>
#include <vector>

#include "core.h"
#include "rt_fiber.h"
#include "rt_report.h"

namespace stitch_emu {

struct Block;

enum class Wait : uint8_t { nothing, barrier, grid, warp };

struct Thread {
  Block* block = nullptr;
  Fiber* fiber = nullptr;
  Thread* next_ready = nullptr;
  uint3 index{};
  uint16_t number = 0;  // linear index in the block
  Wait wait = Wait::nothing;
  bool done = false;
  // What a waiting thread waits in.
  const char* what = "";
  Site site{nullptr, 0};
  unsigned mask = 0;
  Combine combine = nullptr;
  void* data = nullptr;
  uint32_t warp_epoch = 1;  // race check: number of warp operations passed, plus one
};

struct Warp {
  Thread* lanes[32] = {};
  unsigned exists = 0, exited = 0, waiting = 0;  // lane masks
#if defined(STITCH_EMU_RACE)
  uint32_t seen[32][32] = {};  // race check: seen[l][k] = last warp_epoch of lane k that is ordered before lane l
#endif
};

struct Block {
  uint3 index{};
  dim3 shape{0, 0, 0};
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  unsigned live = 0;
  unsigned unstarted = 0;  // next thread to start
  // The barrier that threads are gathering at.
  unsigned arrived = 0, votes = 0;
  unsigned votes_result = 0;
  Thread* first_arrival = nullptr;
  // Shared memory: offsets by slot id (0 = not placed in this block yet), see rt_shared.h.
  std::vector<uint32_t> slots;
  char* arena = nullptr;
  size_t arena_used = 0, static_bytes = 0;  // bytes of the arena from its start, of __shared__ variables
  char* dynamic_base = nullptr;
  // Race check.
  uint32_t number = 0, first_epoch = 0, epoch = 0;
  bool acquired = false;  // has done an atomic on global memory, so it may be ordered after other blocks
};

// Everything one OS thread needs to run blocks.
struct Worker {
  StackPool stacks;
  Fiber main;                 // the OS thread's own stack
  Fiber* current = nullptr;   // fiber that runs now
  Thread* running = nullptr;  // CUDA thread that runs now
  std::vector<std::unique_ptr<Block>> blocks;  // blocks run together: one, or the whole grid of a cooperative launch
  size_t block_count = 0, starting = 0;        // in use; block whose threads are being started
  unsigned live = 0, grid_arrived = 0;
  Thread* ready_head = nullptr;
  Thread* ready_tail = nullptr;
  const LaunchConfig* config = nullptr;
  Work* body = nullptr;
  std::vector<std::unique_ptr<char[]>> arenas;
};

extern thread_local Worker* worker;  // null outside a launch

inline Thread* running_thread() { return worker ? worker->running : nullptr; }

inline void add_thread(Report& r) {
  Thread* t = running_thread();
  if (!t) return;
  r.has_thread = true;
  r.block = t->block->index;
  r.thread = t->index;
  r.kernel = worker->config->kernel;
}

}  // namespace stitch_emu
