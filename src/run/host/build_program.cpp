#include "run/host/build_program.h"

#include <algorithm>

#include "base/files.h"
#include "base/parallel.h"
#include "run/host/translate.h"

namespace stitch::host {
namespace {

// A compiler command with its result's place left open, as the compile service wants it.
build::CompileStep to_step(const Command& command, std::vector<fs::path> folders) {
  build::CompileStep step;
  step.argv = command;
  for (size_t i = 0; i + 1 < step.argv.size(); ++i) {
    if (step.argv[i] == "-o") {
      step.output = step.argv[i + 1];
      step.argv[i + 1] = "{out}";
    } else if (step.argv[i] == "-c") {
      step.inputs.push_back(step.argv[i + 1]);
    }
  }
  step.folders = std::move(folders);
  step.name = step.inputs.empty() ? step.output.filename().string() : step.inputs.front().filename().string() + " (host)";
  return step;
}

Status take(build::ProgramOutcome& out, Result<build::StepOutcome> r) {
  if (!r) return tl::make_unexpected(r.error());
  if (!r->ok && out.summary.empty()) out.summary = r->summary;
  out.steps.push_back(std::move(*r));
  return {};
}

}  // namespace

Result<build::ProgramOutcome> build_program(const HostProgram& p) {
  build::ProgramOutcome out;
  const fs::path work = p.folder / "build/host";
  STITCH_CHECK_OK(make_folder(work));
  const auto translated = translate_files({p.folder / "kernels.cu", p.folder / "program.cpp"}, {p.folder / "include"}, work / "translated");
  if (!translated) {
    if (translated.error().kind == ErrorKind::environment) return tl::make_unexpected(translated.error());
    out.summary = translated.error().message;  // the source holds what the emulator cannot run
    return out;
  }
  HostCompileOptions options;
  options.sanitize = p.sanitize;
  options.optimize = 2;
  options.include_folders = {work / "translated", p.folder / "include"};
  options.runtime_cache = data_home() / "cache/emulator";
  const fs::path library = work / fmt::format("program{}.so", p.sanitize == Sanitize::none ? "" : p.sanitize == Sanitize::address ? "_asan" : "_race");
  STITCH_TRY(const HostBuild plan, plan_build(*translated, library, options));

  std::vector<build::CompileStep> steps;
  for (const Command& c : plan.compile) steps.push_back(to_step(c, {work / "translated", p.folder / "include", source_root() / "include/stitch/host"}));
  for (auto& r : build::run_steps(steps, hardware_threads())) {
    if (r) out.seconds = std::max(out.seconds, r->seconds);
    STITCH_CHECK_OK(take(out, std::move(r)));
  }
  if (!out.summary.empty()) return out;
  build::CompileStep link = to_step(plan.link, {});
  for (const std::string& argument : plan.link)
    if (argument.size() > 2 && argument.ends_with(".o")) link.inputs.push_back(argument);
  link.output = p.output;
  auto linked = build::run_step(link);
  if (linked) out.seconds += linked->seconds;
  STITCH_CHECK_OK(take(out, std::move(linked)));
  out.ok = out.summary.empty();
  out.cached = std::all_of(out.steps.begin(), out.steps.end(), [](const build::StepOutcome& s) { return s.cached; });
  return out;
}

}  // namespace stitch::host
