#include "build/compiler.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

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
    ASSERT_TRUE(write_file(e.path(), "rubbish"));
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

// One flipped bit in the file that an entry holds, and an entry cut short.
TEST_F(Compile, EveryKindOfDamageIsFound) {
  const CompileStep s = step("int f() { return 1; }");
  ASSERT_TRUE(run_step(s)->ok);
  const fs::path entry = fs::directory_iterator(folder.path() / "home/cache/build")->path();
  const std::string good = *read_file(entry);
  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;
  for (const std::string& bad : {flipped, good.substr(0, good.size() - 1), good.substr(0, 64), std::string()}) {
    ASSERT_TRUE(write_file(entry, bad));
    EXPECT_FALSE(run_step(s)->cached);
    EXPECT_EQ(*read_file(entry), good);
  }
}

TEST_F(Compile, TheSameFilesElsewhereAreFoundInTheCache) {
  const auto at = [&](const std::string& name) {
    const fs::path p = folder.path() / name;
    EXPECT_TRUE(write_file(p / "a.cpp", "#include <h.h>\nint f() { return X; }"));
    EXPECT_TRUE(write_file(p / "include/h.h", "#define X 1\n"));
    CompileStep s;
    s.name = "a.cpp";
    s.working_folder = p;
    s.argv = {"g++", "-Iinclude", "-c", "a.cpp", "-o", "{out}"};
    s.inputs = {p / "a.cpp"};
    s.folders = {p / "include"};
    s.output = p / "a.o";
    return s;
  };
  EXPECT_FALSE(run_step(at("one"))->cached);
  EXPECT_TRUE(run_step(at("two"))->cached);
  EXPECT_EQ(*read_file(folder.path() / "one/a.o"), *read_file(folder.path() / "two/a.o"));
}

TEST_F(Compile, WhatElseDecidesTheResultIsInTheKey) {
  CompileStep s = step("int f() { return 1; }");
  ASSERT_TRUE(run_step(s)->ok);
  s.versions = {"libx 2"};
  EXPECT_FALSE(run_step(s)->cached);
  EXPECT_TRUE(run_step(s)->cached);
  setenv("CPATH", "/nowhere", 1);
  EXPECT_FALSE(run_step(s)->cached);
  unsetenv("CPATH");
  s.argv.insert(s.argv.begin() + 1, "-O2");
  EXPECT_FALSE(run_step(s)->cached);
}

TEST_F(Compile, TheSameStepAtOnceIsCompiledOnce) {
  CompileStep s = step("int f() { return 1; }");
  const fs::path count = folder.path() / "count";
  s.argv = {"sh", "-c", "echo x >> " + count.string() + "; sleep 0.2; echo object > \"$0\"", "{out}"};
  const auto results = run_steps({s, s, s, s}, 4);
  for (const auto& r : results) EXPECT_TRUE(r && r->ok);
  EXPECT_EQ(*read_file(count), "x\n");
  for (const auto& e : fs::directory_iterator(folder.path() / "home/cache/build")) EXPECT_NE(e.path().extension(), ".lock");
}

TEST_F(Compile, ACacheThatCannotBeWrittenIsNoObstacle) {
  ASSERT_TRUE(write_file(folder.path() / "home", "a file where the folder should be"));
  const auto r = run_step(step("int f() { return 1; }"));
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->ok);
  EXPECT_FALSE(r->cached);
}

TEST_F(Compile, AFullDiskIsTheMachinesFault) {
  CompileStep s = step("");
  const fs::path small = folder.path() / "small";
  ASSERT_TRUE(make_folder(small));
  if (mount("none", small.c_str(), "tmpfs", 0, "size=16k") != 0) GTEST_SKIP() << "mounting a small tmpfs needs root";
  s.output = small / "a.o";
  ASSERT_TRUE(write_file(folder.path() / "a.cpp", "char big[1 << 20] = {1};"));
  const auto r = run_step(s);
  umount(small.c_str());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind, ErrorKind::environment);
  EXPECT_EQ(r.error().message, "The disk is full: a.cpp could not be compiled; free some space and run again.");
}

