// The whole host verification on small hand-written candidates: honest ones must pass, every cheat must fail with the
// right guard named.
#include "verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json_full.h"
#include "base/json_schema.h"
#include "base/json_util.h"
#include "run/candidates.h"

namespace stitch::verify {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using test::build_candidate;

// x[4,64] and w[64], then `nodes`, which end in the output y; `of` is what they compute.
struct SmallBundle {
  SmallBundle(const std::string& nodes, float (*of)(float x, float w)) : folder(*TempFolder::create("verify-test")) {
    ir::Bundle b;
    b.name = "scale";
    b.mode = "eval";
    b.graph = *ir::parse("%0: f32[4,64] = input() {name=\"x\"}\n%1: f32[64] = weight() {name=\"w\"}\n" + nodes);
    b.inputs = {{"x", {ir::DType::f32, {4, 64}}, {}}};
    b.weights = {{"w", {ir::DType::f32, {64}}, {}}};
    b.origin.kind = "hand";
    b.case_names = {"000"};
    b.has_weights = true;
    ir::Tensor w = ir::make_tensor("w", b.weights[0].type), x = ir::make_tensor("x", b.inputs[0].type), y = ir::make_tensor("y", b.inputs[0].type);
    for (int i = 0; i < 64; ++i) w.as<float>()[static_cast<size_t>(i)] = 0.5f + 0.01f * static_cast<float>(i);
    for (int i = 0; i < 256; ++i) {
      const auto at = static_cast<size_t>(i);
      x.as<float>()[at] = static_cast<float>(std::sin(1.7 * i) + std::cos(0.3 * i * i));
      y.as<float>()[at] = of(x.as<float>()[at], w.as<float>()[at % 64]);
    }
    const auto where = folder.path() / "scale.stitch";
    auto written = ir::write_bundle(where, b, {w}, {ir::Case{"000", {x}, {y}}});
    EXPECT_TRUE(written) << written.error().message;
    auto read = ir::read_bundle(where);
    EXPECT_TRUE(read) << read.error().message;
    bundle = *read;
  }

