#include "ui/doctor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>

#include "base/files.h"
#include "base/json_full.h"
#include "base/parallel.h"
#include "base/process.h"
#include "base/terminal.h"
#include "build/toolkit.h"
#include "capture/capture.h"
#include "run/sandbox.h"

namespace stitch::ui {
namespace {

// First line that a program prints, "" if it cannot run.
std::string first_line(const std::vector<std::string>& argv) {
  ProcessSpec spec;
  spec.argv = argv;
  spec.timeout = std::chrono::seconds(60);
  const auto r = run_process(spec);
  if (!r || !r->ok()) return "";
  return r->out.substr(0, r->out.find('\n'));
}

Finding program(const char* name, std::vector<std::string> version_args, const char* lost, bool required = false) {
  Finding f{name, false, required, "", lost};
  const auto path = find_program(name);
  if (!path) {
    f.detail = "not on PATH";
    return f;
  }
  version_args.insert(version_args.begin(), *path);
  const std::string version = first_line(version_args);
  f.present = !version.empty();
  f.detail = f.present ? fmt::format("{} ({})", version, *path) : fmt::format("{} does not run", *path);
  return f;
}

Finding nvcc() {
  Finding f{"nvcc", false, false, "", "no build for the GPU; only --target host works"};
  const auto toolkit = build::find_cuda_toolkit();
  if (!toolkit.nvcc.empty()) {
    f.present = true;
    f.detail = fmt::format("{} ({})", toolkit.version, toolkit.nvcc.string());
  } else {
    const char* given = std::getenv("STITCHCUDA_NVCC");
    f.detail = given && *given ? fmt::format("STITCHCUDA_NVCC is {}, which is no program", given) : "not found on PATH, in CUDA_HOME, /usr/local/cuda or the Python environment; make setup installs it";
  }
  return f;
}

Finding cuda_library(const char* stem, const char* lost) {
  Finding f{stem, false, false, "", lost};
  for (const auto& folder : build::find_cuda_toolkit().library_dirs) {
    std::error_code ec;
    for (const auto& entry : fs::directory_iterator(folder, ec))
      if (entry.path().filename().string().rfind(std::string(stem) + ".so", 0) == 0) {
        f.present = true;
        f.detail = entry.path().string();
        return f;
      }
  }
  f.detail = "not found in the CUDA library folders";
  return f;
}

Finding gpu() {
  Finding f{"GPU", false, false, "", "no timing and no speed claim; programs are verified on the host target"};
  const std::string line = first_line({"nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"});
  if (!line.empty()) {
    f.present = true;
    f.detail = line;
  } else if (void* driver = dlopen("libcuda.so.1", RTLD_LAZY)) {
    f.detail = "the driver library is there, but no GPU answers";
    dlclose(driver);
  } else {
    f.detail = "no NVIDIA driver (libcuda.so.1)";
  }
  return f;
}

std::vector<Finding> python() {
  Finding py{"Python", false, false, "", "no capture from .py or .pt2; .stitch bundles still run"};
  Finding torch{"PyTorch", false, false, "", "no capture and no drop-in module; .stitch bundles still run"};
  const auto found = capture::find_python();
  if (!found) {
    py.detail = torch.detail = found.error().message;
    if (const auto plain = find_program("python3")) {
      py.present = true;
      py.detail = first_line({*plain, "--version"});
    }
    return {py, torch};
  }
  py.present = true;
  py.detail = fmt::format("{} ({})", first_line({*found, "--version"}), *found);
  const std::string version = first_line({*found, "-c", "import torch; print(torch.__version__)"});
  torch.present = !version.empty();
  torch.detail = torch.present ? version : "import torch fails; make setup installs it";
  return {py, torch};
}

Finding sandbox() {
  const run::SandboxLevel level = run::usable_sandbox();
  return {"sandbox", level != run::SandboxLevel::none, false, run::name_of(level), "candidates run with your rights: verify only code you trust"};
}

Finding disk() {
  Finding f{"disk space", false, false, "", "captures and builds stop with a clear message when the disk is full"};
  struct statvfs s {};
  fs::path folder = data_home();
  while (!fs::exists(folder) && folder.has_parent_path()) folder = folder.parent_path();
  if (statvfs(folder.c_str(), &s) == 0) {
    const uint64_t free = static_cast<uint64_t>(s.f_bavail) * s.f_frsize;
    f.present = free > (uint64_t{2} << 30);
    f.detail = fmt::format("{} free at {}", format_bytes(free), folder.string());
  }
  return f;
}

}  // namespace

std::vector<Finding> examine_machine() {
  std::vector<Finding> all{
      program("g++", {"--version"}, "nothing can be built", true),
      nvcc(),
      cuda_library("libcudart", "programs for the GPU cannot be linked"),
      cuda_library("libcublasLt", "matrix products of GPU programs cannot be linked"),
      cuda_library("libcudnn", "convolutions of GPU programs cannot be linked"),
      gpu(),
  };
  for (Finding& f : python()) all.push_back(std::move(f));
  all.push_back(sandbox());
  all.push_back(cuda_library("libcupti", "no kernel timeline and no provenance check on the GPU"));
  all.push_back(program("ncu", {"--version"}, "no hardware counters from Nsight Compute"));
  all.push_back(program("nsys", {"--version"}, "no Nsight Systems import; the built-in timeline is used"));
  all.push_back(program("compute-sanitizer", {"--version"}, "no memory checker on the GPU; the host target's checks remain"));
  all.push_back(program("addr2line", {"--version"}, "race reports of the host target have no line numbers"));
  all.push_back(program("ccache", {"--version"}, "repeated builds of stitchcuda itself are slower"));
  all.push_back({"SQLite", true, true, sqlite3_libversion(), "no run store"});
  all.push_back(disk());
  all.push_back({"CPU", true, true, fmt::format("{} cores", hardware_threads()), ""});
  return all;
}

Json to_json(const std::vector<Finding>& findings) {
  Json out = Json::array();
  for (const Finding& f : findings)
    out.push_back({{"name", f.name}, {"present", f.present}, {"required", f.required}, {"detail", f.detail}, {"lost_without", f.lost}});
  return out;
}

void print_findings(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& f : findings) width = std::max(width, f.name.size());
  for (const Finding& f : findings) {
    fmt::print("{}  {:<{}}  {}\n", f.present ? "yes" : "no ", f.name, width, f.detail);
    if (!f.present && !f.lost.empty()) fmt::print("     {:<{}}  without it: {}\n", "", width, f.lost);
  }
}

}  // namespace stitch::ui
