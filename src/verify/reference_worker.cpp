#include "verify/reference_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/guardian.h"
#include "base/interrupt.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/process.h"

namespace stitch::verify {
namespace {

constexpr int kAnswerFd = 3, kDescriptorFd = 4;

std::string python_program(const std::filesystem::path& given) {
  if (!given.empty()) return given.string();
  if (const char* environment = std::getenv("STITCHCUDA_PYTHON")) return environment;
  const auto own = data_home() / "venv" / "bin" / "python";
  std::error_code ignored;
  if (std::filesystem::exists(own, ignored)) return own.string();
  return find_program("python3").value_or("");
}

Json describe(const ir::TensorInfo& info) {
  return {{"name", info.name}, {"dtype", std::string(ir::name_of(info.type.dtype))}, {"shape", info.type.shape}};
}

Json describe_outputs(const ir::Bundle& bundle) {
  Json list = Json::array();
  for (const auto& o : bundle.graph.outputs) {
    Json entry = describe({o.name, bundle.graph.type_of(o.value), {}});
    using Kind = ir::Output::Kind;
    entry["kind"] = o.kind == Kind::user ? "user" : o.kind == Kind::mutates_weight ? "mutates_weight" : "mutates_input";
    entry["target"] = o.target;
    list.push_back(std::move(entry));
  }
  return list;
}

std::string tail_of(const std::filesystem::path& log) {
  auto text = read_file(log);
  if (!text) return "";
  return text->size() > 4000 ? text->substr(text->size() - 4000) : *text;
}

}  // namespace

Result<std::unique_ptr<ReferenceWorker>> ReferenceWorker::start(const ir::Bundle& bundle, const Spec& spec) {
  std::error_code ignored;
  if (spec.source.empty() || !std::filesystem::exists(spec.source, ignored))
    return fail(ErrorKind::environment, "The program's PyTorch source {} is not here, so PyTorch cannot be asked.",
                spec.source.empty() ? "(none named)" : spec.source.string());
  const auto python = python_program(spec.python);
  const auto script = source_root() / "python" / "stitchcuda" / "baseline.py";
  if (python.empty() || !std::filesystem::exists(script, ignored))
    return fail(ErrorKind::environment, "No Python with torch was found; run `stitchcuda setup` or set STITCHCUDA_PYTHON.");
  std::unique_ptr<ReferenceWorker> w(new ReferenceWorker());
  w->bundle_ = &bundle;
  STITCH_TRY(auto folder, TempFolder::create("stitch-reference"));
  w->folder_ = std::make_unique<TempFolder>(std::move(folder));

  int in[2], out[2], pair[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return fail(ErrorKind::environment, "Could not open a pipe to PyTorch: {}.", std::strerror(errno));
  const std::string log = (w->folder_->path() / "log").string(), packages = "PYTHONPATH=" + (source_root() / "python").string();
  const char* argv[] = {"env", packages.c_str(), python.c_str(), "-u", "-m", "stitchcuda.baseline", "--answer-fd", "3", "--fd-socket", "4", nullptr};
  const pid_t parent = getpid();
  w->child_ = fork();
  if (w->child_ == 0) {
    lead_guarded_group(parent);
    const int requests = fcntl(in[0], F_DUPFD, 10), answers = fcntl(out[1], F_DUPFD, 10), descriptors = fcntl(pair[1], F_DUPFD, 10);
    const int errors = open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    dup2(requests, 0);
    dup2(errors, 1);
    dup2(errors, 2);
    dup2(answers, kAnswerFd);
    dup2(descriptors, kDescriptorFd);
    for (int fd = kDescriptorFd + 1; fd < 1024; ++fd) close(fd);
    execvp(argv[0], const_cast<char* const*>(argv));
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  close(pair[1]);
  w->descriptors_ = pair[0];
  w->requests_ = in[1];
  w->answers_ = out[0];
  if (w->child_ < 0) return fail(ErrorKind::environment, "Could not start PyTorch: {}.", std::strerror(errno));
  remember_child(w->child_);

  Json inputs = Json::array();
  for (const auto& i : bundle.inputs) inputs.push_back(describe(i));
  const auto weights = bundle.folder / "weights.safetensors";
  const Json load = {{"op", "load"}, {"source", spec.source.string()}, {"kind", bundle.origin.kind}, {"name", bundle.name},
                     {"sha256", bundle.origin.sha256}, {"weights", bundle.has_weights ? weights.string() : ""},
                     {"inputs", inputs}, {"outputs", describe_outputs(bundle)}, {"precision", spec.precision_class},
                     {"tf32_matmul", bundle.precision.allow_tf32_matmul}, {"tf32_conv", bundle.precision.allow_tf32_conv},
                     {"mode", bundle.mode}, {"seed", bundle.origin.seed}, {"device", spec.device}};
  STITCH_TRY(auto answer, w->ask(load, std::chrono::seconds(300)));
  w->device_name_ = answer.value("device", "");
  w->device_bytes_ = answer.value("memory", uint64_t{0});
  w->torch_version_ = answer.value("torch", "");
  return w;
}

ReferenceWorker::~ReferenceWorker() {
  if (requests_ >= 0) close(requests_);
  if (answers_ >= 0) close(answers_);
  if (descriptors_ >= 0) close(descriptors_);
  if (child_ > 0) {
    kill(-child_, SIGKILL);
    forget_child(child_);
    waitpid(child_, nullptr, 0);
    stop_if_interrupted();
  }
}

Result<Json> ReferenceWorker::ask(const Json& request, std::chrono::seconds timeout) {
  const std::string line = dump(request, -1) + "\n";
  // The parent must survive a PyTorch that died: block SIGPIPE for this write.
  sigset_t pipe_signal, before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = write(requests_, line.data() + sent, line.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  timespec none{};
  if (sent < line.size()) sigtimedwait(&pipe_signal, nullptr, &none);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  const auto asked = std::chrono::steady_clock::now(), deadline = asked + timeout;
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      const std::string text = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      STITCH_TRY(auto answer, parse_json(text, "PyTorch's answer"));
      double rest = std::chrono::duration<double>(std::chrono::steady_clock::now() - asked).count();
      if (answer.contains("seconds"))
        for (const auto& [part, seconds] : answer.at("seconds").items()) spent_[part] += seconds.get<double>(), rest -= seconds.get<double>();
      spent_[request.value("op", "?")] += rest;
      if (answer.value("ok", false)) return answer;
      Error e{ErrorKind::environment, answer.value("error", "PyTorch could not answer."), tail_of(folder_->path() / "log")};
      return tl::make_unexpected(e);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd watched{answers_, POLLIN, 0};
    if (left.count() <= 0 || poll(&watched, 1, static_cast<int>(left.count())) == 0)
      return fail(ErrorKind::environment, "PyTorch did not answer a \"{}\" request within {} s.", request.value("op", "?"), timeout.count());
    char chunk[65536];
    const ssize_t n = read(answers_, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Error e{ErrorKind::environment, "The PyTorch process ended; see the detail for what it printed.", tail_of(folder_->path() / "log")};
      return tl::make_unexpected(e);
    }
    buffer_.append(chunk, static_cast<size_t>(n));
  }
}

void ReferenceWorker::add_spent(const std::string& step, std::chrono::steady_clock::time_point since) {
  spent_[step] += std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

Result<int> ReferenceWorker::receive_descriptor() {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  int fd = -1;
  if (recvmsg(descriptors_, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) == 1)
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
  if (fd < 0) return fail(ErrorKind::environment, "PyTorch did not hand over its device memory ({}).", std::strerror(errno));
  return fd;
}

Status ReferenceWorker::build_baseline(const std::string& mode) {
  STITCH_TRY([[maybe_unused]] auto answer, ask({{"op", "baseline"}, {"mode", mode}}, std::chrono::seconds(900)));
  return {};
}

}  // namespace stitch::verify
