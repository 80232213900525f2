#pragma once
// The race flavour. The candidate is compiled with -fsanitize=thread, which makes the compiler call a hook before every
// access; the hooks are ours (rt_race_hooks.h) instead of libtsan's, because "thread" means CUDA thread here.
//
// Every 4-byte cell remembers its last write and its last two reads: who, and when. "When" is the block's barrier epoch
// plus the thread's warp epoch. Two accesses of one block are ordered if a block barrier lies between them, or a chain of
// warp operations in one warp (a small vector clock per lane). Accesses of different blocks of a launch are not ordered,
// unless the later block has done an atomic on global memory before (the "last block" pattern). Part of emu_runtime.cpp.

#include "rt_block.h"

#if !defined(STITCH_EMU_RACE)

namespace stitch_emu {
inline void race_block_begin(Block&) {}
inline void race_barrier(Block&) {}
inline void race_grid_barrier() {}
inline void race_warp_sync(Warp&, unsigned) {}
inline void race_launch_begin() {}
inline void race_launch_end() {}
inline void race_forget(const void*, size_t) {}
}  // namespace stitch_emu

#else

#include <dlfcn.h>

#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace stitch_emu {

struct Access {
  uint32_t epoch = 0, warp_epoch = 0, block = 0, pc = 0;
  uint16_t thread = 0;
  bool atomic = false;
};
struct Cell {
  Access write, reads[2];
};
struct Page {
  static constexpr size_t kBytes = 4096;
  Cell words[kBytes / 4];
  std::unique_ptr<Cell[]> bytes;          // per byte, for words that are accessed in parts
  bool split[kBytes / 4] = {};
};

// A write over another thread's write is only worth a report if it changes the value: many kernels let every thread store
// the same flag. The hook runs before the store, so the decision is taken at the next hook.
struct Pending {
  uintptr_t address = 0;
  unsigned bytes = 0;
  unsigned char before[16] = {};
  Report report;
};

struct RaceState {
  uint32_t epoch = 1, launch_epoch = 1;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
  uintptr_t cached_number[64] = {};
  Page* cached_page[64] = {};
  size_t page_limit = 0;
  uintptr_t code_base = 0;
  std::string module;
  std::set<std::pair<uint32_t, uint32_t>> reported;
  std::vector<Pending> pending;
  std::vector<Report> uninitialised;
  int faults = 0;
};
inline RaceState& race() {
  static RaceState* state = new RaceState;
  return *state;
}
inline constexpr int kMaxRaces = 16;

void race_settle_pending();

inline bool race_is_shared(uintptr_t a) {
  return worker && worker->running && a - reinterpret_cast<uintptr_t>(worker->running->block->arena) < (1u << 20);
}
inline void race_block_begin(Block& b) {
  b.first_epoch = b.epoch = ++race().epoch;
  b.acquired = false;
}
inline void race_barrier(Block& b) { b.epoch = ++race().epoch; }
inline void race_grid_barrier() { race().launch_epoch = ++race().epoch; }
inline void race_launch_begin() { race().launch_epoch = ++race().epoch; }
void race_launch_end();

inline void race_warp_sync(Warp& warp, unsigned group) {
  uint32_t joined[32] = {};
  for (int lane = 0; lane < 32; ++lane)
    if (group >> lane & 1) {
      for (int k = 0; k < 32; ++k)
        if (warp.seen[lane][k] > joined[k]) joined[k] = warp.seen[lane][k];
      if (warp.lanes[lane]->warp_epoch > joined[lane]) joined[lane] = warp.lanes[lane]->warp_epoch;
    }
  for (int lane = 0; lane < 32; ++lane)
    if (group >> lane & 1) {
      memcpy(warp.seen[lane], joined, sizeof joined);
      ++warp.lanes[lane]->warp_epoch;
    }
}

