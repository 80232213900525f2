#pragma once
// The candidate ABI (stitch/abi.h) on top of what a generated program.cpp defines before it includes this file:
//
//   constexpr const char* kManifest;                  JSON text
//   constexpr TensorSpec kInputs[], kWeights[], kOutputs[];
//   constexpr int kTaskCount;  constexpr size_t kWorkspaceBytes;  constexpr bool kUseGraph;
//   Failure run_task(int task, const Memory&, Vendor&, cudaStream_t);   launches one task
//   Failure finish(const Memory&, cudaStream_t);                        copies outputs that no task writes
//
// A program is replayed as one CUDA graph from its second run with the same pointers on.

#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "stitch/abi.h"
#include "stitch/program.h"
#include "stitch/runtime_impl.h"
#include "stitch/vendor_impl.h"

namespace program {

template <size_t N>
constexpr int count_of(const TensorSpec (&)[N]) { return static_cast<int>(N); }
inline constexpr int count_of(std::nullptr_t) { return 0; }

inline thread_local char creation_error[512] = "";

}  // namespace program

struct stitch_program {
  stitch::Vendor vendor;
  std::vector<const void*> weights;
  char* workspace = nullptr;
  size_t workspace_bytes = 0;
  mutable char error[512] = "";
#ifndef STITCH_HOST_EMULATOR
  program_detail::GraphCache graphs;
#endif
};

namespace program {

using stitch::Failure;

// Writes "what: reason" where stitch_last_error finds it; returns 1.
inline int report(const ::stitch_program* p, const char* what, const char* reason) {
  std::snprintf(p->error, sizeof p->error, "%s%s%s", what, *what ? ": " : "", reason);
  return 1;
}

// "" or what is wrong with one tensor.
inline const char* check_tensor(const DLTensor* t, const TensorSpec& s, char* text, size_t size) {
  if (!t || (!t->data && s.elements() > 0)) return std::snprintf(text, size, "tensor \"%s\" is null", s.name), text;
  if (t->device.device_type != kDevice) return std::snprintf(text, size, "tensor \"%s\" is on another device than the program", s.name), text;
  if (t->dtype.code != s.code || t->dtype.bits != s.bits || t->dtype.lanes != 1)
    return std::snprintf(text, size, "tensor \"%s\" has the wrong element type", s.name), text;
  if (t->ndim != s.rank) return std::snprintf(text, size, "tensor \"%s\" has rank %d, but the program needs %d", s.name, t->ndim, s.rank), text;
  int64_t stride = 1;
  for (int d = s.rank - 1; d >= 0; --d) {
    if (t->shape[d] != s.shape[d])
      return std::snprintf(text, size, "tensor \"%s\" has extent %lld in dim %d, but the program needs %lld", s.name, static_cast<long long>(t->shape[d]), d,
                           static_cast<long long>(s.shape[d])),
             text;
    if (t->strides && s.shape[d] != 1 && s.elements() > 0 && t->strides[d] != stride) return std::snprintf(text, size, "tensor \"%s\" is not contiguous", s.name), text;
    stride *= s.shape[d];
  }
  return "";
}

inline const char* check_tensors(const DLTensor* const* tensors, const TensorSpec* specs, int count, char* text, size_t size) {
  if (count > 0 && !tensors) return std::snprintf(text, size, "no tensors were given"), text;
  for (int i = 0; i < count; ++i)
    if (const char* wrong = check_tensor(tensors[i], specs[i], text, size); *wrong) return wrong;
  return "";
}

inline void* pointer(const DLTensor* t) { return static_cast<char*>(t->data) + t->byte_offset; }

// Checks the arguments of a run and collects the pointers. nullptr or a sentence.
inline const char* gather(const ::stitch_program* p, const DLTensor* const* inputs, const DLTensor* const* outputs, Memory& m, char* text, size_t size) {
  if (kWorkspaceBytes > 0 && !p->workspace) return "the workspace is not set; call stitch_set_workspace first";
  if (const char* wrong = check_tensors(inputs, specs_of(kInputs), count_of(kInputs), text, size); *wrong) return wrong;
  if (const char* wrong = check_tensors(outputs, specs_of(kOutputs), count_of(kOutputs), text, size); *wrong) return wrong;
  for (int i = 0; i < count_of(kInputs); ++i) m.inputs.push_back(pointer(inputs[i]));
  for (int i = 0; i < count_of(kOutputs); ++i) m.outputs.push_back(pointer(outputs[i]));
  m.weights = p->weights.data();
  m.workspace = p->workspace;
  return nullptr;
}

inline Failure run_all(::stitch_program* p, const Memory& m, cudaStream_t stream) {
  for (int t = 0; t < kTaskCount; ++t)
    if (Failure f = run_task(t, m, p->vendor, stream)) return f;
  return finish(m, stream);
}

}  // namespace program