  TempFolder folder;
  ir::Bundle bundle;
};

const ir::Bundle& scale_bundle() {
  static const SmallBundle scale("%2: f32[4,64] = mul(%0, %1)\nreturn %2 {name=\"y\"}\n", [](float x, float w) { return x * w; });
  return scale.bundle;
}

Verdict verdict_on(const std::filesystem::path& library, VerifyOptions options = {}, const ir::Bundle& bundle = scale_bundle()) {
  options.target = Target::host;
  options.precision = hw::PrecisionClass::fp32;
  options.memory_limit = 1u << 30;
  auto v = verify(bundle, library, options);
  EXPECT_TRUE(v) << v.error().message << v.error().detail;
  return v ? *v : Verdict{};
}

Verdict verdict_of(const std::string& source, const std::string& defines = "") { return verdict_on(build_candidate(source, defines)); }

std::string state_of(const Verdict& v, const std::string& guard) {
  const auto* g = v.find_guard(guard);
  if (!g) return "absent";
  return g->state == GuardState::passed ? "passed" : g->state == GuardState::failed ? "failed" : "not run";
}

void expect_rejected(const Verdict& v, const std::string& guard) {
  EXPECT_NE(v.exit_code(), 0);
  EXPECT_FALSE(v.valid && v.correct) << to_text(v);
  EXPECT_EQ(state_of(v, guard), "failed") << to_text(v);
  EXPECT_FALSE(v.latency_ms);
}

TEST(Verify, HonestCandidatePasses) {
  const auto v = verdict_of(test::kHonest);
  EXPECT_TRUE(v.valid && v.correct) << to_text(v);
  EXPECT_EQ(v.exit_code(), 0);
  for (const char* guard : {"fresh_inputs", "stored_cases", "property_inputs", "output_poison", "inputs_unmodified", "weights_used",
                            "out_of_bounds_writes", "code_integrity", "constant_output", "stale_result", "late_writes"})
    EXPECT_EQ(state_of(v, guard), "passed") << guard;
  EXPECT_EQ(v.deterministic, std::optional(true));
  EXPECT_FALSE(v.latency_ms);
  EXPECT_THAT(v.machine_note, HasSubstr("no speed is claimed"));
  EXPECT_EQ(state_of(v, "roofline"), "not run");
  ASSERT_TRUE(v.kernelbench);
  EXPECT_TRUE(v.kernelbench->ok);
}

TEST(Verify, VerdictFollowsItsSchema) {
  auto text = read_file(std::string(STITCH_SOURCE_ROOT) + "/src/verify/verdict.schema.json");
  ASSERT_TRUE(text);
  auto schema = parse_json(*text, "schema");
  ASSERT_TRUE(schema) << schema.error().message;
  for (const auto& v : {verdict_of(test::kHonest), verdict_of("RUN(abort();)")}) {
    const auto status = validate_json(*schema, to_json(v));
    EXPECT_TRUE(status) << status.error().message << dump(to_json(v));
  }
  Json broken = to_json(verdict_of(test::kHonest));
  broken.erase("valid");
  EXPECT_FALSE(validate_json(*schema, broken));
}

// What nobody computed is null: a zero would read as a measurement.
TEST(Verify, WhatWasNotComputedIsNull) {
  const Json right = to_json(verdict_of(test::kHonest));
  EXPECT_TRUE(right["cost"]["build_seconds"].is_null());  // the candidate came built
  EXPECT_TRUE(right["precision"]["error"]["max"].is_number() && right["precision"]["reference_error"]["max"].is_number());
  int measured = 0, settled = 0;
  for (const Json& set : right["sets"]) ++(set["reference_error"].is_null() ? settled : measured);
  EXPECT_GE(measured, 1);
  EXPECT_GE(settled, 4);  // the tolerance alone settled these
  const Json crashed = to_json(verdict_of("RUN(abort();)"));
  EXPECT_TRUE(crashed["precision"]["error"].is_null() && crashed["precision"]["reference_error"].is_null());
  EXPECT_EQ(to_text(verdict_of("RUN(abort();)")).find("error 0"), std::string::npos);
}

// PyTorch on a CPU computes a convolution in fp32 whatever its flags say, so class default means fp32 on the host target.
TEST(Verify, ConvolutionsAreHeldToFp32OnTheHost) {
  const SmallBundle layer(
      "%2: f32[4,64,1] = view(%0, size=[4,64,1])\n%3: f32[64,1,1] = view(%1, size=[64,1,1])\n"
      "%4: f32[4,64,1] = convolution(%2, %3, stride=[1], padding=[0], dilation=[1], output_padding=[0], groups=64)\n"
      "%5: f32[4,64] = view(%4, size=[4,64])\nreturn %5 {name=\"y\"}\n",
      [](float x, float w) { return x * w; });
  ASSERT_TRUE(layer.bundle.precision.allow_tf32_conv);
  const auto coarse = build_candidate(R"(
    static float shortened(float v) { uint32_t bits; memcpy(&bits, &v, 4); bits &= ~0x1fffu; memcpy(&v, &bits, 4); return v; }
    RUN(for (int i = 0; i < 256; ++i) y[i] = shortened(x[i]) * shortened(p->w[i % 64]);))");
  const auto verdict = [&](const std::filesystem::path& library, hw::PrecisionClass precision) {
    VerifyOptions options;
    options.target = Target::host;
    options.precision = precision;
    auto v = verify(layer.bundle, library, options);
    EXPECT_TRUE(v) << v.error().message;
    return v ? *v : Verdict{};
  };
  const auto right = verdict(build_candidate(test::kHonest), hw::PrecisionClass::default_flags);
  EXPECT_EQ(right.exit_code(), 0) << to_text(right);
  EXPECT_EQ(right.precision.tolerance_max, 1e-4);
  expect_rejected(verdict(coarse, hw::PrecisionClass::default_flags), "low_precision");
  EXPECT_EQ(verdict(coarse, hw::PrecisionClass::tf32).exit_code(), 0);
}

TEST(Verify, PrepackedWeightsAndThreadsPass) {
  const auto v = verdict_of(R"(
    static float packed[64];
    extern "C" stitch_program* stitch_create(const DLTensor* const* weights, int32_t, void*) {
      memcpy(packed, weights[0]->data, sizeof packed);
      return new stitch_program{packed, nullptr};
    }
    RUN(std::thread a([&] { for (int i = 0; i < 128; ++i) y[i] = x[i] * packed[i % 64]; });
        for (int i = 128; i < 256; ++i) y[i] = x[i] * packed[i % 64];
        a.join();))", "#define OWN_CREATE");
  EXPECT_EQ(v.exit_code(), 0) << to_text(v);
}

TEST(Verify, LastBitDifferencesPassAsNotDeterministic) {
  const auto v = verdict_of("static int calls; RUN(honest(p, x, y); if (++calls % 2) y[7] = nextafterf(y[7], 1e9f);)");
  EXPECT_EQ(v.exit_code(), 0) << to_text(v);
  EXPECT_EQ(v.deterministic, std::optional(false));
}

TEST(Verify, AnswersThatDifferByLessThanTheirTypeShowsAreConstant) {
  const SmallBundle one("%2: f32[4,64] = mul(%0, %1)\n%3: f32[4,64] = mul(%2, 1e-14)\n%4: f32[4,64] = add(%3, 1)\nreturn %4 {name=\"y\"}\n",
                        [](float, float) { return 1.0f; });
  const auto v = verdict_on(build_candidate("RUN(for (int i = 0; i < 256; ++i) y[i] = 1 + 1e-14f * x[i] * p->w[i % 64];)"), {}, one.bundle);
  EXPECT_EQ(v.exit_code(), 0) << to_text(v);
  EXPECT_EQ(state_of(v, "constant_output"), "passed");
  EXPECT_THAT(v.warnings, Contains(HasSubstr("does not depend on its inputs")));
}

struct Cheat {
  const char* name;
  const char* guard;
  const char* source;
};

void PrintTo(const Cheat& cheat, std::ostream* out) { *out << cheat.name; }

class Cheats : public ::testing::TestWithParam<Cheat> {};

TEST_P(Cheats, AreCaught) {
  VerifyOptions options;
  if (GetParam().name == std::string("hang")) options.call_timeout = std::chrono::milliseconds(500);
  expect_rejected(verdict_on(build_candidate(GetParam().source), options), GetParam().guard);
}

const Cheat kCheats[] = {
    {"unwritten_output", "output_poison", "RUN(for (int i = 0; i < 255; ++i) y[i] = x[i] * p->w[i % 64];)"},
    {"no_op", "output_poison", "RUN()"},
    {"constant", "constant_output", "RUN(for (int i = 0; i < 256; ++i) y[i] = 1;)"},
    {"all_nan", "constant_output", "RUN(for (int i = 0; i < 256; ++i) y[i] = NAN;)"},
    {"input_mutation", "inputs_unmodified", "RUN(honest(p, x, y); x[3] += 1;)"},
    {"weight_mutation", "weights_unmodified", "RUN(honest(p, x, y); const_cast<float*>(p->w)[5] *= 2;)"},
    {"inputs_and_weights_zeroed", "inputs_unmodified",
     "RUN(for (int i = 0; i < 256; ++i) x[i] = y[i] = 0; for (int i = 0; i < 64; ++i) const_cast<float*>(p->w)[i] = 0;)"},
    {"write_past_the_end", "out_of_bounds_writes", "RUN(honest(p, x, y); y[256] = 1;)"},
    {"write_before_the_start", "out_of_bounds_writes", "RUN(honest(p, x, y); y[-1] = 1;)"},
    {"workspace_overrun", "out_of_bounds_writes", "RUN(honest(p, x, y); p->workspace[256] = 1;)"},
    {"one_wrong_element", "fresh_inputs", "RUN(honest(p, x, y); y[200] += 0.01f * (1 + fabsf(y[200]));)"},
    {"memo_by_pointer", "stale_result", R"(
      struct Entry { void* x; float y[256]; };
      static std::vector<Entry> memo;
      RUN(for (auto& e : memo) if (e.x == x) { memcpy(y, e.y, sizeof e.y); return 0; }
          honest(p, x, y); Entry e; e.x = x; memcpy(e.y, y, sizeof e.y); memo.push_back(e);))"},
    {"first_calls_only", "stale_result", R"(
      static int calls; static float last[256];
      RUN(if (++calls <= 3) { honest(p, x, y); memcpy(last, y, sizeof last); } else memcpy(y, last, sizeof last);))"},
    {"stale_workspace", "output_poison",
     "static bool done; RUN(if (!done) honest(p, x, p->workspace); done = true; memcpy(y, p->workspace, 1024);)"},
    {"low_precision", "low_precision", R"(
      static float cut(float v) { uint32_t b; memcpy(&b, &v, 4); b &= 0xffff0000u; memcpy(&v, &b, 4); return v; }
      RUN(for (int i = 0; i < 256; ++i) y[i] = cut(x[i] * p->w[i % 64]);))"},
    {"sniffs_scale", "input_sniffing", R"(RUN(float m = 0; for (int i = 0; i < 256; ++i) m = fmaxf(m, fabsf(x[i]));
      if (m > 50) for (int i = 0; i < 256; ++i) y[i] = 0; else honest(p, x, y);))"},
    {"saturates", "input_sniffing", "RUN(for (int i = 0; i < 256; ++i) y[i] = fminf(100.0f, x[i] * p->w[i % 64]);)"},
    {"own_weights", "weights_used", "RUN(for (int i = 0; i < 256; ++i) y[i] = x[i] * (0.5f + 0.01f * (i % 64));)"},
    {"late_thread", "late_writes", R"(
      #include <chrono>
      static void meddle(float* target, float keep) {
        for (int k = 0; k < 200; ++k) { target[0] = keep + k; std::this_thread::sleep_for(std::chrono::microseconds(200)); }
      }
      RUN(honest(p, x, y); std::thread(meddle, y, y[0]).detach();))"},
    {"patched_libc", "code_integrity", R"(RUN(honest(p, x, y);
      auto page = reinterpret_cast<uintptr_t>(reinterpret_cast<void*>(&getppid)) & ~uintptr_t{4095};
      mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
      *reinterpret_cast<volatile unsigned char*>(&getppid) = 0xC3;
      mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_EXEC);))"},
    {"crash", "completes", "RUN(*reinterpret_cast<volatile int*>(8) = 1;)"},
    {"exit_zero", "completes", "RUN(honest(p, x, y); _exit(0);)"},
    {"says_failure", "completes", "RUN(g_error = \"out of ideas\"; return 1;)"},
    {"hang", "process_limits", "RUN(for (;;) usleep(1000);)"},
    {"flood", "process_limits", "RUN(std::string s(1 << 16, 'x'); for (;;) fwrite(s.data(), 1, s.size(), stdout);)"},
    {"forged_channel", "control_channel", "RUN(char forged[872] = {}; send(3, forged, sizeof forged, MSG_NOSIGNAL); usleep(200000);)"},
    {"kills_parent", "completes", "#include <signal.h>\nRUN(kill(getppid(), SIGKILL); kill(-1, SIGKILL); abort();)"},
};

