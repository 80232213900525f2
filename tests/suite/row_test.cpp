#include "suite/row.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json_full.h"

namespace stitch::suite {
namespace {

Row sample() {
  Row r;
  r.problem = {1, 19, "ReLU", "/kb/19_ReLU.py"};
  r.sha256 = std::string(64, 'a');
  for (const Step s : {Step::capture, Step::plan, Step::code, Step::build, Step::verify}) r.finish(s, 0.5);
  r.nodes = 3, r.tasks = 2, r.kernels = 2, r.lines = 70;
  r.workspace_bytes = 1024, r.gpu_bytes = 4096, r.peak_memory_bytes = 1u << 30;
  r.aten_ops = {"aten.relu.default"};
  r.tasks_by_skill = {{"pointwise", 2}};
  r.link_libs = {"cublasLt"};
  r.correct = true;
  r.target = "cuda", r.outcome = "ok", r.sentence = "Correct.";
  r.max_error = 1e-6, r.tolerance = 1e-4;
  r.device_ms = {{"own", 0.75}, {"library", 0.25}};
  r.correct_by_kernelbench = false;
  r.kernelbench_reason = "Too far.";
  r.capture_key = "c", r.product_key = "p", r.verify_key = "v", r.kernelbench_key = "k";
  return r;
}

TEST(Row, IsReadBackAsSaved) {
  const TempFolder folder = *TempFolder::create("row");
  const Row r = sample();
  ASSERT_TRUE(save_row(folder.path(), r));
  const Row back = load_row(folder.path(), r.problem);
  EXPECT_EQ(to_json(back), to_json(r));
  EXPECT_EQ(back.capture_key, "c");
  EXPECT_EQ(back.product_key, "p");
  EXPECT_EQ(back.verify_key, "v");
  EXPECT_EQ(back.kernelbench_key, "k");
}

TEST(Row, ADamagedFileStartsTheProblemOver) {
  const TempFolder folder = *TempFolder::create("row");
  for (const char* text : {"", "{", "[]", "{\"captured\": 7}", "{\"seconds\": {}, \"captured\": true}"}) {
    ASSERT_TRUE(write_file(folder.path() / "row.json", text));
    const Row r = load_row(folder.path(), {1, 2, "x", "x.py"});
    EXPECT_FALSE(r.ok(Step::capture)) << text;
    EXPECT_EQ(r.problem.id, 2);
  }
}

TEST(Row, NotRunIsNullAndNeverPassed) {
  Row r;
  r.finish(Step::capture, 1);
  EXPECT_TRUE(to_json(r).at("built").is_null());
  EXPECT_TRUE(to_json(r).at("correct").is_null());
  EXPECT_TRUE(r.passed(Step::capture));
  EXPECT_FALSE(r.passed(Step::build));
  EXPECT_FALSE(r.passed(Step::verify));
  r.finish(Step::plan, 1, Error{ErrorKind::internal, "Broken.", ""});
  EXPECT_TRUE(r.failed());
  EXPECT_EQ(to_json(r).at("planned"), false);
  EXPECT_EQ(r.reason, "Broken.");
}

TEST(Row, AVerdictThatSaysWrongIsAFailure) {
  Row r = sample();
  EXPECT_TRUE(r.passed(Step::verify));
  r.correct = false;
  EXPECT_TRUE(r.failed());
  EXPECT_FALSE(r.passed(Step::verify));
  EXPECT_TRUE(r.passed(Step::build));
}

TEST(Row, ForgettingAStepForgetsWhatFollowed) {
  Row r = sample();
  r.forget_from(Step::code);
  EXPECT_TRUE(r.ok(Step::plan));
  EXPECT_EQ(r.tasks, 2);
  EXPECT_EQ(r.kernels, 0);
  for (const Step s : {Step::code, Step::build, Step::verify}) EXPECT_FALSE(r.done[static_cast<size_t>(s)]) << name_of(s);
  EXPECT_FALSE(r.correct);
  EXPECT_FALSE(r.correct_by_kernelbench);
  EXPECT_EQ(r.aten_ops.size(), 1u);
}

}  // namespace
}  // namespace stitch::suite
