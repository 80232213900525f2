// Honest fp32 code for programs where rounding, overflow or ties make right answers look wrong, and broken code for the
// same programs. No honest program may fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/candidates.h"
#include "verify/verify.h"

namespace stitch::verify {
namespace {

std::string tensor_json(const std::string& name, const ir::TensorType& type) {
  std::string shape;
  for (int64_t e : type.shape) shape += (shape.empty() ? "" : ",") + std::to_string(e);
  return fmt::format(R"({{\"name\":\"{}\",\"dtype\":\"{}\",\"shape\":[{}]}})", name, ir::name_of(type.dtype), shape);
}

struct Program {
  TempFolder folder = std::move(*TempFolder::create("honest-test"));
  ir::Bundle bundle;
  std::string manifest;

  explicit Program(const std::string& graph) {
    ir::Bundle b;
    b.name = "program";
    b.mode = "eval";
    b.origin.kind = "hand";
    auto parsed = ir::parse(graph);
    EXPECT_TRUE(parsed) << parsed.error().message;
    b.graph = *parsed;
    EXPECT_TRUE(ir::validate(b.graph)) << ir::validate(b.graph).error().message;
    std::string inputs, outputs;
    for (int32_t n : b.graph.inputs()) {
      const auto& node = b.graph.nodes[static_cast<size_t>(n)];
      b.inputs.push_back({node.name, node.type(), {}});
      inputs += (inputs.empty() ? "" : ",") + tensor_json(node.name, node.type());
    }
    for (const auto& o : b.graph.outputs) outputs += (outputs.empty() ? "" : ",") + tensor_json(o.name, b.graph.type_of(o.value));
    manifest = fmt::format(R"(#define MANIFEST "{{\"target\":\"host\",\"inputs\":[{}],\"weights\":[],\"outputs\":[{}]}}")", inputs, outputs);
    manifest += "\n#define OWN_CREATE";
    const auto where = folder.path() / "program.stitch";
    auto written = ir::write_bundle(where, b, {}, {});
    EXPECT_TRUE(written) << written.error().message;
    auto read = ir::read_bundle(where);
    EXPECT_TRUE(read) << read.error().message;
    bundle = *read;
  }

  Verdict judge(const std::string& source) {
    VerifyOptions options;
    options.target = Target::host;
    options.precision = hw::PrecisionClass::fp32;
    const std::string create = "extern \"C\" stitch_program* stitch_create(const DLTensor* const*, int32_t, void*) { return new stitch_program{}; }\n";
    auto v = verify(bundle, test::build_candidate(create + source, manifest), options);
    EXPECT_TRUE(v) << v.error().message << v.error().detail;
    return v ? *v : Verdict{};
  }
};

void expect_right(const Verdict& v) { EXPECT_TRUE(v.valid && v.correct) << to_text(v); }
void expect_wrong(const Verdict& v) { EXPECT_FALSE(v.correct) << to_text(v); }

TEST(Honest, LayerNormOfConstantRows) {
  Program p("%0: f32[32,256] = input() {name=\"x\"}\n%1: f32[32,256] = layer_norm(%0, normalized_shape=[256])\nreturn %1 {name=\"y\"}\n");
  const char* two_pass = R"(RUN(for (int r = 0; r < 32; ++r) {
    float mean = 0, var = 0;
    for (int i = 0; i < 256; ++i) mean += x[r * 256 + i];
    mean /= 256;
    for (int i = 0; i < 256; ++i) var += (x[r * 256 + i] - mean) * (x[r * 256 + i] - mean);
    for (int i = 0; i < 256; ++i) y[r * 256 + i] = (x[r * 256 + i] - mean) / sqrtf(var / 256 + 1e-5f);
  }))";
  expect_right(p.judge(two_pass));
  // Forgets epsilon: the same on ordinary rows.
  const std::string without = std::string(two_pass).replace(std::string(two_pass).find(" + 1e-5f"), 8, "");
  expect_wrong(p.judge(without));
}

TEST(Honest, SoftmaxOfLargeValues) {
  Program p("%0: f32[16,300] = input() {name=\"x\"}\n%1: f32[16,300] = softmax(%0, dim=-1)\nreturn %1 {name=\"y\"}\n");
  const char* stable = R"(RUN(for (int r = 0; r < 16; ++r) {
    float m = -INFINITY, s = 0; float* a = x + r * 300; float* b = y + r * 300;
    for (int i = 0; i < 300; ++i) m = fmaxf(m, a[i]);
    for (int i = 0; i < 300; ++i) s += b[i] = expf(a[i] - m);
    for (int i = 0; i < 300; ++i) b[i] /= s;
  }))";
  expect_right(p.judge(stable));
  const std::string naive = std::string(stable).replace(std::string(stable).find("a[i] - m"), 8, "a[i]");
  expect_wrong(p.judge(naive));  // overflows where softmax does not
}

