#include "run/gpu_memory.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <thread>

namespace stitch::run {
namespace {

constexpr uint64_t kPiece = uint64_t{4} << 30;

}  // namespace

Result<fs::path> GpuMemoryTurn::folder_of(const std::string& gpu) {
  std::string name;
  for (const unsigned char c : gpu) name += std::isalnum(c) ? static_cast<char>(c) : '_';
  fs::path folder = data_home() / "gpu" / (name.empty() ? "0" : name);
  STITCH_CHECK_OK(make_folder(folder));
  return folder;
}

size_t GpuMemoryTurn::pieces_of(uint64_t total) { return std::max<size_t>(1, total / kPiece); }

Result<GpuMemoryTurn> GpuMemoryTurn::take(const std::string& gpu, uint64_t total, uint64_t bytes) {
  STITCH_TRY(const fs::path folder, folder_of(gpu));
  const size_t all = pieces_of(total), wanted = std::clamp<size_t>((bytes + kPiece - 1) / kPiece, 1, all);
  GpuMemoryTurn turn;
  // Held while pieces are gathered: two that each hold half of what the other needs would wait for ever.
  STITCH_TRY(const FileLock queue, FileLock::acquire(folder / "queue"));
  std::vector<bool> mine(all, false);
  for (;;) {
    for (size_t i = 0; i < all && turn.locks_.size() < wanted; ++i) {
      if (mine[i]) continue;
      auto lock = FileLock::try_acquire(folder / fmt::format("piece{}", i));
      if (!lock) continue;
      mine[i] = true;
      turn.locks_.push_back(std::move(*lock));
    }
    if (turn.locks_.size() >= wanted) return turn;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace stitch::run
