// When a reference that is lost itself excuses a candidate; the cases are shared with the device's judge.
#include "verify/judge.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "run/protocol.h"

namespace stitch::verify {
namespace {

ir::Tensor wave(ir::DType dtype, const ir::Shape& shape, double scale) {
  auto t = ir::make_tensor("y", {dtype, shape});
  for (int64_t i = 0; i < ir::numel(shape); ++i) ir::set(t, i, std::sin(0.7 * static_cast<double>(i) + 0.3) * scale);
  return t;
}

void add_one(ir::Tensor& t, int64_t start, int64_t count) {
  const int64_t n = ir::numel(t.type.shape);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t at = (start + 7919 * k) % n;
    ir::set(t, at, ir::get(t, at) + 1);
  }
}

ir::Tensor one_integer(int64_t value) {
  auto t = ir::make_tensor("calls", {ir::DType::i64, {1}});
  ir::set(t, 0, static_cast<double>(value));
  return t;
}

class Chaotic final : public Oracle {
 public:
  explicit Chaotic(const Json& outputs) : outputs_(outputs) {}
  Result<std::vector<ir::Tensor>> exact(const std::vector<ir::Tensor>&) override { return draw(-1); }
  Result<std::vector<ir::Tensor>> reference(const std::vector<ir::Tensor>&, int number, double) override { return draw(number); }
  std::string name() const override { return "test"; }

 private:
  std::vector<ir::Tensor> draw(int64_t number) const {
    std::vector<ir::Tensor> out;
    for (const Json& o : outputs_) {
      out.push_back(o.contains("exact") ? one_integer(o["exact"]) : wave(ir::DType::f64, o["shape"].get<ir::Shape>(), 1));
      if (number >= 0 && !o.contains("exact")) add_one(out.back(), 104729 * number, o["lost"]);
    }
    return out;
  }
  const Json& outputs_;
};

std::vector<ir::Tensor> answers(const Json& outputs) {
  std::vector<ir::Tensor> got;
  for (const Json& o : outputs) {
    got.push_back(o.contains("got") ? one_integer(o["got"]) : wave(ir::DType::f32, o["shape"].get<ir::Shape>(), 1 + o.value("scale", 0.0)));
    if (o.contains("got")) continue;
    add_one(got.back(), 1000003, o["wrong"]);
    std::fill_n(got.back().data.begin(), 4 * o.value("unwritten", 0), std::byte{0xFF});
  }
  return got;
}

TEST(Judge, ALostReferenceExcusesAsManyElementsAndNoPrecisionNorIntegers) {
  const auto text = read_file(source_root() / "tests/data/chaotic_cases.json");
  ASSERT_TRUE(text) << text.error().message;
  const auto data = parse_json(*text, "chaotic_cases.json");
  ASSERT_TRUE(data) << data.error().message;
  const Tolerance tolerance{(*data)["tolerance"][0], (*data)["tolerance"][1]};
  ASSERT_GE((*data)["cases"].size(), 10u);
  for (const Json& c : (*data)["cases"]) {
    const std::string name = c["name"];
    Chaotic oracle(c["outputs"]);
    Judge judge(oracle, tolerance, 0x1p-24);
    ASSERT_TRUE(judge.set_inputs({}));
    const auto j = judge.judge(answers(c["outputs"]), run::kPoisonNan);
    ASSERT_TRUE(j) << j.error().message;
    EXPECT_EQ(j->ok, c["ok"].get<bool>()) << name << ": " << j->sentence;
    EXPECT_EQ(j->sentence.empty(), j->ok) << name;
    if (j->ok) EXPECT_EQ(j->wrong, 0) << name;
  }
}

}  // namespace
}  // namespace stitch::verify
