#pragma once
// Device descriptions: the measured ceilings that floors and plans are computed from.

#include <string>

#include "base/result.h"
#include "ir/graph.h"

namespace stitch::hw {

// Rates are sustained, measured values where `measured` says so, else data-sheet values.
struct Device {
  std::string name;                 // "NVIDIA H200"
  std::string arch;                 // "sm_90"
  int sm_count = 0;
  double dram_bytes_per_s = 0;      // read + written
  double l2_bytes = 0;
  double shared_bytes_per_block = 0;
  double fp32_flops = 0, tf32_flops = 0, fp16_flops = 0, bf16_flops = 0, fp64_flops = 0;
  double special_per_s = 0;         // exp, sqrt ... per second
  double launch_seconds = 0;        // one kernel in a stream of dependent kernels
  std::string measured;             // where the figures come from
};

// Built-in descriptions by name ("h200" is the default planning target); unknown -> bad_input listing the known ones.
Result<Device> find_device(std::string_view name);

enum class PrecisionClass { fp32, default_flags, tf32, bf16, fp16 };
Result<PrecisionClass> precision_class_from_name(std::string_view);  // "fp32", "default", "tf32", "bf16", "fp16"
std::string_view name_of(PrecisionClass);

// Work of one node: floating-point operations by unit, and the elements it touches. Source of each formula is in
// work.cpp beside it.
struct Work {
  double matrix_flops = 0;          // multiply-adds count two; may run on tensor cores
  bool convolution = false;         // matrix_flops belong to a convolution (TF32 allowed in class "default")
  double vector_flops = 0;
  double special_ops = 0;
};
Work work_of(const ir::Graph&, const ir::Node&);

// Roofline floor of a group of nodes executed as one kernel: max(bytes of its external inputs and outputs / bandwidth,
// arithmetic / peak of the unit it may use in this precision class). Seconds.
struct Floor {
  double seconds = 0, memory_seconds = 0, compute_seconds = 0;
  double bytes = 0, flops = 0;
  double matrix_flops = 0, matrix_seconds = 0, vector_flops = 0, vector_seconds = 0, special_ops = 0, special_seconds = 0;  // compute_seconds is the longest
  bool winograd = false;            // matrix_seconds counts 3x3 convolutions by Winograd
  const char* bound = "memory";     // "memory" or "compute"
};
Floor floor_of(const ir::Graph&, const std::vector<int32_t>& nodes, const Device&, PrecisionClass);
// The figures behind a floor in one sentence: "Largest of: 8.39 MB read and written / 4.38 TB/s = 1.92 us; ..."
std::string explain(const Floor&, const Device&);

}  // namespace stitch::hw
