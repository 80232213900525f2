// The GPU half of the protocol over a runtime in host memory: what is timed must be checked.
#include "verify/speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "run/candidates.h"
#include "verify/fake_cudart.h"

namespace stitch::verify {
namespace {

using test::build_candidate;
using test::fake_cudart;

const char* kCudaManifest =
    R"(#define MANIFEST "{\"target\":\"cuda\",\"inputs\":[{\"dtype\":\"f32\",\"shape\":[4,64]}],\"weights\":[{\"dtype\":\"f32\",\"shape\":[64]}],\"outputs\":[{\"dtype\":\"f32\",\"shape\":[4,64]}]}")";

// y = x * w, computed without the interpreter.
class ScaleOracle final : public Oracle {
 public:
  explicit ScaleOracle(ir::Tensor w) : w_(std::move(w)) {}
  Result<std::vector<ir::Tensor>> exact(const std::vector<ir::Tensor>& inputs) override {
    auto y = ir::make_tensor("y", {ir::DType::f64, {4, 64}});
    for (int64_t i = 0; i < 256; ++i) ir::set(y, i, ir::get(inputs[0], i) * ir::get(w_, i % 64));
    return std::vector<ir::Tensor>{y};
  }
  Result<std::vector<ir::Tensor>> reference(const std::vector<ir::Tensor>& inputs, int, double) override { return exact(inputs); }
  std::string name() const override { return "test oracle"; }

