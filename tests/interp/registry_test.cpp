#include <gtest/gtest.h>

#include "interp/rules.h"
#include "ir/ops.h"
#include "ir/samples.h"

namespace stitch::interp {
namespace {

TEST(Registry, EveryOpHasARule) {
  for (const ir::OpSchema& op : ir::all_ops()) {
    const bool leaf = op.name == "input" || op.name == "weight";
    EXPECT_EQ(find_rule(op.name) == nullptr, leaf) << op.name;
  }
}

// Leaves of the sample programs: small numbers, indices that fit every extent of the samples.
Value leaf(const ir::TensorType& type) {
  Value v = make_value(type);
  for (size_t k = 0; k < v.f.size(); ++k) v.f[k] = 0.1 + 0.07 * static_cast<double>(k % 11);
  for (size_t k = 0; k < v.i.size(); ++k) v.i[k] = static_cast<int64_t>(k % 2);
  return v;
}

TEST(Registry, EverySampleRuns) {
  for (const std::string& sample : ir::test::all_samples()) {
    const auto g = ir::parse(ir::test::program_with(sample));
    ASSERT_TRUE(g) << sample << ": " << g.error().message;
    ASSERT_TRUE(ir::validate(*g)) << sample;
    Values inputs, weights;
    for (int32_t n : g->inputs()) inputs.push_back(leaf(g->nodes[static_cast<size_t>(n)].type()));
    for (int32_t n : g->weights()) weights.push_back(leaf(g->nodes[static_cast<size_t>(n)].type()));
    size_t observed = 0;
    const auto check = [&](int32_t node, const Values& made) {
      ++observed;
      const ir::Node& n = g->nodes[static_cast<size_t>(node)];
      ASSERT_EQ(made.size(), n.types.size()) << sample;
      for (size_t k = 0; k < made.size(); ++k) {
        EXPECT_EQ(made[k].type, n.types[k]) << sample;
        EXPECT_EQ(static_cast<int64_t>(made[k].f.size() + made[k].i.size()), ir::numel(n.types[k].shape)) << sample;
        EXPECT_EQ(made[k].f.empty(), !made[k].floating() || ir::numel(n.types[k].shape) == 0) << sample;
      }
    };
    const auto out = run(*g, inputs, weights, {}, check);
    ASSERT_TRUE(out) << sample << ": " << out.error().message;
    EXPECT_EQ(observed, 1u) << sample;
  }
}

}  // namespace
}  // namespace stitch::interp
