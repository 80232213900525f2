#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

extern char** environ;

namespace stitch {
namespace {

using Clock = std::chrono::steady_clock;

std::mutex g_children_mutex;
std::set<pid_t> g_children;

// Everything the child needs, prepared before fork: between fork and exec only async-signal-safe calls are allowed.
struct Prepared {
  std::string path;
  std::vector<char*> argv, envp;
  std::vector<std::string> env_storage;
  std::vector<std::pair<int, rlimit>> limits;
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

Result<Prepared> prepare(const ProcessSpec& spec) {
  Prepared p;
  if (spec.argv.empty()) return fail(ErrorKind::internal, "No program was named.");
  const auto path = find_program(spec.argv.front());
  if (!path) return fail(ErrorKind::environment, "The program {} cannot be found or run; install it or add it to PATH.", spec.argv.front());
  p.path = *path;
  for (const std::string& a : spec.argv) p.argv.push_back(const_cast<char*>(a.c_str()));
  p.argv.push_back(nullptr);
  p.env_storage = build_environment(spec);
  for (std::string& e : p.env_storage) p.envp.push_back(e.data());
  p.envp.push_back(nullptr);
  const auto limit = [&](int resource, std::optional<uint64_t> v) {
    if (v) p.limits.push_back({resource, {*v, *v}});
  };
  limit(RLIMIT_FSIZE, spec.max_file_bytes);
  limit(RLIMIT_NPROC, spec.max_processes);
  limit(RLIMIT_NOFILE, spec.max_open_files);
  limit(RLIMIT_AS, spec.max_memory);
  if (spec.max_cpu) limit(RLIMIT_CPU, static_cast<uint64_t>(spec.max_cpu->count()));
  return p;
}

[[noreturn]] void child_fail(int report) {
  const int error = errno;
  [[maybe_unused]] const ssize_t n = write(report, &error, sizeof error);
  _exit(127);
}

// Runs in the child. dup targets are first moved above every source, so that no dup2 overwrites one still needed.
[[noreturn]] void run_child(const ProcessSpec& spec, const Prepared& p, int in, int out, int err, int report, pid_t parent,
                            const std::pair<int, int>* inherit, size_t inherit_count) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  for (int s : {SIGPIPE, SIGINT, SIGTERM, SIGCHLD}) signal(s, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (!spec.working_folder.empty() && chdir(spec.working_folder.c_str()) != 0) child_fail(report);

  int highest = 2;
  for (size_t i = 0; i < inherit_count; ++i) highest = std::max({highest, inherit[i].first, inherit[i].second});
  const int base = highest + 16;
  const int r = fcntl(report, F_DUPFD_CLOEXEC, base);
  int moved[64];
  for (size_t i = 0; i < inherit_count && i < 64; ++i) moved[i] = fcntl(inherit[i].first, F_DUPFD, base);
  const int streams[3] = {fcntl(in, F_DUPFD, base), fcntl(out, F_DUPFD, base), fcntl(err, F_DUPFD, base)};
  for (int i = 0; i < 3; ++i)
    if (dup2(streams[i], i) < 0) child_fail(r);
  int keep = 2;
  for (size_t i = 0; i < inherit_count && i < 64; ++i) {
    if (dup2(moved[i], inherit[i].second) < 0) child_fail(r);
    keep = std::max(keep, inherit[i].second);
  }
  // Everything that was not asked for is closed on exec; r must live until then.
  syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
  for (size_t i = 0; i < inherit_count && i < 64; ++i) fcntl(inherit[i].second, F_SETFD, 0);
  for (const auto& [resource, limit] : p.limits)
    if (setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) child_fail(r);
  execve(p.path.c_str(), p.argv.data(), p.envp.data());
  child_fail(r);
}

struct Pipe {
  int read = -1, write = -1;
  bool open() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    read = fds[0];
    write = fds[1];
    return true;
  }
  static void shut(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  ~Pipe() {
    shut(read);
    shut(write);
  }
};

// Collects one output stream: keeps up to the limit, hands complete lines on.
class Collector {
 public:
  Collector(std::string& kept, size_t limit, const std::function<void(std::string_view)>& on_line) : kept_(kept), limit_(limit), on_line_(on_line) {}
  void take(std::string_view bytes) {
    const size_t room = kept_.size() < limit_ ? limit_ - kept_.size() : 0;
    if (bytes.size() > room) over_ = true;
    kept_.append(bytes.substr(0, room));
    if (!on_line_) return;
    line_.append(bytes);
    size_t at = 0;
    for (size_t end; (end = line_.find('\n', at)) != line_.npos; at = end + 1) on_line_(std::string_view(line_).substr(at, end - at));
    line_.erase(0, at);
    if (line_.size() > (1u << 20)) line_.clear();  // no program line is this long
  }
  void finish() {
    if (on_line_ && !line_.empty()) on_line_(line_);
    line_.clear();
  }
  bool over() const { return over_; }