TEST_F(Compile, ACompilerWithoutMemoryIsTheMachinesFault) {
  CompileStep s = step("");
  s.argv = {"sh", "-c", "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1"};
  const auto r = run_step(s);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().message, "The compiler ran out of memory at a.cpp; close some programs and run again.");
}

TEST_F(Compile, NothingIsLeftOfAFailedOrKilledCompiler) {
  const fs::path tmp = folder.path() / "tmp";
  ASSERT_TRUE(make_folder(tmp));
  const char* old = getenv("TMPDIR");
  const std::string kept = old ? old : "";
  setenv("TMPDIR", tmp.c_str(), 1);
  CompileStep s = step("");
  s.argv = {"sh", "-c", "echo half > \"$0\"; echo x > $TMPDIR/left; sleep 100", "{out}"};
  s.timeout = std::chrono::seconds(1);
  ASSERT_TRUE(run_step(s));
  old ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
  EXPECT_TRUE(fs::is_empty(tmp));
  EXPECT_TRUE(fs::is_empty(folder.path() / "out"));
}

TEST_F(Compile, ASummaryCountsTheRest) {
  const auto r = run_step(step("int f() { return a; }\nint g() { return b; }\nint h() { return c; }\n"));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->summary, "a.cpp: a.cpp:1: 'a' was not declared in this scope (and 2 more errors)");
}

TEST_F(Compile, AMissingSymbolIsNamed) {
  CompileStep s = step("namespace a { int h(float); } int main() { return a::h(1); }");
  s.argv = {"g++", (folder.path() / "a.cpp").string(), "-o", "{out}"};
  const auto r = run_step(s);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->summary, "a.cpp: a::h(float) is used, but nothing in the program or its libraries defines it");
  s.argv.push_back("-lnosuch");
  EXPECT_NE(run_step(s)->log.find("nosuch"), std::string::npos);
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

// One line each as the tools of CUDA 13.0, g++ 12, GNU ld 2.40 and mold 1.10 print it.
TEST(Diagnostics, EveryTool) {
  const struct { const char* line; const char* file; int at; int column; const char* severity; const char* message; } cases[] = {
      {"lots.cu(1): error: identifier \"y\" is undefined", "lots.cu", 1, 0, "error", "identifier \"y\" is undefined"},
      {"a.cu(7): error #20-D: something: odd", "a.cu", 7, 0, "error", "something: odd"},
      {"a(1).cu(7): warning #177-D: variable \"error: x\" unused", "a(1).cu", 7, 0, "warning", "variable \"error: x\" unused"},
      {"a.cu(3): catastrophic error: cannot open source file \"x.h\"", "a.cu", 3, 0, "fatal error", "cannot open source file \"x.h\""},
      {"At end of source: error: expected a \"}\"", "", 0, 0, "error", "expected a \"}\""},
      {"/a/b.h:3:10: fatal error: nope.h: No such file or directory", "/a/b.h", 3, 10, "fatal error", "nope.h: No such file or directory"},
      {"e.cpp:2:32: error: 'class X' has no member named 'foo'", "e.cpp", 2, 32, "error", "'class X' has no member named 'foo'"},
      {"e.cpp:2:32: warning: text: error: more", "e.cpp", 2, 32, "warning", "text: error: more"},
      {"cc1plus: fatal error: missing.cu: No such file or directory", "", 0, 0, "fatal error", "missing.cu: No such file or directory"},
      {"g++: error: unrecognized command-line option '-Q1'", "", 0, 0, "error", "unrecognized command-line option '-Q1'"},
      {"ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x13880 bytes, 0xc000 max)", "", 0, 0, "error",
       "Entry function 'k(float*)' uses too much shared data (0x13880 bytes, 0xc000 max)"},
      {"ptxas /tmp/tmpxft_0_asm.ptx, line 27; error   : Unknown modifier '.instr'", "", 0, 0, "error", "Unknown modifier '.instr'"},
      {"ptxas fatal   : Unresolved extern function '_Z1gf'", "", 0, 0, "error", "g(float) is used, but nothing in the program or its libraries defines it"},
      {"nvcc fatal   : Unsupported gpu architecture 'compute_33'", "", 0, 0, "fatal error", "Unsupported gpu architecture 'compute_33'"},
      {"l.cpp:(.text+0x1a): undefined reference to `a::h(float)'", "", 0, 0, "error", "a::h(float) is used, but nothing in the program or its libraries defines it"},
      {"mold: error: undefined symbol: g()", "", 0, 0, "error", "g() is used, but nothing in the program or its libraries defines it"},
      {"mold: error: duplicate symbol: a.o: b.o: f()", "", 0, 0, "error", "f() is defined more than once"},
      {"/usr/bin/ld: b.o: in function `f()': b.cpp:(.text+0x0): multiple definition of `f()'; a.o:a.cpp:(.text+0x0): first defined here", "", 0, 0, "error",
       "f() is defined more than once"},
      {"/usr/bin/ld: cannot find -lnosuch: No such file or directory", "", 0, 0, "error", "the library nosuch cannot be found"},
      {"mold: fatal: library not found: nosuch", "", 0, 0, "error", "the library nosuch cannot be found"},
  };
  for (const auto& c : cases) {
    const auto d = parse_diagnostics(std::string(c.line) + "\n");
    ASSERT_EQ(d.size(), 1u) << c.line;
    EXPECT_EQ(d[0].file, c.file) << c.line;
    EXPECT_EQ(d[0].line, c.at) << c.line;
    EXPECT_EQ(d[0].column, c.column) << c.line;
    EXPECT_EQ(d[0].severity, c.severity) << c.line;
    EXPECT_EQ(d[0].message, c.message) << c.line;
  }
}