inline Page* race_page(uintptr_t address) {
  RaceState& s = race();
  const uintptr_t number = address / Page::kBytes;
  const size_t slot = number % 64;
  if (s.cached_number[slot] == number) return s.cached_page[slot];
  auto found = s.pages.find(number);
  if (found == s.pages.end()) {
    if (s.page_limit == 0) {
      const char* text = getenv("STITCH_HOST_SHADOW_MB");
      s.page_limit = (text ? static_cast<size_t>(atoll(text)) : 2048) * (1 << 20) / sizeof(Page) + 1;
    }
    if (s.pages.size() >= s.page_limit) return nullptr;  // beyond this, memory goes unwatched rather than the machine down
    found = s.pages.emplace(number, std::make_unique<Page>()).first;
  }
  s.cached_number[slot] = number;
  s.cached_page[slot] = found->second.get();
  return s.cached_page[slot];
}

// Freed memory may come back as something else.
inline void race_forget(const void* p, size_t bytes) {
  RaceState& s = race();
  const uintptr_t first = reinterpret_cast<uintptr_t>(p) / Page::kBytes;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(p) + bytes) / Page::kBytes;
  for (uintptr_t n = first; n <= last; ++n) s.pages.erase(n);
  for (auto& n : s.cached_number) n = 0;
}

inline uint32_t race_pc(void* return_address) {
  RaceState& s = race();
  if (s.code_base == 0) {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&race_pc), &info);
    s.code_base = reinterpret_cast<uintptr_t>(info.dli_fbase);
    s.module = info.dli_fname ? info.dli_fname : "";
  }
  // Inside the call instruction, so that the line is the access's own.
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(return_address) - s.code_base - 1);
}

enum class Order { before, same_block, other_block };  // same_block and other_block: not ordered, so a race
inline Order race_order(const Access& a, const Thread& t, bool shared) {
  const Block& b = *t.block;
  if (a.epoch == 0 || a.epoch < race().launch_epoch) return Order::before;
  if (a.block != b.number || a.epoch < b.first_epoch) return shared || b.acquired ? Order::before : Order::other_block;
  if (a.thread == t.number || a.epoch != b.epoch) return Order::before;
  if (a.thread / 32 == t.number / 32 && b.warps[t.number / 32].seen[t.number & 31][a.thread & 31] >= a.warp_epoch)
    return Order::before;
  return Order::same_block;
}

inline Report race_report(const char* kind, std::string message, uint32_t pc) {
  Report r;
  r.kind = kind;
  r.message = std::move(message);
  r.pc = pc;
  r.module = race().module;
  add_thread(r);
  return r;
}

inline bool race_first_time(uint32_t pc, uint32_t other) { return race().reported.insert({pc, other}).second; }
inline void race_emit(const Report& r) {
  write_report(r);
  if (++race().faults >= kMaxRaces) exit_faulty();
}

struct AccessKind {
  bool write, atomic;
};

inline void race_conflict(const Access& a, bool a_writes, Order order, AccessKind kind, uintptr_t address, unsigned bytes,
                          uint32_t pc, bool shared) {
  if (race().reported.count({pc, a.pc})) return;
  Thread* t = worker->running;
  const uint3 other = order == Order::same_block ? t->block->threads[a.thread].index : uint3{};
  char text[256];
  const char* memory = shared ? "shared" : "global";
  const char* verb = kind.write ? "writes" : "reads";
  const char* other_verb = a_writes ? "wrote" : "read";
  if (order == Order::same_block)
    snprintf(text, sizeof text, "thread (%u,%u,%u) %s %s memory that thread (%u,%u,%u) %s with no barrier in between",
             t->index.x, t->index.y, t->index.z, verb, memory, other.x, other.y, other.z, other_verb);
  else
    snprintf(text, sizeof text, "block %u %s global memory that block %u of the same launch %s", t->block->number, verb,
             a.block, other_verb);
  Report r = race_report("race", text, pc);
  r.other_pc = a.pc;
  r.has_other_thread = order == Order::same_block;
  r.other_thread = other;
  if (kind.write && a_writes && !kind.atomic && bytes <= 16) {
    Pending p;
    p.address = address;
    p.bytes = bytes;
    memcpy(p.before, reinterpret_cast<void*>(address), bytes);
    p.report = std::move(r);
    race().pending.push_back(std::move(p));
    return;
  }
  if (race_first_time(pc, a.pc)) race_emit(r);
}

