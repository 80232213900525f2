#include "code/memory.h"

#include <gtest/gtest.h>

#include <random>

#include "hw/device.h"
#include "ir/builder.h"

namespace stitch::code {
namespace {

using ir::DType;
using ir::GraphBuilder;
using ir::ValueRef;

void expect_disjoint(const std::vector<Lifetime>& pieces, const Packing& packing) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(packing.offsets[i] % 256, 0u);
    if (pieces[i].bytes == 0) continue;
    EXPECT_LE(packing.offsets[i] + pieces[i].bytes, packing.total);
    for (size_t j = 0; j < i; ++j) {
      if (pieces[j].bytes == 0) continue;
      const bool together = pieces[i].first <= pieces[j].last && pieces[j].first <= pieces[i].last;
      const bool apart = packing.offsets[i] + pieces[i].bytes <= packing.offsets[j] || packing.offsets[j] + pieces[j].bytes <= packing.offsets[i];
      EXPECT_TRUE(!together || apart) << i << " and " << j << " are alive together and overlap";
    }
  }
}

TEST(Memory, RandomLifetimesNeverOverlap) {
  std::mt19937 random(7);
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> pieces;
    size_t most_alive = 0, sum = 0;
    for (int i = pick(1, 40); i > 0; --i) {
      const int first = pick(0, 20);
      pieces.push_back({static_cast<size_t>(pick(0, 5) == 0 ? 0 : pick(1, 5000)), first, first + pick(0, 6)});
    }
    for (int step = 0; step <= 26; ++step) {
      size_t alive = 0;
      for (const Lifetime& p : pieces) alive += p.first <= step && step <= p.last ? p.bytes : 0;
      most_alive = std::max(most_alive, alive);
    }
    for (const Lifetime& p : pieces) sum += (p.bytes + 255) / 256 * 256;
    const Packing packing = pack(pieces);
    expect_disjoint(pieces, packing);
    EXPECT_GE(packing.total, most_alive);
    EXPECT_LE(packing.total, sum);
  }
}

TEST(Memory, PiecesOfDifferentTimesShareTheirPlace) {
  const Packing packing = pack({{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 4}});
  EXPECT_EQ(packing.total, 1024u);
}

plan::Task task(const std::string& id, plan::TaskKind kind, std::vector<int32_t> nodes, std::vector<ValueRef> inputs, std::vector<ValueRef> outputs) {
  plan::Task t;
  t.id = t.name = id;
  t.kind = kind;
  t.nodes = std::move(nodes);
  t.inputs = std::move(inputs);
  t.outputs = std::move(outputs);
  return t;
}

TEST(Memory, OutputsAreWrittenInPlaceThroughViews) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::f32, {4, 6}});
  const auto y = b.op("exp", {{"x", x}});
  const auto z = b.op("view", {{"x", y}, {"size", ir::IntList{24}}});
  b.output("z", z);
  b.output("again", z);
  b.output("untouched", x);
  plan::Plan plan;
  plan.tasks = {task("t0", plan::TaskKind::pointwise, {y.node}, {x}, {y}), task("t1", plan::TaskKind::alias, {z.node}, {y}, {z})};
  const MemoryPlan m = plan_memory(b.graph(), plan, {0, 0});
  EXPECT_EQ(m.places.at(y).kind, Place::Kind::output);
  EXPECT_EQ(m.places.at(y).index, 0u);
  EXPECT_EQ(m.workspace_bytes, 0u);
  ASSERT_EQ(m.copies.size(), 2u);
  EXPECT_EQ(m.copies[0].output, 1u);
  EXPECT_EQ(m.copies[0].from.kind, Place::Kind::output);
  EXPECT_EQ(m.copies[1].output, 2u);
  EXPECT_EQ(m.copies[1].from.kind, Place::Kind::input);
}

TEST(Memory, AViewKeepsItsStorageAliveAndScratchIsApart) {
  GraphBuilder b;
  const auto x = b.input("x", {DType::f32, {4, 64}});
  const auto a = b.op("exp", {{"x", x}});
  const auto v = b.op("view", {{"x", a}, {"size", ir::IntList{64, 4}}});
  const auto c = b.op("neg", {{"x", x}});
  const auto d = b.op("view", {{"x", c}, {"size", ir::IntList{64, 4}}});
  const auto e = b.op("add", {{"x", v}, {"y", d}});
  b.output("e", e);
  plan::Plan plan;
  using plan::TaskKind;
  plan.tasks = {task("t0", TaskKind::pointwise, {a.node}, {x}, {a}), task("t1", TaskKind::alias, {v.node}, {a}, {v}),
                task("t2", TaskKind::pointwise, {c.node}, {x}, {c}), task("t3", TaskKind::alias, {d.node}, {c}, {d}),
                task("t4", TaskKind::pointwise, {e.node}, {v, d}, {e})};
  const MemoryPlan m = plan_memory(b.graph(), plan, {0, 0, 100, 0, 300});
  // a and c live until t4, and each task's scratch is apart from what the task reads and writes.
  const std::vector<Lifetime> lives = {{1024, 0, 4}, {1024, 2, 4}, {100, 2, 2}, {300, 4, 4}};
  Packing packing;
  packing.offsets = {m.places.at(v).offset, m.places.at(d).offset, m.scratch_offsets[2], m.scratch_offsets[4]};
  packing.total = m.workspace_bytes;
  expect_disjoint(lives, packing);
  EXPECT_EQ(m.places.at(a).offset, m.places.at(v).offset);
}

}  // namespace
}  // namespace stitch::code
