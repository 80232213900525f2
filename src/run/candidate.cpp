#include "run/candidate.h"

#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/files.h"
#include "base/json_full.h"
#include "build/toolkit.h"

namespace stitch::run {
namespace {

tl::unexpected<CandidateFailure> mismatch(std::string sentence) {
  return tl::make_unexpected(CandidateFailure{FailureKind::manifest, std::move(sentence), {}});
}

// The declared tensors against the bundle's; "" when they agree.
std::string compare_tensors(const Json& manifest, const char* key, const std::vector<ir::TensorInfo>& wanted) {
  const auto list = manifest.find(key);
  if (list == manifest.end() || !list->is_array()) return fmt::format("The candidate's manifest has no list \"{}\".", key);
  if (list->size() != wanted.size())
    return fmt::format("The candidate's manifest has {} {}; the program has {}.", list->size(), key, wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Json& t = (*list)[i];
    const auto& w = wanted[i];
    if (!t.is_object() || !t.contains("dtype") || !t["dtype"].is_string() || !t.contains("shape") || !t["shape"].is_array())
      return fmt::format("Entry {} of \"{}\" in the candidate's manifest lacks dtype or shape.", i, key);
    ir::TensorType type;
    const auto dtype = ir::dtype_from_name(t["dtype"].get<std::string>());
    for (const auto& extent : t["shape"])
      type.shape.push_back(extent.is_number_integer() ? extent.get<int64_t>() : -1);
    type.dtype = dtype.value_or(w.type.dtype);
    if (!dtype || type != w.type)
      return fmt::format("The candidate declares {} {} ({}) as {}{}; the program has {}.", key, i, w.name,
                         t["dtype"].get<std::string>(), ir::to_string(type.shape), ir::to_string(w.type));
  }
  return "";
}

std::vector<ir::TensorInfo> output_infos(const ir::Bundle& bundle) {
  std::vector<ir::TensorInfo> out;
  for (const auto& o : bundle.graph.outputs) out.push_back({o.name, bundle.graph.type_of(o.value), {}});
  return out;
}

}  // namespace

Result<std::filesystem::path> locate_library(const std::filesystem::path& path, bool cuda) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return path;
  if (!fs::is_directory(path, ignored))
    return fail(ErrorKind::bad_input, "There is no candidate at {}; give a program folder or a .so file.", path.string());
  const char* own = cuda ? "program_cuda.so" : "program_host.so";
  for (const char* name : {own, "program.so"})
    for (const auto& folder : {path, path / "build", path / "lib"})
      if (fs::is_regular_file(folder / name, ignored)) return folder / name;
  return fail(ErrorKind::candidate, "The candidate folder {} holds no {} or program.so; build it first.", path.string(), own);
}

std::optional<CandidateFailure> check_elf(const std::filesystem::path& library) {
  auto bad = [&](std::string why) {
    return CandidateFailure{FailureKind::not_elf, fmt::format("{} is not a shared library for this machine: {}.",
                                                              library.filename().string(), why), {}};
  };
  std::ifstream file(library, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (file.gcount() < static_cast<std::streamsize>(sizeof header)) return bad("it is too short");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return bad("it is not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return bad("it is not 64-bit");
  if (header.e_type != ET_DYN) return bad("it is not a shared object");
#if defined(__x86_64__)
  if (header.e_machine != EM_X86_64) return bad("it was built for another processor");
#elif defined(__aarch64__)
  if (header.e_machine != EM_AARCH64) return bad("it was built for another processor");
#endif
  return std::nullopt;
}

Outcome<Manifest> check_manifest(const std::string& text, const ir::Bundle& bundle, bool cuda) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return mismatch("The candidate's manifest is not a JSON object.");
  auto string_at = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  Manifest m{string_at("name"), string_at("target"), string_at("arch"), string_at("precision"), 0, {}};
  const std::string wanted = cuda ? "cuda" : "host";
  if (m.target != wanted)
    return mismatch(fmt::format("The candidate was built for target \"{}\"; this run needs \"{}\".", m.target, wanted));
  for (auto [key, list] : {std::pair<const char*, std::vector<ir::TensorInfo>>{"inputs", bundle.inputs},
                           {"weights", bundle.weights}, {"outputs", output_infos(bundle)}})
    if (auto difference = compare_tensors(json, key, list); !difference.empty()) return mismatch(difference);
  if (const auto it = json.find("workspace_bytes"); it != json.end() && it->is_number_unsigned())
    m.workspace_bytes = it->get<uint64_t>();
  if (const auto it = json.find("tasks"); it != json.end() && it->is_array())
    for (const auto& task : *it)
      if (task.is_object() && task.contains("name") && task["name"].is_string()) m.tasks.push_back(task["name"].get<std::string>());
  return m;
}

Result<CudaLibraries> find_cuda_libraries() {
  CudaLibraries found;
  std::error_code ignored;
  auto add = [&](const fs::path& folder) {
    if (!fs::is_directory(folder, ignored)) return;
    if (std::find(found.folders.begin(), found.folders.end(), folder) != found.folders.end()) return;
    found.folders.push_back(folder);
    if (!found.cudart.empty()) return;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().filename().string().starts_with("libcudart.so")) {
        found.cudart = entry.path();
        break;
      }
  };
  if (const char* environment = std::getenv("STITCHCUDA_CUDA_LIBRARIES")) {
    std::istringstream parts(environment);
    for (std::string folder; std::getline(parts, folder, ':');) add(folder);
  }
  for (const auto& folder : build::find_cuda_toolkit().library_dirs) add(folder);
  for (const auto& lib : {data_home() / "venv" / "lib"})
    for (const auto& python : fs::directory_iterator(lib, ignored))
      for (const auto& package : fs::directory_iterator(python.path() / "site-packages" / "nvidia", ignored))
        add(package.path() / "lib");
  if (const char* environment = std::getenv("LD_LIBRARY_PATH")) {
    std::istringstream parts(environment);
    for (std::string folder; std::getline(parts, folder, ':');)
      if (!folder.empty()) add(folder);
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable)) add(fs::path(root) / "lib64");
  for (const char* folder : {"/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/local/nvidia/lib64",
                             "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu"})
    add(folder);
  if (found.cudart.empty())
    return fail(ErrorKind::environment,
                "libcudart was not found; install the CUDA runtime (stitchcuda setup) or set STITCHCUDA_CUDA_LIBRARIES.");
  return found;
}

bool gpu_present() {
  std::error_code ignored;
  if (!fs::exists("/dev/nvidiactl", ignored) && !fs::exists("/dev/dxg", ignored)) return false;
  for (const auto& entry : fs::directory_iterator("/dev", ignored)) {
    const auto name = entry.path().filename().string();
    if (name == "dxg" || (name.size() > 6 && name.starts_with("nvidia") && std::isdigit(static_cast<unsigned char>(name[6])))) return true;
  }
  return false;
}

}  // namespace stitch::run
