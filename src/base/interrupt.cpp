#include "base/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "base/guardian.h"
#include "base/process.h"

namespace stitch {
namespace {

std::atomic<int> g_signal{0};  // the one that is ending this process
int g_pipe[2] = {-1, -1};      // from the handler, where little is allowed, to the thread that tidies up
const char* g_advice = "";

struct Tidy {
  pid_t owner;  // a forked child has the entries too, but what they stand for is its parent's
  std::function<void()> run;
};
struct Registry {
  std::mutex mutex;
  std::map<size_t, Tidy> tidy;
  size_t next = 1;
};
Registry& registry() {
  static auto* r = new Registry;  // outlives every thread
  return *r;
}

[[noreturn]] void leave(int signal) {
  for (const char* text : {"\nInterrupted.", g_advice, "\n"}) [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text, std::strlen(text));
  _exit(128 + signal);
}

void on_signal(int signal) {
  const int error = errno;
  int none = 0;
  // The second time there is no patience left for tidying up; nor is there a thread for it when none could be started.
  if (!g_signal.compare_exchange_strong(none, signal) || g_pipe[1] < 0) {
    kill_all_children();
    leave(signal);
  }
  const char byte = static_cast<char>(signal);
  [[maybe_unused]] const ssize_t n = write(g_pipe[1], &byte, 1);
  errno = error;
}

void tidy_up(int from) {
  char byte = 0;
  while (read(from, &byte, 1) < 0 && errno == EINTR) {}
  end_all_children();
  Registry& r = registry();
  {
    const std::lock_guard lock(r.mutex);
    for (const auto& [id, tidy] : r.tidy)
      if (tidy.owner == getpid()) tidy.run();
  }
  stop_guardian();
  leave(byte);
}

}  // namespace

OnInterrupt::OnInterrupt(std::function<void()> tidy) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  id_ = r.next++;
  r.tidy.emplace(id_, Tidy{getpid(), std::move(tidy)});
}

OnInterrupt::~OnInterrupt() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.tidy.erase(id_);
}

void handle_interrupts(const char* advice) {
  g_advice = advice;
  if (pipe2(g_pipe, O_CLOEXEC) == 0) {
    try {
      std::thread(tidy_up, g_pipe[0]).detach();
    } catch (const std::system_error&) {  // no thread to be had: the handler does what it can
      close(g_pipe[0]);
      close(g_pipe[1]);
      g_pipe[1] = -1;
    }
  }
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  if (signal(SIGHUP, on_signal) == SIG_IGN) signal(SIGHUP, SIG_IGN);  // nohup
}

void stop_if_interrupted() noexcept {
  while (g_signal.load() != 0) pause();
}

}  // namespace stitch