TEST(Honest, MatrixProductInAnyOrderOfSummation) {
  Program p("%0: f32[24,512] = input() {name=\"a\"}\n%1: f32[512,24] = input() {name=\"b\"}\n%2: f32[24,24] = matmul(%0, %1)\nreturn %2 {name=\"y\"}\n");
  const char* product = R"(RUN(float* b = static_cast<float*>(in[1]->data);
    for (int i = 0; i < 24; ++i) for (int j = 0; j < 24; ++j) { float s = 0; for (int k = 511; k >= 0; --k) s += x[i * 512 + k] * b[k * 24 + j]; y[i * 24 + j] = s; }))";
  expect_right(p.judge(product));
  // Drops the last of 512 terms.
  const std::string short_sum = std::string(product).replace(std::string(product).find("k = 511"), 7, "k = 510");
  expect_wrong(p.judge(short_sum));
  // TF32: operands cut to 10 bits of mantissa.
  const char* tf32 = R"(
    static float cut(float v) { uint32_t b; memcpy(&b, &v, 4); b = (b + 0x1000u) & 0xffffe000u; memcpy(&v, &b, 4); return v; }
    RUN(float* b = static_cast<float*>(in[1]->data);
    for (int i = 0; i < 24; ++i) for (int j = 0; j < 24; ++j) { float s = 0; for (int k = 0; k < 512; ++k) s += cut(x[i * 512 + k]) * cut(b[k * 24 + j]); y[i * 24 + j] = s; }))";
  const auto v = p.judge(tf32);
  expect_wrong(v);
  ASSERT_TRUE(v.find_guard("low_precision"));
  EXPECT_EQ(v.find_guard("low_precision")->state, GuardState::failed) << to_text(v);
}

TEST(Honest, ArgmaxWithTiesAndSums) {
  Program p("%0: f32[64,100] = input() {name=\"x\"}\n%1: i64[64] = argmax(%0, dim=1)\n%2: f32[] = sum(%0, dims=[])\nreturn %1 {name=\"i\"}, %2 {name=\"s\"}\n");
  const char* honest = R"(RUN(int64_t* index = static_cast<int64_t*>(out[0]->data); float* s = static_cast<float*>(out[1]->data);
    float partial[64];
    for (int r = 0; r < 64; ++r) { int best = 0; partial[r] = 0; for (int i = 0; i < 100; ++i) { partial[r] += x[r * 100 + i]; if (x[r * 100 + i] > x[r * 100 + best]) best = i; } index[r] = best; }
    *s = 0; for (int r = 0; r < 64; ++r) *s += partial[r];))";
  expect_right(p.judge(honest));
  const std::string last = std::string(honest).replace(std::string(honest).find("] > x["), 6, "] >= x[");
  expect_wrong(p.judge(last));  // the last of equal maxima: constant rows tell
}

TEST(Honest, LogOfNegativeValuesGivesTheSameNan) {
  Program p("%0: f32[8,128] = input() {name=\"x\"}\n%1: f32[8,128] = log(%0)\n%2: f32[8,128] = exp(%0)\nreturn %1 {name=\"l\"}, %2 {name=\"e\"}\n");
  expect_right(p.judge("RUN(float* e = static_cast<float*>(out[1]->data); for (int i = 0; i < 1024; ++i) { y[i] = logf(x[i]); e[i] = expf(x[i]); })"));
  expect_wrong(p.judge("RUN(float* e = static_cast<float*>(out[1]->data); for (int i = 0; i < 1024; ++i) { y[i] = logf(fabsf(x[i])); e[i] = expf(x[i]); })"));
}

}  // namespace
}  // namespace stitch::verify
