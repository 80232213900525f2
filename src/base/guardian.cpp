#include "base/guardian.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace stitch {
namespace {

// The end that is written to: +pid for a group that begins, -pid for one that has ended. Messages of this size are never mixed.
int g_news = -1;
pid_t g_guardian = -1;

void close_all_but(int fd) {
#ifdef SYS_close_range
  if ((fd == 0 || syscall(SYS_close_range, 0u, static_cast<unsigned>(fd - 1), 0u) == 0) && syscall(SYS_close_range, static_cast<unsigned>(fd + 1), ~0u, 0u) == 0)
    return;
#endif
  for (int i = 0; i < 1024; ++i)
    if (i != fd) close(i);
}

[[noreturn]] void guard(int news) {
  static std::array<pid_t, 4096> groups{};  // 0 = free
  for (;;) {
    pid_t message = 0;
    const ssize_t n = read(news, &message, sizeof message);
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof message) break;  // the other end is closed: its owner is gone
    const pid_t wanted = message > 0 ? 0 : -message;
    for (pid_t& slot : groups)
      if (slot == wanted) {
        slot = message > 0 ? message : 0;
        break;
      }
  }
  for (const pid_t group : groups)
    if (group > 0) {
      kill(-group, SIGKILL);
      kill(group, SIGKILL);  // one that leads no group yet
    }
  _exit(0);
}

void rename_process(char** argv) {
  constexpr char kName[] = "stitch-guardian";
  prctl(PR_SET_NAME, kName);
  for (char** a = argv; *a; ++a) {
    const size_t room = std::strlen(*a);
    std::memset(*a, 0, room);
    if (a == argv) std::memcpy(*a, kName, std::min(room, sizeof kName - 1));
  }
}

void tell(pid_t message) noexcept {
  if (g_news < 0) return;
  while (write(g_news, &message, sizeof message) < 0 && errno == EINTR) {}
}

}  // namespace

void start_guardian(char** argv) noexcept {
  int news[2];
  if (g_news >= 0 || pipe2(news, O_CLOEXEC) != 0) return;
  // Out of reach of the standard streams, which a caller may have closed.
  const int end = fcntl(news[1], F_DUPFD_CLOEXEC, 3);
  fcntl(end, F_SETFL, O_NONBLOCK);  // a stopped guardian stops nobody else
  close(news[1]);
  const pid_t guardian = end < 0 ? -1 : fork();
  if (guardian == 0) {
    setsid();  // a signal to the terminal's or the launcher's group must not reach it
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    rename_process(argv);
    close_all_but(news[0]);
    [[maybe_unused]] const int ignored = chdir("/");  // keeps no folder in use
    guard(news[0]);
  }
  close(news[0]);
  if (guardian < 0) {
    if (end >= 0) close(end);
    return;
  }
  g_news = end;
  g_guardian = guardian;
}

void stop_guardian() noexcept {
  const pid_t guardian = std::exchange(g_guardian, -1);
  if (guardian < 0) return;
  kill(guardian, SIGKILL);
  while (waitpid(guardian, nullptr, 0) < 0 && errno == EINTR) {}
}

void lead_guarded_group(pid_t parent) noexcept {
  setpgid(0, 0);
  tell(getpid());
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before prctl
}

void forget_guarded_group(pid_t child) noexcept { tell(-child); }

}  // namespace stitch
