#pragma once
// A skill writes the code of one task. The registry (skills.cpp) lists skills in order of preference; the first that
// takes a task writes it. The generic generator is last and takes everything: for a task of several nodes that no other
// skill takes it emits one kernel per node in order, intermediates in scratch, so every plan that passes plan::check runs.
//
// Contract of the code of a task named t03_add_layer_norm, in kernels.cu, namespace program:
//
//   // why these nodes are fused, shapes, skill
//   stitch::Failure t03_add_layer_norm(const float* x, const float* ln_weight, float* out,
//                                      void* scratch, stitch::Vendor& vendor, cudaStream_t stream);
//
// Parameters are Task::inputs in order (const pointers), Task::outputs in order, then scratch (TaskSource::scratch_bytes,
// 256-byte aligned), the vendor libraries' handle holder, the stream. stitch::Failure is a const char*: nullptr on
// success, else one sentence (include/stitch/runtime.h). Every launch is followed by STITCH_CHECK_LAUNCH().
// The same text compiles with nvcc and, through the translator, with g++ for the host target: no inline PTX unless
// guarded by #ifdef __CUDA_ARCH__ with a plain alternative.

#include <string>
#include <vector>

#include "base/result.h"
#include "code/coder.h"
#include "ir/graph.h"
#include "plan/plan.h"

namespace stitch::code {

struct TaskContext {
  const ir::Graph& graph;
  const plan::Task& task;
  hw::PrecisionClass precision;
  bool generic_only = false;  // leave out the special skills, as long as the others can write the task
  // C identifier of the parameter that carries a value of Task::inputs or Task::outputs.
  std::string parameter(ir::ValueRef) const;
  // "stitch::Failure t03_x(const float* a, ..., cudaStream_t stream)" without body or semicolon.
  std::string signature() const;
};

// C++ element type in device code: "float", "__half", "__nv_bfloat16", "double", "int64_t", "bool" ...
std::string_view cpp_type(ir::DType);
// Type arithmetic is done in: float for f16/bf16/f32, double for f64, the type itself for integers.
std::string_view compute_type(ir::DType);

struct Skill {
  std::string_view name;
  bool (*takes)(const TaskContext&);
  Result<TaskSource> (*write)(const TaskContext&);
  bool special = false;  // calls a vendor library or a kernel of kernels/ made for one op
};

// In order of preference; defined in skills.cpp, which is the one list of all skills.
const std::vector<Skill>& skills();

}  // namespace stitch::code
