// PyTorch as oracle and baseline, on the CPU: what the GPU target does with it, without a GPU.
#include "verify/reference_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

std::vector<ir::Tensor> example_inputs() {
  auto x = ir::make_tensor("x", {ir::DType::f32, {8, 16}});
  for (int64_t i = 0; i < 128; ++i) ir::set(x, i, std::sin(static_cast<double>(i)));
  return {x};
}

TEST(ReferenceWorker, AnswersInDoublePrecisionAndRepeats) {
  if (!have_torch()) GTEST_SKIP() << "no torch here";
  Setting s;
  auto worker = ReferenceWorker::start(s.bundle, s.spec);
  ASSERT_TRUE(worker) << worker.error().message << worker.error().detail;
  auto oracle = torch_oracle(**worker);
  auto exact = oracle->exact(example_inputs()), again = oracle->exact(example_inputs());
  auto reference = oracle->reference(example_inputs(), 0, 0x1p-24), moved = oracle->reference(example_inputs(), 1, 0x1p-24);
  ASSERT_TRUE(exact && again && reference && moved) << exact.error().message << exact.error().detail;
  ASSERT_EQ(exact->size(), 2u);
  // Train mode updates the running mean in place; the second call must start from the captured one again.
  EXPECT_EQ((*exact)[1].data, (*again)[1].data);
  double difference = 0, perturbation = 0;
  for (int64_t i = 0; i < 128; ++i) {
    difference = std::max(difference, std::abs(ir::get((*exact)[0], i) - ir::get((*reference)[0], i)));
    perturbation = std::max(perturbation, std::abs(ir::get((*moved)[0], i) - ir::get((*reference)[0], i)));
  }
  EXPECT_GT(difference, 1e-9);
  EXPECT_LT(difference, 1e-4);
  EXPECT_GT(perturbation, 0);
  EXPECT_LT(perturbation, 1e-4);
}

TEST(ReferenceWorker, SamplesAreThePiecesAskedFor) {
  if (!have_torch()) GTEST_SKIP() << "no torch here";
  Setting s;
  auto worker = ReferenceWorker::start(s.bundle, s.spec);
  ASSERT_TRUE(worker) << worker.error().message;
  const std::vector<Samples> where = {{{3, 2}, {120, 4}}, {}};
  auto whole = (*worker)->evaluate(example_inputs(), true, 0, 0);
  auto parts = (*worker)->evaluate(example_inputs(), true, 0, 0, &where);
  ASSERT_TRUE(whole && parts);
  ASSERT_EQ((*parts)[0].type.shape, (ir::Shape{6}));
  EXPECT_EQ(ir::get((*parts)[0], 1), ir::get((*whole)[0], 4));
  EXPECT_EQ(ir::get((*parts)[0], 5), ir::get((*whole)[0], 123));
  EXPECT_EQ((*parts)[1].type.shape, (ir::Shape{0}));
}

TEST(ReferenceWorker, TimesTheEagerBaseline) {
  if (!have_torch()) GTEST_SKIP() << "no torch here";
  Setting s;
  auto worker = ReferenceWorker::start(s.bundle, s.spec);
  ASSERT_TRUE(worker);
  ASSERT_TRUE((*worker)->build_baseline("eager"));
  auto times = (*worker)->time("eager", example_inputs(), 5, 1024);
  ASSERT_TRUE(times);
  ASSERT_EQ(times->size(), 5u);
  for (double t : *times) EXPECT_GT(t, 0);
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
