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
            {artefact}};
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

// Whatever happens to the files of a step between two runs: it and all later ones are done again, and the log says why.
TEST_F(Fixture, ChangedOutputsAreMadeAgain) {
  const auto change = [&](const std::string& name, const std::function<void(const fs::path&)>& damage, const std::string& reason) {
    SCOPED_TRACE(name);
    fs::remove(folder.path() / "trace.txt");
    bool broken = true;
    const fs::path sub = folder.path() / "sub";
    auto steps = std::vector{step("a"), step("b", [&](const StepContext&) -> Result<StepResult> {
                               fs::remove_all(sub);
                               for (const char* file : {"one", "deep/two"}) EXPECT_TRUE(write_file(sub / file, "text"));
                               return StepResult{};
                             }), step("c"), step("d", [&](const StepContext&) -> Result<StepResult> {
                               if (broken) return fail(ErrorKind::environment, "no");
                               return StepResult{};
                             })};
    steps[1].outputs.push_back(sub);
    EXPECT_FALSE(run(steps, name));
    broken = false;
    damage(sub);
    seen.clear();
    EXPECT_TRUE(run(steps, name));
    EXPECT_EQ(trace(), reason.empty() ? "a\nb\nc\nd\nd\n" : "a\nb\nc\nd\nb\nc\nd\n");
    const auto resumed = std::find_if(seen.begin(), seen.end(), [](const Event& e) { return e.kind == EventKind::run_resumed; });
    ASSERT_NE(resumed, seen.end());
    EXPECT_EQ(resumed->text, reason.empty() ? "going on with d" : "going on with b, because " + reason);
  };
  change("nothing", [](const fs::path&) {}, "");
  change("more files", [](const fs::path& sub) { ASSERT_TRUE(write_file(sub / "notes", "mine")); }, "");
  change("edited", [](const fs::path& sub) { ASSERT_TRUE(append_line(sub / "one", "x")); }, "one was changed");
  change("same size", [](const fs::path& sub) {
    const auto before = fs::last_write_time(sub / "deep/two");
    ASSERT_TRUE(write_file(sub / "deep/two", "test"));
    fs::last_write_time(sub / "deep/two", before + std::chrono::microseconds(1));  // clocks of file systems may be coarse
  }, "two was changed");
  change("file", [](const fs::path& sub) { fs::remove(sub / "one"); }, "one is missing");
  change("folder", [](const fs::path& sub) { fs::remove_all(sub); }, "one is missing");
  change("kind", [](const fs::path& sub) { fs::remove(sub / "one"), fs::create_directory(sub / "one"); }, "one is missing");
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
