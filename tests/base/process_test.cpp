#include "base/guardian.h"
#include "base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "base/files.h"

namespace stitch {
namespace {

ProcessResult shell(const std::string& script, ProcessSpec spec = {}) {
  spec.argv = {"sh", "-c", script};
  auto r = run_process(spec);
  EXPECT_TRUE(r) << (r ? "" : r.error().message);
  return *r;
}

TEST(Process, CapturesBothStreamsAndTheExitCode) {
  const ProcessResult r = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(r.out, "out\n");
  EXPECT_EQ(r.err, "err\n");
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_FALSE(r.ok());
}

TEST(Process, FeedsStdinLargerThanAPipe) {
  ProcessSpec spec;
  spec.stdin_text.assign(3 << 20, 'x');
  EXPECT_EQ(shell("cat | wc -c | tr -d ' '", spec).out, "3145728\n");
}

TEST(Process, AChildThatIgnoresItsStdinIsNoHang) {
  ProcessSpec spec;
  spec.stdin_text.assign(3 << 20, 'x');
  EXPECT_EQ(shell("exec true", spec).exit_code, 0);
}

TEST(Process, ATimeoutKillsGrandchildrenToo) {
  ProcessSpec spec;
  spec.timeout = std::chrono::milliseconds(200);
  const ProcessResult r = shell("sleep 77.125 & sleep 77.125; echo never", spec);
  EXPECT_TRUE(r.timed_out);
  EXPECT_EQ(r.out, "");
  EXPECT_LT(r.wall_seconds, 10);
  EXPECT_NE(shell("pgrep -f 'sleep 77[.]125'").exit_code, 0);
}

TEST(Process, AGrandchildThatKeepsThePipeOpenIsNoHang) {
  const ProcessResult r = shell("sleep 100 & echo done");
  EXPECT_EQ(r.out, "done\n");
  EXPECT_LT(r.wall_seconds, 10);
}

TEST(Process, AnOutputFloodIsCutAndCanBeKilled) {
  ProcessSpec spec;
  spec.output_limit = 1000;
  spec.kill_on_output_limit = true;
  const ProcessResult r = shell("yes", spec);
  EXPECT_TRUE(r.output_limited);
  EXPECT_EQ(r.out.size(), 1000u);
}

TEST(Process, SignalsAreReported) {
  const ProcessResult r = shell("kill -SEGV $$");
  EXPECT_EQ(r.signal, SIGSEGV);
  EXPECT_EQ(r.exit_code, 128 + SIGSEGV);
}

TEST(Process, AMissingProgramIsOneSentence) {
  ProcessSpec spec;
  spec.argv = {"no-such-program-here"};
  const auto r = run_process(spec);
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message.find("no-such-program-here cannot be found"), std::string::npos);
}

TEST(Process, OnlyAskedDescriptorsAreInherited) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);  // not close-on-exec on purpose
  EXPECT_NE(shell("echo x >&" + std::to_string(fds[1])).exit_code, 0);
  ProcessSpec spec;
  spec.inherit_fds = {{fds[1], 7}};
  EXPECT_EQ(shell("echo x >&7", spec).exit_code, 0);
  char c = 0;
  EXPECT_EQ(read(fds[0], &c, 1), 1);
  EXPECT_EQ(c, 'x');
  close(fds[0]);
  close(fds[1]);
}

TEST(Process, EnvironmentAndFolder) {
  ProcessSpec spec;
  spec.environment = {{"STITCH_X", "1"}};
  spec.unset = {"HOME"};
  spec.working_folder = "/";
  EXPECT_EQ(shell("echo $STITCH_X:$HOME:$(pwd)", spec).out, "1::/\n");
}

