#include "build/compiler.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/process.h"
#include "build/toolkit.h"

namespace stitch::build {
namespace {

struct Compile : ::testing::Test {
  TempFolder folder = *TempFolder::create("build");
  void SetUp() override { setenv("STITCHCUDA_HOME", (folder.path() / "home").c_str(), 1); }
  void TearDown() override { unsetenv("STITCHCUDA_HOME"); }

  CompileStep step(const std::string& source) {
    EXPECT_TRUE(write_file(folder.path() / "a.cpp", source));
    CompileStep s;
    s.name = "a.cpp";
    s.argv = {"g++", "-c", (folder.path() / "a.cpp").string(), "-o", "{out}"};
    s.inputs = {folder.path() / "a.cpp"};
    s.output = folder.path() / "out/a.o";
    return s;
  }
};

TEST_F(Compile, SecondTimeComesFromTheCache) {
  const CompileStep s = step("int f() { return 1; }");
  const auto first = run_step(s);
  ASSERT_TRUE(first && first->ok);
  EXPECT_FALSE(first->cached);
  fs::remove(s.output);
  const auto second = run_step(s);
  ASSERT_TRUE(second && second->ok);
  EXPECT_TRUE(second->cached);
  EXPECT_TRUE(fs::exists(s.output));
  EXPECT_FALSE(run_step(step("int f() { return 2; }"))->cached);
}

TEST_F(Compile, ADamagedEntryIsCompiledAgain) {
  const CompileStep s = step("int f() { return 1; }");
  ASSERT_TRUE(run_step(s)->ok);
  for (const auto& e : fs::directory_iterator(folder.path() / "home/cache/build"))
    if (e.path().extension() != ".sha256") {
      ASSERT_TRUE(write_file(e.path(), "rubbish"));
    }
  const auto again = run_step(s);
  ASSERT_TRUE(again && again->ok);
  EXPECT_FALSE(again->cached);
}

TEST_F(Compile, AHeaderInAnInputFolderCounts) {
  ASSERT_TRUE(write_file(folder.path() / "inc/h.h", "#define X 1\n"));
  CompileStep s = step("#include \"h.h\"\nint f() { return X; }");
  s.argv.insert(s.argv.begin() + 1, "-I" + (folder.path() / "inc").string());
  s.folders = {folder.path() / "inc"};
  ASSERT_TRUE(run_step(s)->ok);
  ASSERT_TRUE(write_file(folder.path() / "inc/h.h", "#define X 2\n"));
  EXPECT_FALSE(run_step(s)->cached);
}

TEST_F(Compile, AnErrorNamesLineAndSource) {
  const auto r = run_step(step("int f() {\n  return missing;\n}\n"));
  ASSERT_TRUE(r);
  EXPECT_FALSE(r->ok);
  ASSERT_FALSE(r->diagnostics.empty());
  EXPECT_EQ(r->diagnostics[0].line, 2);
  EXPECT_EQ(r->diagnostics[0].source_line, "  return missing;");
  EXPECT_NE(r->summary.find("a.cpp:2: "), std::string::npos) << r->summary;
  EXPECT_FALSE(fs::exists(folder.path() / "out/a.o"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / "out"), {}), 0);
}

TEST_F(Compile, AHangingCompilerIsStopped) {
  CompileStep s = step("");
  s.argv = {"sleep", "100"};
  s.timeout = std::chrono::seconds(1);
  const auto r = run_step(s);
  ASSERT_TRUE(r);
  EXPECT_NE(r->summary.find("did not finish in 1 s"), std::string::npos);
}

TEST_F(Compile, AMissingCompilerIsOneSentence) {
  CompileStep s = step("");
  s.argv[0] = "no-such-compiler";
  const auto r = run_step(s);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind, ErrorKind::environment);
}

TEST_F(Compile, TheCacheIsTrimmedOldestFirst) {
  ASSERT_TRUE(run_step(step("int f() { return 1; }"))->ok);
  trim_cache({0});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / "home/cache/build"), {}), 0);
}

TEST(Diagnostics, NvccAndLinkerForms) {
  const auto d = parse_diagnostics(
      "kernels.cu(12): warning #177-D: variable \"x\" was declared but never referenced\n"
      "kernels.cu(14): error: identifier \"y\" is undefined\n"
      "/usr/bin/ld: program.o: undefined reference to `t01_linear'\n"
      "/a/b.h:3:10: fatal error: nope.h: No such file or directory\n");
  ASSERT_EQ(d.size(), 4u);
  EXPECT_EQ(d[0].file, "kernels.cu");
  EXPECT_EQ(d[0].line, 14);
  EXPECT_EQ(d[0].message, "identifier \"y\" is undefined");
  EXPECT_EQ(d[2].message, "nope.h: No such file or directory");
  EXPECT_EQ(d[3].severity, "warning");
}

TEST_F(Compile, ABuildForTheGpuLinksAgainstTheToolkit) {
  if (find_cuda_toolkit().nvcc.empty()) GTEST_SKIP() << "no nvcc on this machine";
  const fs::path p = folder.path() / "prog";
  ASSERT_TRUE(write_file(p / "include/x.h", ""));
  ASSERT_TRUE(write_file(p / "kernels.cu", "__global__ void k(float* x) { x[threadIdx.x] *= 2; }\nint launch(float* x) { k<<<1, 32>>>(x); return cudaGetLastError(); }\n"));
  ASSERT_TRUE(write_file(p / "program.cpp", "int launch(float*);\nextern \"C\" __attribute__((visibility(\"default\"))) int run(float* x) { return launch(x); }\n"));
  const auto r = build_cuda({p, p / "program.so", "sm_90", {}});
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_TRUE(r->ok) << r->summary;
  ASSERT_TRUE(write_file(p / "kernels.cu", "__global__ void k(float* x) { oops }\n"));
  const auto broken = build_cuda({p, p / "program.so", "sm_90", {}});
  ASSERT_TRUE(broken);
  EXPECT_NE(broken->summary.find("kernels.cu:1: "), std::string::npos) << broken->summary;
}

}  // namespace
}  // namespace stitch::build
