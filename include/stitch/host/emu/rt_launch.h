#pragma once
// Runs the blocks of a launch, on one worker or spread over a pool of OS threads. Part of emu_runtime.cpp.

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "rt_schedule.h"

namespace stitch_emu {

thread_local Worker* worker = nullptr;

inline uint3 unlinear(uint64_t i, const dim3& d) {
  return {static_cast<unsigned>(i % d.x), static_cast<unsigned>(i / d.x % d.y),
          static_cast<unsigned>(i / d.x / d.y)};
}

// Blocks of one launch have the same shape, so most of a thread's state is there already.
inline void reset_threads(Block& b, const dim3& shape) {
  const unsigned count = shape.x * shape.y * shape.z;
  b.live = count;
  b.unstarted = b.arrived = b.votes = b.votes_result = 0;
  b.first_arrival = nullptr;
  b.warps.assign((count + 31) / 32, Warp{});
  const bool same = b.shape.x == shape.x && b.shape.y == shape.y && b.shape.z == shape.z;
  if (!same) b.threads.assign(count, Thread{});
  b.shape = shape;
  for (unsigned i = 0; i < count; ++i) {
    Thread& t = b.threads[i];
    if (!same) {
      t.block = &b;
      t.index = unlinear(i, shape);
      t.number = static_cast<uint16_t>(i);
    }
    t.done = false;
    t.wait = Wait::nothing;
    t.warp_epoch = 1;
    b.warps[i / 32].lanes[i % 32] = &t;
    b.warps[i / 32].exists |= 1u << (i % 32);
  }
}

inline void prepare_block(Worker& w, size_t position, uint64_t number) {
  if (w.blocks.size() <= position) {
    w.blocks.push_back(std::make_unique<Block>());
    w.arenas.push_back(std::make_unique<char[]>(kArenaBytes + kDynamicAlign));
    const auto base = reinterpret_cast<uintptr_t>(w.arenas.back().get());
    w.blocks.back()->arena = reinterpret_cast<char*>((base + kDynamicAlign - 1) & ~(kDynamicAlign - 1));
    set_access(w.blocks.back()->arena, kArenaBytes, false);
  }
  Block& b = *w.blocks[position];
  b.index = unlinear(number, w.config->grid);
  b.number = static_cast<uint32_t>(number);
  reset_threads(b, w.config->block);
  reset_shared(b, w.config->shared_bytes);
  race_block_begin(b);
}

// Runs blocks [first, first + count) together on this OS thread.
inline void run_gang(Worker& w, uint64_t first, size_t count) {
  for (size_t i = 0; i < count; ++i) prepare_block(w, i, first + i);
  w.block_count = count;
  w.starting = 0;
  w.live = static_cast<unsigned>(count * w.blocks[0]->threads.size());
  w.grid_arrived = 0;
  w.current = &w.main;
  run_others();
}

struct LaunchJob {
  const LaunchConfig* config;
  Work* body;
  uint64_t blocks;
  std::atomic<uint64_t> next{0};
};

inline Worker& own_worker() {
  static thread_local Worker mine;
  return mine;
}

inline void work_on(LaunchJob& job) {
  Worker& w = own_worker();
  worker = &w;
  w.config = job.config;
  w.body = job.body;
  blockDim = job.config->block;
  gridDim = job.config->grid;
  if (job.config->cooperative) {
    if (job.next.fetch_add(1) == 0) run_gang(w, 0, job.blocks);
  } else {
    for (uint64_t i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < job.blocks;) run_gang(w, i, 1);
  }
  worker = nullptr;
}

// OS threads that help with large launches. They live until the process ends.
class Pool {
 public:
  static Pool& instance() {
    static Pool* pool = new Pool;  // never destroyed: helpers may outlive static destructors
    return *pool;
  }
  void run(LaunchJob& job, bool alone) {
    if (alone || count_ <= 1) return work_on(job);
    {
      std::lock_guard lock(mutex_);
      while (static_cast<int>(started_) < count_ - 1) {
        ++started_;
        std::thread([this] { helper(); }).detach();
      }
      job_ = &job;
      busy_ = started_;
      ++generation_;
    }
    wake_.notify_all();
    work_on(job);
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return busy_ == 0; });
    job_ = nullptr;
  }
  int count() const { return count_; }

 private:
  Pool() {
#if defined(STITCH_EMU_RACE)
    count_ = 1;  // the checker follows one thread of execution
#else
    const char* text = getenv("STITCH_HOST_THREADS");
    count_ = text ? atoi(text) : static_cast<int>(std::thread::hardware_concurrency());
#endif
  }
  void helper() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      LaunchJob* job = job_;
      lock.unlock();
      if (job) work_on(*job);
      lock.lock();
      if (--busy_ == 0) idle_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  LaunchJob* job_ = nullptr;
  uint64_t generation_ = 0;
  unsigned busy_ = 0, started_ = 0;
  int count_ = 1;
};

inline void run_kernel(const LaunchConfig& config, Work* body) {
  static std::mutex one_launch;  // host threads may launch at the same time; the pool takes one job
  if (worker) fatal("nested_launch", "a kernel launch inside a kernel (dynamic parallelism) is not emulated", config.site);
  std::lock_guard lock(one_launch);
  LaunchJob job{&config, body, uint64_t{config.grid.x} * config.grid.y * config.grid.z};
  const uint64_t threads = job.blocks * config.block.x * config.block.y * config.block.z;
  race_launch_begin();
  // Waking helpers costs more than a small launch does.
  Pool::instance().run(job, config.cooperative || job.blocks == 1 || threads < 2048);
  race_launch_end();
}

}  // namespace stitch_emu