TEST(Diagnostics, RepetitionsAndNotesAreLeftOut) {
  const auto d = parse_diagnostics(
      "1 error detected in the compilation of \"tmpl.cu\".\n"
      "a.cu(3): note #3196-D: to match this \"{\"\n"
      "compilation terminated.\n"
      "x.o: undefined reference to `g()'\ny.o: undefined reference to `g()'\n"
      "collect2: error: ld returned 1 exit status\n");
  ASSERT_EQ(d.size(), 1u);
  EXPECT_EQ(d[0].message.substr(0, 3), "g()");
  EXPECT_EQ(parse_diagnostics("collect2: error: ld returned 1 exit status\n").size(), 1u) << "better than nothing";
}

TEST(Diagnostics, ATemplateErrorSaysWhoAskedForIt) {
  const auto d = parse_diagnostics(
      "norm.cuh(1): error: expression must have class type but it has type \"float\"\n"
      "  template<class T> T f(T a) { return a.foo(); }\n"
      "                                      ^\n"
      "          detected during instantiation of \"T f(T) [with T=float]\" at line 2 of kernels.cu\n");
  ASSERT_EQ(d.size(), 1u);
  EXPECT_NE(d[0].message.find("(detected during instantiation of \"T f(T) [with T=float]\" at line 2 of kernels.cu)"), std::string::npos) << d[0].message;
}

