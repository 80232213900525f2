#include "suite/gpus.h"

#include <cstdlib>
#include <sstream>

#include "base/process.h"

namespace stitch::suite {
namespace {

// Of a device's memory; the rest is for CUDA contexts, PyTorch's caching allocator and error of the estimate.
constexpr double kUsableShare = 0.78;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) {
    part.erase(0, part.find_first_not_of(' '));
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

}  // namespace

std::vector<Gpu> find_gpus() {
  ProcessSpec spec;
  spec.argv = {"nvidia-smi", "--query-gpu=index,uuid,memory.total,name", "--format=csv,noheader,nounits"};
  spec.timeout = std::chrono::seconds(60);
  const auto r = run_process(spec);
  if (!r || !r->ok()) return {};
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<Gpu> all, chosen;
  std::vector<std::string> uuids;
  for (const std::string& line : split(r->out, '\n'))
    if (const auto f = split(line, ','); f.size() >= 4) {
      all.push_back({f[0], f[3], std::strtoull(f[2].c_str(), nullptr, 10) << 20});
      uuids.push_back(f[1]);
    }
  if (!visible) return all;
  for (const std::string& id : split(visible, ','))
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].id == id || uuids[i].starts_with(id)) chosen.push_back({id, all[i].name, all[i].memory});
  return chosen;
}

uint64_t verification_bytes(uint64_t gpu_bytes) { return 6 * gpu_bytes + (uint64_t{2} << 30); }

uint64_t tensor_bytes(const ir::Bundle& b) {
  return static_cast<uint64_t>(ir::bytes_of(ir::types_of(b.inputs)) + ir::bytes_of(ir::types_of(b.weights)) + ir::bytes_of(ir::output_types(b)));
}

GpuSlots::GpuSlots(const std::vector<Gpu>& gpus, int jobs_per_gpu) : jobs_per_gpu_(jobs_per_gpu) {
  for (const Gpu& g : gpus) slots_.push_back({static_cast<uint64_t>(static_cast<double>(g.memory) * kUsableShare)});
}

size_t GpuSlots::acquire(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  size_t best = 0;
  const auto find = [&] {
    bool found = false;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Slot& s = slots_[i];
      const bool fits = s.jobs == 0 || (s.jobs < jobs_per_gpu_ && s.used + bytes <= s.budget);
      const Slot& b = slots_[best];
      if (fits && (!found || s.used < b.used || (s.used == b.used && s.jobs < b.jobs))) best = i, found = true;
    }
    return found;
  };
  freed_.wait(lock, find);
  slots_[best].used += bytes;
  ++slots_[best].jobs;
  return best;
}

void GpuSlots::release(size_t gpu, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  slots_[gpu].used -= bytes;
  --slots_[gpu].jobs;
  freed_.notify_all();
}

}  // namespace stitch::suite
