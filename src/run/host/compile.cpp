#include "run/host/compile.h"

#include <algorithm>

#include "base/files.h"
#include "base/hash.h"
#include "base/process.h"

namespace stitch::host {
namespace {

const char* name_of(Sanitize s) { return s == Sanitize::address ? "address" : s == Sanitize::race ? "race" : "none"; }

// F16C makes half conversions one instruction. The program runs on the machine that builds it.
std::vector<std::string> target_flags() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {"-march=x86-64-v3", "-ffp-contract=off"};
#endif
  return {"-ffp-contract=off"};
}

Command common(const HostCompileOptions& o, const fs::path& include_root) {
  Command c = {"g++", "-std=gnu++20", "-g1", "-fPIC", "-pthread", "-DSTITCH_HOST_EMULATOR=1", "-I", (include_root / "stitch/host").string(), "-I",
               include_root.string()};
  for (const std::string& flag : target_flags()) c.push_back(flag);
  if (o.sanitize == Sanitize::address) {
    c.insert(c.end(), {"-fsanitize=address,alignment,bounds,integer-divide-by-zero", "-fno-sanitize-recover=all",
                       "-fno-omit-frame-pointer", "-fno-sanitize=vptr"});
  }
  if (o.sanitize == Sanitize::race) c.push_back("-DSTITCH_EMU_RACE=1");
  return c;
}

// Hash of everything that the runtime object depends on, so that a cached one is never stale.
Result<std::string> runtime_key(const fs::path& folder, const Command& command) {
  std::vector<fs::path> files;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder / "emu", problem)) files.push_back(entry.path());
  if (files.empty()) return fail(ErrorKind::environment, "the emulator's headers are missing: no files in {}", folder.string());
  files.push_back(folder / "emu_runtime.cpp");
  std::sort(files.begin(), files.end());
  std::string all = to_command_line(command);
  for (const fs::path& file : files) {
    STITCH_TRY(const std::string text, read_file(file));
    all += text;
  }
  return sha256_hex(all).substr(0, 16);
}

}  // namespace

Result<HostBuild> plan_build(const std::vector<fs::path>& sources, const fs::path& output, const HostCompileOptions& options) {
  if (sources.empty()) return fail(ErrorKind::bad_input, "nothing to compile for the host target");
  const fs::path include_root = options.include_root.empty() ? source_root() / "include" : options.include_root;
  HostBuild build;
  build.output = output;

  const Command base = common(options, include_root);
  Command runtime = base;
  runtime.insert(runtime.end(), {"-O2", "-fvisibility=hidden", "-Wall", "-Wextra"});
  STITCH_TRY(const std::string key, runtime_key(include_root / "stitch/host", runtime));
  const fs::path cache = options.runtime_cache.empty() ? output.parent_path() : options.runtime_cache;
  STITCH_CHECK_OK(make_folder(cache));
  const fs::path runtime_object = cache / fmt::format("emu_runtime_{}_{}.o", name_of(options.sanitize), key);
  if (!fs::exists(runtime_object)) {
    runtime.insert(runtime.end(), {"-c", (include_root / "stitch/host/emu_runtime.cpp").string(), "-o", runtime_object.string()});
    build.compile.push_back(runtime);
  }

  std::vector<std::string> objects;
  for (size_t i = 0; i < sources.size(); ++i) {
    Command c = base;
    c.push_back(fmt::format("-O{}", options.optimize));
    // CUDA code leans on things g++ warns about; the candidate's warnings are nvcc's business.
    c.insert(c.end(), {"-w", "-fno-strict-aliasing", "-fwrapv"});
    if (options.sanitize == Sanitize::race)
      c.insert(c.end(), {"-include", (include_root / "stitch/host/emu/race_prefix.h").string(), "-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0",
                         "--param", "tsan-distinguish-volatile=1"});
    for (const fs::path& folder : options.include_folders) c.insert(c.end(), {"-I", folder.string()});
    for (const std::string& d : options.definitions) c.push_back("-D" + d);
    objects.push_back((output.parent_path() / fmt::format("{}_{}.o", output.stem().string(), i)).string());
    c.insert(c.end(), {"-x", "c++", "-c", sources[i].string(), "-o", objects.back()});
    build.compile.push_back(std::move(c));
  }

  build.link = {"g++", "-pthread", "-g1"};
  if (options.shared_library) build.link.insert(build.link.end(), {"-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs"});
  if (options.sanitize == Sanitize::address) {
    build.link.push_back("-fsanitize=address");
    if (options.shared_library) std::erase(build.link, "-Wl,-z,defs");  // the sanitizer's symbols come from the process
  }
  build.link.insert(build.link.end(), objects.begin(), objects.end());
  build.link.insert(build.link.end(), {runtime_object.string(), "-ldl", "-o", output.string()});
  return build;
}

Result<std::map<std::string, std::string>> run_environment(Sanitize sanitize, const fs::path& report, bool shared_library) {
  std::map<std::string, std::string> environment;
  if (!report.empty()) environment["STITCH_HOST_REPORT"] = report.string();
  if (sanitize != Sanitize::address) return environment;
  environment["ASAN_OPTIONS"] = fmt::format(
      "exitcode={}:detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1:halt_on_error=1:"
      "alloc_dealloc_mismatch=0:detect_odr_violation=0", kFaultExit);
  if (shared_library) {
    ProcessSpec ask;
    ask.argv = {"g++", "-print-file-name=libasan.so"};
    STITCH_TRY(const ProcessResult answer, run_process(ask));
    const std::string path = answer.out.substr(0, answer.out.find('\n'));
    if (!answer.ok() || path.find('/') == std::string::npos)
      return fail(ErrorKind::environment, "g++ has no AddressSanitizer runtime (libasan.so); install libasan");
    environment["LD_PRELOAD"] = path;
  }
  return environment;
}

}  // namespace stitch::host
