#include "run/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/files.h"
#include "base/guardian.h"
#include "base/interrupt.h"
#include "base/process.h"
#include "run/code_snapshot.h"

extern char** environ;

namespace stitch::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kKeepPrinted = 32u << 10;
constexpr size_t kTextBytes = 8u << 20;

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

const char* verb_of(Op op) {
  switch (op) {
    case Op::load: return "while it was loaded";
    case Op::create: return "in stitch_create";
    case Op::run: case Op::go: return "in stitch_run";
    case Op::destroy: return "in stitch_destroy";
    default: return "between two calls";
  }
}

// Candidate text goes into messages, terminals and JSON: keep printable ASCII and line ends only.
std::string printable(std::string text) {
  for (char& c : text)
    if (c != '\n' && c != '\t' && (c < 0x20 || c > 0x7e)) c = '?';
  return text;
}

void set_limit(int resource, uint64_t value) {
  rlimit limit{value, value};
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const WorkerSpec& spec, char* const* argv, char* const* env, int socket, int out, int err, pid_t parent) {
  lead_guarded_group(parent);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, 0);
  dup2(out, 1);
  dup2(err, 2);
  if (socket != kSocketFd) dup2(socket, kSocketFd);
  else fcntl(socket, F_SETFD, 0);
  for (int fd = kSocketFd + 1; fd < 1024; ++fd) close(fd);
  signal(SIGXFSZ, SIG_DFL);  // ignored by the command line
  set_limit(RLIMIT_CORE, 0);
  set_limit(RLIMIT_FSIZE, 256u << 20);
  set_limit(RLIMIT_NOFILE, spec.cuda ? 1024 : 128);
  execve(argv[0], argv, env);
  _exit(127);
}

std::vector<std::string> worker_environment(const WorkerSpec& spec) {
  std::string libraries;
  for (const auto& folder : spec.library_folders) libraries += (libraries.empty() ? "" : ":") + folder.string();
  std::vector<std::string> env = {"PATH=/usr/bin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "LANG=C", "CUDA_CACHE_PATH=/tmp/cuda"};
  if (!libraries.empty()) env.push_back("LD_LIBRARY_PATH=" + libraries);
  if (!spec.preload.empty()) env.push_back("LD_PRELOAD=" + spec.preload);
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
    if (const char* value = std::getenv(name)) env.push_back(fmt::format("{}={}", name, value));
  for (const auto& [name, value] : spec.environment) env.push_back(name + "=" + value);
  return env;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> p;
  for (auto& s : strings) p.push_back(s.data());
  p.push_back(nullptr);
  return p;
}

}  // namespace

struct Worker::CodeSnapshot : CodeState {};

std::string Worker::printed() const { return printable(err_ + out_); }

const char* name_of(FailureKind kind) {
  switch (kind) {
    case FailureKind::not_elf: return "not_elf";
    case FailureKind::load_failed: return "load_failed";
    case FailureKind::missing_symbol: return "missing_symbol";
    case FailureKind::abi_version: return "abi_version";
    case FailureKind::manifest: return "manifest";
    case FailureKind::create_failed: return "create_failed";
    case FailureKind::run_failed: return "run_failed";
    case FailureKind::crashed: return "crashed";
    case FailureKind::exited: return "exited";
    case FailureKind::timed_out: return "timed_out";
    case FailureKind::memory_limit: return "memory_limit";
    case FailureKind::thread_limit: return "thread_limit";
    case FailureKind::output_flood: return "output_flood";
    case FailureKind::protocol: return "protocol";
    case FailureKind::device: return "device";
  }
  return "?";
}

Result<std::filesystem::path> worker_program() {
  if (const char* given = std::getenv("STITCHCUDA_WORKER")) return std::filesystem::path(given);
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& folder : {self, self.parent_path() / "libexec", source_root() / "build"})
    if (auto file = folder / "stitch_worker"; std::filesystem::exists(file, ignored)) return file;
  return fail(ErrorKind::environment,
              "The program stitch_worker was not found beside stitchcuda; build it (ninja stitch_worker) or set STITCHCUDA_WORKER.");
}

