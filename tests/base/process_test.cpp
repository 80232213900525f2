#include "base/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

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

TEST(Process, CommandLinesAreQuoted) { EXPECT_EQ(to_command_line({"a", "b c", "it's"}), "a 'b c' 'it'\\''s'"); }

}  // namespace
}  // namespace stitch
