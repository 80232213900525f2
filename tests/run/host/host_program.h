#pragma once
// Test helper: translate CUDA source, build it for the host target, run it. Compiled runtimes are kept between test
// processes (every TEST is a process of its own) in the build folder, keyed by content.

#include <gtest/gtest.h>

#include <string>

#include "base/files.h"
#include "base/process.h"
#include "run/host/compile.h"
#include "run/host/translate.h"

namespace stitch::host::testing {

struct Built {
  fs::path program;
  std::string problem;  // "" = built
};

inline fs::path repository() { return fs::path(STITCH_SOURCE_ROOT); }
inline fs::path runtime_cache() { return fs::read_symlink("/proc/self/exe").parent_path() / "host_test_runtime"; }
inline auto lock_runtime_cache() { return FileLock::acquire(runtime_cache() / ".lock"); }

inline Built build(const fs::path& folder, const std::string& source, Sanitize sanitize) {
  if (auto s = write_file(folder / "program.cu", source); !s) return {{}, s.error().message};
  auto translated = translate_files({folder / "program.cu"}, {}, folder / "translated");
  if (!translated) return {{}, translated.error().message};
  HostCompileOptions options;
  options.sanitize = sanitize;
  options.shared_library = false;
  options.include_root = repository() / "include";
  options.runtime_cache = runtime_cache();
  auto lock = lock_runtime_cache();
  auto plan = plan_build(*translated, folder / "program", options);
  if (!plan) return {{}, plan.error().message};
  std::vector<Command> commands = plan->compile;
  commands.push_back(plan->link);
  for (const Command& command : commands) {
    ProcessSpec spec;
    spec.argv = command;
    auto result = run_process(spec);
    if (!result) return {{}, result.error().message};
    if (!result->ok()) return {{}, to_command_line(command) + "\n" + result->err};
  }
  return {plan->output, ""};
}

struct RunOutcome {
  ProcessResult process;
  fs::path report;
};

inline RunOutcome run(const Built& built, Sanitize sanitize, std::vector<std::string> arguments = {}) {
  RunOutcome out;
  out.report = built.program.parent_path() / ("report_" + (arguments.empty() ? "" : arguments[0]) + ".jsonl");
  ProcessSpec spec;
  spec.argv = {built.program.string()};
  spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
  spec.timeout = std::chrono::seconds(60);
  auto environment = run_environment(sanitize, out.report, false);
  if (environment) spec.environment = *environment;
  auto result = run_process(spec);
  EXPECT_TRUE(result.has_value());
  if (result) out.process = *result;
  return out;
}

}  // namespace stitch::host::testing