Result<std::unique_ptr<Worker>> Worker::start(const WorkerSpec& spec) {
  if (spec.sandbox != SandboxLevel::automatic) return start_at(spec, spec.sandbox);
  // A level that looked usable may still refuse this command (a locked-down /proc, a missing device): step down.
  std::string refused;
  for (int level = static_cast<int>(usable_sandbox()); level <= static_cast<int>(SandboxLevel::seccomp); ++level) {
    auto worker = start_at(spec, static_cast<SandboxLevel>(level));
    if (worker) {
      if (!refused.empty()) (*worker)->note_ += refused;
      return worker;
    }
    if (worker.error().kind != ErrorKind::environment || level == static_cast<int>(SandboxLevel::seccomp)) return worker;
    refused = fmt::format("{} could not be used: {} ", name_of(static_cast<SandboxLevel>(level)), worker.error().message);
  }
  return fail(ErrorKind::environment, "No sandbox level could be started.");
}

Result<std::unique_ptr<Worker>> Worker::start_at(const WorkerSpec& spec, SandboxLevel level) {
  STITCH_TRY(auto program, worker_program());
  std::vector<std::string> argv = {program.string(), "--target", spec.cuda ? "cuda" : "host", "--candidate",
                                   std::filesystem::absolute(spec.candidate).string()};
  if (spec.cuda) argv.insert(argv.end(), {"--cudart", spec.cudart.string()});
  if (!spec.driver.empty()) argv.insert(argv.end(), {"--driver", spec.driver.string()});
  if (spec.heap_buffers) argv.push_back("--heap-buffers");
  SandboxSpec box;
  box.cuda = spec.cuda;
  box.writable = spec.writable;
  // The program itself, not its folder: a build tree holds other people's candidates and answers.
  box.readable = {program, spec.candidate};
  box.readable.insert(box.readable.end(), spec.library_folders.begin(), spec.library_folders.end());
  auto command = sandboxed(box, level, argv);
  auto environment = worker_environment(spec);

  int pair[2], out[2], err[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    return fail(ErrorKind::environment, "Could not open a channel to a worker: {}.", std::strerror(errno));
  const int yes = 1;
  setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
  auto c_argv = pointers(command), c_env = pointers(environment);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    // dup2 targets 0..3 may collide with the ends; move them out of the way first.
    const int s = fcntl(pair[1], F_DUPFD, 10), o = fcntl(out[1], F_DUPFD, 10), e = fcntl(err[1], F_DUPFD, 10);
    become(spec, c_argv.data(), c_env.data(), s, o, e, parent);
  }
  close(pair[1]);
  close(out[1]);
  close(err[1]);
  std::unique_ptr<Worker> worker(new Worker());
  worker->spec_ = spec;
  worker->level_ = level;
  worker->socket_ = pair[0];
  worker->stdout_ = out[0];
  worker->stderr_ = err[0];
  for (int fd : {out[0], err[0]}) fcntl(fd, F_SETFL, O_NONBLOCK);
  worker->child_ = child;
  if (child < 0) return fail(ErrorKind::environment, "Could not start a worker: {}.", std::strerror(errno));
  remember_child(child);

  auto hello = worker->transact(Request{}, -1, std::chrono::seconds(60));
  if (!hello) {
    std::string printed = worker->printed();
    while (!printed.empty() && printed.back() == '\n') printed.pop_back();
    return fail(ErrorKind::environment, "The worker did not start ({}{}{}).", hello.error().sentence, printed.empty() ? "" : " ", printed);
  }
  if (hello->status == WorkerStatus::device_failed) return fail(ErrorKind::environment, "{}", hello->message);
  worker->l2_bytes_ = hello->value[0];
  if (hello->message[0]) worker->note_ = hello->message;
  worker->snapshot_code();
  if (!spec.cuda && !spec.heap_buffers && worker->pid_ > 0) {
    // Set from outside, before any candidate code runs: the limit must leave room for the regions mapped later, which
    // map() adds. Never on a CUDA process: the driver reserves terabytes of address space.
    rlimit limit{spec.memory_limit, RLIM_INFINITY};
    prlimit(worker->pid_, RLIMIT_AS, &limit, nullptr);
  }
  auto text = SharedRegion::create_bytes("stitch-text", kTextBytes);
  if (!text) return tl::make_unexpected(text.error());
  worker->text_ = std::make_unique<SharedRegion>(std::move(*text));
  if (auto mapped = worker->map(Region::text, *worker->text_, 1); !mapped)
    return fail(ErrorKind::environment, "{}", mapped.error().sentence);
  return worker;
}

