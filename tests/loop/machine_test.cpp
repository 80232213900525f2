#include "loop/machine.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"

namespace stitch::loop {
namespace {

struct Fixture : ::testing::Test {
  TempFolder folder = *TempFolder::create("machine");
  fs::path db = folder.path() / "runs.sqlite";
  std::vector<Event> seen;

  // A step that leaves a file behind and notes in trace.txt that it ran.
  Step step(const std::string& name, std::function<Result<StepResult>(const StepContext&)> run = {}) {
    const fs::path artefact = folder.path() / (name + ".artefact");
    return {name, name,
            [=, this](const StepContext& c) -> Result<StepResult> {
              (void)append_line(folder.path() / "trace.txt", name);
              if (run) {
                auto r = run(c);
                if (!r || !r->back_to.empty()) return r;
              }
              if (auto s = write_file(artefact, name); !s) return tl::make_unexpected(s.error());
              return StepResult{name + " done", "{\"by\":\"" + name + "\"}"};
            },
            [=] { return fs::exists(artefact); }};
  }
  Result<std::map<std::string, std::string>> run(const std::vector<Step>& steps, const std::string& key = "k") {
    auto store = RunStore::open(db);
    EventLog log(folder.path() / "events.jsonl", [this](const Event& e) { seen.push_back(e); });
    int64_t id = 0;
    auto result = run_steps(steps, {"p", "in.py", key, folder.path()}, *store, log, &id);
    if (result) {
      EXPECT_TRUE(store->finish(id, "done", "{}"));
    }
    return result;
  }
  std::string trace() { return read_file(folder.path() / "trace.txt").value_or(""); }
};

TEST_F(Fixture, RunsStepsInOrderAndRecordsThem) {
  const auto data = run({step("a"), step("b")});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(trace(), "a\nb\n");
  EXPECT_EQ(data->at("b"), "{\"by\":\"b\"}");
  const auto events = read_events(folder.path() / "events.jsonl");
  ASSERT_TRUE(events);
  EXPECT_EQ(events->size(), 5u);
}

TEST_F(Fixture, AFailedStepIsTakenUpAgain) {
  bool broken = true;
  const auto steps = std::vector{step("a"), step("b", [&](const StepContext&) -> Result<StepResult> {
                                   if (broken) return fail(ErrorKind::environment, "The disk is full.");
                                   return StepResult{};
                                 })};
  EXPECT_FALSE(run(steps));
  broken = false;
  EXPECT_TRUE(run(steps));
  EXPECT_EQ(trace(), "a\nb\nb\n");
}

TEST_F(Fixture, AnotherKeyStartsAfresh) {
  const auto steps = std::vector{step("a"), step("b", [](const StepContext&) -> Result<StepResult> { return fail(ErrorKind::candidate, "no"); })};
  EXPECT_FALSE(run(steps, "one"));
  EXPECT_FALSE(run(steps, "two"));
  EXPECT_EQ(trace(), "a\nb\na\nb\n");
}

TEST_F(Fixture, AMissingArtefactIsMadeAgain) {
  auto steps = std::vector{step("a"), step("b", [](const StepContext&) -> Result<StepResult> { return fail(ErrorKind::candidate, "no"); })};
  EXPECT_FALSE(run(steps));
  fs::remove(folder.path() / "a.artefact");
  EXPECT_FALSE(run(steps));
  EXPECT_EQ(trace(), "a\nb\na\nb\n");
}

TEST_F(Fixture, VerifierSendsTheRunBackWithFeedbackUntilAttemptsEnd) {
  const auto data = run({step("plan"), step("code"), step("verify", [](const StepContext& c) -> Result<StepResult> {
                           return c.attempt < 3 ? StepResult{"", "", "code", "wrong result"} : StepResult{};
                         })});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(trace(), "plan\ncode\nverify\ncode\nverify\ncode\nverify\n");
}

TEST_F(Fixture, EndlessRetriesEndWithTheLastReason) {
  const auto data = run({step("code"), step("verify", [](const StepContext&) -> Result<StepResult> { return StepResult{"", "", "code", "still wrong"}; })});
  ASSERT_FALSE(data);
  EXPECT_NE(data.error().message.find("still wrong"), std::string::npos);
}

// kill -9 in the middle of every step in turn: the second run does that step and the later ones, never an earlier one.
TEST_F(Fixture, ResumesAfterKillAtEveryStep) {
  const std::vector<std::string> names{"capture", "plan", "code", "build", "verify", "report"};
  for (size_t victim = 0; victim < names.size(); ++victim) {
    for (const auto& entry : fs::directory_iterator(folder.path()))
      if (entry.path().extension() == ".artefact" || entry.path().filename() == "trace.txt") fs::remove(entry.path());
    const auto steps = [&](bool lethal) {
      std::vector<Step> out;
      for (size_t i = 0; i < names.size(); ++i)
        out.push_back(step(names[i], [=](const StepContext&) -> Result<StepResult> {
          if (lethal && i == victim) raise(SIGKILL);
          return StepResult{};
        }));
      return out;
    };
    const std::string key = "kill" + std::to_string(victim);
    const pid_t child = fork();
    if (child == 0) {
      (void)run(steps(true), key);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ASSERT_TRUE(run(steps(false), key));
    std::string expected;
    for (size_t i = 0; i <= victim; ++i) expected += names[i] + "\n";
    for (size_t i = victim; i < names.size(); ++i) expected += names[i] + "\n";
    EXPECT_EQ(trace(), expected) << "killed in " << names[victim];
  }
}

TEST_F(Fixture, ALogLineCutByAKillIsIgnored) {
  ASSERT_TRUE(run({step("a")}));
  auto text = *read_file(folder.path() / "events.jsonl");
  ASSERT_TRUE(write_file(folder.path() / "events.jsonl", text + "{\"time\":1,\"eve"));
  const auto events = read_events(folder.path() / "events.jsonl");
  ASSERT_TRUE(events);
  EXPECT_EQ(events->size(), 3u);
}

}  // namespace
}  // namespace stitch::loop