TEST(Process, LinesArriveWhileItRuns) {
  std::vector<std::string> lines;
  ProcessSpec spec;
  spec.on_stdout_line = [&](std::string_view l) { lines.emplace_back(l); };
  shell("printf 'a\\nb\\nc'", spec);
  EXPECT_EQ(lines, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(Process, ManyRunInOrder) {
  std::vector<ProcessSpec> specs(6);
  for (size_t i = 0; i < specs.size(); ++i) specs[i].argv = {"echo", std::to_string(i)};
  const auto results = run_processes(specs, 3);
  for (size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(results[i]->out, std::to_string(i) + "\n");
}

TEST(Process, WhatIsNotKeptIsCounted) {
  ProcessSpec spec;
  spec.output_limit = 10;
  const ProcessResult r = shell("head -c 300000 /dev/zero; printf xyz >&2", spec);
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.out.size(), 10u);
  EXPECT_EQ(r.out_bytes, 300000u);
  EXPECT_EQ(r.err_bytes, 3u);
}

TEST(Process, LimitsAreSetAndNamed) {
  ProcessSpec spec;
  spec.max_file_bytes = 1024;
  spec.max_open_files = 50;
  EXPECT_EQ(shell("ulimit -n", spec).out, "50\n");
  EXPECT_NE(shell("head -c 4096 /dev/zero > /dev/shm/stitch_limit_$$; s=$?; rm -f /dev/shm/stitch_limit_$$; exit $s", spec).exit_code, 0);
  ProcessSpec cpu;
  cpu.max_cpu = std::chrono::seconds(1);
  EXPECT_EQ(shell("while :; do :; done", cpu).signal, SIGXCPU);
  ProcessSpec memory;
  memory.max_memory = uint64_t{64} << 20;
  EXPECT_NE(shell("x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}", memory).exit_code, 0);
}

TEST(Process, ALimitAboveOurOwnIsNoError) {
  ProcessSpec spec;
  spec.max_open_files = uint64_t{1} << 40;
  EXPECT_EQ(shell("exit 0", spec).exit_code, 0);
}

TEST(Process, UsageIsMeasured) {
  const ProcessResult r = shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
  EXPECT_GT(r.cpu_seconds, 0.01);
  EXPECT_GT(r.max_rss_bytes, 100000u);
  EXPECT_GE(r.wall_seconds, 0.9 * r.cpu_seconds);
}

TEST(Process, AChildThatHidesItsStreamsIsStillWaitedFor) {
  const ProcessResult r = shell("exec >&- 2>&-; sleep 0.3; exit 5");
  EXPECT_EQ(r.exit_code, 5);
  EXPECT_GE(r.wall_seconds, 0.29);
}

TEST(Process, StartErrorsSayWhatIsWrong) {
  const auto message = [](ProcessSpec spec) {
    const auto r = run_process(spec);
    return r ? std::string("started") : r.error().message;
  };
  const auto folder = *TempFolder::create("process");
  const std::string script = (folder.path() / "script").string();
  ASSERT_TRUE(write_file(script, "#!/no/such/interpreter\n"));
  fs::permissions(script, fs::perms::owner_all);
  EXPECT_EQ(message({{script}}), script + " cannot be started: the interpreter or loader that it names does not exist.");
  ASSERT_TRUE(write_file(script, std::string("\177ELFrubbish")));
  fs::permissions(script, fs::perms::owner_all);
  EXPECT_EQ(message({{script}}), script + " cannot be started: it is no program for this machine.");
  EXPECT_EQ(message({{"sh"}, "/no/such/folder"}), "sh cannot be started in /no/such/folder: No such file or directory.");
  EXPECT_EQ(message({{"sh", "-c", std::string("a\0b", 3)}}), "An argument of sh holds a NUL character; remove it.");
  ProcessSpec long_line;
  long_line.argv = {"true", std::string(4 << 20, 'x')};
  EXPECT_NE(message(long_line).find("too long"), std::string::npos);
  EXPECT_EQ(message({{folder.path().string()}}), "The program " + folder.path().string() + " cannot be found or run; install it or add it to PATH.");
  ProcessSpec descriptor;
  descriptor.argv = {"true"};
  descriptor.inherit_fds = {{987, 5}};
  EXPECT_EQ(message(descriptor), "Descriptor 987 for true is not open.");
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child that failed to start was not reaped";
}

TEST(Process, DescriptorsMayTradePlaces) {
  int a[2], b[2];
  ASSERT_EQ(pipe2(a, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(b, O_CLOEXEC), 0);
  ProcessSpec spec;
  spec.inherit_fds = {{a[1], b[1]}, {b[1], a[1]}};
  EXPECT_TRUE(shell(fmt::format("printf a >/dev/fd/{}; printf b >/dev/fd/{}", b[1], a[1]), spec).ok());
  char c = 0;
  EXPECT_EQ(read(a[0], &c, 1), 1);
  EXPECT_EQ(c, 'a');
  EXPECT_EQ(read(b[0], &c, 1), 1);
  EXPECT_EQ(c, 'b');
  for (int fd : {a[0], a[1], b[0], b[1]}) close(fd);
}

TEST(Process, OurSignalSettingsAreLeftAlone) {
  struct sigaction before {}, after {};
  sigaction(SIGPIPE, nullptr, &before);
  signal(SIGPIPE, SIG_DFL);
  ProcessSpec spec;
  spec.stdin_text.assign(1 << 20, 'x');
  EXPECT_EQ(shell("exec 0<&-; sleep 0.1", spec).exit_code, 0);  // this process would die if SIGPIPE got through
  sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(after.sa_handler, SIG_DFL);
  sigaction(SIGPIPE, &before, nullptr);
  // "Ignored" is inherited over exec; a child must get the default.
  signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(shell("yes | head -1; kill -PIPE $$; echo alive").signal, SIGPIPE);
  sigaction(SIGPIPE, &before, nullptr);
}

TEST(Process, AnIgnoredSigchldLosesNoStatus) {
  const auto old = signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(shell("exit 7").exit_code, 7);
  signal(SIGCHLD, old);
}

TEST(Process, AThrowingCallbackLeavesNoChild) {
  ProcessSpec spec;
  spec.argv = {"sh", "-c", "echo line; exec sleep 77.625"};
  spec.on_stdout_line = [](std::string_view) { throw std::runtime_error("enough"); };
  EXPECT_THROW((void)run_process(spec), std::runtime_error);
  EXPECT_NE(shell("pgrep -x -f 'sleep 77[.]625'").exit_code, 0);
}

TEST(Process, AllChildrenCanBeKilledFromElsewhere) {
  std::jthread killer;
  ProcessSpec spec;
  spec.argv = {"sh", "-c", "echo up; sleep 77.375; echo never"};
  spec.on_stdout_line = [&](std::string_view) { killer = std::jthread([] { kill_all_children(); }); };
  const auto r = run_process(spec);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->signal, SIGKILL);
  EXPECT_EQ(r->out, "up\n");
}

TEST(Process, AChildDiesWithItsParent) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    ProcessSpec spec;
    spec.argv = {"sh", "-c", "echo $$ >&9; exec sleep 77.875"};
    spec.inherit_fds = {{fds[1], 9}};
    (void)run_process(spec);
    _exit(0);
  }
  char text[32] = {};
  ASSERT_GT(read(fds[0], text, sizeof text - 1), 0);
  close(fds[1]);  // from here only the grandchild's number keeps the pipe open
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  pollfd closed{fds[0], POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, 20000), 1) << "the child outlived its parent";
  close(fds[0]);
}

