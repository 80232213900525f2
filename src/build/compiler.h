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
  std::string message;      // a missing symbol or library is named in plain words; template errors say what asked for them
  std::string source_line;  // text of that line, "" if the file cannot be read
};

// One command that makes one file. The command must write exactly `output`; "{out}" in argv is replaced by the place.
//
// The cache key is the compiler (path and version), argv, `versions`, the content of `inputs` and `folders`, and the
// environment variables that compilers read. `working_folder` is not part of it: a step whose argv is relative to that
// folder is found again when the same files lie elsewhere.
struct CompileStep {
  std::string name;                             // for messages: "kernels.cu (sm_90)"
  std::vector<std::string> argv;
  std::vector<std::filesystem::path> inputs;    // files whose content decides the result
  std::vector<std::filesystem::path> folders;   // include folders of our own: all files in them count as inputs
  std::filesystem::path output;
  std::chrono::seconds timeout{300};
  std::filesystem::path working_folder = {};    // "" = current
  std::vector<std::string> versions = {};       // of tools and libraries that argv does not tell
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

// Error only when a step cannot be run at all (compiler missing, disk full, out of memory). A failing compile is an
// outcome. The same step in several threads or processes is compiled once: the others wait and take it from the cache.
Result<StepOutcome> run_step(const CompileStep&);
std::vector<Result<StepOutcome>> run_steps(const std::vector<CompileStep>&, int parallel);

// Errors first. Relative file names in the log are looked up in `folder`.
std::vector<Diagnostic> parse_diagnostics(const std::string& log, const std::filesystem::path& folder = {});

// "g++" -> its path and version text, asked once per process.
Result<std::string> compiler_identity(const std::string& program);

// The cache: data_home()/cache/build, at most this many bytes, least recently used entries go first.
struct CacheLimits {
  uint64_t bytes = uint64_t{2} << 30;
};
void trim_cache(const CacheLimits&);

// A program folder (its sources and include/) for the GPU.
struct CudaProgram {
  std::filesystem::path folder;
  std::filesystem::path output;          // program.so
  std::string arch = "sm_90";
  std::vector<std::string> link_libs;    // "cublasLt", "cudnn"
  bool line_info = true;
  // In `folder`; .cu files go through nvcc, others through g++ (which is faster), side by side.
  std::vector<std::string> sources = {"kernels.cu", "program.cpp"};
};

struct ProgramOutcome {
  bool ok = false;
  bool cached = false;
  double seconds = 0;
  std::vector<StepOutcome> steps;
  std::string summary;                   // one sentence with the first error, "" when ok
};

// All sources side by side, then the link. No nvcc: environment error that says how to get it.
Result<ProgramOutcome> build_cuda(const CudaProgram&);
// The shell lines that do the same in its folder, with the toolkit of this machine; what it lacks goes by its plain name.
Result<std::vector<std::string>> by_hand(const CudaProgram&);

}  // namespace stitch::build
