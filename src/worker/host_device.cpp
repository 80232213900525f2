// Host target: the candidate works on the shared memory itself, or on exact-size heap copies when a sanitizer watches
// (it knows the bounds of heap blocks, not those of a mapping).
#include <cstdlib>
#include <cstring>
#include <chrono>

#include "worker/worker.h"

namespace stitch::worker {
namespace {

class HostDevice final : public Device {
 public:
  explicit HostDevice(bool heap) : heap_(heap) {}
  std::string open(std::string& name, double& l2) override {
    name = "host";
    l2 = 0;
    return "";
  }
  std::string place(MappedRegion& region) override {
    for (auto& t : region.tensors) {
      t.tensor.device = {static_cast<DLDeviceType>(1), 0};
      t.tensor.data = t.shared;
      if (!heap_) continue;
      void* memory = nullptr;
      if (posix_memalign(&memory, 256, t.bytes ? t.bytes : 1) != 0) return "out of memory";
      t.tensor.data = memory;
      std::memcpy(memory, t.shared, t.bytes);
    }
    return "";
  }
  std::string attach(MappedRegion&, int) override { return "the host target has no device memory"; }
  std::string upload(MappedRegion& region) override {
    if (heap_)
      for (auto& t : region.tensors) std::memcpy(t.tensor.data, t.shared, t.bytes);
    return "";
  }
  std::string poison(MappedRegion& region, uint16_t) override { return upload(region); }  // the parent poisons the shared copy
  std::string fetch(MappedRegion& region) override {
    if (heap_)
      for (auto& t : region.tensors) std::memcpy(t.shared, t.tensor.data, t.bytes);
    return "";
  }
  std::string wait() override { return ""; }
  std::string flush(size_t) override { return ""; }
  std::string start() override {
    started_ = std::chrono::steady_clock::now();
    return "";
  }
  std::string stop(double& event_ms, double& host_ms, double& drain_ms) override {
    host_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started_).count();
    event_ms = host_ms;
    drain_ms = 0;
    return "";
  }
  std::string memory(uint64_t& free_bytes, uint64_t& total_bytes) override {
    free_bytes = total_bytes = 0;
    return "";
  }
  void* stream() override { return nullptr; }

 private:
  bool heap_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace

Device* host_device(bool heap_buffers) { return new HostDevice(heap_buffers); }

}  // namespace stitch::worker
