#include "base/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/spawn.h"

namespace stitch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long a pipe that a grandchild keeps open is listened to after the child's end.
constexpr milliseconds kDrain{200};
// How long a killed child may take to die. One stuck in the kernel (a GPU driver, a dead network disk) may never.
constexpr milliseconds kDying{10000};

// Collects one output stream: keeps up to the limit, counts the rest, hands complete lines on.
class Collector {
 public:
  Collector(std::string& kept, uint64_t& total, size_t limit, const std::function<void(std::string_view)>& on_line)
      : kept_(kept), total_(total), limit_(limit), on_line_(on_line) {}
  void take(std::string_view bytes) {
    total_ += bytes.size();
    kept_.append(bytes.substr(0, kept_.size() < limit_ ? limit_ - kept_.size() : 0));
    if (!on_line_) return;
    line_.append(bytes);
    size_t at = 0;
    for (size_t end; (end = line_.find('\n', at)) != line_.npos; at = end + 1) on_line_(std::string_view(line_).substr(at, end - at));
    line_.erase(0, at);
    if (line_.size() > (1u << 20)) finish();  // no line is this long
  }
  void finish() {
    if (on_line_ && !line_.empty()) on_line_(std::exchange(line_, {}));
  }
  bool over() const { return total_ > limit_; }

 private:
  std::string& kept_;
  uint64_t& total_;
  size_t limit_;
  const std::function<void(std::string_view)>& on_line_;
  std::string line_;
};

// A child that closes its stdin early must not kill this process, and the process's own SIGPIPE setting is not ours to
// change: the signal is blocked in this thread for one write and taken back if the write raised it.
class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &old_);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;
  ~SigpipeGuard() {
    const timespec now{};
    if (!was_pending_)
      while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {}
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }

 private:
  sigset_t pipe_, old_;
  bool was_pending_;
};

double seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); }

