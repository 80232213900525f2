#include "capture/capture.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "base/files.h"
#include "ir/bundle.h"

namespace stitch::capture {
namespace {

using ::testing::HasSubstr;

fs::path example(const std::string& name) { return fs::path(STITCH_SOURCE_ROOT) / "examples" / name; }

std::vector<std::string> ops_of(const ir::Graph& g) {
  std::vector<std::string> out;
  for (const ir::Node& n : g.nodes) out.emplace_back(n.op_name());
  return out;
}

// A captured bundle needs no PyTorch to be read: the IR's rules hold, and bytes agree with the declared types.
TEST(ExampleBundles, AreReadWithWeightsAndCases) {
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(example(""))) {
    if (entry.path().extension() != ".stitch") continue;
    ++seen;
    const auto bundle = ir::read_bundle(entry.path());
    ASSERT_TRUE(bundle) << entry.path() << ": " << bundle.error().message;
    const auto weights = ir::read_weights(*bundle);
    ASSERT_TRUE(weights) << weights.error().message;
    EXPECT_EQ(weights->size(), bundle->weights.size());
    ASSERT_FALSE(bundle->case_names.empty()) << entry.path();
    for (const std::string& name : bundle->case_names) {
      const auto c = ir::read_case(*bundle, name);
      ASSERT_TRUE(c) << c.error().message;
      EXPECT_EQ(c->inputs.size(), bundle->inputs.size());
      EXPECT_EQ(c->expected.size(), bundle->graph.outputs.size());
    }
  }
  EXPECT_GE(seen, 3);
}

TEST(ExampleBundles, TrainModeBatchNormReturnsItsUpdatedBuffers) {
  const auto bundle = ir::read_bundle(example("conv_bn_relu.stitch"));
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ(bundle->mode, "train");
  const auto& outputs = bundle->graph.outputs;
  EXPECT_EQ(std::count_if(outputs.begin(), outputs.end(), [](const ir::Output& o) { return o.kind == ir::Output::Kind::mutates_weight; }), 6);
}

class WithPyTorch : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!find_python()) GTEST_SKIP() << "no Python with PyTorch on this machine";
    auto folder = TempFolder::create("capture_test");
    ASSERT_TRUE(folder);
    folder_.emplace(std::move(*folder));
  }
  CaptureOptions options(const std::string& target) const {
    CaptureOptions o;
    o.target = target;
    o.out = folder_->path() / "out.stitch";
    return o;
  }
  fs::path write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(write_file(folder_->path() / name, text));
    return folder_->path() / name;
  }
  std::optional<TempFolder> folder_;
};

TEST_F(WithPyTorch, CapturesAnExampleAndReportsProgress) {
  std::vector<std::string> steps;
  const auto bundle = capture(options(example("softmax_mlp.py").string()), [&](const std::string& s) { steps.push_back(s); });
  ASSERT_TRUE(bundle) << bundle.error().message << "\n" << bundle.error().detail;
  EXPECT_EQ(ops_of(bundle->graph),
            (std::vector<std::string>{"input", "weight", "weight", "weight", "weight", "linear", "gelu", "linear", "softmax"}));
  EXPECT_EQ(bundle->case_names, std::vector<std::string>{"000"});
  EXPECT_FALSE(steps.empty());
}

TEST_F(WithPyTorch, AUserErrorKeepsItsKindAndLeavesNothingBehind) {
  const fs::path file = write("broken.py", "import torch\n\nclass Model(torch.nn.Module:\n    pass\n");
  const auto bundle = capture(options(file.string()), [](const std::string&) {});
  ASSERT_FALSE(bundle);
  EXPECT_EQ(bundle.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(bundle.error().message, HasSubstr("line 3"));
  EXPECT_FALSE(fs::exists(folder_->path() / "out.stitch"));
}

TEST_F(WithPyTorch, APrintingAndExitingProgramIsAnErrorNotACrash) {
  const fs::path file = write("exits.py", "import os\nprint('{\"ok\": true}', flush=True)\nos._exit(0)\n");
  const auto bundle = capture(options(file.string()), [](const std::string&) {});
  ASSERT_FALSE(bundle);
  EXPECT_EQ(bundle.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(bundle.error().message, HasSubstr("without an answer"));
}

TEST(FindPython, SaysWhatToDoWhenThereIsNoPyTorch) {
  const char* before = std::getenv("STITCHCUDA_PYTHON");
  const std::string saved = before ? before : "";
  setenv("STITCHCUDA_PYTHON", "/nonexistent/python", 1);
  const auto python = find_python();
  if (before) setenv("STITCHCUDA_PYTHON", saved.c_str(), 1);
  else unsetenv("STITCHCUDA_PYTHON");
  ASSERT_FALSE(python);
  EXPECT_EQ(python.error().kind, ErrorKind::environment);
  EXPECT_THAT(python.error().message, HasSubstr("make setup"));
}

}  // namespace
}  // namespace stitch::capture
