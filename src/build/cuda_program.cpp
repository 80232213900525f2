#include <algorithm>

#include "base/files.h"
#include "base/parallel.h"
#include "base/process.h"
#include "build/compiler.h"
#include "build/toolkit.h"

namespace stitch::build {
namespace {

// "sm_90" -> "-gencode=arch=compute_90,code=sm_90"; the long form keeps architecture-specific targets (sm_90a) from pulling in a plain pass.
std::string gencode(const std::string& arch) {
  const std::string number = arch.rfind("sm_", 0) == 0 ? arch.substr(3) : arch;
  return fmt::format("-gencode=arch=compute_{0},code=sm_{0}", number);
}

// Which build of a library or header this is, without reading hundreds of megabytes.
std::string version_of(const fs::path& file) {
  std::error_code ec;
  const auto size = fs::file_size(file, ec);
  const auto time = fs::last_write_time(file, ec).time_since_epoch().count();
  return ec ? "" : fmt::format("{} {} {}", file.string(), size, time);
}

// CUDA's headers are replaced in place when a package is updated.
std::vector<std::string> header_versions(const CudaToolkit& t) {
  std::vector<std::string> out{t.version};
  for (const fs::path& folder : t.include_dirs)
    for (const char* name : {"cuda_runtime_api.h", "cublasLt.h", "cudnn_version.h"})
      if (std::string v = version_of(folder / name); !v.empty()) out.push_back(std::move(v));
  return out;
}

std::string object_of(const std::string& source) { return "build/" + fs::path(source).stem().string() + (source.ends_with(".cu") ? ".o" : "_host.o"); }

Result<CompileStep> compile_step(const CudaProgram& p, const CudaToolkit& t, const std::string& source) {
  CompileStep s;
  s.working_folder = p.folder;
  s.inputs = {p.folder / source};
  s.folders = {p.folder / "include"};
  s.output = p.folder / object_of(source);
  s.versions = header_versions(t);
  if (source.ends_with(".cu")) {
    STITCH_TRY(const std::string host_compiler, compiler_identity("g++"));
    s.versions.push_back(host_compiler);
    s.name = fmt::format("{} ({})", source, p.arch);
    s.argv = {t.nvcc.empty() ? "nvcc" : t.nvcc.string(), gencode(p.arch), "-O3", "-std=c++20", "-Xcompiler", "-fPIC,-fvisibility=hidden", "--expt-relaxed-constexpr", "-diag-suppress=177"};
    if (p.line_info) s.argv.push_back("-lineinfo");
    s.argv.push_back("-Iinclude");
  } else {
    s.name = source;
    s.argv = {"g++", "-O2", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-Iinclude"};
    for (const fs::path& i : t.include_dirs) s.argv.push_back("-isystem" + i.string());
  }
  s.argv.insert(s.argv.end(), {"-c", source, "-o", "{out}"});
  return s;
}

// `for_reader`: a library that this machine lacks is left to the linker's own search.
Result<CompileStep> link_step(const CudaProgram& p, const CudaToolkit& t, bool for_reader = false) {
  CompileStep s;
  s.name = p.output.filename().string();
  s.working_folder = p.folder;
  s.output = p.output;
  s.argv = {"g++", "-shared", "-Wl,-z,defs", "-o", "{out}"};  // a missing symbol is found here, not when the program is loaded
  for (const std::string& source : p.sources) {
    s.argv.push_back(object_of(source));
    s.inputs.push_back(p.folder / object_of(source));
  }
  std::vector<std::string> libraries = p.link_libs;
  libraries.insert(libraries.begin(), "cudart");
  for (const std::string& name : libraries) {
    const fs::path library = find_library(t, name);
    if (library.empty() && for_reader) {
      s.argv.push_back("-l" + name);
      continue;
    }
    if (library.empty())
      return fail(ErrorKind::environment, "The CUDA library lib{} cannot be found; run make setup, or set CUDA_HOME to a toolkit that has it.", name);
    // By soname only: the loader finds the one that the process already uses (PyTorch's) or the toolkit's.
    s.argv.push_back(library.string());
    s.argv.push_back("-Wl,-rpath," + library.parent_path().string());
    s.versions.push_back(version_of(library));
  }
  return s;
}

CudaProgram absolute(CudaProgram p) {
  std::error_code ec;
  p.folder = fs::absolute(p.folder, ec);  // commands run in it
  p.output = fs::absolute(p.output, ec);
  return p;
}

}  // namespace

Result<std::vector<std::string>> by_hand(const CudaProgram& given) {
  const CudaProgram p = absolute(given);
  const CudaToolkit& t = find_cuda_toolkit();
  std::vector<std::string> lines{"mkdir -p build"};
  const auto add = [&](CompileStep step) {
    for (std::string& a : step.argv)
      if (a == "{out}") a = step.output.lexically_relative(p.folder).string();
    lines.push_back(to_command_line(step.argv));
  };
  for (const std::string& source : p.sources) {
    STITCH_TRY(CompileStep step, compile_step(p, t, source));
    add(std::move(step));
  }
  STITCH_TRY(CompileStep link, link_step(p, t, true));
  add(std::move(link));
  return lines;
}

Result<ProgramOutcome> build_cuda(const CudaProgram& given) {
  const CudaProgram p = absolute(given);
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
  std::vector<CompileStep> steps;
  for (const std::string& source : p.sources) {
    STITCH_TRY(CompileStep step, compile_step(p, t, source));
    steps.push_back(std::move(step));
  }
  for (auto& r : run_steps(steps, hardware_threads())) STITCH_CHECK_OK(take(std::move(r)));
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
