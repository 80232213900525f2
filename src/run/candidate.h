#pragma once
// What is known about a candidate before it runs: where its library is, that it is one, and that its manifest fits.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/bundle.h"
#include "run/worker.h"

namespace stitch::run {

// `path` is the .so itself or a program folder; a folder is searched for `program_host.so` (host target),
// `program_cuda.so` (cuda target), `program.so`, and the same names below build/. The host target falls back to
// program.so only when no program_host.so is there.
Result<std::filesystem::path> locate_library(const std::filesystem::path& path, bool cuda);

// An ELF shared library for this processor; a failure of kind not_elf otherwise.
std::optional<CandidateFailure> check_elf(const std::filesystem::path& library);

struct Manifest {
  std::string name, target, arch, precision;
  uint64_t workspace_bytes = 0;
  std::vector<std::string> tasks;
};

// Parses the manifest and compares inputs, weights and outputs (count, order, dtype, shape) with the bundle.
// A failure of kind `manifest` names the first difference.
Outcome<Manifest> check_manifest(const std::string& text, const ir::Bundle& bundle, bool cuda);

// Where CUDA's shared libraries are: the venv of data_home() (pip's nvidia/*/lib), LD_LIBRARY_PATH, the toolkit.
struct CudaLibraries {
  std::filesystem::path cudart;
  std::vector<std::filesystem::path> folders;
};
Result<CudaLibraries> find_cuda_libraries();

// A device node or driver that answers; the sentence to print when there is none.
bool gpu_present();
inline constexpr const char* kNoGpu = "No GPU was found, so no speed is claimed.";

}  // namespace stitch::run