inline void race_settle_pending() {
  if (race().pending.empty()) return;
  std::vector<Pending> pending;
  pending.swap(race().pending);
  for (const Pending& p : pending)
    if (memcmp(p.before, reinterpret_cast<void*>(p.address), p.bytes) != 0 && race_first_time(p.report.pc, p.report.other_pc))
      race_emit(p.report);
}

// A read too early because a barrier is missing shows as a race as well, which explains it better; so reads of memory that
// was never written are told only at the end, and only if their line is in no race.
inline void race_launch_end() {
  race_settle_pending();
  for (const Report& r : race().uninitialised) {
    bool explained = false;
    for (const auto& [a, b] : race().reported) explained |= b != 0 && (a == r.pc || b == r.pc);
    if (!explained) race_emit(r);
  }
  race().uninitialised.clear();
  if (race().faults) exit_faulty();
}

// `whole` is the full access that the cell is a part of.
inline void race_cell(Cell& cell, const Access& now, AccessKind kind, bool shared, uintptr_t whole, unsigned whole_bytes) {
  const Thread& t = *worker->running;
  if (shared && (!kind.write || kind.atomic) && cell.write.epoch < t.block->first_epoch && race_first_time(now.pc, 0))
    race().uninitialised.push_back(
        race_report("uninitialised_shared", "shared memory is read before any thread of the block has written it", now.pc));
  if (!(kind.atomic && cell.write.atomic)) {
    const Order order = race_order(cell.write, t, shared);
    if (order != Order::before) race_conflict(cell.write, true, order, kind, whole, whole_bytes, now.pc, shared);
  }
  if (kind.write) {
    for (Access& read : cell.reads) {
      if (kind.atomic && read.atomic) continue;
      const Order order = race_order(read, t, shared);
      if (order != Order::before) race_conflict(read, false, order, kind, whole, whole_bytes, now.pc, shared);
    }
    cell.write = now;
    if (!kind.atomic) cell.reads[0] = cell.reads[1] = Access{};
    return;
  }
  // Keep the latest read, and one by a different warp if there is one: together they conflict with any later writer that
  // is not ordered after both.
  if (cell.reads[0].thread / 32 != now.thread / 32 || cell.reads[0].block != now.block) cell.reads[1] = cell.reads[0];
  else if (cell.reads[1].epoch != now.epoch && cell.reads[0].thread != now.thread) cell.reads[1] = cell.reads[0];
  cell.reads[0] = now;
}

inline void race_access(uintptr_t address, size_t bytes, AccessKind kind, void* return_address) {
  if (!worker || !worker->running) return;
  if (!race().pending.empty()) race_settle_pending();
  if (address - reinterpret_cast<uintptr_t>(worker->current->bottom) < worker->current->bytes) return;  // own locals
  Thread& t = *worker->running;
  const bool shared = race_is_shared(address);
  if (!shared && worker->stacks.contains(address)) return;
  Access now;
  now.epoch = t.block->epoch;
  now.warp_epoch = t.warp_epoch;
  now.block = t.block->number;
  now.thread = t.number;
  now.atomic = kind.atomic;
  now.pc = race_pc(return_address);
  const uintptr_t whole = address;
  const auto whole_bytes = static_cast<unsigned>(bytes);
  while (bytes > 0) {
    Page* page = race_page(address);
    const size_t word = address % Page::kBytes / 4;
    const size_t part = 4 - address % 4 < bytes ? 4 - address % 4 : bytes;
    if (page && part == 4 && !page->split[word]) {
      race_cell(page->words[word], now, kind, shared, whole, whole_bytes);
    } else if (page) {
      if (!page->bytes) page->bytes = std::make_unique<Cell[]>(Page::kBytes);
      Cell* cells = &page->bytes[word * 4];
      if (!page->split[word])
        for (int i = 0; i < 4; ++i) cells[i] = page->words[word];
      page->split[word] = true;
      for (size_t i = 0; i < part; ++i)
        race_cell(cells[address % 4 + i], now, kind, shared, whole, whole_bytes);
    }
    address += part;
    bytes -= part;
  }
  if (kind.atomic && kind.write && !shared) t.block->acquired = true;
}

}  // namespace stitch_emu
#endif
