// The stages that need a GPU, with stand-ins for nvidia-smi, for `stitchcuda verify` and for the Python that runs KernelBench's evaluator.
#include <gmock/gmock.h>

#include <cstdlib>
#include <memory>

#include "base/files.h"
#include "base/json_full.h"
#include "suite/gpus.h"
#include "suite/stages.h"
#include "suite/summary.h"

namespace stitch::suite {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSmi = "#!/bin/sh\necho '0, GPU-aaaa, 100000, NVIDIA H200'\necho '1, GPU-bbbb, 100000, NVIDIA H200'\n";

// Answers by the problem's name, and notes where it ran.
constexpr const char* kVerify = R"SH(#!/bin/bash
so=$2
while [ $# -gt 0 ]; do [ "$1" = --out ] && out=$2; [ "$1" = --source ] && source=$2; shift; done
echo "$(basename "$(dirname "$so")") gpu=$CUDA_VISIBLE_DEVICES" >> "$(dirname "$so")/../../ran.txt"
case "$so" in
  *Right*) echo '{"valid": true, "correct": true, "target": "cuda", "outcome": "ok", "sentence": "Correct.",
    "precision": {"error": {"max": 1e-6, "norm": 1e-7}, "reference_error": null, "tolerance": {"max": 1e-4, "norm": 1e-5}}}' > "$out";;
  *Wrong*) echo '{"valid": true, "correct": false, "target": "cuda", "outcome": "wrong", "sentence": "Wrong results."}' > "$out"; exit 1;;
  *Cheat*) echo '{"valid": false, "correct": true, "target": "cuda", "outcome": "rules_broken", "sentence": "Not accepted."}' > "$out"; exit 1;;
  *Memory*) echo 'some noise' >&2; echo 'stitchcuda: The GPU has too little memory.' >&2; exit 4;;
  *Dies*) kill -SEGV $$;;
esac
)SH";

