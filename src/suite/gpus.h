#pragma once
// The GPUs of this machine and which jobs run on them at once.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "ir/bundle.h"

namespace stitch::suite {

struct Gpu {
  std::string id;        // for CUDA_VISIBLE_DEVICES
  std::string name;
  uint64_t memory = 0;   // bytes
};
// Those that nvidia-smi lists, or the ones among them that CUDA_VISIBLE_DEVICES names.
std::vector<Gpu> find_gpus();

// Device memory that verification of a program may take: its tensors and workspace, held several times over because the oracle computes in fp64
// and keeps candidate, reference and expected results side by side.
uint64_t verification_bytes(uint64_t gpu_bytes);

// Bytes of all inputs, outputs and weights.
uint64_t tensor_bytes(const ir::Bundle&);

// Admits jobs as long as their estimates fit into a GPU together and it has fewer than `jobs_per_gpu`; one that alone is beyond the budget runs alone.
class GpuSlots {
 public:
  GpuSlots(const std::vector<Gpu>&, int jobs_per_gpu);
  size_t acquire(uint64_t bytes);  // index of the GPU; waits
  void release(size_t gpu, uint64_t bytes);
  uint64_t budget(size_t gpu) const { return slots_[gpu].budget; }

 private:
  struct Slot {
    uint64_t budget = 0, used = 0;
    int jobs = 0;
  };
  std::vector<Slot> slots_;
  int jobs_per_gpu_;
  std::mutex mutex_;
  std::condition_variable freed_;
};

}  // namespace stitch::suite
