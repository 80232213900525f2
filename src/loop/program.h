#pragma once
// From a captured bundle to the sources of a program, as functions over one output folder. `run` makes them steps of its state machine; a suite
// calls them for many problems.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "build/compiler.h"
#include "code/coder.h"
#include "ir/bundle.h"
#include "plan/plan.h"

namespace stitch::loop {

struct Planned {
  ir::Graph graph;  // as prepared: the plan's node numbers refer to this one
  plan::Plan plan;
};

// The built-in planner's plan with the skills that the built-in coder will use, checked, and written to OUT/plan.json.
Result<Planned> plan_program(const ir::Bundle&, const plan::PlanOptions&, const code::CoderOptions&, const std::filesystem::path& out);
// The plan that OUT/plan.json holds.
Result<Planned> load_plan(const ir::Bundle&, const std::filesystem::path& out);

struct Written {
  size_t lines = 0;                         // of kernels.cu and program.cpp
  size_t workspace_bytes = 0;
  int kernels = 0;                          // __global__ functions of kernels.cu; a task that calls one of kernels/ counts one, a vendor library's none
  std::map<std::string, int> tasks_by_skill;
  std::vector<std::string> link_libs;
};
// The built-in coder's kernels.cu (its head says how to build it), program.cpp, model_new.py and the headers they need, written to OUT. Replaces those
// of an earlier program.
Result<Written> write_program(const ir::Bundle&, const Planned&, const code::CoderOptions&, const std::filesystem::path& out);

// Builds the sources of a program folder, which someone may have edited: program.so with nvcc, or program_host.so for the CPU emulator.
Result<build::ProgramOutcome> build_folder(const std::filesystem::path&, bool cuda);

}  // namespace stitch::loop