// "python -c ..." asks for PyTorch; "-m stitchcuda.kernelbench_eval ... --out FILE ... 1/2=FOLDER ..." evaluates.
constexpr const char* kPython = R"SH(#!/bin/bash
[ "$1" = -c ] && exit 0
results=""
while [ $# -gt 0 ]; do
  [ "$1" = --out ] && out=$2
  case "$1" in
    */*Right) results="$results,\"${1%%=*}\": {\"compiled\": true, \"correct\": true, \"reason\": \"\", \"max_error\": 1e-6, \"seconds\": 1,
      \"device_ms\": {\"own\": 3.0, \"vendor\": 1.0, \"copies\": 0.5, \"unknown\": 0.5}}";;
    */*Wrong) results="$results,\"${1%%=*}\": {\"compiled\": true, \"correct\": false, \"reason\": \"Off by one.\", \"max_error\": null, \"seconds\": 1}";;
    */*Memory) echo 'stitchcuda: No evaluator here.' >&2; exit 4;;
  esac
  shift
done
echo "{\"kernelbench\": {}, \"results\": {${results#,}}}" > "$out"
)SH";

class GpuStages : public ::testing::Test {
 protected:
  TempFolder folder_ = *TempFolder::create("gpu_stages");
  SuiteOptions options_;
  SuiteProgress progress_;
  std::string old_path_ = std::getenv("PATH");

  void SetUp() override {
    script("bin/nvidia-smi", kSmi);
    script("bin/verify", kVerify);
    script("bin/python", kPython);
    setenv("PATH", ((folder_.path() / "bin").string() + ":" + old_path_).c_str(), 1);
    setenv("STITCHCUDA_PYTHON", (folder_.path() / "bin/python").c_str(), 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    ASSERT_TRUE(write_file(folder_.path() / "kb/KernelBench/level1/1_x.py", ""));
    options_.root = folder_.path() / "kb";
    options_.out = folder_.path() / "out";
    options_.levels = {1};
    options_.step = Step::verify;
    options_.program = folder_.path() / "bin/verify";
    options_.gpu_jobs = 2;
  }
  void TearDown() override {
    setenv("PATH", old_path_.c_str(), 1);
    unsetenv("STITCHCUDA_PYTHON");
  }
  void script(const char* name, const char* text) {
    ASSERT_TRUE(write_file(folder_.path() / name, text));
    fs::permissions(folder_.path() / name, fs::perms::owner_all);
  }
  // A suite whose problems are built.
  std::unique_ptr<Suite> built(const std::vector<std::string>& names) {
    auto s = std::unique_ptr<Suite>(new Suite{options_, {"capture", "product"}, 1, true, {}, {}, 0, "commit", progress_});
    int id = 0;
    for (const std::string& name : names) {
      Row r;
      r.problem = {1, ++id, name, "/kb/" + name + ".py"};
      for (const Step step : {Step::capture, Step::plan, Step::code, Step::build}) r.finish(step, 0.1);
      r.gpu_bytes = uint64_t{1} << 20;
      EXPECT_TRUE(write_file(options_.out / r.problem.folder() / "program.so", name));
      EXPECT_TRUE(write_file(options_.out / r.problem.folder() / "model_new.py", name));
      s->rows.push_back(r);
    }
    return s;
  }
  static const Row& row(const Suite& s, const std::string& name) {
    for (const Row& r : s.rows)
      if (r.problem.name == name) return r;
    throw std::logic_error("no row " + name);
  }
};

TEST_F(GpuStages, EachVerdictIsTakenForWhatItSays) {
  const auto s = built({"Right", "Wrong", "Cheat", "Memory", "Dies"});
  ASSERT_TRUE(build_and_verify(*s));
  const Row& right = row(*s, "Right");
  EXPECT_EQ(right.correct, true);
  EXPECT_EQ(right.max_error, 1e-6);
  EXPECT_EQ(right.tolerance, 1e-4);
  EXPECT_FALSE(right.reference_max_error);
  for (const char* name : {"Wrong", "Cheat"}) {
    EXPECT_EQ(row(*s, name).correct, false) << name;
    EXPECT_TRUE(row(*s, name).ok(Step::verify)) << "a verdict was reached";
    EXPECT_FALSE(row(*s, name).passed(Step::verify));
  }
  for (const char* name : {"Memory", "Dies"}) {
    EXPECT_FALSE(row(*s, name).correct) << name;
    EXPECT_FALSE(row(*s, name).ok(Step::verify)) << name;
  }
  EXPECT_EQ(row(*s, "Memory").reason, "The GPU has too little memory.");
  EXPECT_THAT(row(*s, "Dies").reason, HasSubstr("signal 11"));
  EXPECT_THAT(*read_file(options_.out / "ran.txt"), ::testing::ContainsRegex("gpu=[01]\n"));
}

TEST_F(GpuStages, AVerdictStandsUntilTheProgramChanges) {
  const auto s = built({"Right", "Dies"});
  ASSERT_TRUE(build_and_verify(*s));
  fs::remove(options_.out / "ran.txt");
  ASSERT_TRUE(build_and_verify(*s));
  EXPECT_THAT(*read_file(options_.out / "ran.txt"), ::testing::Not(HasSubstr("Right"))) << "only the one without a verdict ran again";
  ASSERT_TRUE(write_file(options_.out / row(*s, "Right").problem.folder() / "program.so", "another"));
  ASSERT_TRUE(build_and_verify(*s));
  EXPECT_THAT(*read_file(options_.out / "ran.txt"), HasSubstr("Right"));
}

TEST_F(GpuStages, NothingBeginsAfterTheTimeThatWasGiven) {
  options_.stop_after = std::chrono::seconds(60);
  const auto s = built({"Right", "Wrong"});
  s->started -= std::chrono::seconds(61);
  ASSERT_TRUE(build_and_verify(*s));
  EXPECT_FALSE(fs::exists(options_.out / "ran.txt"));
  for (const Row& r : s->rows) EXPECT_FALSE(r.done[static_cast<size_t>(Step::verify)]) << "neither verified nor failed";
  s->started += std::chrono::seconds(61);
  ASSERT_TRUE(build_and_verify(*s));
  EXPECT_EQ(row(*s, "Right").correct, true);
}

TEST_F(GpuStages, OnlyVisibleGpusAreUsed) {
  setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb", 1);
  const auto gpus = find_gpus();
  unsetenv("CUDA_VISIBLE_DEVICES");
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].id, "GPU-bbbb");
  EXPECT_EQ(gpus[0].memory, uint64_t{100000} << 20);
  EXPECT_EQ(find_gpus().size(), 2u);
}

TEST_F(GpuStages, KernelBenchSaysWhatItFoundAndNothingElse) {
  const auto s = built({"Right", "Wrong", "Silent", "Right"});
  s->rows[3].gpu_bytes = uint64_t{90} << 30;  // alone
  s->rows[3].problem.id = 9;
  fs::copy(options_.out / "level1/004_Right", options_.out / "level1/009_Right", fs::copy_options::recursive);
  ASSERT_TRUE(kernelbench_all(*s));
  EXPECT_EQ(s->rows[0].correct_by_kernelbench, true);
  EXPECT_EQ(s->rows[0].kernelbench_max_error, 1e-6);
  EXPECT_EQ(s->rows[0].device_ms, (std::map<std::string, double>{{"own", 3.0}, {"library", 1.0}, {"other", 1.0}}));
  EXPECT_EQ(s->rows[1].correct_by_kernelbench, false);
  EXPECT_EQ(s->rows[1].kernelbench_reason, "Off by one.");
  EXPECT_FALSE(s->rows[2].correct_by_kernelbench) << "no result is neither right nor wrong";
  EXPECT_THAT(s->rows[2].kernelbench_reason, HasSubstr("exit code 0"));
  EXPECT_EQ(s->rows[3].correct_by_kernelbench, true);
}

TEST_F(GpuStages, DeviceTimeIsSharedOutByOwner) {
  const auto s = built({"A", "B", "C"});
  s->rows[0].device_ms = {{"own", 1.0}, {"library", 3.0}};
  s->rows[1].device_ms = {{"own", 12.0}};
  const Json share = to_json(*s).at("summary").at("time_share");
  EXPECT_EQ(share.at("problems"), 2);
  EXPECT_EQ(share.at("milliseconds"), 16.0);
  EXPECT_EQ(share.at("of_all_time").at("own"), 0.813);  // 13 of 16
  EXPECT_EQ(share.at("mean_of_problems").at("own"), 0.625);
  EXPECT_EQ(share.at("mean_of_problems").at("framework"), 0.0);
}

TEST_F(GpuStages, AnEvaluatorThatCannotRunGivesItsReason) {
  const auto s = built({"Memory"});
  ASSERT_TRUE(kernelbench_all(*s));
  EXPECT_FALSE(s->rows[0].correct_by_kernelbench);
  EXPECT_EQ(s->rows[0].kernelbench_reason, "No evaluator here.");
}

}  // namespace
}  // namespace stitch::suite
