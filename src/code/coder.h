#pragma once
// The Coder turns a plan into sources: kernels.cu (all kernels, readable), program.cpp (candidate ABI, memory plan,
// host orchestration) and model_new.py (drop-in PyTorch module).

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/bundle.h"
#include "plan/plan.h"

namespace stitch::code {

// Code of one task, device and host parts, as the contract in skill.h says; it goes into kernels.cu. Made by a skill
// (built-in), an LLM or a person.
struct TaskSource {
  std::string task;       // Task::id
  std::string skill;      // which skill wrote it, "llm", "mailbox"
  std::string kernels;    // CUDA C++ device code and its launcher
  std::vector<std::string> headers;  // files of kernels/ that `kernels` uses: "attention.cuh"; kernels.cu includes each once
  bool uses_cublaslt = false, uses_cudnn = false;
  size_t scratch_bytes = 0;  // extra workspace of this task
};

struct SourceFile {
  std::string name;       // relative to the output folder
  std::string text;
};

struct Sources {
  std::vector<TaskSource> tasks;
  std::vector<SourceFile> files;          // kernels.cu, program.cpp, headers they include (under include/)
  std::vector<std::string> link_libs;     // "cublasLt", "cudnn" ... for the cuda target
  size_t workspace_bytes = 0;
};

struct CoderOptions {
  hw::PrecisionClass precision = hw::PrecisionClass::default_flags;
  std::string arch = "sm_90";
  bool generic_only = false;  // write every task with the generic skill: the fallback when a special one fails
};

// Writes into the plan which skill will write each task (skill.h), so that the plan says what happens. A task that already names one keeps it.
// Only writing tells: a skill may find out then that it cannot do the task, and the next one is tried.
Status choose_skills(const ir::Graph&, plan::Plan&, const CoderOptions&);

// The built-in Coder: each task by the skill that its plan names, else by the first that can; what no other takes goes to the generic generator, so
// that every valid plan becomes a running program. Deterministic: same plan, same bytes.
Result<Sources> code_builtin(const ir::Graph&, const plan::Plan&, const CoderOptions&);

// Libraries that a program.cpp needs at link time: what Sources::link_libs was when it was written.
std::vector<std::string> link_libs_of(std::string_view program_cpp);

// model_new.py for a program folder. `reference_source` is the text of the user's model file ("" when there is none: weights then come
// from the bundle); `program_folder` is where program.so will lie, for callers that run the file's text without its path.
Result<std::string> write_model_new(const ir::Bundle&, const std::string& reference_source, const std::string& program_folder);

}  // namespace stitch::code
