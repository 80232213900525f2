// PyTorch as oracle and baseline, on the CPU: what the GPU target does with it, without a GPU.
#include "verify/reference_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/process.h"

namespace stitch::verify {
namespace {

using ::testing::HasSubstr;

const char* kModel = R"py(
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.norm = torch.nn.BatchNorm1d(width)

    def forward(self, x):
        print("a model may print")
        return self.norm(self.linear(x)) + torch.ones(1)

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return [16]
)py";

bool have_torch() {
  const auto python = data_home() / "venv" / "bin" / "python";
  return std::filesystem::exists(python);
}

struct Setting {
  TempFolder folder = std::move(*TempFolder::create("reference-test"));
  ir::Bundle bundle;
  ReferenceWorker::Spec spec;
  Setting() {
    spec.source = folder.path() / "model.py";
    spec.device = "cpu";
    spec.precision_class = "fp32";
    EXPECT_TRUE(write_file(spec.source, kModel));
    bundle.name = "model";
    bundle.mode = "train";
    bundle.origin = {spec.source.string(), sha256_hex(kModel), "kernelbench", "", 42};
    bundle.inputs = {{"x", {ir::DType::f32, {8, 16}}, {}}};
    bundle.graph = *ir::parse(
        "%0: f32[8,16] = input() {name=\"x\"}\n%1: f32[16] = weight() {name=\"norm.running_mean\"}\n"
        "%2: f32[8,16] = relu(%0)\nreturn %2 {name=\"output0\"}, %1 {name=\"new\", mutates_weight=\"norm.running_mean\"}\n");
  }
};

TEST(ReferenceWorker, BuildsTheEagerBaseline) {
  if (!have_torch()) GTEST_SKIP() << "no torch here";
  Setting s;
  auto worker = ReferenceWorker::start(s.bundle, s.spec);
  ASSERT_TRUE(worker);
  ASSERT_TRUE((*worker)->build_baseline("eager"));
  auto unknown = (*worker)->build_baseline("warp_speed");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("warp_speed"));
}

TEST(ReferenceWorker, ChangedSourceIsRefused) {
  if (!have_torch()) GTEST_SKIP() << "no torch here";
  Setting s;
  ASSERT_TRUE(write_file(s.spec.source, std::string(kModel) + "\n# edited\n"));
  auto worker = ReferenceWorker::start(s.bundle, s.spec);
  ASSERT_FALSE(worker);
  EXPECT_THAT(worker.error().message, HasSubstr("has changed since"));
}

TEST(ReferenceWorker, MissingSourceSaysSo) {
  Setting s;
  s.spec.source = "/nowhere/model.py";
  auto worker = ReferenceWorker::start(s.bundle, s.spec);
  ASSERT_FALSE(worker);
  EXPECT_THAT(worker.error().message, HasSubstr("/nowhere/model.py"));
}

}  // namespace
}  // namespace stitch::verify