void shut(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

class Child {
 public:
  Child(const ProcessSpec& spec, detail::Spawned spawned, ProcessResult& result, Clock::time_point start)
      : spec_(spec), result_(result), c_(spawned), start_(start),
        out_(result.out, result.out_bytes, spec.output_limit, spec.on_stdout_line),
        err_(result.err, result.err_bytes, spec.output_limit, spec.on_stderr_line) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {  // a callback threw, or the child could not be killed
    if (!reaped_) {
      kill_group();
      forget_child(c_.pid);
      int status = 0;
      waitpid(c_.pid, &status, WNOHANG);
    }
    for (int* fd : {&c_.in, &c_.out, &c_.err, &c_.process}) shut(*fd);
  }

  void run() {
    // A timeout of "forever" must not overflow the clock.
    const auto deadline = start_ + std::clamp<milliseconds>(spec_.timeout, milliseconds(0), std::chrono::hours(24 * 365));
    auto stop_at = Clock::time_point::max();
    bool ended = false, killed = false;
    while (true) {
      feed();
      if (!ended && has_ended()) {
        ended = true;
        result_.wall_seconds = std::chrono::duration<double>(Clock::now() - start_).count();
        shut(c_.in);
        stop_at = Clock::now() + kDrain;
      }
      const auto now = Clock::now();
      if (ended && ((c_.out < 0 && c_.err < 0) || now >= stop_at)) break;
      if (!ended && !killed && (now >= deadline || output_limited())) {
        result_.timed_out = now >= deadline;
        killed = true;
        kill_group();
        stop_at = now + kDying;
      }
      if (killed && !ended && now >= stop_at) break;
      wait_for_event(ended || killed ? stop_at : deadline, !ended);
    }
    kill_group();  // whatever the child left behind; its number stays taken until it is reaped
    reap(ended);
    out_.finish();
    err_.finish();
    result_.output_limited = output_limited();
  }

 private:
  bool output_limited() const { return spec_.kill_on_output_limit && (out_.over() || err_.over()); }

  void kill_group() {
    if (lost_) return;  // the number may be someone else's by now
    kill(-c_.pid, SIGKILL);
    kill(c_.pid, SIGKILL);
  }

  // Without reaping: as long as the zombie is there, neither its number nor its group's can go to someone else.
  bool has_ended() {
    siginfo_t info{};
    int r;
    while ((r = waitid(P_PID, static_cast<id_t>(c_.pid), &info, WEXITED | WNOHANG | WNOWAIT)) < 0 && errno == EINTR) {}
    lost_ = r < 0;  // someone else reaped it
    return lost_ || info.si_pid == c_.pid;
  }

  void reap(bool ended) {
    if (!ended) {  // unkillable: leave it to init
      result_.wall_seconds = std::chrono::duration<double>(Clock::now() - start_).count();
      result_.signal = SIGKILL;
      result_.exit_code = 128 + SIGKILL;
      return;
    }
    forget_child(c_.pid);
    reaped_ = true;
    int status = 0;
    rusage usage{};
    pid_t r;
    while ((r = wait4(c_.pid, &status, 0, &usage)) < 0 && errno == EINTR) {}
    if (r != c_.pid) return;  // exit_code stays -1
    result_.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    result_.max_rss_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
    result_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    result_.exit_code = WIFSIGNALED(status) ? 128 + result_.signal : WEXITSTATUS(status);
  }

  void feed() {
    if (c_.in < 0) return;
    const SigpipeGuard guard;
    while (fed_ < spec_.stdin_text.size()) {
      const ssize_t n = write(c_.in, spec_.stdin_text.data() + fed_, spec_.stdin_text.size() - fed_);
      if (n > 0) fed_ += static_cast<size_t>(n);
      else if (errno == EINTR) continue;
      else if (errno == EAGAIN) return;
      else break;  // the child closed its stdin
    }
    shut(c_.in);
  }

  void wait_for_event(Clock::time_point until, bool alive) {
    pollfd fds[4];
    nfds_t count = 0;
    if (c_.out >= 0) fds[count++] = {c_.out, POLLIN, 0};
    if (c_.err >= 0) fds[count++] = {c_.err, POLLIN, 0};
    if (c_.in >= 0) fds[count++] = {c_.in, POLLOUT, 0};
    if (alive && c_.process >= 0) fds[count++] = {c_.process, POLLIN, 0};
    auto wait = std::clamp<Clock::duration>(until - Clock::now(), Clock::duration(0), std::chrono::seconds(60));
    if (alive && c_.process < 0) wait = std::min<Clock::duration>(wait, milliseconds(c_.out < 0 && c_.err < 0 ? 2 : 20));
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(wait).count();
    const timespec timeout{nanoseconds / 1000000000, nanoseconds % 1000000000};
    if (ppoll(fds, count, &timeout, nullptr) <= 0) return;
    for (nfds_t i = 0; i < count; ++i) {
      if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
      if (fds[i].fd == c_.out) drain(c_.out, out_);
      else if (fds[i].fd == c_.err) drain(c_.err, err_);
    }
  }

  // A bounded number of rounds, so that a flood on one stream starves neither the other nor the clock.
  void drain(int& fd, Collector& to) {
    char buffer[1 << 16];
    for (int rounds = 0; rounds < 16; ++rounds) {
      const ssize_t n = read(fd, buffer, sizeof buffer);
      if (n > 0) to.take({buffer, static_cast<size_t>(n)});
      else if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      else return shut(fd);
    }
  }

  const ProcessSpec& spec_;
  ProcessResult& result_;
  detail::Spawned c_;
  Clock::time_point start_;
  Collector out_, err_;
  bool reaped_ = false, lost_ = false;
  size_t fed_ = 0;
};

}  // namespace

Result<ProcessResult> run_process(const ProcessSpec& spec) {
  const auto start = Clock::now();
  STITCH_TRY(const detail::Spawned spawned, detail::spawn(spec));
  ProcessResult result;
  Child(spec, spawned, result, start).run();
  stop_if_interrupted();
  log_debug("{} [{}{} in {:.2f} s]", to_command_line(spec.argv), result.timed_out ? "timed out, " : "", result.exit_code, result.wall_seconds);
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
  try {
    for (size_t t = 1; t < count; ++t) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads on this machine: those that started do all the work.
  }
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
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    // An empty or relative entry means "wherever the user happens to be": no place to take programs from.
    const std::string candidate = std::string(rest.substr(0, colon)) + "/" + std::string(name);
    if (rest.front() == '/' && usable(candidate)) return candidate;
    rest.remove_prefix(colon == rest.npos ? rest.size() : colon + 1);
  }
  return std::nullopt;
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

}  // namespace stitch