INSTANTIATE_TEST_SUITE_P(All, Cheats, ::testing::ValuesIn(kCheats), [](const auto& info) { return std::string(info.param.name); });

TEST(Verify, ForgedVerdictInTheOutputChangesNothing) {
  const auto v = verdict_of("static const char* kForged = \"{\\\"valid\\\": true, \\\"correct\\\": true}\\n\";\n"
                            "RUN(fputs(kForged, stdout); fflush(stdout); for (int i = 0; i < 256; ++i) y[i] = 2 * x[i];)");
  EXPECT_FALSE(v.correct);
  EXPECT_THAT(v.printed, HasSubstr("\"correct\": true"));
}

TEST(Verify, SearchingMemoryForTheAnswerFindsNothing) {
  // Looks for the right first two products in every shared mapping; writes zeros unless it finds them. The answer of a
  // repeated call is its own earlier one, so the first call decides.
  const auto v = verdict_of(R"(
    #include <fstream>
    static bool found_in_memory(float a, float b) {
      const float want[2] = {a, b};
      std::ifstream maps("/proc/self/maps");
      for (std::string line; std::getline(maps, line);) {
        if (line.find("stitch-") == std::string::npos || line.find(" rw") == std::string::npos) continue;
        const auto begin = strtoull(line.c_str(), nullptr, 16), end = strtoull(strchr(line.c_str(), '-') + 1, nullptr, 16);
        for (auto at = begin; at + 8 <= end; at += 4)
          if (memcmp(reinterpret_cast<void*>(at), want, 8) == 0) return true;
      }
      return false;
    }
    RUN(if (found_in_memory(x[0] * p->w[0], x[1] * p->w[1])) honest(p, x, y); else memset(y, 0, 1024);))");
  EXPECT_FALSE(v.correct) << to_text(v);
  EXPECT_EQ(state_of(v, "fresh_inputs"), "failed") << to_text(v);
}

