#pragma once
// The built-in Coder's skills, one function each; skills.cpp lists them in order of preference.

#include "code/skill.h"

namespace stitch::code {

Skill transpose_skill();
Skill pointwise_skill();
Skill reduction_skill();
Skill gemm_skill();
Skill convolution_skill();
Skill attention_skill();
Skill recurrent_skill();
Skill norm_skill();
Skill softmax_columns_skill();
Skill pool_skill();
Skill scan_skill();
Skill sort_skill();
Skill scatter_skill();
Skill generic_skill();

// The code of one task by the first skill that takes it. A skill that finds while writing that it cannot do the task
// answers `unsupported`, and the next one is tried.
Result<TaskSource> write_task(const TaskContext&);

}  // namespace stitch::code
