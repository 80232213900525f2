#pragma once
// Builds a program folder (kernels.cu, program.cpp, include/) for the host target: translated, compiled with g++ against the CUDA
// emulator, linked into one library with the candidate ABI. Steps go through the compile service and its cache.

#include <filesystem>

#include "base/result.h"
#include "build/compiler.h"
#include "run/host/compile.h"

namespace stitch::host {

struct HostProgram {
  std::filesystem::path folder;
  std::filesystem::path output;   // program_host.so
  Sanitize sanitize = Sanitize::none;
};

Result<build::ProgramOutcome> build_program(const HostProgram&);

}  // namespace stitch::host
