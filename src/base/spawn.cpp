#include "base/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/guardian.h"

extern char** environ;

namespace stitch {
namespace detail {
namespace {

constexpr size_t kMostInherited = 64;
// Lock-free, because kill_all_children() is called from signal handlers.
std::array<std::atomic<pid_t>, 4096> g_children{};

enum class Stage : int { folder, descriptors, limits, exec };
struct Failure {
  Stage stage;
  int error;
};

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(o.release()) {}
  Fd& operator=(Fd&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Fd() { if (fd_ >= 0) close(fd_); }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset() { Fd closed(release()); }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0)
    return fail(ErrorKind::environment, "No pipe could be made ({}); close some programs and run again.", std::strerror(errno));
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

// Everything the child needs, made before fork: between fork and exec only async-signal-safe calls are allowed.
struct Prepared {
  std::string path;
  std::vector<char*> argv, envp;
  std::vector<std::string> env_storage;
  std::vector<std::pair<int, rlimit>> limits;
  int descriptors = 0;  // one above the highest number in use
};

std::vector<std::string> build_environment(const ProcessSpec& spec) {
  std::vector<std::string> out;
  if (!spec.clear_environment)
    for (char** e = environ; *e; ++e) {
      const std::string_view entry(*e);
      const std::string name(entry.substr(0, entry.find('=')));
      if (spec.environment.count(name) || std::find(spec.unset.begin(), spec.unset.end(), name) != spec.unset.end()) continue;
      out.emplace_back(entry);
    }
  for (const auto& [name, value] : spec.environment) out.push_back(name + "=" + value);
  return out;
}

Status check(const ProcessSpec& spec) {
  if (spec.argv.empty()) return fail(ErrorKind::internal, "No program was named.");
  const auto has_nul = [](const std::string& s) { return s.find('\0') != s.npos; };
  for (const std::string& a : spec.argv)
    if (has_nul(a)) return fail(ErrorKind::bad_input, "An argument of {} holds a NUL character; remove it.", spec.argv.front().c_str());
  for (const auto& [name, value] : spec.environment)
    if (name.empty() || name.find('=') != name.npos || has_nul(name) || has_nul(value))
      return fail(ErrorKind::bad_input, "\"{}\" cannot be set as an environment variable of {}.", name.c_str(), spec.argv.front());
  if (spec.inherit_fds.size() > kMostInherited)
    return fail(ErrorKind::internal, "{} was to inherit {} descriptors; at most {} are possible.", spec.argv.front(), spec.inherit_fds.size(), kMostInherited);
  for (const auto& [ours, theirs] : spec.inherit_fds)
    if (fcntl(ours, F_GETFD) < 0 || theirs < 0) return fail(ErrorKind::internal, "Descriptor {} for {} is not open.", ours, spec.argv.front());
  return {};
}

Result<Prepared> prepare(const ProcessSpec& spec) {
  STITCH_CHECK_OK(check(spec));
  Prepared p;
  const auto path = find_program(spec.argv.front());
  if (!path) return fail(ErrorKind::environment, "The program {} cannot be found or run; install it or add it to PATH.", spec.argv.front());
  std::error_code ec;
  p.path = std::filesystem::absolute(*path, ec).string();  // the child changes its folder before exec
  if (ec) p.path = *path;
  for (const std::string& a : spec.argv) p.argv.push_back(const_cast<char*>(a.c_str()));
  p.argv.push_back(nullptr);
  p.env_storage = build_environment(spec);
  for (std::string& e : p.env_storage) p.envp.push_back(e.data());
  p.envp.push_back(nullptr);
  // A limit above the one we live under ourselves cannot be set, and need not be.
  const auto limit = [&](int resource, std::optional<uint64_t> v, uint64_t grace = 0) {
    rlimit own{};
    if (!v || getrlimit(static_cast<__rlimit_resource_t>(resource), &own) != 0) return;
    p.limits.push_back({resource, {std::min<rlim_t>(*v, own.rlim_max), std::min<rlim_t>(*v + grace, own.rlim_max)}});
  };
  limit(RLIMIT_FSIZE, spec.max_file_bytes);
  limit(RLIMIT_NPROC, spec.max_processes);
  limit(RLIMIT_NOFILE, spec.max_open_files);
  limit(RLIMIT_AS, spec.max_memory);
  // SIGXCPU first, so that the signal names the limit; SIGKILL two seconds later for a child that ignores it.
  if (spec.max_cpu) limit(RLIMIT_CPU, static_cast<uint64_t>(spec.max_cpu->count()), 2);
  return p;
}

// --- in the child -----------------------------------------------------------------------------------------------

[[noreturn]] void child_fail(int report, Stage stage) {
  const Failure f{stage, errno};
  [[maybe_unused]] const ssize_t n = write(report, &f, sizeof f);
  _exit(127);
}

void close_on_exec_from(int first, int descriptors) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, static_cast<unsigned>(first), ~0u, 4u /* CLOSE_RANGE_CLOEXEC */) == 0) return;
#endif
  for (int fd = first; fd < descriptors; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// Handlers of ours must not run in the child, so all signals are blocked across fork and reset before they are let in.
void reset_signals() {
  for (int s = 1; s < NSIG; ++s) {
    struct sigaction old {};
    if (sigaction(s, nullptr, &old) == 0 && old.sa_handler != SIG_IGN && old.sa_handler != SIG_DFL) signal(s, SIG_DFL);
  }
  for (int s : {SIGPIPE, SIGINT, SIGTERM, SIGCHLD, SIGXFSZ, SIGXCPU}) signal(s, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Sources are first moved above every target, so that no dup2 overwrites one still needed. Returns the report's place.
int place_descriptors(const ProcessSpec& spec, const Prepared& p, int in, int out, int err, int report) {
  const size_t count = spec.inherit_fds.size();
  int highest = 2;
  for (const auto& [ours, theirs] : spec.inherit_fds) highest = std::max({highest, ours, theirs});
  const int above = highest + 1;
  const int moved_report = fcntl(report, F_DUPFD_CLOEXEC, above);
  if (moved_report < 0) child_fail(report, Stage::descriptors);
  int moved[kMostInherited];
  for (size_t i = 0; i < count; ++i)
    if ((moved[i] = fcntl(spec.inherit_fds[i].first, F_DUPFD, above)) < 0) child_fail(moved_report, Stage::descriptors);
  const int streams[3] = {fcntl(in, F_DUPFD, above), fcntl(out, F_DUPFD, above), fcntl(err, F_DUPFD, above)};
  for (int i = 0; i < 3; ++i)
    if (streams[i] < 0 || dup2(streams[i], i) < 0) child_fail(moved_report, Stage::descriptors);
  for (size_t i = 0; i < count; ++i)
    if (dup2(moved[i], spec.inherit_fds[i].second) < 0) child_fail(moved_report, Stage::descriptors);
  close_on_exec_from(3, std::max(p.descriptors, above) + static_cast<int>(count) + 8);
  for (size_t i = 0; i < count; ++i) fcntl(spec.inherit_fds[i].second, F_SETFD, 0);
  return moved_report;
}

[[noreturn]] void run_child(const ProcessSpec& spec, const Prepared& p, int in, int out, int err, int report, pid_t parent) {
  lead_guarded_group(parent);
  reset_signals();
  if (!spec.working_folder.empty() && chdir(spec.working_folder.c_str()) != 0) child_fail(report, Stage::folder);
  report = place_descriptors(spec, p, in, out, err, report);
  for (const auto& [resource, limit] : p.limits)
    if (setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) child_fail(report, Stage::limits);
  execve(p.path.c_str(), p.argv.data(), p.envp.data());
  child_fail(report, Stage::exec);
}

// --- in the parent ----------------------------------------------------------------------------------------------

tl::unexpected<Error> start_error(const ProcessSpec& spec, const Prepared& p, const Failure& f) {
  const char* reason = std::strerror(f.error);
  switch (f.stage) {
    case Stage::folder: return fail(ErrorKind::environment, "{} cannot be started in {}: {}.", spec.argv.front(), spec.working_folder, reason);
    case Stage::descriptors: return fail(ErrorKind::environment, "{} cannot be started: its descriptors cannot be set up ({}).", spec.argv.front(), reason);
    case Stage::limits: return fail(ErrorKind::environment, "{} cannot be started: its limits cannot be set ({}).", spec.argv.front(), reason);
    case Stage::exec: break;
  }
  if (f.error == E2BIG) return fail(ErrorKind::environment, "{} cannot be started: its arguments and environment are too long.", p.path);
  if (f.error == ENOEXEC) return fail(ErrorKind::environment, "{} cannot be started: it is no program for this machine.", p.path);
  if (f.error == ENOENT) return fail(ErrorKind::environment, "{} cannot be started: the interpreter or loader that it names does not exist.", p.path);
  return fail(ErrorKind::environment, "{} cannot be started: {}.", p.path, reason);
}

int open_process(pid_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
#else
  return -1;
#endif
}

// An ignored SIGCHLD (some launchers hand that down) makes the kernel reap children by itself and lose their status.
void keep_exit_status() {
  struct sigaction old {};
  if (sigaction(SIGCHLD, nullptr, &old) == 0 && (old.sa_handler == SIG_IGN || (old.sa_flags & SA_NOCLDWAIT))) signal(SIGCHLD, SIG_DFL);
}

}  // namespace

Result<Spawned> spawn(const ProcessSpec& spec) {
  STITCH_TRY(Prepared p, prepare(spec));
  STITCH_TRY(Pipe in, make_pipe());
  STITCH_TRY(Pipe out, make_pipe());
  STITCH_TRY(Pipe err, make_pipe());
  STITCH_TRY(Pipe report, make_pipe());
  // For kernels without close_range: other threads may open a few more before fork.
  rlimit files{};
  p.descriptors = getrlimit(RLIMIT_NOFILE, &files) == 0 ? static_cast<int>(std::min<rlim_t>(files.rlim_cur, 1 << 16)) : 1024;
  keep_exit_status();
  const pid_t parent = getpid();
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const pid_t pid = fork();
  if (pid == 0) run_child(spec, p, in.read.get(), out.write.get(), err.write.get(), report.write.get(), parent);
  const int fork_error = errno;
  if (pid > 0) {
    setpgid(pid, pid);  // also done by the child: whichever comes first
    remember_child(pid);
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (pid < 0) return fail(ErrorKind::environment, "No process could be started ({}); close some programs and run again.", std::strerror(fork_error));
  in.read.reset();
  out.write.reset();
  err.write.reset();
  report.write.reset();
  Failure failure{};
  ssize_t n;
  while ((n = read(report.read.get(), &failure, sizeof failure)) < 0 && errno == EINTR) {}
  if (n == sizeof failure) {
    forget_child(pid);
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {}
    return start_error(spec, p, failure);
  }
  for (int fd : {in.write.get(), out.read.get(), err.read.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  return Spawned{pid, open_process(pid), in.write.release(), out.read.release(), err.read.release()};
}

}  // namespace detail

void remember_child(pid_t pid) noexcept {
  for (auto& slot : detail::g_children) {
    pid_t empty = 0;
    if (slot.compare_exchange_strong(empty, pid)) return;
  }
}

void forget_child(pid_t pid) noexcept {
  forget_guarded_group(pid);
  for (auto& slot : detail::g_children) {
    pid_t expected = pid;
    if (slot.compare_exchange_strong(expected, 0)) return;
  }
}

void kill_all_children() noexcept {
  for (auto& slot : detail::g_children)
    if (const pid_t pid = slot.load(); pid > 0) {
      kill(-pid, SIGKILL);
      kill(pid, SIGKILL);  // one that leads no group yet
    }
}

void end_all_children() noexcept {
  for (int waited = 0; waited < 200; ++waited) {
    kill_all_children();
    bool alive = false;
    for (auto& slot : detail::g_children) {
      const pid_t pid = slot.load();
      siginfo_t info{};
      // Without reaping: that is for the thread which waits for it.
      if (pid > 0 && waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) alive = true;
    }
    if (!alive) return;
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace stitch
