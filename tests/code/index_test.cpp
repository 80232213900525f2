#include "code/expr/index.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

namespace stitch::code {
namespace {

TEST(Index, ViewsAndPermutesThatCancelGiveTheLinearIndexBack) {
  IndexSpace s;
  const Index i = s.variable("i", 2 * 3 * 4 * 5);
  EXPECT_EQ(s.ravel(s.unravel(i, {2, 3, 4, 5}), {2, 3, 4, 5}), i);
  const Coords merged = s.unravel(i, {6, 20});
  EXPECT_EQ(s.ravel(s.unravel(s.ravel(merged, {6, 20}), {2, 3, 4, 5}), {2, 3, 4, 5}), i);
}

TEST(Index, RowAndColumnOfALinearIndexAreFoundAgain) {
  IndexSpace s;
  const Index r = s.variable("r", 7), j = s.variable("j", 12);
  const Index linear = s.add(s.scale(r, 12), j);
  EXPECT_EQ(s.div(linear, 12), r);
  EXPECT_EQ(s.mod(linear, 12), j);
  const Coords c = s.unravel(linear, {7, 3, 4});
  EXPECT_EQ(c[0], r);
  EXPECT_EQ(s.add(s.scale(c[1], 4), c[2]), j);
}

TEST(Index, KnownRangesRemoveDivisions) {
  IndexSpace s;
  const Index i = s.variable("i", 8);
  EXPECT_EQ(s.mod(i, 8), i);
  EXPECT_EQ(s.div(i, 8), IndexSpace::constant(0));
  EXPECT_EQ(s.div(s.add(s.scale(i, 6), s.variable("j", 2)), 2), s.scale(i, 3));
  EXPECT_EQ(s.text(s.div(s.scale(i, 6), 4)), "i * 3 / 2");
}

TEST(Index, OneValueIsNoVariable) {
  IndexSpace s;
  EXPECT_TRUE(s.variable("i", 1).is_constant());
}

// Evaluates what the expression means, with division rounding down.
int64_t evaluate(const IndexSpace& s, const Index& a, const std::map<std::string, int64_t>& values) {
  int64_t sum = a.constant;
  for (const auto& [id, c] : a.terms) {
    const IndexSpace::Atom& atom = s.atom(id);
    int64_t v = 0;
    if (atom.kind == IndexSpace::Atom::Kind::variable) {
      v = values.at(atom.name);
    } else {
      const int64_t x = evaluate(s, atom.operand, values), d = atom.divisor;
      const int64_t q = x >= 0 ? x / d : -((d - 1 - x) / d);
      v = atom.kind == IndexSpace::Atom::Kind::quotient ? q : x - q * d;
    }
    EXPECT_GE(v, atom.range.min);
    EXPECT_LE(v, atom.range.max);
    sum += c * v;
  }
  return sum;
}

// Random expressions, built once symbolically and once by value: simplification must not change the value, and values
// must stay in the stated range.
TEST(Index, SimplificationKeepsTheValueOfRandomExpressions) {
  std::mt19937 random(20261201);
  const auto pick = [&](int64_t from, int64_t to) { return std::uniform_int_distribution<int64_t>(from, to)(random); };
  using Meaning = std::function<int64_t(const std::map<std::string, int64_t>&)>;
  const auto floor_div = [](int64_t x, int64_t d) { return x >= 0 ? x / d : -((d - 1 - x) / d); };
  for (int round = 0; round < 400; ++round) {
    IndexSpace s;
    std::vector<std::pair<Index, Meaning>> pool;
    std::map<std::string, int64_t> extents;
    for (const char* name : {"a", "b", "c"}) {
      const int64_t extent = pick(2, 12);
      extents[name] = extent;
      pool.emplace_back(s.variable(name, extent), [name = std::string(name)](const auto& v) { return v.at(name); });
    }
    for (int step = 0; step < 14; ++step) {
      const auto [x, fx] = pool[static_cast<size_t>(pick(0, static_cast<int64_t>(pool.size()) - 1))];
      const auto [y, fy] = pool[static_cast<size_t>(pick(0, static_cast<int64_t>(pool.size()) - 1))];
      const int64_t k = pick(1, 12), m = pick(-6, 6);
      switch (pick(0, 4)) {
        case 0: pool.emplace_back(s.add(x, y), [fx = fx, fy = fy](const auto& v) { return fx(v) + fy(v); }); break;
        case 1: pool.emplace_back(s.add(s.scale(x, k), m), [fx = fx, k, m](const auto& v) { return fx(v) * k + m; }); break;
        case 2: pool.emplace_back(s.div(x, k), [fx = fx, k, floor_div](const auto& v) { return floor_div(fx(v), k); }); break;
        case 3: pool.emplace_back(s.mod(x, k), [fx = fx, k, floor_div](const auto& v) { return fx(v) - k * floor_div(fx(v), k); }); break;
        default: pool.emplace_back(s.sub(x, y), [fx = fx, fy = fy](const auto& v) { return fx(v) - fy(v); }); break;
      }
      const IndexRange r = s.range(pool.back().first);
      if (r.max - r.min > 100000) pool.pop_back();
    }
    for (int sample = 0; sample < 20; ++sample) {
      std::map<std::string, int64_t> values;
      for (const auto& [name, extent] : extents) values[name] = pick(0, extent - 1);
      for (const auto& [index, meaning] : pool) {
        const int64_t expected = meaning(values);
        ASSERT_EQ(evaluate(s, index, values), expected) << s.text(index);
        const IndexRange r = s.range(index);
        ASSERT_TRUE(expected >= r.min && expected <= r.max) << s.text(index);
      }
    }
  }
}

}  // namespace
}  // namespace stitch::code
