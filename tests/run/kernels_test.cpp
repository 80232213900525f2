// The kernel library (kernels/*.cuh) and the host Vendor, run by the CUDA emulator; and the same sources through nvcc.
#include <gmock/gmock.h>

#include "build/toolkit.h"
#include "run/host/host_program.h"

namespace stitch::host {
namespace {

namespace fs = std::filesystem;
using testing::run;

// Translates and builds tests/run/kernels/all.cu.
testing::Built build_all(const fs::path& folder, Sanitize sanitize) {
  const fs::path root = testing::repository();
  auto translated = translate_files({root / "tests/run/kernels/all.cu"}, {root / "kernels", root / "include"}, folder / "translated");
  if (!translated) return {{}, translated.error().message};
  HostCompileOptions options;
  options.sanitize = sanitize;
  options.shared_library = false;
  options.include_root = root / "include";
  options.include_folders = {root / "kernels", root / "tests/run/kernels"};
  options.runtime_cache = testing::runtime_cache();
  auto lock = testing::lock_runtime_cache();
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

TEST(Kernels, AgreeWithTheirDefinitions) {
  auto folder = TempFolder::create("kernels");
  ASSERT_TRUE(folder.has_value());
  const testing::Built built = build_all(folder->path(), Sanitize::none);
  ASSERT_EQ(built.problem, "");
  const auto outcome = run(built, Sanitize::none);
  EXPECT_TRUE(outcome.process.ok()) << outcome.process.out << outcome.process.err;
  EXPECT_THAT(outcome.process.out, ::testing::HasSubstr("all passed"));
}

TEST(Kernels, CompileForTheDevice) {
  const build::CudaToolkit& toolkit = build::find_cuda_toolkit();
  if (toolkit.nvcc.empty()) GTEST_SKIP() << "no nvcc on this machine";
  auto folder = TempFolder::create("kernels");
  ASSERT_TRUE(folder.has_value());
  const fs::path root = testing::repository();
  ProcessSpec spec;
  // Front end and code generation without ptxas' optimiser: a compile check, four times faster than -O3.
  spec.argv = std::vector<std::string>{toolkit.nvcc.string(), "-std=c++20", "-arch=sm_90", "-Xptxas", "-O0", "--expt-relaxed-constexpr",
               std::string("-I") + (root / "include").string(), "-I" + (root / "kernels").string(), "-c", (root / "tests/run/kernels/all.cu").string(),
               "-o", (folder->path() / "all.o").string()};
  for (const fs::path& include : toolkit.include_dirs) spec.argv.push_back("-I" + include.string());
  auto result = run_process(spec);
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->ok()) << result->err;
}

}  // namespace
}  // namespace stitch::host
