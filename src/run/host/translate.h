#pragma once
// CUDA C++ -> C++ for the host target: a source-to-source step on tokens that keeps every line where it was.
//
//   kernel<T><<<grid, block, smem, stream>>>(args)   ->  a launch object called with (args)
//   __shared__ T a[N], b;                            ->  auto& a = ..., auto& b = ... (storage of the running block)
//   extern __shared__ T s[];                         ->  auto* s = ... (the block's dynamic shared memory)
//
// Everything else is left to the stand-in headers in include/stitch/host.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace stitch::host {

// `file_name` is what compiler messages and fault reports call the source. Inline PTX is an error that names the line,
// unless it is inside #ifndef STITCH_HOST_EMULATOR or #ifdef __CUDA_ARCH__.
Result<std::string> translate(std::string_view cu_source, const std::string& file_name);

// Translates files and, recursively, every file they include that is found next to the includer or in `include_folders`
// (the stand-ins for CUDA's headers and system headers stay as they are). Writes the results into `output_folder` and
// returns the paths of the translated `files` in order; includes in them name the translated copies.
Result<std::vector<std::filesystem::path>> translate_files(const std::vector<std::filesystem::path>& files,
                                                           const std::vector<std::filesystem::path>& include_folders,
                                                           const std::filesystem::path& output_folder);

}  // namespace stitch::host