 private:
  ir::Tensor w_;
};

struct Timed {
  Verdict verdict;
  std::optional<run::CandidateFailure> failure;
};

Timed time_candidate(const std::string& source) {
  ir::Bundle bundle;
  bundle.name = "scale";
  bundle.graph = *ir::parse(
      "%0: f32[4,64] = input() {name=\"x\"}\n%1: f32[64] = weight() {name=\"w\"}\n%2: f32[4,64] = mul(%0, %1)\nreturn %2 {name=\"y\"}\n");
  bundle.inputs = {{"x", {ir::DType::f32, {4, 64}}, {}}};
  bundle.weights = {{"w", {ir::DType::f32, {64}}, {}}};
  auto w = ir::make_tensor("w", bundle.weights[0].type);
  for (int64_t i = 0; i < 64; ++i) ir::set(w, i, 1 + 0.01 * static_cast<double>(i));
  ScaleOracle oracle(w);
  VerifyOptions options;
  options.timed_calls = 30;
  options.baselines = {"eager"};
  options.device = *hw::find_device("h200");
  const Progress progress;
  CheckContext context{bundle, options, progress, infer_models(bundle, std::nullopt), std::nullopt, {}, &oracle, oracle.name(), {1e-4, 2e-5}, 0x1p-24, 0x1p-20, 99, [] { return 0.0; }};
  run::WorkerSpec spec;
  spec.candidate = build_candidate(source, kCudaManifest);
  spec.cuda = true;
  spec.cudart = fake_cudart();
  spec.library_folders = {spec.cudart.parent_path()};
  spec.call_timeout = std::chrono::seconds(10);
  Timed result;
  auto session = Session::start(bundle, spec, {w});
  EXPECT_TRUE(session) << session.error().message;
  if (!session) return result;
  EXPECT_TRUE(*session) << session->error().sentence;
  if (!*session) return result;
  HostSets sets(context, ***session);
  auto checked = run_checks(context, sets, result.verdict);
  EXPECT_TRUE(checked) << checked.error().message;
  if (!checked || *checked) return result;
  auto speed = SpeedRun::start(bundle, options, result.verdict);
  EXPECT_TRUE(speed);
  const auto side = timed_in_host_memory(context, ***session);
  auto measured = (*speed)->measure(context, *side, result.verdict);
  EXPECT_TRUE(measured) << measured.error().message;
  if (measured) result.failure = *measured;
  return result;
}

GuardState state_of(const Verdict& v, const std::string& name) {
  const auto* g = v.find_guard(name);
  return g ? g->state : GuardState::not_run;
}

TEST(Speed, HonestCandidateIsTimedAndEveryCallChecked) {
  const auto t = time_candidate(test::kHonest);
  EXPECT_FALSE(t.failure);
  EXPECT_TRUE(t.verdict.correct);
  ASSERT_TRUE(t.verdict.latency_ms);
  EXPECT_EQ(t.verdict.latency_ms->samples.size(), 30u);
  for (const char* guard : {"timed_outputs", "streams_joined", "parent_clock", "inputs_unmodified", "out_of_bounds_writes", "roofline"})
    EXPECT_EQ(state_of(t.verdict, guard), GuardState::passed) << guard << ": " << t.verdict.find_guard(guard)->evidence;
  // No PyTorch source here: the baseline says "not run" and why.
  ASSERT_EQ(t.verdict.baselines.size(), 1u);
  EXPECT_FALSE(t.verdict.baselines[0].timing);
  EXPECT_FALSE(t.verdict.baselines[0].note.empty());
}

TEST(Speed, ReplayDuringTimingIsCaught) {
  const auto t = time_candidate(R"(
    static int calls; static float last[256];
    RUN(if (++calls <= 45) { honest(p, x, y); memcpy(last, y, sizeof last); } else memcpy(y, last, sizeof last);))");
  EXPECT_EQ(state_of(t.verdict, "timed_outputs"), GuardState::failed);
}

TEST(Speed, WritesBesideTheDeviceBufferAreCaught) {
  const auto t = time_candidate("RUN(honest(p, x, y); y[257] = 3;)");
  EXPECT_EQ(state_of(t.verdict, "out_of_bounds_writes"), GuardState::failed);
}

TEST(Speed, ChangedDeviceInputsAreCaught) {
  const auto t = time_candidate("RUN(honest(p, x, y); x[0] = 0; const_cast<float*>(p->w)[1] = 0;)");
  EXPECT_EQ(state_of(t.verdict, "inputs_unmodified"), GuardState::failed);
  EXPECT_EQ(state_of(t.verdict, "weights_unmodified"), GuardState::failed);
}

TEST(Speed, FakedEventTimesDisagreeWithTheParentsClock) {
  // The call takes 3 ms. The candidate finds the runtime in its own process and makes the elapsed time come out as zero.
  const auto t = time_candidate(R"(
    #include <dlfcn.h>
    #include <fstream>
    static void hook() {
      std::ifstream maps("/proc/self/maps");
      std::string path;
      for (std::string line; std::getline(maps, line);)
        if (line.find("libcudart.so") != std::string::npos) path = line.substr(line.find('/'));
      void* runtime = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
      auto* code = static_cast<unsigned char*>(dlsym(runtime, "cudaEventElapsedTime"));
      auto* page = reinterpret_cast<unsigned char*>(reinterpret_cast<uintptr_t>(code) & ~uintptr_t{4095});
      mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
      const unsigned char zero[] = {0xC7, 0x07, 0, 0, 0, 0, 0x31, 0xC0, 0xC3};  // *ms = 0; return 0
      memcpy(code, zero, sizeof zero);
      mprotect(page, 8192, PROT_READ | PROT_EXEC);
    }
    RUN(static bool done = (hook(), true); (void)done; usleep(3000); honest(p, x, y);))");
  EXPECT_EQ(state_of(t.verdict, "parent_clock"), GuardState::failed);
  EXPECT_EQ(state_of(t.verdict, "code_integrity"), GuardState::failed);
}

TEST(Speed, SlowHonestCandidateAgreesWithTheParentsClock) {
  const auto t = time_candidate("RUN(usleep(2000); honest(p, x, y);)");
  ASSERT_TRUE(t.verdict.latency_ms);
  EXPECT_GE(t.verdict.latency_ms->median, 2);
  EXPECT_EQ(state_of(t.verdict, "parent_clock"), GuardState::passed);
}

}  // namespace
}  // namespace stitch::verify