Worker::~Worker() {
  reap(true);
  for (int fd : {socket_, stdout_, stderr_})
    if (fd >= 0) close(fd);
}

void Worker::drain() {
  char buffer[65536];
  for (auto [fd, keep] : {std::pair<int*, std::string*>{&stdout_, &out_}, {&stderr_, &err_}}) {
    while (*fd >= 0) {
      const ssize_t n = read(*fd, buffer, sizeof buffer);
      if (n == 0) {  // closed by the candidate: a stream at its end would wake poll for ever
        close(*fd);
        *fd = -1;
      }
      if (n <= 0) break;
      printed_bytes_ += static_cast<uint64_t>(n);
      keep->append(buffer, static_cast<size_t>(n));
      if (keep->size() > 2 * kKeepPrinted) keep->erase(0, keep->size() - kKeepPrinted);
      if (printed_bytes_ > spec_.output_limit) return;
    }
  }
}

std::optional<CandidateFailure> Worker::over_limits() {
  if (printed_bytes_ > spec_.output_limit)
    return CandidateFailure{FailureKind::output_flood,
                            fmt::format("The candidate printed more than {} MiB and was stopped.", spec_.output_limit >> 20), {}};
  if (pid_ <= 0) return std::nullopt;
  std::ifstream status(fmt::format("/proc/{}/status", pid_));
  uint64_t rss = 0;
  int threads = 0;
  for (std::string line; std::getline(status, line);) {
    // Anonymous memory only: the shared regions are ours.
    if (line.starts_with("RssAnon:")) rss = std::strtoull(line.c_str() + 8, nullptr, 10) << 10;
    if (line.starts_with("Threads:")) threads = std::atoi(line.c_str() + 8);
  }
  peak_rss_ = std::max(peak_rss_, rss);
  peak_threads_ = std::max(peak_threads_, threads);
  if (rss > spec_.memory_limit)
    return CandidateFailure{FailureKind::memory_limit,
                            fmt::format("The candidate used more than {} MiB of memory and was stopped.", spec_.memory_limit >> 20), {}};
  if (threads > spec_.thread_limit)
    return CandidateFailure{FailureKind::thread_limit,
                            fmt::format("The candidate started more than {} threads and was stopped.", spec_.thread_limit), {}};
  return std::nullopt;
}

tl::unexpected<CandidateFailure> Worker::stop(FailureKind kind, std::string sentence) {
  reap(true);
  drain();
  return tl::make_unexpected(CandidateFailure{kind, std::move(sentence), printed()});
}

tl::unexpected<CandidateFailure> Worker::ended(const std::string& during) {
  reap(false);
  drain();
  if (WIFSIGNALED(exit_status_) || (WIFEXITED(exit_status_) && WEXITSTATUS(exit_status_) > 128)) {
    const int signal = WIFSIGNALED(exit_status_) ? WTERMSIG(exit_status_) : WEXITSTATUS(exit_status_) - 128;
    const char* hint = signal == SIGSEGV || signal == SIGBUS ? ": it touched memory that is not its own" : "";
    return tl::make_unexpected(CandidateFailure{
        FailureKind::crashed, fmt::format("The candidate crashed with {} {}{}.", signal_name(signal), during, hint), printed()});
  }
  return tl::make_unexpected(CandidateFailure{
      FailureKind::exited, fmt::format("The candidate ended its process with exit code {} {}.", WEXITSTATUS(exit_status_), during),
      printed()});
}

