#pragma once
// Types that a generated program.cpp uses for its tables, and the CUDA graph cache behind stitch_run.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "stitch/dlpack_min.h"
#include "stitch/runtime.h"

namespace program {

#ifdef STITCH_HOST_EMULATOR
inline constexpr int kDevice = kDLCPU;
#else
inline constexpr int kDevice = 2;  // kDLCUDA; its name changed between DLPack versions
#endif

struct TensorSpec {
  const char* name;
  uint8_t code, bits;      // DLPack type
  int rank;
  int64_t shape[12];
  constexpr int64_t elements() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= shape[d];
    return n;
  }
};

template <size_t N>
constexpr const TensorSpec* specs_of(const TensorSpec (&specs)[N]) { return specs; }
inline constexpr const TensorSpec* specs_of(std::nullptr_t) { return nullptr; }

// Where everything is during one run.
struct Memory {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  const void* const* weights = nullptr;
  char* workspace = nullptr;

  template <class T> const T* input(int i) const { return static_cast<const T*>(inputs[static_cast<size_t>(i)]); }
  template <class T> const T* weight(int i) const { return static_cast<const T*>(weights[i]); }
  template <class T> T* output(int i) const { return static_cast<T*>(outputs[static_cast<size_t>(i)]); }
  template <class T> T* at(size_t offset) const { return reinterpret_cast<T*>(workspace + offset); }
};

}  // namespace program

#ifndef STITCH_HOST_EMULATOR
namespace program_detail {

// Replays a run as one graph. The first run with a set of pointers launches task by task (libraries choose algorithms and allocate
// then, which a capture forbids); the second records; later ones replay. STITCH_NO_GRAPH=1 switches it off.
class GraphCache {
 public:
  ~GraphCache() {
    for (Entry& e : entries_)
      if (e.exec) cudaGraphExecDestroy(e.exec);
    if (stream_) cudaStreamDestroy(stream_);
  }

  template <class Launch>
  stitch::Failure run(const program::Memory& m, cudaStream_t stream, Launch&& launch) {
    static const bool off = std::getenv("STITCH_NO_GRAPH") != nullptr;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    STITCH_TRY_CUDA(cudaStreamIsCapturing(stream, &status));
    if (off || status != cudaStreamCaptureStatusNone) return launch(stream);  // the caller records us: be recorded
    Entry& e = find(m);
    if (!e.exec && !e.refused && e.runs++ > 0) STITCH_TRY_FAILURE(record(e, launch));
    if (!e.exec) return launch(stream);
    STITCH_TRY_CUDA(cudaGraphLaunch(e.exec, stream));
    return nullptr;
  }

 private:
  struct Entry {
    std::vector<const void*> key;
    cudaGraphExec_t exec = nullptr;
    int runs = 0;
    bool refused = false;
    uint64_t used = 0;
  };
  static constexpr size_t kMost = 32;

  Entry& find(const program::Memory& m) {
    std::vector<const void*> key(m.inputs.begin(), m.inputs.end());
    key.insert(key.end(), m.outputs.begin(), m.outputs.end());
    key.push_back(m.workspace);
    Entry* oldest = nullptr;
    for (Entry& e : entries_) {
      if (e.key == key) {
        e.used = ++clock_;
        return e;
      }
      if (!oldest || e.used < oldest->used) oldest = &e;
    }
    if (entries_.size() < kMost) {
      entries_.emplace_back();
      oldest = &entries_.back();
    } else if (oldest->exec) {
      cudaGraphExecDestroy(oldest->exec);
    }
    *oldest = Entry{std::move(key)};
    oldest->used = ++clock_;
    return *oldest;
  }

  template <class Launch>
  stitch::Failure record(Entry& e, Launch& launch) {
    if (!stream_) STITCH_TRY_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    cudaGraph_t graph = nullptr;
    STITCH_TRY_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    const stitch::Failure failed = launch(stream_);
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    if (failed || ended != cudaSuccess) {  // something in the program cannot be recorded: launch it task by task
      cudaGetLastError();
      e.refused = true;
      if (graph) cudaGraphDestroy(graph);
      return nullptr;
    }
    const cudaError_t made = cudaGraphInstantiate(&e.exec, graph, 0);
    cudaGraphDestroy(graph);
    if (made != cudaSuccess) {
      cudaGetLastError();
      e.exec = nullptr;
      e.refused = true;
    }
    return nullptr;
  }

  std::vector<Entry> entries_;
  cudaStream_t stream_ = nullptr;
  uint64_t clock_ = 0;
};

}  // namespace program_detail
#endif
