#pragma once
// Pieces of the worker program. It links nothing of this project, because the candidate shares its address space.

#include <string>
#include <vector>

#include "run/protocol.h"
#include "stitch/abi.h"

namespace stitch::worker {

struct Bind {
  std::string path;
  bool writable_device = false;  // a device node: bound as it is, not read-only
};

// New user, mount, PID, network, IPC and UTS namespaces with a root that shows only `binds`. Returns in the isolated
// grandchild; the processes left outside mirror its exit status. Used where bubblewrap is missing. On failure returns
// a sentence and nothing has changed that matters.
std::string enter_namespaces(const std::vector<Bind>& binds);

// Drops all capabilities and forbids new ones.
std::string drop_privileges();

// System call filter; installed after the worker has set itself up, before the candidate is loaded.
std::string install_seccomp(bool cuda);

struct MappedTensor {
  DLTensor tensor{};
  std::vector<int64_t> shape;
  void* shared = nullptr;  // its place in the shared region
  size_t bytes = 0;
};

struct MappedRegion {
  char* base = nullptr;
  size_t bytes = 0;
  bool attached = false;   // device memory that belongs to a trusted process: no copies, no poison from here
  std::vector<MappedTensor> tensors;
  std::vector<const DLTensor*> pointers() const {
    std::vector<const DLTensor*> p;
    for (const auto& t : tensors) p.push_back(&t.tensor);
    return p;
  }
};

// Where tensors live for the candidate, and how its work is waited for and timed.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string open(std::string& name, double& l2_bytes) = 0;           // "" or a sentence
  virtual std::string place(MappedRegion&) = 0;                                // fills tensor.data and tensor.device
  // Device memory of another process behind descriptor `fd`; fills base.
  virtual std::string attach(MappedRegion&, int fd) = 0;
  virtual std::string upload(MappedRegion&) = 0;                               // shared memory -> device
  virtual std::string poison(MappedRegion&, uint16_t pattern) = 0;             // device side only
  virtual std::string fetch(MappedRegion&) = 0;                                // device -> shared memory
  virtual std::string wait() = 0;                                              // whole device idle, no error left over
  virtual std::string flush(size_t bytes) = 0;                                 // evict L2
  virtual std::string start() = 0;
  virtual std::string stop(double& event_ms, double& host_ms, double& drain_ms) = 0;
  virtual std::string memory(uint64_t& free_bytes, uint64_t& total_bytes) = 0;
  virtual void* stream() = 0;
};

Device* host_device(bool heap_buffers);
Device* cuda_device(const std::string& runtime_library, const std::string& driver_library);

}  // namespace stitch::worker
