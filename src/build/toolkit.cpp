#include "build/toolkit.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/files.h"
#include "base/process.h"

namespace stitch::build {
namespace {

// Newest version first: cuda-13.0 before cuda-9.2, libcudnn.so.10 before libcudnn.so.9.
std::vector<fs::path> children(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (auto it = fs::directory_iterator(folder, ec); !ec && it != fs::directory_iterator(); it.increment(ec))
    if (it->path().filename().string().rfind(prefix, 0) == 0) out.push_back(it->path());
  std::sort(out.begin(), out.end(), [](const fs::path& a, const fs::path& b) { return strverscmp(a.c_str(), b.c_str()) > 0; });
  return out;
}

// site-packages/nvidia of the Python environment in use, empty if there is none.
fs::path pip_packages() {
  std::vector<fs::path> prefixes{data_home() / "venv"};
  if (const char* python = std::getenv("STITCHCUDA_PYTHON"); python && *python) prefixes.insert(prefixes.begin(), fs::path(python).parent_path().parent_path());
  for (const fs::path& prefix : prefixes)
    for (const fs::path& python : children(prefix / "lib", "python3"))
      if (std::error_code ec; fs::is_directory(python / "site-packages/nvidia", ec)) return python / "site-packages/nvidia";
  return {};
}

fs::path find_nvcc(const fs::path& pip) {
  if (const char* given = std::getenv("STITCHCUDA_NVCC"); given && *given) {
    const auto path = find_program(given);
    return path ? fs::path(*path) : fs::path();
  }
  std::vector<fs::path> candidates;
  if (const auto on_path = find_program("nvcc")) candidates.push_back(*on_path);
  if (const char* home = std::getenv("CUDA_HOME"); home && *home) candidates.push_back(fs::path(home) / "bin/nvcc");
  candidates.push_back("/usr/local/cuda/bin/nvcc");
  for (const fs::path& p : children("/usr/local", "cuda-")) candidates.push_back(p / "bin/nvcc");
  if (!pip.empty())
    for (const fs::path& p : children(pip, "cu")) candidates.push_back(p / "bin/nvcc");
  for (const fs::path& c : candidates)
    if (find_program(c.string())) return c;
  return {};
}

// "release 13.0, V13.0.88" -> "13.0"
std::string version_of(const fs::path& nvcc) {
  ProcessSpec spec;
  spec.argv = {nvcc.string(), "--version"};
  spec.timeout = std::chrono::seconds(30);
  const auto r = run_process(spec);
  if (!r || !r->ok()) return "";
  const size_t at = r->out.find("release ");
  return at == std::string::npos ? "" : r->out.substr(at + 8, r->out.find(',', at) - at - 8);
}

void add(std::vector<fs::path>& list, const fs::path& folder) {
  std::error_code ec;
  if (fs::is_directory(folder, ec) && std::find(list.begin(), list.end(), folder) == list.end()) list.push_back(folder);
}

CudaToolkit look() {
  CudaToolkit t;
  const fs::path pip = pip_packages();
  t.nvcc = find_nvcc(pip);
  std::vector<fs::path> roots;
  if (!t.nvcc.empty()) {
    std::error_code ec;
    t.version = version_of(t.nvcc);
    t.root = fs::canonical(t.nvcc, ec).parent_path().parent_path();
    roots.push_back(t.root);
  }
  if (!pip.empty())
    for (const fs::path& p : children(pip, "")) roots.push_back(p);  // cu13, cudnn, ...
  for (const fs::path& r : roots) {
    add(t.include_dirs, r / "include");
    add(t.library_dirs, r / "lib64");
    add(t.library_dirs, r / "lib");
  }
  return t;
}

}  // namespace

const CudaToolkit& find_cuda_toolkit() {
  static const CudaToolkit toolkit = look();
  return toolkit;
}

fs::path find_library(const CudaToolkit& t, const std::string& stem) {
  const std::string name = "lib" + stem + ".so";
  for (const fs::path& folder : t.library_dirs) {
    if (std::error_code ec; fs::exists(folder / name, ec)) return folder / name;
    const std::vector<fs::path> numbered = children(folder, name + ".");
    if (!numbered.empty()) return numbered.front();
  }
  return {};
}

}  // namespace stitch::build
