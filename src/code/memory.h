#pragma once
// Where every value lives. Values that tasks hand to each other get an offset in the workspace by lifetime; views share
// the storage of what they view; a program output is written in place by the task that makes it whenever it can be.

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "plan/plan.h"

namespace stitch::code {

// A piece of workspace needed from step `first` to step `last`, both inclusive (steps are task indices).
struct Lifetime {
  size_t bytes = 0;
  int first = 0, last = 0;
};

struct Packing {
  std::vector<size_t> offsets;  // per lifetime, 256-byte aligned
  size_t total = 0;
};

// Best fit, largest first: two pieces whose lifetimes share a step never overlap. Deterministic.
Packing pack(const std::vector<Lifetime>& pieces);

struct Place {
  enum class Kind { input, weight, output, workspace } kind = Kind::workspace;
  size_t index = 0;   // of the input, weight or output
  size_t offset = 0;  // in the workspace
};

// An output that no task writes itself: a copy of an input, a weight or another output, after the last task.
struct OutputCopy {
  size_t output = 0;
  Place from;
  size_t bytes = 0;
};

struct MemoryPlan {
  std::unordered_map<ir::ValueRef, Place> places;  // of every value that crosses a task boundary
  std::vector<size_t> scratch_offsets;             // per task; meaningful where scratch_bytes > 0
  std::vector<OutputCopy> copies;
  size_t workspace_bytes = 0;
};

// scratch_bytes: per task of the plan.
MemoryPlan plan_memory(const ir::Graph&, const plan::Plan&, const std::vector<size_t>& scratch_bytes);

}  // namespace stitch::code
