#pragma once
// The compile service: runs compiler steps in parallel, keeps every result in a content-addressed cache, and turns compiler output into
// diagnostics a reader (or an agent) can act on.

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace stitch::build {

struct Diagnostic {
  std::string file;
  int line = 0, column = 0;
  std::string severity;     // "error", "warning", "fatal error"
  std::string message;
  std::string source_line;  // text of that line, "" if the file cannot be read
};

// One command that makes one file. The command must write exactly `output`; "{out}" in argv is replaced by the place.
struct CompileStep {
  std::string name;                             // for messages: "kernels.cu (sm_90)"
  std::vector<std::string> argv;
  std::vector<std::filesystem::path> inputs;    // files whose content decides the result, headers found by -MMD excepted
  std::vector<std::filesystem::path> folders;   // include folders of our own: all files in them count as inputs
  std::filesystem::path output;
  std::chrono::seconds timeout{300};
};

struct StepOutcome {
  bool ok = false;
  bool cached = false;
  double seconds = 0;
  std::vector<Diagnostic> diagnostics;  // errors first
  std::string log;                      // everything the compiler said
  // One sentence with the first error, "" when ok.
  std::string summary;
};

// Error only when a step cannot be run at all (compiler missing, disk full). A failing compile is an outcome.
Result<StepOutcome> run_step(const CompileStep&);
std::vector<Result<StepOutcome>> run_steps(const std::vector<CompileStep>&, int parallel);

std::vector<Diagnostic> parse_diagnostics(const std::string& log);

// The cache: data_home()/cache/build, at most this many bytes, oldest entries go first.
struct CacheLimits {
  uint64_t bytes = uint64_t{2} << 30;
};
void trim_cache(const CacheLimits&);

// A program folder (kernels.cu, program.cpp, include/) for the GPU.
struct CudaProgram {
  std::filesystem::path folder;
  std::filesystem::path output;          // program.so
  std::string arch = "sm_90";
  std::vector<std::string> link_libs;    // "cublasLt", "cudnn"
  bool line_info = true;
};

struct ProgramOutcome {
  bool ok = false;
  bool cached = false;
  double seconds = 0;
  std::vector<StepOutcome> steps;
  std::string summary;                   // one sentence with the first error, "" when ok
};

// kernels.cu by nvcc and program.cpp by g++ side by side, then the link. No nvcc: environment error that says how to get it.
Result<ProgramOutcome> build_cuda(const CudaProgram&);

}  // namespace stitch::build
