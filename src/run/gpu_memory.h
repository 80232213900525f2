#pragma once
// Turns at a GPU's memory for any number of processes on a machine: memory is handed out in pieces of 4 GiB, each a locked file, so a process that dies
// gives back what it held. Who asks first is served first; a request beyond the whole GPU waits for all of it.

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace stitch::run {

class GpuMemoryTurn {
 public:
  // Waits until `bytes` of the GPU's `total` are free of other holders. `gpu` names the GPU among those of this machine.
  // environment error: the lock files under data_home() cannot be made.
  static Result<GpuMemoryTurn> take(const std::string& gpu, uint64_t total, uint64_t bytes);
  size_t pieces() const { return locks_.size(); }

  // For others that keep to the same rules (python/stitchcuda/gpu_turn.py): where a GPU's lock files lie, and how many there are.
  static Result<fs::path> folder_of(const std::string& gpu);
  static size_t pieces_of(uint64_t total);

 private:
  std::vector<FileLock> locks_;
};

}  // namespace stitch::run