TEST(Diagnostics, HostileLogsAreHarmless) {
  std::string flood;
  for (int i = 0; i < 5000; ++i) flood += "a.cu(" + std::to_string(i + 1) + "): error: x\n";
  EXPECT_EQ(parse_diagnostics(flood).size(), 200u);
  EXPECT_LE(parse_diagnostics("a.cu(1): error: " + std::string(1 << 22, 'x')).at(0).message.size(), 400u);
  EXPECT_EQ(parse_diagnostics("/dev/zero:1:1: error: x\n").at(0).source_line, "");
  for (const char* rubbish : {":", ": error:", "): error:", "(: error: x", ":::: error: x", "undefined reference to `", "'_Z", "a(99999999999999999999): error: x", ": error #"})
    (void)parse_diagnostics(rubbish);
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

TEST_F(Compile, AMovedProgramComesFromTheCacheAndAMissingKernelIsNamed) {
  if (find_cuda_toolkit().nvcc.empty()) GTEST_SKIP() << "no nvcc on this machine";
  const auto write = [&](const fs::path& p) {
    ASSERT_TRUE(write_file(p / "include/x.h", ""));
    ASSERT_TRUE(write_file(p / "kernels.cu", "#include <x.h>\n__global__ void k(float* x) { x[threadIdx.x] *= 3; }\nint launch(float* x) { k<<<1, 32>>>(x); return 0; }\n"));
    ASSERT_TRUE(write_file(p / "program.cpp", "#include <cuda_runtime.h>\nint launch(float*);\nextern \"C\" __attribute__((visibility(\"default\"))) int run(float* x) { return launch(x); }\n"));
  };
  write(folder.path() / "one");
  write(folder.path() / "two");
  const auto first = build_cuda({folder.path() / "one", folder.path() / "one/program.so"});
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_TRUE(first->ok) << first->summary;
  const auto second = build_cuda({folder.path() / "two", folder.path() / "two/program.so"});
  ASSERT_TRUE(second && second->ok);
  EXPECT_TRUE(second->cached);
  // A shared library may leave symbols open; the linker is told to refuse that, because the loader would, later and less clearly.
  ASSERT_TRUE(write_file(folder.path() / "two/program.cpp", "int gone(float*);\nextern \"C\" int run(float* x) { return gone(x); }\n"));
  const auto open = build_cuda({folder.path() / "two", folder.path() / "two/program.so"});
  ASSERT_TRUE(open) << open.error().message;
  EXPECT_EQ(open->summary, "program.so: gone(float*) is used, but nothing in the program or its libraries defines it");
  const auto library = build_cuda({folder.path() / "one", folder.path() / "one/program.so", "sm_90", {"nosuchlib"}});
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("libnosuchlib cannot be found"), std::string::npos);
}

// The toolkit is looked for once, so these run in processes of their own.
[[noreturn]] void build_without_nvcc() {
  setenv("STITCHCUDA_NVCC", "none", 1);
  const auto r = build_cuda({"/nowhere", "/nowhere/program.so"});
  fmt::print(stderr, "{}\n", r ? "built" : r.error().message);
  std::exit(0);
}

[[noreturn]] void look_for_a_toolkit(const fs::path& folder) {
  const fs::path packages = folder / "site-packages/nvidia/cu13";
  (void)write_file(packages / "bin/nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 99.1, V99.1.2'\n");
  fs::permissions(packages / "bin/nvcc", fs::perms::owner_all);
  (void)make_folder(packages / "include");
  setenv("STITCHCUDA_HOME", folder.c_str(), 1);
  setenv("CUDA_HOME", packages.c_str(), 1);
  setenv("PATH", "/bin", 1);
  unsetenv("STITCHCUDA_PYTHON");
  unsetenv("STITCHCUDA_NVCC");
  const CudaToolkit& t = find_cuda_toolkit();
  fmt::print(stderr, "{} {} {}\n", t.version, t.root == fs::canonical(packages), t.include_dirs == std::vector<fs::path>{packages / "include"});
  std::exit(0);
}

TEST(ToolkitDeathTest, NoNvccIsOneSentence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(build_without_nvcc(), ::testing::ExitedWithCode(0), "No CUDA compiler .nvcc. was found; run make setup to install it, or use --target host");
}

TEST(ToolkitDeathTest, CudaHomeIsLookedAt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto folder = *TempFolder::create("toolkit");
  EXPECT_EXIT(look_for_a_toolkit(folder.path()), ::testing::ExitedWithCode(0), "99.1 true true");
}

TEST(Toolkit, TheNewestLibraryIsTaken) {
  const auto folder = *TempFolder::create("toolkit");
  for (const char* name : {"libx.so.9", "libx.so.10", "liby.so", "liby.so.1"}) ASSERT_TRUE(write_file(folder.path() / name, ""));
  const CudaToolkit t{{}, "", {}, {}, {"/no/such/folder", folder.path()}};
  EXPECT_EQ(find_library(t, "x").filename(), "libx.so.10");
  EXPECT_EQ(find_library(t, "y").filename(), "liby.so");
  EXPECT_TRUE(find_library(t, "z").empty());
}

}  // namespace
}  // namespace stitch::build
