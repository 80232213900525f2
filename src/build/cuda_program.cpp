#include <algorithm>

#include "base/files.h"
#include "base/parallel.h"
#include "build/compiler.h"
#include "build/toolkit.h"

namespace stitch::build {
namespace {

// "sm_90" -> "-gencode=arch=compute_90,code=sm_90"; the long form keeps architecture-specific targets (sm_90a) from pulling in a plain pass.
std::string gencode(const std::string& arch) {
  const std::string number = arch.rfind("sm_", 0) == 0 ? arch.substr(3) : arch;
  return fmt::format("-gencode=arch=compute_{0},code=sm_{0}", number);
}

CompileStep kernels_step(const CudaProgram& p, const CudaToolkit& t) {
  CompileStep s;
  s.name = fmt::format("kernels.cu ({})", p.arch);
  s.argv = {t.nvcc.string(), gencode(p.arch), "-O3", "-std=c++20", "-Xcompiler", "-fPIC,-fvisibility=hidden", "--expt-relaxed-constexpr",
            "-diag-suppress=177", "-I" + (p.folder / "include").string(), "-c", (p.folder / "kernels.cu").string(), "-o", "{out}"};
  if (p.line_info) s.argv.insert(s.argv.begin() + 2, "-lineinfo");
  s.inputs = {p.folder / "kernels.cu"};
  s.folders = {p.folder / "include"};
  s.output = p.folder / "build/kernels.o";
  return s;
}

CompileStep program_step(const CudaProgram& p, const CudaToolkit& t) {
  CompileStep s;
  s.name = "program.cpp";
  s.argv = {"g++", "-O2", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-I" + (p.folder / "include").string()};
  for (const fs::path& i : t.include_dirs) s.argv.push_back("-isystem" + i.string());
  s.argv.insert(s.argv.end(), {"-c", (p.folder / "program.cpp").string(), "-o", "{out}"});
  s.inputs = {p.folder / "program.cpp"};
  s.folders = {p.folder / "include"};
  s.output = p.folder / "build/program.o";
  return s;
}

Result<CompileStep> link_step(const CudaProgram& p, const CudaToolkit& t) {
  CompileStep s;
  s.name = "program.so";
  s.argv = {"g++", "-shared", "-o", "{out}", (p.folder / "build/kernels.o").string(), (p.folder / "build/program.o").string()};
  std::vector<std::string> libraries = p.link_libs;
  libraries.insert(libraries.begin(), "cudart");
  for (const std::string& name : libraries) {
    const fs::path library = find_library(t, name);
    if (library.empty())
      return fail(ErrorKind::environment, "The CUDA library lib{} cannot be found; run make setup, or set CUDA_HOME to a toolkit that has it.", name);
    // By soname only: the loader finds the one that the process already uses (PyTorch's) or the toolkit's.
    s.argv.push_back(library.string());
    s.argv.push_back("-Wl,-rpath," + library.parent_path().string());
  }
  s.inputs = {p.folder / "build/kernels.o", p.folder / "build/program.o"};
  s.output = p.output;
  return s;
}

}  // namespace

Result<ProgramOutcome> build_cuda(const CudaProgram& p) {
  const CudaToolkit& t = find_cuda_toolkit();
  if (t.nvcc.empty())
    return fail(ErrorKind::environment, "No CUDA compiler (nvcc) was found; run make setup to install it, or use --target host to do without.");
  ProgramOutcome out;
  const auto take = [&](Result<StepOutcome> r) -> Status {
    if (!r) return tl::make_unexpected(r.error());
    out.seconds = std::max(out.seconds, r->seconds);
    if (!r->ok && out.summary.empty()) out.summary = r->summary;
    out.steps.push_back(std::move(*r));
    return {};
  };
  for (auto& r : run_steps({kernels_step(p, t), program_step(p, t)}, hardware_threads())) STITCH_CHECK_OK(take(std::move(r)));
  if (!out.summary.empty()) return out;
  STITCH_TRY(const CompileStep link, link_step(p, t));
  const double compile_seconds = out.seconds;
  STITCH_CHECK_OK(take(run_step(link)));
  out.seconds = compile_seconds + out.steps.back().seconds;
  out.ok = out.summary.empty();
  out.cached = std::all_of(out.steps.begin(), out.steps.end(), [](const StepOutcome& s) { return s.cached; });
  return out;
}

}  // namespace stitch::build