extern "C" {

int stitch_abi_version(void) { return STITCH_ABI_VERSION; }

const char* stitch_manifest(void) { return program::kManifest; }

stitch_program* stitch_create(const DLTensor* const* weights, int32_t weight_count, void*) {
  using namespace program;
  char* error = creation_error;
  constexpr size_t size = sizeof creation_error;
  if (weight_count != count_of(kWeights))
    return std::snprintf(error, size, "the program takes %d weights, but %d were given", count_of(kWeights), weight_count), nullptr;
  if (const char* wrong = check_tensors(weights, specs_of(kWeights), count_of(kWeights), error, size); *wrong) return nullptr;
  auto* p = new (std::nothrow) ::stitch_program;
  if (!p) return std::snprintf(error, size, "out of memory"), nullptr;
  for (int i = 0; i < weight_count; ++i) p->weights.push_back(pointer(weights[i]));
  return p;
}

size_t stitch_workspace_bytes(const stitch_program*) { return program::kWorkspaceBytes; }

int stitch_set_workspace(stitch_program* p, void* memory, size_t bytes) {
  if (bytes < program::kWorkspaceBytes) return program::report(p, "", "the workspace is smaller than stitch_workspace_bytes");
  if (reinterpret_cast<uintptr_t>(memory) % 256 != 0) return program::report(p, "", "the workspace is not aligned to 256 bytes");
  p->workspace = static_cast<char*>(memory);
  p->workspace_bytes = bytes;
  return 0;
}

int stitch_run(stitch_program* p, const DLTensor* const* inputs, const DLTensor* const* outputs, void* stream_pointer) {
  using namespace program;
  Memory m;
  char text[400];
  if (const char* wrong = gather(p, inputs, outputs, m, text, sizeof text)) return report(p, "", wrong);
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
#ifndef STITCH_HOST_EMULATOR
  if (kUseGraph) {
    if (stitch::Failure f = p->graphs.run(m, stream, [&](cudaStream_t s) { return run_all(p, m, s); })) return report(p, "stitch_run", f);
    return 0;
  }
#endif
  if (stitch::Failure f = run_all(p, m, stream)) return report(p, "stitch_run", f);
  return 0;
}

int stitch_run_task(stitch_program* p, int32_t task, const DLTensor* const* inputs, const DLTensor* const* outputs, void* stream) {
  using namespace program;
  Memory m;
  char text[400];
  if (task < 0 || task >= kTaskCount) return report(p, "", "there is no such task");
  if (const char* wrong = gather(p, inputs, outputs, m, text, sizeof text)) return report(p, "", wrong);
  if (stitch::Failure f = run_task(task, m, p->vendor, static_cast<cudaStream_t>(stream))) return report(p, "stitch_run_task", f);
  return 0;
}

const char* stitch_last_error(const stitch_program* p) { return p ? p->error : program::creation_error; }

void stitch_destroy(stitch_program* p) { delete p; }

}  // extern "C"
