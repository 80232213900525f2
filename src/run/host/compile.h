#pragma once
// g++ command lines that turn translated sources into a host-target program. Nothing is run here.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace stitch::host {

enum class Sanitize {
  none,     // fastest: correctness of results only
  address,  // AddressSanitizer (global, stack and shared memory), misaligned vectors, array indices, division by zero
  race,     // shared-memory races, races in global memory, reads of uninitialised shared memory
};

struct HostCompileOptions {
  Sanitize sanitize = Sanitize::none;
  std::vector<std::filesystem::path> include_folders;  // searched after the stand-ins for CUDA's headers
  std::vector<std::string> definitions;                // NAME or NAME=VALUE
  int optimize = 1;                                    // -O level of the candidate
  bool shared_library = true;                          // false: an executable with its own main
  std::filesystem::path include_root;                  // the checkout's include/; "" = source_root()/include
  // Where the compiled emulator runtime is kept between builds; "" = next to the output. It depends only on the
  // emulator's sources and `sanitize`, and takes several seconds to compile.
  std::filesystem::path runtime_cache;
};

using Command = std::vector<std::string>;

struct HostBuild {
  std::vector<Command> compile;  // independent of each other
  Command link;                  // to be run after all of `compile` have succeeded
  std::filesystem::path output;
};

// `sources` are translated files (see translate_files) and plain .cpp files; objects are written next to `output`.
Result<HostBuild> plan_build(const std::vector<std::filesystem::path>& sources, const std::filesystem::path& output,
                             const HostCompileOptions& options);

// Environment for the process that loads or runs the program. `report` receives one JSON object per fault. A shared
// library of the address flavour needs the sanitizer's runtime to be the first library of the process (LD_PRELOAD).
Result<std::map<std::string, std::string>> run_environment(Sanitize sanitize, const std::filesystem::path& report,
                                                           bool shared_library);

// Exit status of a process that the emulator or a sanitizer ended because of a fault of the candidate.
inline constexpr int kFaultExit = 86;

}  // namespace stitch::host
