#include "base/interrupt.h"

#include <gtest/gtest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/files.h"
#include "base/process.h"

namespace stitch {
namespace {

// `body` runs in a process of its own, which handles interrupts and writes a byte to `ready` when it can be interrupted.
struct Victim {
  explicit Victim(const std::function<void(int ready)>& body) {
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
      signal(SIGHUP, SIG_DFL);  // the tests may run under nohup
      handle_interrupts(" Advice.");
      body(ready[1]);
      _exit(99);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
  }
  ~Victim() { close(ready[0]); }
  int exit_code() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  pid_t pid = 0;
  int ready[2];
};

void tell(int ready) { [[maybe_unused]] const ssize_t n = write(ready, "x", 1); }

struct Interrupts : ::testing::TestWithParam<int> {
  TempFolder folder = *TempFolder::create("interrupt");
};

INSTANTIATE_TEST_SUITE_P(Signals, Interrupts, ::testing::Values(SIGINT, SIGTERM, SIGHUP), [](const auto& s) { return std::string(sigabbrev_np(s.param)); });

TEST_P(Interrupts, EndChildrenRemoveTemporaryFoldersAndTellByTheExitCode) {
  setenv("TMPDIR", folder.path().c_str(), 1);
  const fs::path pids = folder.path() / "pids";
  const Victim victim([&](int ready) {
    const auto temporary = TempFolder::create("victim");
    ProcessSpec spec;  // the child and its own child write for as long as they live
    spec.argv = {"sh", "-c", "cd \"$1\"; (while :; do echo > \"$(mktemp -p .)\"; done) & echo $$ $! > ../pids; echo; while :; do echo > \"$(mktemp -p .)\"; done",
                 "sh", temporary->path().string()};
    spec.on_stdout_line = [&](std::string_view) { tell(ready); };
    (void)run_process(spec);
  });
  kill(victim.pid, GetParam());
  EXPECT_EQ(victim.exit_code(), 128 + GetParam());
  pid_t child = 0, grandchild = 0;
  const auto text = read_file(pids);
  ASSERT_TRUE(text) << text.error().message;
  ASSERT_EQ(sscanf(text->c_str(), "%d %d", &child, &grandchild), 2);
  for (const pid_t p : {child, grandchild}) {
    // Whoever is their parent now may take its time to reap them.
    const auto dead = [&] {
      const std::string stat = read_file(fmt::format("/proc/{}/stat", p)).value_or("(gone) Z");
      return stat[stat.rfind(')') + 2] == 'Z';
    };
    for (int i = 0; i < 1000 && !dead(); ++i) usleep(1000);
    EXPECT_TRUE(dead());
  }
  fs::remove(pids);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  unsetenv("TMPDIR");
}

TEST_P(Interrupts, ASecondOneDoesNotWaitForTidyingUp) {
  const fs::path begun = folder.path() / "begun";
  const Victim victim([&](int ready) {
    const OnInterrupt stuck([&] {
      (void)write_file(begun, "");
      while (true) pause();
    });
    tell(ready);
    while (true) pause();
  });
  kill(victim.pid, GetParam());
  while (!fs::exists(begun)) usleep(1000);
  kill(victim.pid, SIGTERM);
  EXPECT_EQ(victim.exit_code(), 128 + SIGTERM);
}

TEST(Interrupt, WhatIsDoneWithIsNotTidiedUpAgain) {
  const auto folder = *TempFolder::create("interrupt");
  const Victim victim([&](int ready) {
    const auto mark = [&](const char* name) { return [&, name] { (void)write_file(folder.path() / name, ""); }; };
    const OnInterrupt live(mark("live"));
    { const OnInterrupt done(mark("done")); }
    tell(ready);
    while (true) pause();
  });
  kill(victim.pid, SIGINT);
  EXPECT_EQ(victim.exit_code(), 128 + SIGINT);
  EXPECT_TRUE(fs::exists(folder.path() / "live"));
  EXPECT_FALSE(fs::exists(folder.path() / "done"));
}

// A thread whose child was killed by the interrupt must not report that as a failure.
TEST(Interrupt, AKilledChildIsNoResult) {
  const auto folder = *TempFolder::create("interrupt");
  const Victim victim([&](int ready) {
    ProcessSpec spec;
    spec.argv = {"sh", "-c", "echo; exec sleep 1000"};
    spec.on_stdout_line = [&](std::string_view) { tell(ready); };
    const OnInterrupt slow([] { usleep(200'000); });  // longer than the other thread needs to notice its child's end
    (void)run_process(spec);
    (void)write_file(folder.path() / "result", "");
  });
  kill(victim.pid, SIGINT);
  EXPECT_EQ(victim.exit_code(), 128 + SIGINT);
  EXPECT_FALSE(fs::exists(folder.path() / "result"));
}

// Left-overs ---------------------------------------------------------------------------------------------------------------------------

struct LeftOver : ::testing::Test {
  TempFolder folder = *TempFolder::create("left-over");
  void SetUp() override { setenv("TMPDIR", folder.path().c_str(), 1); }
  void TearDown() override { unsetenv("TMPDIR"); }
  // What a process that is killed in the middle of `body` leaves.
  void killed(const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const auto& e : fs::directory_iterator(folder.path())) found.push_back(e.path().filename().string());
    return found;
  }
};

TEST_F(LeftOver, TheFolderOfAKilledProcessIsRemovedWithAllInIt) {
  killed([] {
    auto* lost = new TempFolder(*TempFolder::create("dead"));
    (void)write_file(lost->path() / "a/b", "x");
  });
  ASSERT_EQ(names().size(), 1u);
  remove_left_over_temp_folders();
  EXPECT_TRUE(names().empty());
}

TEST_F(LeftOver, WhatIsInUseOrKeptOrOfOthersStays) {
  const auto live = *TempFolder::create("live");
  fs::path kept;
  {
    auto f = *TempFolder::create("kept");
    kept = f.path();
    f.keep();
  }
  ASSERT_TRUE(make_folder(folder.path() / "stitchcuda-0"));  // the data folder of a user without a home
  ASSERT_TRUE(make_folder(folder.path() / "mine"));
  ASSERT_TRUE(write_file(folder.path() / "stitchcuda.notes.txt", "mine"));
  fs::create_directory_symlink("mine", folder.path() / "stitchcuda.link.000000");
  ASSERT_TRUE(make_folder(folder.path() / "stitchcuda.others.000000"));
  const bool root = geteuid() == 0;
  const fs::path other = folder.path() / "stitchcuda.others.000000";
  if (root) {
    ASSERT_EQ(chown(other.c_str(), 12345, 12345), 0);
  } else {
    fs::remove(other);
  }
  remove_left_over_temp_folders();
  EXPECT_EQ(names().size(), root ? 7u : 6u);
  EXPECT_TRUE(fs::exists(live.path()) && fs::exists(kept) && fs::exists(folder.path() / "mine"));
}

TEST_F(LeftOver, MakingAndRemovingAtOnceLosesNoLiveFolder) {
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c) {
    children.push_back(fork());
    if (children.back() == 0) {
      bool ok = true;
      for (int i = 0; i < 100; ++i) {
        const auto f = TempFolder::create("busy");
        remove_left_over_temp_folders();
        ok = ok && f && write_file(f->path() / "x", "x");
      }
      _exit(ok ? 0 : 1);
    }
  }
  for (const pid_t c : children) {
    int status = 0;
    ASSERT_EQ(waitpid(c, &status, 0), c);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(LeftOver, ATemporaryFolderThatCannotBeMadeIsNamed) {
  setenv("TMPDIR", "/dev/null/tmp", 1);
  const auto r = TempFolder::create("x");
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message.find("/dev/null/tmp"), std::string::npos) << r.error().message;
}

}  // namespace
}  // namespace stitch
