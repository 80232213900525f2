#include "suite/suite.h"

#include <gmock/gmock.h>

#include "base/json_full.h"
#include "base/json_schema.h"
#include "base/json_util.h"
#include "build/toolkit.h"
#include "capture/capture.h"
#include "suite/planted.h"

namespace stitch::suite {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Suite : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::create("suite");
  fs::path root_ = folder_.path() / "kb", out_ = folder_.path() / "out";

  void SetUp() override {
    if (!capture::find_python()) GTEST_SKIP() << "no Python with PyTorch on this machine";
  }
  SuiteOptions options(Step step) {
    SuiteOptions o;
    o.root = root_;
    o.levels = {1};
    o.step = step;
    o.out = out_;
    o.jobs = 1;
    o.capture_timeout = std::chrono::seconds(60);
    return o;
  }
  static SuiteOutcome run(const SuiteOptions& o) {
    auto outcome = run_suite(o, {});
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome ? std::move(*outcome) : SuiteOutcome{};
  }
  // suite.json, checked against its schema.
  Json results() {
    const Json j = *parse_json(*read_file(out_ / "suite.json"), "suite.json");
    const Json schema = *parse_json(*read_file(fs::path(STITCH_SOURCE_ROOT) / "schemas/suite.schema.json"), "schema");
    const Status fits = validate_json(schema, j);
    EXPECT_TRUE(fits) << fits.error().message;
    return j;
  }
};

