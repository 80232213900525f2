// The emulator's runtime: compiled once per build flavour (plain, address, race) and linked into every host-target
// program. It is never compiled with -fsanitize=thread itself: the race flavour only defines STITCH_EMU_RACE.

#include "cuda_runtime.h"

#include "emu/rt_api.h"
#include "emu/rt_launch.h"
#include "emu/rt_race_hooks.h"
#include "emu/rt_ubsan.h"

__thread uint3 threadIdx{};
__thread uint3 blockIdx{};
__thread dim3 blockDim{};
__thread dim3 gridDim{};

namespace stitch_emu {

void* shared_storage(SharedSlot* slot, size_t bytes, size_t align, const char* name) {
  return shared_storage_impl(slot, bytes, align, name);
}
void* dynamic_shared_storage() { return worker ? worker->running->block->dynamic_base : nullptr; }

int block_barrier(Reduce reduce, int predicate, const char* what, Site site) {
  return block_barrier_impl(reduce, predicate, what, site);
}

void grid_barrier(Site site) {
  Thread* t = running_thread();
  if (!t) return;
  if (!worker->config->cooperative)
    fatal("barrier_divergence", "grid.sync() needs a cooperative launch (cudaLaunchCooperativeKernel)", site);
  if (++worker->grid_arrived == worker->live)
    release_grid(t);
  else
    wait_for(t, Wait::grid, "grid.sync", site);
}

void warp_collective(unsigned mask, const char* what, Combine combine, void* data, Site site) {
  warp_collective_impl(mask, what, combine, data, site);
}

void bad_shuffle_source(int lane, int source) {
  Thread* caller = warp_of(worker->running).lanes[lane];
  worker->running = caller;
  const unsigned bit = 1u << source;
  const Warp& warp = warp_of(caller);
  const char* why = !(warp.exists & bit) ? ", which does not exist in this block"
                    : warp.exited & bit  ? ", which has returned"
                                         : ", which the mask does not name";
  fatal("bad_shuffle_mask", (std::string(caller->what) + " with mask " + hex_mask(caller->mask) + ": lane " +
                             std::to_string(lane) + " reads lane " + std::to_string(source) + why).c_str(), caller->site);
}

unsigned lane_id() {
  Thread* t = running_thread();
  return t ? t->number & 31u : 0;
}
unsigned active_mask() {
  Thread* t = running_thread();
  return t ? warp_of(t).exists & ~warp_of(t).exited : 1;
}

void yield_thread() {
  if (Thread* t = running_thread()) {
    make_ready(t);
    run_others();
  }
}
void fence() {}

void fatal(const char* kind, const char* message, Site site) {
  Report r;
  r.kind = kind;
  r.message = message;
  r.site = site;
  add_thread(r);
  write_report(r);
  exit_faulty();
}

cudaError_t launch(const LaunchConfig& config, Work* body) {
  const cudaError_t error = check_launch(config);
  if (error != cudaSuccess) {
    delete body;
    return set_error(error);
  }
  return enqueue(config.stream, make_work([config, body = OwnedWork(body)] { run_kernel(config, body.get()); }));
}

}  // namespace stitch_emu
