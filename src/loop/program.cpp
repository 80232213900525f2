#include "loop/program.h"

#include <algorithm>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "code/literals.h"
#include "plan/prepare.h"
#include "run/host/build_program.h"

namespace stitch::loop {
namespace {

int count_of(std::string_view text, std::string_view word) {
  int n = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) ++n;
  return n;
}

// How to build the program, as a comment for the head of kernels.cu.
Result<std::string> how_to_build(const fs::path& out, const std::vector<std::string>& link_libs) {
  STITCH_TRY(const auto lines, build::by_hand({out, out / "program.so", "sm_90", link_libs}));
  std::string text = "// Built in this folder by `stitchcuda build .`, or by hand:\n";
  for (const std::string& line : lines) text += fmt::format("//   {}\n", code::comment_text(line, 1 << 16));
  return text + "// For the CPU emulator, which needs its translator:\n//   stitchcuda build . --target host\n";
}

}  // namespace

Result<build::ProgramOutcome> build_folder(const fs::path& folder, bool cuda) {
  for (const char* name : {"kernels.cu", "program.cpp", "include"})
    if (std::error_code ec; !fs::exists(folder / name, ec))
      return fail(ErrorKind::bad_input, "{} has no {}; give a folder that stitchcuda run has written.", folder.string(), name);
  if (!cuda) return host::build_program({folder, folder / "program_host.so"});
  STITCH_TRY(const std::string text, read_file(folder / "program.cpp"));
  return build::build_cuda({folder, folder / "program.so", "sm_90", code::link_libs_of(text)});
}

Result<Planned> plan_program(const ir::Bundle& bundle, const plan::PlanOptions& options, const code::CoderOptions& coder, const fs::path& out) {
  Planned p;
  STITCH_TRY(p.graph, plan::prepare(bundle.graph));
  STITCH_TRY(p.plan, plan::plan_builtin(p.graph, bundle.name, options));
  STITCH_CHECK_OK(plan::check(p.graph, p.plan));
  STITCH_CHECK_OK(code::choose_skills(p.graph, p.plan, coder));
  STITCH_CHECK_OK(write_file(out / "plan.json", dump(plan::to_json(p.graph, p.plan), 1) + "\n"));
  return p;
}

Result<Planned> load_plan(const ir::Bundle& bundle, const fs::path& out) {
  Planned p;
  STITCH_TRY(p.graph, plan::prepare(bundle.graph));
  STITCH_TRY(const std::string text, read_file(out / "plan.json"));
  STITCH_TRY(const Json j, parse_json(text, "plan.json"));
  STITCH_TRY(p.plan, plan::from_json(p.graph, j));
  return p;
}

Result<Written> write_program(const ir::Bundle& bundle, const Planned& p, const code::CoderOptions& options, const fs::path& out) {
  STITCH_TRY(const code::Sources sources, code::code_builtin(p.graph, p.plan, options));
  std::string reference;
  if (!bundle.origin.file.empty()) reference = read_file(bundle.origin.file).value_or("");
  STITCH_TRY(const std::string model, code::write_model_new(bundle, reference, out.string()));
  remove_tree(out / "include");
  Written w;
  w.workspace_bytes = sources.workspace_bytes;
  w.link_libs = sources.link_libs;
  for (const code::TaskSource& t : sources.tasks) {
    ++w.tasks_by_skill[t.skill];
    const int own = count_of(t.kernels, "__global__");
    w.kernels += own ? own : t.uses_cublaslt || t.uses_cudnn ? 0 : 1;
  }
  STITCH_TRY(const std::string building, how_to_build(out, sources.link_libs));
  for (const code::SourceFile& f : sources.files) {
    std::string text = f.text;
    if (f.name == "kernels.cu") text.insert(text.find('\n') + 1, building);
    STITCH_CHECK_OK(write_file(out / f.name, text));
    if (f.name == "kernels.cu" || f.name == "program.cpp") w.lines += static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  STITCH_CHECK_OK(write_file(out / "model_new.py", model));
  return w;
}

}  // namespace stitch::loop
