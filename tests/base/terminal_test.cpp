#include "base/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/files.h"
#include "base/log.h"

namespace stitch {
namespace {

TEST(Terminal, TablesAlign) {
  Table t({"name", ">ms"});
  t.add({"a", "1.5"});
  t.add({"longer", "10.25"});
  EXPECT_EQ(t.text(), "name       ms\na         1.5\nlonger  10.25\n");
}

TEST(Terminal, TablesAlignWhateverTheTextIsMadeOf) {
  Table t({"name", "x"});
  t.add({"größe", "1"});
  t.add({styled("bad", Style::red, true), "2"});
  t.add({"short row"});
  EXPECT_EQ(t.text(), "name       x\ngröße      1\n\033[31mbad\033[0m        2\nshort row\n");
}

TEST(Terminal, Sizes) {
  const std::pair<uint64_t, const char*> cases[] = {{0, "0 B"}, {999, "999 B"}, {1500, "1.5 kB"}, {999949, "999.9 kB"}, {999999, "1.0 MB"}, {UINT64_MAX, "18.4 EB"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(format_bytes(bytes), text);
}

TEST(Terminal, Durations) {
  const std::pair<double, const char*> cases[] = {{0, "0.00 s"}, {12e-6, "12 us"}, {3.14e-3, "3.1 ms"}, {0.31, "0.31 s"}, {59.999, "1 min 00 s"},
                                                  {125, "2 min 05 s"}, {3720, "1 h 02 min"}, {-1, "?"}};
  for (const auto& [seconds, text] : cases) EXPECT_EQ(format_duration(seconds), text);
}

TEST(Terminal, ColourOnlyOnATerminalThatWantsIt) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  EXPECT_FALSE(use_colour(fds[1]));
  close(fds[0]);
  close(fds[1]);
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || !is_tty(terminal)) GTEST_SKIP() << "no pseudo-terminals here";
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_TRUE(use_colour(terminal));
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(use_colour(terminal));
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(use_colour(terminal));
  close(terminal);
}

TEST(Terminal, TextOfOthersCannotSteerIt) {
  EXPECT_EQ(printable("a\033]0;title\a\tb\n"), "a?]0;title?\tb\n");
  EXPECT_EQ(printable("\xc2\x9b" "31m é"), "?31m é");
  EXPECT_EQ(printable("a\xe2\x80\xae" "b\xe2\x81\xa6\xe2\x80\x94"), "a?b?\xe2\x80\x94");  // turned writing direction; a dash is none
}

// stderr of this process while `body` runs.
std::string stderr_of(const std::function<void()>& body) {
  const auto folder = *TempFolder::create("log");
  const fs::path file = folder.path() / "err";
  const int saved = dup(2), fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  dup2(fd, 2);
  body();
  dup2(saved, 2);
  close(saved);
  close(fd);
  return *read_file(file);
}

TEST(Log, TheLevelDecides) {
  const LogLevel before = log_level();
  const auto all = [] {
    log_warning("w {}", 1);
    log_info("i");
    log_debug("d\033");
  };
  set_log_level(LogLevel::quiet);
  EXPECT_EQ(stderr_of(all), "stitchcuda: warning: w 1\n");
  set_log_level(LogLevel::info);
  EXPECT_EQ(stderr_of(all), "stitchcuda: warning: w 1\nstitchcuda: i\n");
  set_log_level(LogLevel::debug);
  EXPECT_EQ(stderr_of(all), "stitchcuda: warning: w 1\nstitchcuda: i\nstitchcuda: debug: d?\n");
  set_log_level(before);
  EXPECT_EQ(log_level_from_name("debug"), LogLevel::debug);
  EXPECT_FALSE(log_level_from_name("loud"));
}

TEST(Log, LinesOfThreadsDoNotMix) {
  const std::string text = stderr_of([] {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] { for (int i = 0; i < 100; ++i) log_warning("{}", std::string(200, static_cast<char>('a' + t))); });
  });
  size_t lines = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1, ++lines) {
    const std::string line = text.substr(at, end - at);
    ASSERT_EQ(line, "stitchcuda: warning: " + std::string(200, line.back()));
  }
  EXPECT_EQ(lines, 400u);
}

}  // namespace
}  // namespace stitch
