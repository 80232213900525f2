#pragma once
// The scheduler of one worker: starts CUDA threads, parks those that wait, and finds out when nobody can go on.
// Part of emu_runtime.cpp.

#include "rt_block.h"
#include "rt_race.h"
#include "rt_shared.h"

namespace stitch_emu {

inline std::string lane_list(unsigned mask) {
  std::string out;
  for (int lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) out += (out.empty() ? "" : ",") + std::to_string(lane);
  return out;
}
inline std::string hex_mask(unsigned mask) {
  char text[16];
  snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

inline void make_ready(Thread* t) {
  t->wait = Wait::nothing;
  t->next_ready = nullptr;
  (worker->ready_tail ? worker->ready_tail->next_ready : worker->ready_head) = t;
  worker->ready_tail = t;
}

inline Thread* next_unstarted() {
  while (worker->starting < worker->block_count) {
    Block& block = *worker->blocks[worker->starting];
    if (block.unstarted < block.threads.size()) return &block.threads[block.unstarted++];
    ++worker->starting;
  }
  return nullptr;
}

inline void enter(Thread* t) {
  worker->running = t;
  threadIdx = t->index;
  blockIdx = t->block->index;
}

[[noreturn]] void report_deadlock();
void thread_exit(Thread* t);
void fiber_main();

// Leaves the current stack for the next thread that can run. The current thread must already be parked somewhere.
inline void run_others() {
  Fiber* from = worker->current;
  Fiber* to = nullptr;
  if (Thread* t = worker->ready_head) {
    worker->ready_head = t->next_ready;
    if (!worker->ready_head) worker->ready_tail = nullptr;
    if (t->fiber == from) return enter(t);
    enter(t);
    to = t->fiber;
  } else if (Thread* fresh = next_unstarted()) {
    to = worker->stacks.take(&fiber_main);
    to->thread = fresh;
    fresh->fiber = to;
    enter(fresh);
  } else if (worker->live == 0) {
    worker->running = nullptr;
    to = &worker->main;
  } else {
    report_deadlock();
  }
  worker->current = to;
  fiber_switch(from, to);
}

// Body of every fiber: runs threads one after the other for as long as they do not wait.
inline void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (!worker->main.bottom) {
    worker->main.bottom = static_cast<char*>(const_cast<void*>(bottom));
    worker->main.bytes = bytes;
  }
#endif
  for (;;) {
    Fiber* self = worker->current;
    Thread* t = self->thread;
    worker->body->run();
    thread_exit(t);
    self->thread = nullptr;
    t->fiber = nullptr;
    Thread* fresh = worker->ready_head ? nullptr : next_unstarted();
    if (fresh) {
      self->thread = fresh;
      fresh->fiber = self;
      enter(fresh);
    } else {
      worker->stacks.give_back(self);
      run_others();  // comes back when the pool hands this stack out again
    }
  }
}

inline void wait_for(Thread* t, Wait wait, const char* what, Site site) {
  t->wait = wait;
  t->what = what;
  t->site = site;
  run_others();
}

inline Warp& warp_of(Thread* t) { return t->block->warps[t->number / 32]; }

// ---- block barrier ----

inline void release_barrier(Block& block, Thread* last) {
  block.arrived = 0;
  block.votes_result = block.votes;
  block.votes = 0;
  block.first_arrival = nullptr;
  race_barrier(block);
  for (Thread& t : block.threads)
    if (&t != last && t.wait == Wait::barrier) make_ready(&t);
}

[[noreturn]] inline void report_divergent_barrier(Thread* first, const char* what, Site site) {
  Report r;
  r.kind = "barrier_divergence";
  r.message = std::string(what) + " in divergent code: thread (" + std::to_string(first->index.x) + "," +
              std::to_string(first->index.y) + "," + std::to_string(first->index.z) +
              ") of the same block waits at another barrier, " + first->what + " in line " +
              std::to_string(first->site.line);
  r.site = site;
  r.other_site = first->site;
  r.has_other_thread = true;
  r.other_thread = first->index;
  add_thread(r);
  write_report(r);
  exit_faulty();
}

inline int block_barrier_impl(Reduce reduce, int predicate, const char* what, Site site) {
  Thread* t = running_thread();
  if (!t) return predicate;
  Block& block = *t->block;
  const bool vote = reduce == Reduce::all ? predicate == 0 : predicate != 0;
  block.votes += vote;
  if (Thread* first = block.first_arrival)
    if (first->site.line != site.line || strcmp(first->site.file, site.file) != 0)
      report_divergent_barrier(first, what, site);
  if (++block.arrived == block.live) {
    release_barrier(block, t);
  } else {
    if (!block.first_arrival) block.first_arrival = t;
    wait_for(t, Wait::barrier, what, site);
  }
  const int n = static_cast<int>(block.votes_result);
  return reduce == Reduce::count ? n : reduce == Reduce::any ? n != 0 : reduce == Reduce::all ? n == 0 : 0;
}

// ---- grid barrier (cooperative launches) ----

inline void release_grid(Thread* last) {
  worker->grid_arrived = 0;
  race_grid_barrier();
  for (size_t i = 0; i < worker->block_count; ++i) {
    race_barrier(*worker->blocks[i]);
    for (Thread& t : worker->blocks[i]->threads)
      if (&t != last && t.wait == Wait::grid) make_ready(&t);
  }
}

// ---- warp collectives ----

// Completes the operation that `t` takes part in if every live lane of its mask waits in the same one.
inline bool try_complete(Warp& warp, Thread* t, Thread* last) {
  const unsigned group = t->mask & warp.exists & ~warp.exited;
  if ((warp.waiting & group) != group) return false;
  void* data[32] = {};
  for (int lane = 0; lane < 32; ++lane) {
    if (!(group >> lane & 1)) continue;
    Thread* other = warp.lanes[lane];
    if (other->mask != t->mask || other->combine != t->combine) return false;
    data[lane] = other->data;
  }
  worker->running = t;  // for reports made by combine
  t->combine(data, group);
  race_warp_sync(warp, group);
  warp.waiting &= ~group;
  for (int lane = 0; lane < 32; ++lane)
    if (group >> lane & 1 && warp.lanes[lane] != last) make_ready(warp.lanes[lane]);
  if (last) worker->running = last;
  return true;
}

inline void warp_collective_impl(unsigned mask, const char* what, Combine combine, void* data, Site site) {
  Thread* t = running_thread();
  if (!t) return;
  const unsigned lane = t->number & 31;
  Warp& warp = warp_of(t);
  if (!(mask >> lane & 1))
    fatal("bad_shuffle_mask", (std::string(what) + " with mask " + hex_mask(mask) + " called by lane " +
                               std::to_string(lane) + ", which the mask does not name").c_str(), site);
  t->mask = mask;
  t->combine = combine;
  t->data = data;
  t->what = what;
  t->site = site;
  warp.waiting |= 1u << lane;
  if (!try_complete(warp, t, t)) wait_for(t, Wait::warp, what, site);
}

// ---- end of a thread, deadlock ----

inline void thread_exit(Thread* t) {
  Block& block = *t->block;
  t->done = true;
  --block.live;
  --worker->live;
  Warp& warp = warp_of(t);
  warp.exited |= 1u << (t->number & 31);
  if (block.arrived && block.arrived == block.live) release_barrier(block, nullptr);
  if (worker->grid_arrived && worker->grid_arrived == worker->live) release_grid(nullptr);
  for (int lane = 0; lane < 32 && warp.waiting; ++lane)
    if (warp.waiting >> lane & 1) try_complete(warp, warp.lanes[lane], nullptr);
}

inline std::string describe(Thread* t) {
  if (t->done) return "has returned";
  return std::string("waits in ") + t->what + " in line " + std::to_string(t->site.line);
}

// A warp operation that can never complete explains the hang best; else the first waiting thread is shown.
[[noreturn]] inline void report_deadlock() {
  Thread* shown = nullptr;
  for (size_t i = 0; i < worker->block_count; ++i)
    for (Thread& t : worker->blocks[i]->threads)
      if (!t.done && t.wait != Wait::nothing && (!shown || (shown->wait != Wait::warp && t.wait == Wait::warp)))
        shown = &t;
  Report r;
  worker->running = shown;
  add_thread(r);
  r.site = shown->site;
  r.kind = shown->wait == Wait::warp ? "bad_shuffle_mask" : "barrier_divergence";
  Thread* other = nullptr;
  if (shown->wait == Wait::warp) {
    Warp& warp = warp_of(shown);
    unsigned missing = 0;
    for (int lane = 0; lane < 32; ++lane) {
      Thread* o = warp.lanes[lane];
      if (!o || o->done || !(shown->mask >> lane & 1)) continue;
      if (o->wait == Wait::warp && o->mask == shown->mask && o->combine == shown->combine) continue;
      missing |= 1u << lane;
      if (!other) other = o;
    }
    r.message = std::string(shown->what) + " with mask " + hex_mask(shown->mask) + " waits for ever for lane(s) " +
                lane_list(missing) + (other ? "; lane " + std::to_string(other->number & 31) + " " + describe(other) : "");
  } else {
    for (Thread& t : shown->block->threads)
      if (!t.done && t.wait != shown->wait) { other = &t; break; }
    r.message = std::string(shown->what) + " is never reached by all threads" +
                (other ? "; thread " + std::to_string(other->number) + " " + describe(other) : "");
  }
  if (other) {
    r.has_other_thread = true;
    r.other_thread = other->index;
    r.other_site = other->site;
  }
  write_report(r);
  exit_faulty();
}

}  // namespace stitch_emu