char* no_arguments[] = {nullptr};

// The parent-death signal reaches the shell, but not what it has started.
TEST(Process, WhatAChildHasStartedDiesWithAGuardedParent) {
  for (const char* command : {"sleep 77.125 & echo $! >&9; wait", "(sleep 77.125 & echo $! >&9); exec sleep 77.125", "sleep 77.125 & echo $! >&9"}) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t parent = fork();
    if (parent == 0) {
      start_guardian(no_arguments);
      ProcessSpec spec;
      spec.argv = {"sh", "-c", command};
      spec.inherit_fds = {{fds[1], 9}};
      (void)run_process(spec);
      pause();
    }
    char text[32] = {};
    ASSERT_GT(read(fds[0], text, sizeof text - 1), 0);
    close(fds[1]);  // from here only what was started keeps the pipe open
    kill(parent, SIGKILL);
    waitpid(parent, nullptr, 0);
    pollfd closed{fds[0], POLLIN, 0};
    EXPECT_EQ(poll(&closed, 1, 20000), 1) << command << " left something running";
    close(fds[0]);
  }
}

TEST(Process, TheGuardianGoesWithItsOwner) {
  for (const bool stopped : {false, true}) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t parent = fork();
    if (parent == 0) {
      start_guardian(no_arguments);
      if (stopped) stop_guardian();
      const bool childless = waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
      [[maybe_unused]] const ssize_t n = write(fds[1], childless ? "y" : "n", 1);
      _exit(0);
    }
    close(fds[1]);
    char answer = 0;
    ASSERT_EQ(read(fds[0], &answer, 1), 1);
    EXPECT_EQ(answer, stopped ? 'y' : 'n');
    EXPECT_EQ(read(fds[0], &answer, 1), 0);  // the guardian keeps no descriptor of its owner's
    close(fds[0]);
    waitpid(parent, nullptr, 0);
  }
}

TEST(Process, ManyAtOnceFromManyThreads) {
  std::vector<ProcessSpec> specs(40);
  for (size_t i = 0; i < specs.size(); ++i) {
    specs[i].argv = {"sh", "-c", fmt::format("cat; echo {} >&2", i)};
    specs[i].stdin_text.assign(100000 + i, 'x');
  }
  const auto results = run_processes(specs, 8);
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSERT_TRUE(results[i] && results[i]->ok());
    EXPECT_EQ(results[i]->out.size(), 100000 + i);
    EXPECT_EQ(results[i]->err, fmt::format("{}\n", i));
  }
}

TEST(Process, CommandLinesAreQuoted) { EXPECT_EQ(to_command_line({"a", "b c", "it's"}), "a 'b c' 'it'\\''s'"); }

}  // namespace
}  // namespace stitch