void Worker::reap(bool kill_now) {
  if (reaped_ || child_ <= 0) return;
  // The channel is gone or the child is condemned; give an exiting child a moment so that its own status is seen.
  const auto deadline = Clock::now() + (kill_now ? std::chrono::milliseconds(0) : std::chrono::milliseconds(2000));
  for (;;) {
    const pid_t done = waitpid(child_, &exit_status_, WNOHANG);
    if (done == child_ || (done < 0 && errno == ECHILD)) break;
    if (Clock::now() >= deadline) {
      if (pid_ > 0 && pid_ != child_) kill(pid_, SIGKILL);
      kill(-child_, SIGKILL);
      kill(child_, SIGKILL);
      waitpid(child_, &exit_status_, 0);
      break;
    }
    drain();
    poll(nullptr, 0, 2);
  }
  reaped_ = true;
  forget_child(child_);
  stop_if_interrupted();
}

Outcome<Reply> Worker::transact(Request request, int fd, std::chrono::milliseconds timeout) {
  const bool greeting = request.magic == 0;
  const char* during = greeting ? "before its first call" : verb_of(request.op);
  if (reaped_) return tl::make_unexpected(CandidateFailure{FailureKind::exited, "The candidate's process is gone.", printed()});
  const auto started = Clock::now();
  if (!greeting) {
    request.sequence = ++sequence_;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part{&request, sizeof request};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    if (sendmsg(socket_, &message, MSG_NOSIGNAL) < 0) return ended("between two calls");
  }
  auto next_check = started + std::chrono::milliseconds(20);
  for (;;) {
    pollfd watched[3] = {{socket_, POLLIN, 0}, {stdout_, POLLIN, 0}, {stderr_, POLLIN, 0}};
    poll(watched, 3, 20);
    if (watched[0].revents & (POLLIN | POLLHUP | POLLERR)) {
      Reply reply{};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int) * 4)];
      iovec part{&reply, sizeof reply};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      const ssize_t n = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      wall_ms_ = std::chrono::duration<double, std::milli>(Clock::now() - started).count();
      if (n <= 0) return ended(during);
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET) continue;
        if (c->cmsg_type == SCM_CREDENTIALS && greeting) {
          ucred credentials{};
          std::memcpy(&credentials, CMSG_DATA(c), sizeof credentials);
          pid_ = credentials.pid;
        }
        if (c->cmsg_type == SCM_RIGHTS) {  // the worker never sends descriptors
          int sent = -1;
          for (size_t at = 0; at + sizeof sent <= c->cmsg_len - CMSG_LEN(0); at += sizeof sent) {
            std::memcpy(&sent, CMSG_DATA(c) + at, sizeof sent);
            close(sent);
          }
        }
      }
      const bool expected = n == static_cast<ssize_t>(sizeof reply) && reply.magic == kProtocolMagic &&
                            (greeting ? reply.op == Op::hello : reply.op == request.op && reply.sequence == request.sequence);
      if (!expected)
        return stop(FailureKind::protocol, fmt::format("The candidate wrote to the worker's control channel {}.", during));
      reply.message[sizeof reply.message - 1] = 0;
      for (char& c : reply.message)
        if (c != 0 && (c < 0x20 || c > 0x7e)) c = '?';
      return reply;
    }
    const bool printing = watched[1].revents || watched[2].revents;
    if (printing) drain();
    if (printing || Clock::now() >= next_check) {
      if (auto over = over_limits()) return stop(over->kind, over->sentence);
      next_check = Clock::now() + std::chrono::milliseconds(20);
    }
    if (Clock::now() - started > timeout)
      return stop(FailureKind::timed_out, fmt::format("The candidate did not answer within {:.3g} s {}.",
                                                      std::chrono::duration<double>(timeout).count(), during));
  }
}

Outcome<Reply> Worker::call(Op op, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3) {
  Request request{kProtocolMagic, op, 0, {a0, a1, a2, a3}};
  const bool long_load = op == Op::load || op == Op::create || op == Op::destroy;
  auto reply = transact(request, -1, long_load ? spec_.load_timeout : spec_.call_timeout);
  if (reply && reply->status == WorkerStatus::device_failed)
    return stop(FailureKind::device, fmt::format("A CUDA call failed {}: {}.", verb_of(op), reply->message));
  if (reply && reply->status == WorkerStatus::bad_request)
    return stop(FailureKind::protocol, fmt::format("The worker refused a request: {}.", reply->message));
  // Output that came between the last look and the answer counts too.
  drain();
  if (reply)
    if (auto over = over_limits()) return stop(over->kind, over->sentence);
  return reply;
}