 private:
  std::string& kept_;
  size_t limit_;
  const std::function<void(std::string_view)>& on_line_;
  std::string line_;
  bool over_ = false;
};

double seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); }

class Child {
 public:
  Child(const ProcessSpec& spec, ProcessResult& result)
      : spec_(spec), result_(result), out_(result.out, spec.output_limit, spec.on_stdout_line), err_(result.err, spec.output_limit, spec.on_stderr_line) {}

  Status start(const Prepared& p) {
    if (!in_pipe_.open() || !out_pipe_.open() || !err_pipe_.open() || !report_.open())
      return fail(ErrorKind::environment, "No pipe could be made ({}); close some programs and run again.", std::strerror(errno));
    const pid_t parent = getpid();
    start_ = Clock::now();
    pid_ = fork();
    if (pid_ < 0) return fail(ErrorKind::environment, "No process could be started ({}); close some programs and run again.", std::strerror(errno));
    if (pid_ == 0)
      run_child(spec_, p, in_pipe_.read, out_pipe_.write, err_pipe_.write, report_.write, parent, spec_.inherit_fds.data(), spec_.inherit_fds.size());
    setpgid(pid_, pid_);  // also done by the child: whichever comes first
    {
      const std::lock_guard lock(g_children_mutex);
      g_children.insert(pid_);
    }
    Pipe::shut(in_pipe_.read);
    Pipe::shut(out_pipe_.write);
    Pipe::shut(err_pipe_.write);
    Pipe::shut(report_.write);
    int error = 0;
    ssize_t n;
    while ((n = read(report_.read, &error, sizeof error)) < 0 && errno == EINTR) {}
    if (n == sizeof error) {
      reap(true);
      return fail(ErrorKind::environment, "{} cannot be started: {}.", p.path, std::strerror(error));
    }
    for (int fd : {in_pipe_.write, out_pipe_.read, err_pipe_.read}) fcntl(fd, F_SETFL, O_NONBLOCK);
    return {};
  }

  void run() {
    const auto deadline = start_ + spec_.timeout;
    auto drain_until = Clock::time_point::max();
    while (out_pipe_.read >= 0 || err_pipe_.read >= 0 || !dead_) {
      feed();
      const auto now = Clock::now();
      if (!dead_ && now >= deadline) {
        result_.timed_out = true;
        kill_group();
      }
      if (!dead_ && spec_.kill_on_output_limit && (out_.over() || err_.over())) kill_group();
      if (!dead_ && reap(false)) drain_until = Clock::now() + std::chrono::milliseconds(200);
      if (dead_ && Clock::now() >= drain_until) break;  // a grandchild kept the pipe: do not wait for it
      wait_for_output(dead_ ? 20 : 50);
    }
    kill_group();  // whatever the child left behind
    if (!dead_) reap(true);
    out_.finish();
    err_.finish();
    result_.output_limited = spec_.kill_on_output_limit && (out_.over() || err_.over());
    const std::lock_guard lock(g_children_mutex);
    g_children.erase(pid_);
  }

 private:
  void kill_group() {
    if (pid_ > 0) kill(-pid_, SIGKILL);
    if (pid_ > 0 && !dead_) kill(pid_, SIGKILL);
  }

  bool reap(bool block) {
    int status = 0;
    rusage usage{};
    pid_t r;
    while ((r = wait4(pid_, &status, block ? 0 : WNOHANG, &usage)) < 0 && errno == EINTR) {}
    if (r != pid_) return false;
    dead_ = true;
    result_.wall_seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    result_.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    result_.max_rss_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
    if (WIFSIGNALED(status)) {
      result_.signal = WTERMSIG(status);
      result_.exit_code = 128 + result_.signal;
    } else {
      result_.exit_code = WEXITSTATUS(status);
    }
    return true;
  }