TEST_F(Suite, ABadProblemGetsItsReasonAndTheOthersGoOn) {
  ASSERT_TRUE(plant(root_, {
                               {"1_Good", model("return torch.relu(x)")},
                               {"2_Syntax", "def get_inputs(:\n"},
                               {"3_Missing", model("return x", "[torch.rand(4)]", "import no_such_package_of_anyone\n")},
                               {"4_NoTensors", model("return 3")},
                               {"5_TextInput", model("return x + 1", "['text']")},
                               {"6_Exits", model("return x", "[torch.rand(4)]", "import os\nos._exit(3)\n")},
                               {"7_Crashes", model("return x", "[torch.rand(4)]", "import ctypes\nctypes.string_at(0)\n")},
                               {"8_KillsTheWorker", model("return x", "[torch.rand(4)]", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")},
                               {"9_AlsoGood", model("return torch.softmax(x, -1)")},
                           }));
  const SuiteOutcome o = run(options(Step::code));
  ASSERT_EQ(o.rows.size(), 9u);
  EXPECT_FALSE(o.all_passed);
  const auto& r = o.rows;
  for (const size_t good : {size_t{0}, size_t{8}}) {
    EXPECT_TRUE(r[good].ok(Step::code)) << r[good].reason;
    EXPECT_TRUE(fs::exists(out_ / r[good].problem.folder() / "kernels.cu"));
    EXPECT_EQ(r[good].nodes, 1);
    EXPECT_EQ(r[good].aten_ops.size(), 1u);
    EXPECT_GT(r[good].peak_memory_bytes, 1u << 20);
  }
  EXPECT_THAT(r[1].reason, HasSubstr("2_Syntax.py, line 1"));
  EXPECT_THAT(r[2].reason, HasSubstr("no_such_package_of_anyone"));
  EXPECT_THAT(r[3].reason, HasSubstr("returns no tensor"));
  EXPECT_THAT(r[4].reason, ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(r[5].reason, HasSubstr("exit code 3"));
  EXPECT_THAT(r[6].reason, HasSubstr("signal 11"));
  EXPECT_THAT(r[7].reason, ::testing::Not(::testing::IsEmpty()));
  for (size_t i = 1; i < 8; ++i) {
    EXPECT_EQ(r[i].done[0], false) << i;
    EXPECT_FALSE(r[i].done[1]) << "a later step of a failed problem is not run";
    EXPECT_FALSE(fs::exists(out_ / r[i].problem.folder() / "program.stitch"));
  }
  const Json j = results();
  const Json& s = j.at("summary");
  EXPECT_EQ(s.at("problems"), 9);
  EXPECT_EQ(s.at("captured"), 2);
  EXPECT_EQ(s.at("coded"), 2);
  EXPECT_EQ(s.at("failed"), 7);
  EXPECT_EQ(s.at("built"), 0);
  EXPECT_EQ(s.at("aten_ops_met"), 2);
  EXPECT_THAT(*read_file(o.table_file), AllOf(HasSubstr("1/1 Good | yes"), HasSubstr("1/2 Syntax | **no**"), HasSubstr("no\\_such\\_package")));
}

TEST_F(Suite, AHangingProblemIsEnded) {
  ASSERT_TRUE(plant(root_, {{"1_Hangs", model("return x", "[torch.rand(4)]", "import signal\nsignal.pause()\n")}, {"2_Good", model("return x * 2")}}));
  SuiteOptions o = options(Step::capture);
  o.capture_timeout = std::chrono::seconds(10);
  const SuiteOutcome outcome = run(o);
  EXPECT_THAT(outcome.rows.at(0).reason, HasSubstr("did not finish in 10 s"));
  EXPECT_TRUE(outcome.rows.at(1).ok(Step::capture)) << outcome.rows.at(1).reason;
}

TEST_F(Suite, GoesOnFromWhatAnEarlierRunFinished) {
  ASSERT_TRUE(plant(root_, {{"1_A", model("return torch.relu(x)")}, {"2_B", model("return torch.tanh(x)")}}));
  ASSERT_TRUE(run(options(Step::capture)).all_passed);
  const fs::path a = out_ / "level1/001_A", b = out_ / "level1/002_B";
  const auto captured = fs::last_write_time(a / "program.stitch/program.json");

  std::vector<std::string> did;
  const auto note = [&](Step step, size_t, size_t, const Row& row) { did.push_back(fmt::format("{} {}", name_of(step), row.problem.name)); };
  ASSERT_TRUE(run_suite(options(Step::code), note)->all_passed);
  EXPECT_THAT(did, ::testing::ElementsAre("plan A", "plan B", "code A", "code B"));
  EXPECT_EQ(fs::last_write_time(a / "program.stitch/program.json"), captured);

  did.clear();
  fs::remove(b / "kernels.cu");
  fs::create_directories(a / ".program.stitch.half");  // of a capture that was killed
  ASSERT_TRUE(run_suite(options(Step::code), note)->all_passed);
  EXPECT_THAT(did, ::testing::ElementsAre("code B"));
  EXPECT_FALSE(fs::exists(a / ".program.stitch.half"));

  did.clear();
  ASSERT_TRUE(plant(root_, {{"1_A", model("return torch.relu(x) + 1")}}));
  ASSERT_TRUE(run_suite(options(Step::code), note)->all_passed);
  EXPECT_THAT(did, ::testing::ElementsAre("capture A", "plan A", "code A"));

  did.clear();
  SuiteOptions fresh = options(Step::plan);
  fresh.fresh = true;
  fresh.problems = "2";
  ASSERT_TRUE(run_suite(fresh, note)->all_passed);
  EXPECT_THAT(did, ::testing::ElementsAre("capture B", "plan B"));
}

TEST_F(Suite, AFailedProblemIsTriedAgain) {
  ASSERT_TRUE(plant(root_, {{"1_A", "import no_such_package_of_anyone\n"}}));
  EXPECT_FALSE(run(options(Step::plan)).all_passed);
  ASSERT_TRUE(plant(root_, {{"1_A", model("return x * x")}}));
  const SuiteOutcome o = run(options(Step::plan));
  EXPECT_TRUE(o.all_passed);
  EXPECT_EQ(o.rows.at(0).reason, "");
  EXPECT_EQ(results().at("summary").at("failed"), 0);
}

TEST_F(Suite, BuildsForTheGpuWithoutOne) {
  if (build::find_cuda_toolkit().nvcc.empty()) GTEST_SKIP() << "no nvcc on this machine";
  ASSERT_TRUE(plant(root_, {{"1_A", model("return torch.nn.functional.gelu(x).sum(-1)")}}));
  const SuiteOutcome o = run(options(Step::build));
  ASSERT_TRUE(o.all_passed) << o.rows.at(0).reason;
  EXPECT_TRUE(fs::exists(out_ / "level1/001_A/program.so"));
  EXPECT_EQ(results().at("summary").at("built"), 1);
}

TEST_F(Suite, VerifiesOnTheHostTarget) {
  if (build::find_cuda_toolkit().nvcc.empty()) GTEST_SKIP() << "no nvcc on this machine";
  ASSERT_TRUE(plant(root_, {{"1_A", model("return torch.relu(x) + 1")}}));
  SuiteOptions o = options(Step::verify);
  o.target = "host";
  o.program = STITCH_BINARY;
  if (!fs::exists(o.program)) GTEST_SKIP() << "the stitchcuda program is not built";
  const SuiteOutcome outcome = run(o);
  const Row& r = outcome.rows.at(0);
  EXPECT_TRUE(outcome.all_passed) << r.reason << r.sentence;
  EXPECT_EQ(r.target, "host");
  ASSERT_TRUE(r.max_error && r.tolerance);
  EXPECT_LT(*r.max_error, *r.tolerance);
  EXPECT_FALSE(r.correct_by_kernelbench) << "its evaluator needs a GPU";
  EXPECT_TRUE(fs::exists(out_ / "level1/001_A/verdict.json"));
  EXPECT_EQ(results().at("summary").at("correct"), 1);
}

TEST_F(Suite, RefusesAFolderOfOthers) {
  ASSERT_TRUE(plant(root_, {{"1_A", model("return x")}}));
  ASSERT_TRUE(write_file(out_ / "thesis.txt", "mine"));
  const auto o = run_suite(options(Step::capture), {});
  ASSERT_FALSE(o);
  EXPECT_EQ(o.error().kind, ErrorKind::bad_input);
}

}  // namespace
}  // namespace stitch::suite