Outcome<Reply> Worker::map(Region region, const SharedRegion& memory, uint64_t tensors) {
  mapped_bytes_ += memory.bytes();
  if (!spec_.cuda && !spec_.heap_buffers && pid_ > 0) {
    rlimit limit{spec_.memory_limit + mapped_bytes_, RLIM_INFINITY};
    prlimit(pid_, RLIMIT_AS, &limit, nullptr);
  }
  Request request{kProtocolMagic, Op::map, 0, {static_cast<uint64_t>(region), memory.bytes(), tensors, 0}};
  auto reply = transact(request, memory.fd(), spec_.load_timeout);
  if (reply && reply->status != WorkerStatus::ok)
    return stop(FailureKind::device, fmt::format("Memory for the candidate could not be prepared: {}.", reply->message));
  return reply;
}

Outcome<Reply> Worker::attach(Region region, int fd, const RegionLayout& layout, uint64_t bytes) {
  const size_t table = layout.records.size() * sizeof(TensorRecord);
  if (table > kTextBytes) return stop(FailureKind::device, fmt::format("The program has {} tensors of a kind, more than can be shared.", layout.records.size()));
  if (table) std::memcpy(text_->data(0).data(), layout.records.data(), table);
  Request request{kProtocolMagic, Op::attach, 0, {static_cast<uint64_t>(region), bytes, layout.records.size(), 0}};
  auto reply = transact(request, fd, spec_.load_timeout);
  if (reply && reply->status != WorkerStatus::ok)
    return stop(FailureKind::device, fmt::format("Device memory for the candidate could not be shared: {}.", reply->message));
  return reply;
}

Outcome<std::string> Worker::load() {
  auto reply = call(Op::load);
  if (!reply) return tl::make_unexpected(reply.error());
  switch (reply->status) {
    case WorkerStatus::ok: break;
    case WorkerStatus::missing_symbol:
      return stop(FailureKind::missing_symbol,
                  fmt::format("The candidate does not export {}; see include/stitch/abi.h.", std::string(reply->message)));
    case WorkerStatus::abi_version:
      return stop(FailureKind::abi_version, fmt::format("The candidate has ABI version {}; this program needs version 1.",
                                                        static_cast<int64_t>(reply->number[0])));
    default:
      return stop(FailureKind::load_failed, fmt::format("The candidate could not be loaded: {}.", std::string(reply->message)));
  }
  const auto memory = text_->data(0);
  const size_t n = std::min<size_t>(reply->number[0], memory.size());
  return std::string(reinterpret_cast<const char*>(memory.data()), n);
}

Outcome<Reply> Worker::create() {
  auto reply = call(Op::create);
  if (reply && reply->status != WorkerStatus::ok)
    return stop(FailureKind::create_failed, fmt::format("stitch_create failed: {}.", std::string(reply->message)));
  return reply;
}

Outcome<Reply> Worker::run(int inputs, int outputs, uint16_t poison, bool fetch_all) {
  auto reply = call(Op::run, static_cast<uint64_t>(inputs), static_cast<uint64_t>(outputs), poison, fetch_all ? 1 : 0);
  if (reply && reply->status != WorkerStatus::ok)
    return stop(FailureKind::run_failed, fmt::format("stitch_run failed: {}.", std::string(reply->message)));
  return reply;
}

void Worker::quit() {
  if (reaped_) return;
  (void)transact({kProtocolMagic, Op::quit, 0, {}}, -1, std::chrono::seconds(5));
  reap(false);
}

void Worker::snapshot_code() {
  if (pid_ <= 0) return;
  code_ = std::make_shared<CodeSnapshot>();
  static_cast<CodeState&>(*code_) = read_code_state(pid_);
}

std::optional<std::string> Worker::changed_code() const {
  if (!code_ || code_->segments.empty() || reaped_) return std::nullopt;
  return compare_code_state(*code_, pid_);
}

}  // namespace stitch::run