  void feed() {
    if (in_pipe_.write < 0) return;
    while (fed_ < spec_.stdin_text.size()) {
      const ssize_t n = write(in_pipe_.write, spec_.stdin_text.data() + fed_, spec_.stdin_text.size() - fed_);
      if (n > 0) fed_ += static_cast<size_t>(n);
      else if (errno == EINTR) continue;
      else if (errno == EAGAIN) return;
      else break;  // the child closed its stdin
    }
    Pipe::shut(in_pipe_.write);
  }

  void wait_for_output(int timeout_ms) {
    pollfd fds[3];
    nfds_t count = 0;
    if (out_pipe_.read >= 0) fds[count++] = {out_pipe_.read, POLLIN, 0};
    if (err_pipe_.read >= 0) fds[count++] = {err_pipe_.read, POLLIN, 0};
    if (in_pipe_.write >= 0) fds[count++] = {in_pipe_.write, POLLOUT, 0};
    // With both streams closed the child is about to end: look again soon.
    if (poll(fds, count, count == 0 ? 2 : timeout_ms) <= 0) return;
    for (nfds_t i = 0; i < count; ++i) {
      if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
      if (fds[i].fd == out_pipe_.read) drain(out_pipe_.read, out_);
      else if (fds[i].fd == err_pipe_.read) drain(err_pipe_.read, err_);
    }
  }

  void drain(int& fd, Collector& to) {
    char buffer[1 << 16];
    for (int rounds = 0; rounds < 16; ++rounds) {
      const ssize_t n = read(fd, buffer, sizeof buffer);
      if (n > 0) to.take({buffer, static_cast<size_t>(n)});
      else if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      else return Pipe::shut(fd);
    }
  }

  const ProcessSpec& spec_;
  ProcessResult& result_;
  Collector out_, err_;
  Pipe in_pipe_, out_pipe_, err_pipe_, report_;
  Clock::time_point start_;
  pid_t pid_ = -1;
  bool dead_ = false;
  size_t fed_ = 0;
};

}  // namespace

Result<ProcessResult> run_process(const ProcessSpec& spec) {
  // A child that closes its stdin early must not kill us.
  static std::once_flag once;
  std::call_once(once, [] { signal(SIGPIPE, SIG_IGN); });
  STITCH_TRY(const Prepared prepared, prepare(spec));
  ProcessResult result;
  Child child(spec, result);
  STITCH_CHECK_OK(child.start(prepared));
  child.run();
  return result;
}

std::vector<Result<ProcessResult>> run_processes(const std::vector<ProcessSpec>& specs, int parallel) {
  std::vector<Result<ProcessResult>> results(specs.size(), fail(ErrorKind::internal, "not started"));
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next++) < specs.size();) results[i] = run_process(specs[i]);
  };
  std::vector<std::jthread> threads;
  const auto count = std::min(specs.size(), static_cast<size_t>(std::max(1, parallel)));
  for (size_t t = 1; t < count; ++t) threads.emplace_back(work);
  work();
  threads.clear();
  return results;
}

std::optional<std::string> find_program(std::string_view name) {
  const auto usable = [](const std::string& p) {
    std::error_code ec;
    return access(p.c_str(), X_OK) == 0 && !std::filesystem::is_directory(p, ec);
  };
  if (name.empty()) return std::nullopt;
  if (name.find('/') != name.npos) return usable(std::string(name)) ? std::optional(std::string(name)) : std::nullopt;
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const size_t colon = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, colon)) + "/" + std::string(name);
    if (usable(candidate)) return candidate;
    if (colon == rest.npos) return std::nullopt;
    rest.remove_prefix(colon + 1);
  }
}

std::string to_command_line(const std::vector<std::string>& argv) {
  std::string out;
  for (const std::string& a : argv) {
    if (!out.empty()) out += ' ';
    const bool plain = !a.empty() && std::all_of(a.begin(), a.end(), [](unsigned char c) { return std::isalnum(c) || std::strchr("_-./=:,+@%", c); });
    if (plain) {
      out += a;
      continue;
    }
    out += '\'';
    for (char c : a) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

void kill_all_children() noexcept {
  // Called from a signal handler: a missed child dies by PDEATHSIG, so a busy lock is no loss.
  if (!g_children_mutex.try_lock()) return;
  for (pid_t p : g_children) kill(-p, SIGKILL);
  g_children_mutex.unlock();
}

}  // namespace stitch
