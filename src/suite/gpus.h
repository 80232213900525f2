#pragma once
// The GPUs of this machine, and what a problem's tensors take on one.

#include <cstdint>
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

// Bytes of all inputs, outputs and weights.
uint64_t tensor_bytes(const ir::Bundle&);

}  // namespace stitch::suite
