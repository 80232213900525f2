// Reading faults back, translating included files, and the shared-library form of a program.

#include "run/host/report.h"

#include <gmock/gmock.h>

#include "run/host/host_program.h"

namespace stitch::host::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSanitizerText = R"(some output
=================================================================
==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x611 at pc 0x55 bp 0x7f sp 0x7f
WRITE of size 4 at 0x611 thread T0
    #0 0x55d in operator()<float> /opt/include/stitch/host/emu/core.h:12
    #1 0x55e in scale(float*, int) /home/u/k.cu:31:7
    #2 0x55f in main /home/u/k.cu:99

0x611 is located 0 bytes to the right of 400-byte region [0x60f,0x611)
allocated by thread T0 here:
    #0 0x7f in malloc /other.cpp:3
)";

TEST(Report, ReadsSanitizerText) {
  auto faults = read_faults("", kSanitizerText);
  ASSERT_TRUE(faults.has_value());
  ASSERT_EQ(faults->size(), 1u);
  EXPECT_EQ(to_string(faults->front()),
            "/home/u/k.cu:31: out_of_bounds: WRITE of size 4, heap-buffer-overflow, 0 bytes to the right of 400-byte region");
}

TEST(Report, JoinsThreadWithSanitizerText) {
  auto folder = TempFolder::create("host_report");
  ASSERT_TRUE(folder && write_file(folder->path() / "r.jsonl",
                                   R"({"kind":"address_sanitizer","message":"m","kernel":"scale","block":[1,0,0],"thread":[5,2,0]})" "\n"));
  auto faults = read_faults(folder->path() / "r.jsonl", kSanitizerText);
  ASSERT_TRUE(faults.has_value());
  ASSERT_EQ(faults->size(), 1u);
  EXPECT_THAT(to_string(faults->front()), HasSubstr("[scale, block 1,0,0, thread 5,2,0]"));
}

TEST(Report, NothingFound) {
  auto faults = read_faults("/nonexistent/report", "all is well\n");
  ASSERT_TRUE(faults.has_value());
  EXPECT_TRUE(faults->empty());
}

TEST(Report, DamagedReportIsAnError) {
  auto folder = TempFolder::create("host_report");
  ASSERT_TRUE(folder && write_file(folder->path() / "r.jsonl", "{\"kind\":\n"));
  auto faults = read_faults(folder->path() / "r.jsonl", "");
  ASSERT_FALSE(faults.has_value());
  EXPECT_THAT(faults.error().message, HasSubstr("r.jsonl"));
}

// A library with a kernel in a header, loaded by a program that was not built with the sanitizer.
TEST(SharedLibrary, AddressFlavourIsLoadedByAPlainProgram) {
  auto folder = TempFolder::create("host_library");
  ASSERT_TRUE(folder.has_value());
  const fs::path root = folder->path();
  ASSERT_TRUE(write_file(root / "include/fill.cuh", "#pragma once\n#include <cuda_runtime.h>\n"
      "__global__ void fill(float* x) {\n  __shared__ float s[32];\n  s[threadIdx.x] = 1;\n  __syncthreads();\n"
      "  x[threadIdx.x] = s[31 - threadIdx.x];\n}\ninline void run(float* x, int n) { fill<<<1, n>>>(x); }\n"));
  ASSERT_TRUE(write_file(root / "library.cu", "#include \"fill.cuh\"\nextern \"C\" int entry(float* x, int n) { run(x, n); return cudaGetLastError(); }\n"));
  ASSERT_TRUE(write_file(root / "main.cpp", "#include <dlfcn.h>\n#include <cstdio>\n#include <cstdlib>\nint main(int, char** v) {\n"
      "  void* l = dlopen(v[1], RTLD_NOW | RTLD_LOCAL);\n  if (!l) { std::puts(dlerror()); return 2; }\n"
      "  auto f = (int (*)(float*, int))dlsym(l, \"entry\");\n  float* x = (float*)malloc(32 * 4);\n"
      "  int e = f(x, atoi(v[2]));\n  std::printf(\"%d %g\\n\", e, x[0]);\n}\n"));
  auto translated = translate_files({root / "library.cu"}, {root / "include"}, root / "translated");
  ASSERT_TRUE(translated.has_value()) << translated.error().message;
  HostCompileOptions options;
  options.sanitize = Sanitize::address;
  options.include_root = repository() / "include";
  options.runtime_cache = runtime_cache();
  auto lock = lock_runtime_cache();
  auto plan = plan_build(*translated, root / "program_host.so", options);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  std::vector<Command> commands = plan->compile;
  commands.push_back(plan->link);
  commands.push_back({"g++", (root / "main.cpp").string(), "-ldl", "-o", (root / "main").string()});
  for (const Command& command : commands) {
    auto r = run_process({.argv = command});
    ASSERT_TRUE(r && r->ok()) << to_command_line(command) << "\n" << (r ? r->err : r.error().message);
  }
  auto environment = run_environment(Sanitize::address, root / "report", true);
  ASSERT_TRUE(environment.has_value());
  auto good = run_process({.argv = {(root / "main").string(), plan->output.string(), "32"}, .environment = *environment});
  ASSERT_TRUE(good.has_value());
  EXPECT_EQ(good->out, "0 1\n") << good->err;
  auto bad = run_process({.argv = {(root / "main").string(), plan->output.string(), "33"}, .environment = *environment});
  ASSERT_TRUE(bad.has_value());
  EXPECT_EQ(bad->exit_code, kFaultExit);
  auto faults = read_faults(root / "report", bad->err);
  ASSERT_TRUE(faults.has_value());
  ASSERT_FALSE(faults->empty()) << bad->err;
  EXPECT_EQ(faults->front().file, (root / "include/fill.cuh").string()) << to_string(faults->front());
  EXPECT_EQ(faults->front().line, 5) << to_string(faults->front());
  EXPECT_EQ(faults->front().thread, (Index3{32, 0, 0}));
}

}  // namespace
}  // namespace stitch::host::testing
