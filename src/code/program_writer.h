#pragma once
// Writes program.cpp: tables of tensors, one launch per task, and the includes that turn them into the candidate ABI.

#include <string>
#include <vector>

#include "code/coder.h"
#include "code/memory.h"

namespace stitch::code {

std::string write_program(const ir::Graph&, const plan::Plan&, const std::vector<TaskSource>&, const MemoryPlan&, const CoderOptions&);
// Declarations of the tasks' launchers, for program.cpp.
std::string write_task_header(const ir::Graph&, const plan::Plan&, hw::PrecisionClass);

}  // namespace stitch::code