TEST(Verify, ManifestMustFitTheProgram) {
  std::string manifest = R"(#define MANIFEST "{\"target\":\"host\",\"inputs\":[{\"dtype\":\"f32\",\"shape\":[4,65]}],\"weights\":[],\"outputs\":[]}")";
  auto v = verdict_of(test::kHonest, manifest);
  expect_rejected(v, "loads");
  EXPECT_EQ(v.outcome, "manifest");
  EXPECT_THAT(v.sentence, HasSubstr("f32[4,65]"));
  v = verdict_of(test::kHonest, R"(#define MANIFEST "{\"target\":\"cuda\"}")");
  EXPECT_THAT(v.sentence, HasSubstr("built for target \"cuda\""));
}

TEST(Verify, NotALibraryIsAVerdict) {
  auto folder = TempFolder::create("verify-test");
  const auto file = folder->path() / "program.so";
  ASSERT_TRUE(write_file(file, "hello"));
  const auto v = verdict_on(folder->path());
  EXPECT_EQ(v.outcome, "not_elf");
  EXPECT_FALSE(v.compiled);
  expect_rejected(v, "loads");
}

TEST(Verify, MissingCandidateSaysWhatToDo) {
  auto v = verify(scale_bundle(), "/nowhere/at/all", {});
  ASSERT_FALSE(v);
  EXPECT_THAT(v.error().message, HasSubstr("There is no candidate"));
}

TEST(Verify, WrongOracleMeansNoVerdict) {
  // The stored expected output contradicts the graph: nobody can be judged by it.
  auto folder = TempFolder::create("verify-test");
  ir::Bundle b = scale_bundle();
  auto weights = ir::read_weights(b);
  auto stored = ir::read_case(b, "000");
  stored->expected[0].as<float>()[9] += 1;
  ASSERT_TRUE(ir::write_bundle(folder->path() / "bad.stitch", b, *weights, {*stored}));
  auto bad = ir::read_bundle(folder->path() / "bad.stitch");
  ASSERT_TRUE(bad);
  VerifyOptions options;
  options.target = Target::host;
  auto v = verify(*bad, build_candidate(test::kHonest), options);
  ASSERT_FALSE(v);
  EXPECT_THAT(v.error().message, HasSubstr("disagree"));
}

TEST(Verify, SanitizedBuildReportsFileAndLine) {
  ProcessSpec which;
  which.argv = {"g++", "-print-file-name=libasan.so"};
  auto found = run_process(which);
  std::string preload = found ? found->out : "";
  while (!preload.empty() && preload.back() == '\n') preload.pop_back();
  if (!std::filesystem::exists(preload)) GTEST_SKIP() << "no AddressSanitizer here";
  // Reads one element past the input: no wrong output, no damaged red zone, but a fault.
  const auto plain = build_candidate("static volatile float sink; RUN(honest(p, x, y); sink = x[256];)");
  ProcessSpec spec;
  const auto sanitized = plain.string() + ".asan.so";
  spec.argv = {"g++", "-std=c++20", "-O1", "-g", "-fPIC", "-shared", "-fsanitize=address", "-I", std::string(STITCH_SOURCE_ROOT) + "/include",
               plain.string() + ".cpp", "-o", sanitized};
  ASSERT_TRUE(run_process(spec)->ok());
  VerifyOptions options;
  options.checked_builds = {{sanitized, host::Sanitize::address}};
  const auto v = verdict_on(plain, options);
  expect_rejected(v, "memory_and_race_faults");
  EXPECT_THAT(v.find_guard("memory_and_race_faults")->evidence, HasSubstr("out_of_bounds"));
  EXPECT_THAT(v.find_guard("memory_and_race_faults")->evidence, HasSubstr(".cpp:"));
}

}  // namespace
}  // namespace stitch::verify
