// The plan says which skill writes each task: the one that the Coder then uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "code/coder.h"
#include "code/skill.h"
#include "ir/samples.h"
#include "plan/kinds.h"
#include "plan/prepare.h"

namespace stitch::testing {
namespace {

struct Coded {
  ir::Graph graph;
  plan::Plan plan;
};

Coded planned(const std::string& text, bool fuse) {
  const auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  auto prepared = plan::prepare(*g);
  EXPECT_TRUE(prepared);
  plan::PlanOptions options{*hw::find_device("h200"), hw::PrecisionClass::fp32};
  options.fuse = fuse;
  auto plan = plan::plan_builtin(*prepared, "skills", options);
  EXPECT_TRUE(plan);
  return {std::move(*prepared), std::move(*plan)};
}

TEST(PlanSkills, ThePlanNamesTheSkillThatTheCoderUses) {
  std::set<std::string> seen;
  std::vector<std::string> programs{"%0: f32[640,960] = input() {name=\"x\"}\n%1: f32[960,640] = permute(%0, dims=[1,0])\nreturn %1 {name=\"y\"}\n"};
  for (const std::string& sample : ir::test::all_samples()) programs.push_back(ir::test::program_with(sample));
  const auto is_special = [](const std::string& name) {
    return std::any_of(code::skills().begin(), code::skills().end(), [&](const code::Skill& s) { return s.name == name && s.special; });
  };
  for (const std::string& sample : programs)
    for (const bool fuse : {true, false})
      for (const bool generic_only : {false, true}) {
        Coded c = planned(sample, fuse);
        const code::CoderOptions options{hw::PrecisionClass::fp32, "sm_90", generic_only};
        const auto free = code::code_builtin(c.graph, c.plan, options);
        ASSERT_TRUE(free) << sample << ": " << free.error().message;
        ASSERT_TRUE(code::choose_skills(c.graph, c.plan, options));
        const auto read = plan::from_json(c.graph, plan::to_json(c.graph, c.plan));  // as a resumed run has it
        ASSERT_TRUE(read) << read.error().message;
        const auto bound = code::code_builtin(c.graph, *read, options);
        ASSERT_TRUE(bound) << sample << ": " << bound.error().message;
        std::map<std::string, std::string> used;
        for (const code::TaskSource& t : bound->tasks) used[t.task] = t.skill;
        ASSERT_EQ(free->tasks.size(), bound->tasks.size());
        for (size_t i = 0; i < free->tasks.size(); ++i) EXPECT_EQ(free->tasks[i].skill, bound->tasks[i].skill) << sample;
        for (const plan::Task& t : read->tasks) {
          EXPECT_EQ(t.skill, used[t.id]) << sample;
          seen.insert(t.skill);
          // A special skill and a kind of its name mean the same.
          const auto kind_of_skill = plan::kind_from_name(t.skill);
          if (kind_of_skill && is_special(t.skill)) {
            plan::Task as = t;
            as.kind = *kind_of_skill;
            EXPECT_TRUE(plan::kind_fits(c.graph, as)) << sample << ": a " << plan::name_of(t.kind) << " task by the skill " << t.skill;
          }
          if (t.kind == plan::TaskKind::generic && !generic_only) EXPECT_TRUE(t.skill == "generic") << sample << ": " << t.skill;
        }
      }
  for (const code::Skill& s : code::skills()) EXPECT_TRUE(seen.count(std::string(s.name))) << s.name << " writes no sample";
}

TEST(PlanSkills, ASkillThatCannotWriteTheTaskIsRefused) {
  Coded c = planned(ir::test::program_with("f32[2,3] = exp(%0)"), true);
  for (const char* skill : {"attention", "no such skill"}) {
    c.plan.tasks.back().skill = skill;
    const auto sources = code::code_builtin(c.graph, c.plan, {hw::PrecisionClass::fp32});
    ASSERT_FALSE(sources);
    EXPECT_EQ(sources.error().kind, ErrorKind::bad_input);
    EXPECT_NE(sources.error().message.find(fmt::format("asks for the skill \"{}\"", skill)), std::string::npos) << sources.error().message;
    EXPECT_NE(sources.error().message.find("softmax_columns"), std::string::npos) << sources.error().message;
  }
}

}  // namespace
}  // namespace stitch::testing
