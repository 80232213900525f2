// The GPU protocol with a runtime and driver in host memory: PyTorch (on the CPU) owns the tensors, the candidate works on what it is lent.
#include "verify/device_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "run/candidates.h"
#include "verify/fake_cudart.h"
#include "verify/protocol_run.h"
#include "verify/speed.h"

namespace stitch::verify {
namespace {

using ::testing::HasSubstr;
using test::build_candidate;

const char* kManifest =
    R"(#define MANIFEST "{\"target\":\"cuda\",\"inputs\":[{\"dtype\":\"f32\",\"shape\":[4,64]}],\"weights\":[{\"dtype\":\"f32\",\"shape\":[64]}],\"outputs\":[{\"dtype\":\"f32\",\"shape\":[4,64]}]}")";

const char* kScale = R"py(
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(64) + 3)

    def forward(self, x):
        return x * self.w

def get_inputs():
    return [torch.rand(4, 64)]

def get_init_inputs():
    return []
)py";

bool have_torch() { return std::filesystem::exists(data_home() / "venv" / "bin" / "python"); }

struct Checked {
  Verdict verdict;
  std::optional<run::CandidateFailure> failure;
  std::string error;
  TimedSide::Checked timed;
};

// A few timed calls between baseline calls, as SpeedRun makes them.
void time(DeviceSession& session, ReferenceWorker& reference, Checked& result) {
  auto begun = session.begin_timing();
  ASSERT_TRUE(begun) << begun.error().message;
  auto built = reference.build_baseline("eager");
  ASSERT_TRUE(built) << built.error().message << built.error().detail;
  for (int k = 0; k < 20; ++k) {
    auto call = session.call(1 << 16);
    ASSERT_TRUE(call && *call);
    EXPECT_GE((*call)->event_ms, 0);
  }
  auto baseline = session.baseline("eager", 4, 1 << 16);
  ASSERT_TRUE(baseline) << baseline.error().message;
  EXPECT_EQ(baseline->size(), 4u);
  auto checked = session.check();
  ASSERT_TRUE(checked) << checked.error().message << checked.error().detail;
  result.timed = *checked;
  auto last = session.last_call();
  ASSERT_TRUE(last && *last);
  EXPECT_TRUE((*last)->ok);
}

// The whole correctness protocol over a candidate for y = x * w with weights that lie nowhere on disk.
Checked check(const std::string& source) {
  TempFolder folder = std::move(*TempFolder::create("device-session"));
  ReferenceWorker::Spec reference;
  reference.source = folder.path() / "scale.py";
  reference.device = "cpu";
  reference.precision_class = "fp32";
  EXPECT_TRUE(write_file(reference.source, kScale));
  ir::Bundle bundle;
  bundle.name = "scale";
  bundle.mode = "eval";
  bundle.origin = {reference.source.string(), sha256_hex(kScale), "kernelbench", "", 42};
  bundle.graph = *ir::parse(
      "%0: f32[4,64] = input() {name=\"x\"}\n%1: f32[64] = weight() {name=\"w\"}\n%2: f32[4,64] = mul(%0, %1)\nreturn %2 {name=\"y\"}\n");
  bundle.inputs = {{"x", {ir::DType::f32, {4, 64}}, ir::Generator{"uniform", 0, 1, 0, ""}}};
  bundle.weights = {{"w", {ir::DType::f32, {64}}, {}}};
  VerifyOptions options;
  const Progress progress;
  CheckContext context{bundle, options, progress, infer_models(bundle, std::nullopt), std::nullopt, {}, nullptr, "PyTorch", {1e-4, 2e-5}, 0x1p-24, 0x1p-20, 99,
                       [] { return 0.0; }, true};
  run::WorkerSpec spec;
  spec.candidate = build_candidate(source, kManifest);
  spec.cuda = true;
  spec.cudart = spec.driver = test::fake_cudart();
  spec.library_folders = {spec.cudart.parent_path()};
  spec.call_timeout = std::chrono::seconds(10);

  Checked result;
  auto worker = ReferenceWorker::start(bundle, reference);
  if (!worker) return result.error = worker.error().message, result;
  auto session = DeviceSession::start(context, spec, **worker);
  if (!session) return result.error = session.error().message + session.error().detail, result;
  if (!*session) return result.failure = session->error(), result;
  auto checked = run_checks(context, ***session, result.verdict);
  if (!checked) return result.error = checked.error().message + checked.error().detail, result;
  result.failure = *checked;
  if (!result.failure && result.verdict.correct) time(***session, **worker, result);
  session->value().reset();
  if (result.failure || !result.verdict.correct) return result;
  auto again = check_weights_are_used_on_device(context, spec, **worker, result.verdict);
  if (!again) return result.error = again.error().message + again.error().detail, result;
  result.failure = *again;
  return result;
}

