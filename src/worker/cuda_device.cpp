// CUDA target. The runtime library is opened at run time, so that the worker starts on a machine without CUDA and
// shares the primary context with whatever runtime the candidate was linked to.
#include <dlfcn.h>

#include <chrono>
#include <cstring>

#include "worker/worker.h"

namespace stitch::worker {
namespace {

using Error = int;
using Stream = void*;
using Event = void*;
constexpr int kHostToDevice = 1, kDeviceToHost = 2;
constexpr int kAttributeL2 = 38;           // cudaDevAttrL2CacheSize
constexpr unsigned kNonBlocking = 1;       // cudaStreamNonBlocking

struct Runtime {
  Error (*Malloc)(void**, size_t);
  Error (*Memset)(void*, int, size_t);
  Error (*Memcpy)(void*, const void*, size_t, int);
  Error (*StreamCreateWithFlags)(Stream*, unsigned);
  Error (*EventCreate)(Event*);
  Error (*EventRecord)(Event, Stream);
  Error (*EventSynchronize)(Event);
  Error (*EventElapsedTime)(float*, Event, Event);
  Error (*DeviceSynchronize)();
  Error (*GetLastError)();
  const char* (*GetErrorString)(Error);
  Error (*DeviceGetAttribute)(int*, int, int);
  Error (*MemGetInfo)(size_t*, size_t*);
  Error (*CtxResetPersistingL2Cache)();
  Error (*MemsetAsync)(void*, int, size_t, Stream);
};

// The driver's calls for memory that another process has allocated (cuMem*: CUDA driver API, virtual memory management).
struct Driver {
  int (*Import)(unsigned long long*, void*, int);
  int (*Reserve)(unsigned long long*, size_t, size_t, unsigned long long, unsigned long long);
  int (*Map)(unsigned long long, size_t, size_t, unsigned long long, unsigned long long);
  int (*SetAccess)(unsigned long long, size_t, const void*, size_t);
};
struct Access {          // CUmemAccessDesc
  int location_type = 1; // a device
  int device = 0;
  int flags = 3;         // read and write
};
constexpr int kPosixDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

double milliseconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t).count();
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::string library, std::string driver) : library_(std::move(library)), driver_(std::move(driver)) {}

  std::string open(std::string& name, double& l2_bytes) override {
    void* handle = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return std::string("The CUDA runtime could not be loaded: ") + dlerror();
    std::string missing;
    auto symbol = [&](auto& slot, const char* symbol_name) {
      slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(dlsym(handle, symbol_name));
      if (!slot) missing = symbol_name;
    };
    symbol(cuda_.Malloc, "cudaMalloc");
    symbol(cuda_.Memset, "cudaMemset");
    symbol(cuda_.Memcpy, "cudaMemcpy");
    symbol(cuda_.StreamCreateWithFlags, "cudaStreamCreateWithFlags");
    symbol(cuda_.EventCreate, "cudaEventCreate");
    symbol(cuda_.EventRecord, "cudaEventRecord");
    symbol(cuda_.EventSynchronize, "cudaEventSynchronize");
    symbol(cuda_.EventElapsedTime, "cudaEventElapsedTime");
    symbol(cuda_.DeviceSynchronize, "cudaDeviceSynchronize");
    symbol(cuda_.GetLastError, "cudaGetLastError");
    symbol(cuda_.GetErrorString, "cudaGetErrorString");
    symbol(cuda_.DeviceGetAttribute, "cudaDeviceGetAttribute");
    symbol(cuda_.MemGetInfo, "cudaMemGetInfo");
    symbol(cuda_.CtxResetPersistingL2Cache, "cudaCtxResetPersistingL2Cache");
    symbol(cuda_.MemsetAsync, "cudaMemsetAsync");
    if (!missing.empty()) return "The CUDA runtime lacks " + missing + ".";
    if (auto e = check(cuda_.StreamCreateWithFlags(&stream_, kNonBlocking), "cudaStreamCreate"); !e.empty()) return e;
    if (auto e = check(cuda_.EventCreate(&begin_), "cudaEventCreate"); !e.empty()) return e;
    if (auto e = check(cuda_.EventCreate(&end_), "cudaEventCreate"); !e.empty()) return e;
    int l2 = 0;
    if (auto e = check(cuda_.DeviceGetAttribute(&l2, kAttributeL2, 0), "cudaDeviceGetAttribute"); !e.empty()) return e;
    l2_bytes = l2;
    name = device_name();
    return "";
  }

  std::string place(MappedRegion& region) override {
    for (auto& t : region.tensors) {
      t.tensor.device = {static_cast<DLDeviceType>(2), 0};
      // A red zone of one page on both sides; cudaMalloc aligns to 256 bytes at least.
      char* memory = nullptr;
      const size_t padded = (t.bytes + 255) / 256 * 256;
      if (auto e = check(cuda_.Malloc(reinterpret_cast<void**>(&memory), padded + 2 * run::kPage), "cudaMalloc"); !e.empty())
        return e;
      if (auto e = check(cuda_.Memset(memory, 0xFF, padded + 2 * run::kPage), "cudaMemset"); !e.empty()) return e;
      t.tensor.data = memory + run::kPage;
    }
    return upload(region);
  }
  std::string attach(MappedRegion& region, int fd) override {
    if (auto e = load_driver(); !e.empty()) return e;
    unsigned long long handle = 0, address = 0;
    const Access access;
    // The order matters, and a failure of any means that the memory cannot be used.
    if (int e = cu_.Import(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kPosixDescriptor)) return failure("cuMemImportFromShareableHandle", e);
    if (int e = cu_.Reserve(&address, region.bytes, 0, 0, 0)) return failure("cuMemAddressReserve", e);
    if (int e = cu_.Map(address, region.bytes, 0, handle, 0)) return failure("cuMemMap", e);
    if (int e = cu_.SetAccess(address, region.bytes, &access, 1)) return failure("cuMemSetAccess", e);
    region.base = reinterpret_cast<char*>(address);
    for (auto& t : region.tensors) t.tensor.device = {static_cast<DLDeviceType>(2), 0};
    return "";
  }
  std::string upload(MappedRegion& region) override {
    if (region.attached) return "";
    for (auto& t : region.tensors)
      if (t.bytes)
        if (auto e = check(cuda_.Memcpy(t.tensor.data, t.shared, t.bytes, kHostToDevice), "upload"); !e.empty()) return e;
    return "";
  }
  std::string poison(MappedRegion& region, uint16_t pattern) override {
    if (region.attached) return "";
    // Both bytes of either pattern make a NaN (0xFF) or a finite value (0x5A) when repeated.
    const int byte = pattern == run::kPoisonNan ? 0xFF : 0x5A;
    for (auto& t : region.tensors)
      if (t.bytes)
        if (auto e = check(cuda_.Memset(t.tensor.data, byte, t.bytes), "poison"); !e.empty()) return e;
    return "";
  }
  std::string fetch(MappedRegion& region) override {
    if (region.attached) return "";
    std::vector<unsigned char> zone(run::kPage);
    for (auto& t : region.tensors) {
      if (t.bytes)
        if (auto e = check(cuda_.Memcpy(t.shared, t.tensor.data, t.bytes, kDeviceToHost), "download"); !e.empty()) return e;
      const size_t padded = (t.bytes + 255) / 256 * 256;
      char* data = static_cast<char*>(t.tensor.data);
      for (auto [at, bytes] : {std::pair<char*, size_t>{data - run::kPage, run::kPage},
                               std::pair<char*, size_t>{data + t.bytes, padded - t.bytes + run::kPage}}) {
        zone.resize(bytes);
        if (auto e = check(cuda_.Memcpy(zone.data(), at, bytes, kDeviceToHost), "red zone"); !e.empty()) return e;
        for (size_t i = 0; i < bytes; ++i)
          if (zone[i] != 0xFF) {  // carried over into the shared red zone, where the parent looks
            char* shared = static_cast<char*>(t.shared);
            char* mark = at < data ? shared - 1 : shared + t.bytes;
            *mark = 0;  // not a byte of the pattern
            break;
          }
      }
    }
    return "";
  }
  std::string wait() override {
    if (auto e = check(cuda_.DeviceSynchronize(), "The device reported"); !e.empty()) return e;
    return check(cuda_.GetLastError(), "A launch was refused");
  }
  std::string flush(size_t bytes) override {
    if (bytes > flush_bytes_) {
      if (auto e = check(cuda_.Malloc(&flush_, bytes), "cudaMalloc"); !e.empty()) return e;
      flush_bytes_ = bytes;
    }
    // A candidate may have pinned lines with an access-policy window; they would survive the sweep below.
    if (cuda_.CtxResetPersistingL2Cache() != 0) cuda_.GetLastError();
    if (bytes)
      if (auto e = check(cuda_.MemsetAsync(flush_, ++flush_value_ & 0x7f, bytes, stream_), "flush"); !e.empty()) return e;
    return wait();
  }
  std::string start() override {
    if (auto e = check(cuda_.EventRecord(begin_, stream_), "cudaEventRecord"); !e.empty()) return e;
    started_ = std::chrono::steady_clock::now();
    return "";
  }
  std::string stop(double& event_ms, double& host_ms, double& drain_ms) override {
    if (auto e = check(cuda_.EventRecord(end_, stream_), "cudaEventRecord"); !e.empty()) return e;
    if (auto e = check(cuda_.EventSynchronize(end_), "The device reported"); !e.empty()) return e;
    host_ms = milliseconds_since(started_);
    // Work that was not joined back to the stream is still running now.
    const auto drained = std::chrono::steady_clock::now();
    if (auto e = wait(); !e.empty()) return e;
    drain_ms = milliseconds_since(drained);
    float elapsed = 0;
    if (auto e = check(cuda_.EventElapsedTime(&elapsed, begin_, end_), "cudaEventElapsedTime"); !e.empty()) return e;
    event_ms = elapsed;
    return "";
  }
  std::string memory(uint64_t& free_bytes, uint64_t& total_bytes) override {
    size_t f = 0, t = 0;
    auto e = check(cuda_.MemGetInfo(&f, &t), "cudaMemGetInfo");
    free_bytes = f;
    total_bytes = t;
    return e;
  }
  void* stream() override { return stream_; }

 private:
  std::string check(Error error, const char* what) const {
    return error == 0 ? "" : std::string(what) + ": " + cuda_.GetErrorString(error);
  }
  static std::string failure(const char* what, int code) { return std::string(what) + ": CUDA driver error " + std::to_string(code); }
  std::string load_driver() {
    if (cu_.SetAccess) return "";
    void* handle = dlopen(driver_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return std::string("The CUDA driver could not be loaded: ") + dlerror();
    auto symbol = [&](auto& slot, const char* symbol_name) {
      slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(dlsym(handle, symbol_name));
      return slot != nullptr;
    };
    const bool all = symbol(cu_.Import, "cuMemImportFromShareableHandle") && symbol(cu_.Reserve, "cuMemAddressReserve") && symbol(cu_.Map, "cuMemMap") &&
                     symbol(cu_.SetAccess, "cuMemSetAccess");
    return all ? "" : "The CUDA driver is too old to share memory between processes.";
  }
  // The driver knows the name; cudaDeviceProp changes its layout between releases.
  static std::string device_name() {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    auto get = driver ? reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName")) : nullptr;
    char text[256] = "unknown CUDA device";
    if (get) get(text, sizeof text, 0);
    return text;
  }

  std::string library_, driver_;
  Runtime cuda_{};
  Driver cu_{};
  Stream stream_ = nullptr;
  Event begin_ = nullptr, end_ = nullptr;
  void* flush_ = nullptr;
  size_t flush_bytes_ = 0;
  int flush_value_ = 0;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace

Device* cuda_device(const std::string& runtime_library, const std::string& driver_library) { return new CudaDevice(runtime_library, driver_library); }

}  // namespace stitch::worker
