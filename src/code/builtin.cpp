// The built-in Coder: one skill per task, then the files of the program folder.
#include <algorithm>
#include <set>

#include "base/files.h"
#include "code/coder.h"
#include "code/literals.h"
#include "code/memory.h"
#include "code/program_writer.h"
#include "code/skill.h"
#include "code/skills/skills.h"

namespace stitch::code {
namespace {

std::string kernels_file(const plan::Plan& plan, const std::vector<TaskSource>& tasks) {
  std::set<std::string> headers{"pointwise.cuh"};
  for (const TaskSource& t : tasks) headers.insert(t.headers.begin(), t.headers.end());
  std::string out = fmt::format(
      "// {}: all kernels, task by task in execution order. Written by stitchcuda ({} planner, for {}).\n",
      comment_text(plan.program), comment_text(plan.planner), comment_text(plan.device));
  out += "#include \"tasks.h\"\n#include \"stitch/vendor.h\"\n";
  for (const std::string& h : headers) out += fmt::format("#include \"stitch/kernels/{}\"\n", h);
  out += "\nnamespace program {\n\nusing namespace stitch;\n\n";
  for (const TaskSource& t : tasks) out += t.kernels + "\n";
  return out + "}  // namespace program\n";
}

// Headers of the repository that the program includes, so that its folder builds anywhere.
Status copy_headers(std::vector<SourceFile>& files) {
  const fs::path root = source_root();
  std::error_code ec;
  const auto add = [&](const fs::path& folder, const std::string& prefix) -> Status {
    std::vector<fs::path> found;
    for (const auto& e : fs::directory_iterator(folder, ec))
      if (e.is_regular_file(ec) && (e.path().extension() == ".h" || e.path().extension() == ".cuh")) found.push_back(e.path());
    std::sort(found.begin(), found.end());
    for (const fs::path& f : found) {
      STITCH_TRY(std::string text, read_file(f));
      files.push_back({prefix + f.filename().string(), std::move(text)});
    }
    return {};
  };
  STITCH_CHECK_OK(add(root / "include/stitch", "include/stitch/"));
  const size_t before = files.size();
  STITCH_CHECK_OK(add(root / "kernels", "include/stitch/kernels/"));
  if (files.size() == before)
    return fail(ErrorKind::environment, "The kernel sources are missing below {}; set STITCHCUDA_ROOT to the checkout of stitchcuda.", root.string());
  return {};
}

}  // namespace

Status choose_skills(const ir::Graph& g, plan::Plan& plan, const CoderOptions& options) {
  for (plan::Task& t : plan.tasks) {
    if (t.kind == plan::TaskKind::alias) continue;
    STITCH_TRY(const TaskSource source, write_task({g, t, options.precision, options.generic_only}));
    t.skill = source.skill;
    if (t.skill == "generic" && t.nodes.size() > 1) t.why += " No special kernel takes these together: a kernel for each step.";
  }
  return {};
}

Result<Sources> code_builtin(const ir::Graph& g, const plan::Plan& plan, const CoderOptions& options) {
  Sources out;
  std::vector<size_t> scratch;
  for (const plan::Task& t : plan.tasks) {
    scratch.push_back(0);
    if (t.kind == plan::TaskKind::alias) continue;
    STITCH_TRY(TaskSource source, write_task({g, t, options.precision, options.generic_only}));
    scratch.back() = source.scratch_bytes;
    out.tasks.push_back(std::move(source));
  }
  const MemoryPlan memory = plan_memory(g, plan, scratch);
  out.workspace_bytes = memory.workspace_bytes;
  out.files.push_back({"kernels.cu", kernels_file(plan, out.tasks)});
  out.files.push_back({"program.cpp", write_program(g, plan, out.tasks, memory, options)});
  out.link_libs = link_libs_of(out.files.back().text);
  out.files.push_back({"include/tasks.h", write_task_header(g, plan, options.precision)});
  STITCH_CHECK_OK(copy_headers(out.files));
  return out;
}

}  // namespace stitch::code
