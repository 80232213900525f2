#pragma once
// Small candidates written by hand and compiled by g++ as host libraries: y[i] = x[i] * w[i % 64] over f32[4,64].

#include <gtest/gtest.h>

#include <string>

#include "base/files.h"
#include "base/hash.h"
#include "base/process.h"

namespace stitch::test {

inline const char* kPrelude = R"cpp(
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <thread>
#include <vector>
#include <string>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/mman.h>
#include "stitch/abi.h"
#ifndef VERSION
#define VERSION STITCH_ABI_VERSION
#endif
#ifndef MANIFEST
#define MANIFEST R"({"name":"scale","target":"host","arch":"","precision":"fp32","inputs":[{"name":"x","dtype":"f32","shape":[4,64]}],"weights":[{"name":"w","dtype":"f32","shape":[64]}],"outputs":[{"name":"y","dtype":"f32","shape":[4,64]}],"tasks":[],"workspace_bytes":1024})"
#endif
struct stitch_program { const float* w; float* workspace; };
static std::string g_error;
extern "C" int stitch_abi_version(void) { return VERSION; }
extern "C" const char* stitch_manifest(void) { return MANIFEST; }
#ifndef OWN_CREATE
extern "C" stitch_program* stitch_create(const DLTensor* const* weights, int32_t, void*) {
  return new stitch_program{static_cast<const float*>(weights[0]->data), nullptr};
}
#endif
extern "C" size_t stitch_workspace_bytes(const stitch_program*) { return 1024; }
extern "C" int stitch_set_workspace(stitch_program* p, void* m, size_t) { p->workspace = static_cast<float*>(m); return 0; }
extern "C" int stitch_run_task(stitch_program*, int32_t, const DLTensor* const*, const DLTensor* const*, void*) { return 1; }
#ifndef NO_LAST_ERROR
extern "C" const char* stitch_last_error(const stitch_program*) { return g_error.c_str(); }
#endif
extern "C" void stitch_destroy(stitch_program* p) { delete p; }
static void honest(stitch_program* p, const float* x, float* y) { for (int i = 0; i < 256; ++i) y[i] = x[i] * p->w[i % 64]; }
#define RUN(...)                                                                                              \
  extern "C" int stitch_run(stitch_program* p, const DLTensor* const* in, const DLTensor* const* out, void*) { \
    float* x = static_cast<float*>(in[0]->data);                                                              \
    float* y = static_cast<float*>(out[0]->data);                                                             \
    (void)x; (void)y; (void)p;                                                                                \
    __VA_ARGS__                                                                                               \
    return 0;                                                                                                 \
  }
)cpp";

// Compiles `source` (after the prelude) once per content; returns the library's path.
inline std::filesystem::path build_candidate(const std::string& source, const std::string& defines = "") {
  static const TempFolder folder = std::move(*TempFolder::create("candidates"));
  const std::string text = defines + "\n" + kPrelude + source;
  const auto library = folder.path() / (sha256_hex(text).substr(0, 16) + ".so");
  if (std::filesystem::exists(library)) return library;
  const auto file = library.string() + ".cpp";
  EXPECT_TRUE(write_file(file, text));
  ProcessSpec spec;
  spec.argv = {"g++", "-std=c++20", "-O1", "-g", "-fPIC", "-shared", "-I", std::string(STITCH_SOURCE_ROOT) + "/include", file, "-o", library.string(), "-pthread"};
  auto result = run_process(spec);
  EXPECT_TRUE(result && result->ok()) << (result ? result->err : result.error().message);
  return library;
}

inline const char* kHonest = "RUN(honest(p, x, y);)";

}  // namespace stitch::test
