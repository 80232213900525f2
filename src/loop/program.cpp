#include "loop/program.h"

#include <algorithm>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "plan/prepare.h"

namespace stitch::loop {
namespace {

int count_of(std::string_view text, std::string_view word) {
  int n = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) ++n;
  return n;
}

}  // namespace

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
  for (const code::SourceFile& f : sources.files) {
    STITCH_CHECK_OK(write_file(out / f.name, f.text));
    if (f.name == "kernels.cu" || f.name == "program.cpp") w.lines += static_cast<size_t>(std::count(f.text.begin(), f.text.end(), '\n'));
  }
  STITCH_CHECK_OK(write_file(out / "model_new.py", model));
  return w;
}

}  // namespace stitch::loop
