#pragma once
// Sentences for the reader of a plan: what a task fuses, and why it ends where it does.

#include <string>

#include "plan/fusion.h"

namespace stitch::plan {

// "linear f32[2,64,512] with gelu in its epilogue; 1 intermediate (262.1 kB) is never stored."
std::string what_is_fused(const ir::Graph&, const Task&);
// "Stops before softmax (t05): that kernel reads ..."; "" where there is nothing to say. `task_of`: id of the task of each node.
std::string why_it_stops(const ir::Graph&, const Task&, const Stop&, const std::vector<std::string>& task_of);

}  // namespace stitch::plan