GuardState state_of(const Checked& c, const std::string& name) {
  const auto* g = c.verdict.find_guard(name);
  return g ? g->state : GuardState::not_run;
}

std::string evidence_of(const Checked& c, const std::string& name) {
  const auto* g = c.verdict.find_guard(name);
  return g ? g->evidence : "";
}

TEST(DeviceSession, AnHonestCandidatePassesEveryCheck) {
  if (!have_torch()) GTEST_SKIP() << "no torch here";
  const auto c = check(test::kHonest);
  ASSERT_EQ(c.error, "");
  EXPECT_FALSE(c.failure) << c.failure->sentence;
  EXPECT_TRUE(c.verdict.correct);
  EXPECT_EQ(c.verdict.deterministic, true);
  for (const char* guard : {"fresh_inputs", "property_inputs", "output_poison", "inputs_unmodified", "weights_unmodified", "out_of_bounds_writes", "late_writes",
                            "constant_output", "stale_result", "weights_used"})
    EXPECT_EQ(state_of(c, guard), GuardState::passed) << guard << ": " << evidence_of(c, guard);
  EXPECT_TRUE(std::any_of(c.verdict.sets.begin(), c.verdict.sets.end(), [](const SetResult& s) { return s.name == "own inputs" && s.ok; }));
  ASSERT_TRUE(c.verdict.kernelbench);
  EXPECT_TRUE(c.verdict.kernelbench->ok);
}

TEST(DeviceSession, TimedCallsAreLookedAt) {
  if (!have_torch()) GTEST_SKIP() << "no torch here";
  EXPECT_EQ(check(test::kHonest).timed.checked, 20);
  // Right in the untimed calls (there are 24 to 30), then a replay: new inputs in every call give it away.
  const auto c = check("static int calls; static float last[256]; RUN(if (++calls < 34 || calls > 44) { honest(p, x, y); memcpy(last, y, sizeof last); } else memcpy(y, last, sizeof last);)");
  ASSERT_EQ(c.error, "");
  EXPECT_GT(c.timed.wrong, 5);
  EXPECT_THAT(c.timed.first_wrong, HasSubstr("expected"));
}

struct Bad {
  const char *name, *source, *guard, *evidence;
};
void PrintTo(const Bad& b, std::ostream* out) { *out << b.name; }
const Bad kBad[] = {
    {"wrong_element", "RUN(honest(p, x, y); y[200] += 0.01f;)", "fresh_inputs", "expected"},
    {"unwritten_tail", "RUN(float keep = y[255]; honest(p, x, y); y[255] = keep;)", "output_poison", "never written"},
    {"writes_behind_the_output", "RUN(honest(p, x, y); y[257] = 3;)", "out_of_bounds_writes", "behind the end of output \"y\""},
    {"writes_before_the_input", "RUN(honest(p, x, y); x[-2] = 3;)", "out_of_bounds_writes", "before input \"x\""},
    {"changes_inputs_and_weights", "RUN(honest(p, x, y); x[0] = 0; const_cast<float*>(p->w)[1] = 0;)", "inputs_unmodified", "Input \"x\" was changed"},
    {"stale", "static float first[256]; static int calls; RUN(if (!calls++) { honest(p, x, first); } memcpy(y, first, sizeof first);)", "fresh_inputs", ""},
    {"late", "RUN(honest(p, x, y); std::thread([y] { usleep(10000); y[0] = 7; }).detach();)", "late_writes", "changed after"},
};

class DeviceCheats : public ::testing::TestWithParam<Bad> {};

TEST_P(DeviceCheats, AreCaught) {
  if (!have_torch()) GTEST_SKIP() << "no torch here";
  const auto c = check(GetParam().source);
  ASSERT_EQ(c.error, "");
  EXPECT_EQ(state_of(c, GetParam().guard), GuardState::failed);
  EXPECT_THAT(evidence_of(c, GetParam().guard), HasSubstr(GetParam().evidence));
}

INSTANTIATE_TEST_SUITE_P(All, DeviceCheats, ::testing::ValuesIn(kBad), [](const auto& info) { return std::string(info.param.name); });

TEST(DeviceSession, ACrashIsTheCandidatesFailure) {
  if (!have_torch()) GTEST_SKIP() << "no torch here";
  const auto c = check("RUN(*reinterpret_cast<volatile int*>(8) = 1;)");
  ASSERT_EQ(c.error, "");
  ASSERT_TRUE(c.failure);
  EXPECT_EQ(c.failure->kind, run::FailureKind::crashed);
}

}  // namespace
}  // namespace stitch::verify
