// stitch_worker: loads one candidate and runs it on command. Started by src/run/worker.cpp inside a sandbox; it holds
// inputs and weights but never an expected output, and decides nothing.
//
//   stitch_worker --target host|cuda --candidate FILE [--cudart FILE] [--driver FILE] [--heap-buffers] [--namespaces]
//                 [--bind FOLDER]... [--device NODE]... [--no-seccomp]

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <chrono>
#include <memory>

#include "worker/worker.h"

namespace stitch::worker {
namespace {

using run::Op;
using run::Region;
using run::Reply;
using run::Request;
using run::WorkerStatus;

struct Arguments {
  bool cuda = false, heap_buffers = false, namespaces = false, seccomp = true;
  std::string candidate, cudart = "libcudart.so", driver = "libcuda.so.1";
  std::vector<Bind> binds;
};

struct Candidate {
  decltype(&stitch_abi_version) abi_version = nullptr;
  decltype(&stitch_manifest) manifest = nullptr;
  decltype(&stitch_create) create = nullptr;
  decltype(&stitch_workspace_bytes) workspace_bytes = nullptr;
  decltype(&stitch_set_workspace) set_workspace = nullptr;
  decltype(&stitch_run) run = nullptr;
  decltype(&stitch_last_error) last_error = nullptr;
  decltype(&stitch_destroy) destroy = nullptr;
};

class Server {
 public:
  explicit Server(Arguments arguments) : arguments_(std::move(arguments)) {}

  int serve() {
    device_.reset(arguments_.cuda ? cuda_device(arguments_.cudart, arguments_.driver) : host_device(arguments_.heap_buffers));
    std::string error;
    Reply hello{};
    hello.op = Op::hello;
    error = device_->open(device_name_, l2_bytes_);  // before the filter: the driver may need more than a candidate
    say(hello, arguments_.seccomp ? install_seccomp(arguments_.cuda) : "seccomp: switched off");
    if (!error.empty()) answer(hello, WorkerStatus::device_failed, error);
    hello.value[0] = l2_bytes_;
    if (!send(hello)) return 1;
    if (!error.empty()) return 1;
    Request request{};
    int fd = -1;
    while (receive(request, fd)) {
      Reply reply{};
      reply.op = request.op;
      reply.sequence = request.sequence;
      if (request.op == Op::quit) {
        send(reply);
        _exit(0);  // no destructors: the candidate may have broken them
      }
      handle(request, fd, reply);
      if (!send(reply)) return 1;
    }
    return 0;
  }

 private:
  static void say(Reply& reply, const std::string& text) {
    std::strncpy(reply.message, text.c_str(), sizeof reply.message - 1);
  }
  static void answer(Reply& reply, WorkerStatus status, const std::string& text) {
    reply.status = status;
    say(reply, text);
  }
  static void device_answer(Reply& reply, const std::string& error) {
    if (!error.empty() && reply.status == WorkerStatus::ok) answer(reply, WorkerStatus::device_failed, error);
  }
  static bool send(Reply& reply) {
    reply.magic = run::kProtocolMagic;
    return ::send(run::kSocketFd, &reply, sizeof reply, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof reply);
  }
  static bool receive(Request& request, int& fd) {
    fd = -1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{&request, sizeof request};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t n;
    do n = recvmsg(run::kSocketFd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n != static_cast<ssize_t>(sizeof request) || request.magic != run::kProtocolMagic) return false;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return true;
  }

  MappedRegion& region(Region r) { return regions_[static_cast<size_t>(r)]; }
  MappedRegion& input_slot(uint64_t i) { return regions_[static_cast<size_t>(Region::inputs0) + i % run::kInputSlots]; }
  MappedRegion& output_slot(uint64_t i) { return regions_[static_cast<size_t>(Region::outputs0) + i % run::kOutputSlots]; }

  void handle(const Request& request, int fd, Reply& reply) {
    switch (request.op) {
      case Op::map: return map(request, fd, reply);
      case Op::attach: return attach(request, fd, reply);
      case Op::load: return load(reply);
      case Op::create: return create(reply);
      case Op::run: return run_once(request, reply);
      case Op::arm: return arm(request, reply);
      case Op::go: return go(reply);
      case Op::fetch: return device_answer(reply, device_->fetch(output_slot(request.a[0])));
      case Op::upload: return device_answer(reply, device_->upload(input_slot(request.a[0])));
      case Op::null_call: return;
      case Op::memory:
        device_answer(reply, device_->memory(reply.number[0], reply.number[1]));
        reply.value[0] = l2_bytes_;
        if (reply.status == WorkerStatus::ok) say(reply, device_name_);
        return;
      case Op::destroy:
        if (program_) candidate_.destroy(program_);
        program_ = nullptr;
        return;
      default: return answer(reply, WorkerStatus::bad_request, "unknown request");
    }
  }

  void map(const Request& request, int fd, Reply& reply) {
    if (fd < 0 || request.a[0] >= static_cast<uint64_t>(Region::count))
      return answer(reply, WorkerStatus::bad_request, "map without memory");
    MappedRegion& r = regions_[request.a[0]];
    r.bytes = request.a[1];
    void* base = mmap(nullptr, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED) return answer(reply, WorkerStatus::bad_request, "mmap failed");
    r.base = static_cast<char*>(base);
    take_records(r, reinterpret_cast<const run::TensorRecord*>(base), request.a[2]);
    for (size_t i = 0; i < r.tensors.size(); ++i) {
      const run::TensorRecord record = reinterpret_cast<const run::TensorRecord*>(base)[i];
      r.tensors[i].shared = r.base + record.offset;
      if (!arguments_.cuda) mprotect(r.base + record.fence, run::kPage, PROT_NONE);
    }
    if (request.a[0] != static_cast<uint64_t>(Region::text)) device_answer(reply, device_->place(r));
  }

  static void take_records(MappedRegion& r, const run::TensorRecord* records, uint64_t count) {
    r.tensors.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const run::TensorRecord record = records[i];
      MappedTensor& t = r.tensors[i];
      t.bytes = record.bytes;
      t.shape.assign(record.shape, record.shape + record.ndim);
      t.tensor.ndim = record.ndim;
      t.tensor.dtype = {record.code, record.bits, 1};
      t.tensor.shape = t.shape.data();
    }
  }

  void attach(const Request& request, int fd, Reply& reply) {
    const MappedTensor& text = region(Region::text).tensors.at(0);
    if (fd < 0 || request.a[0] >= static_cast<uint64_t>(Region::count) || request.a[2] * sizeof(run::TensorRecord) > text.bytes)
      return answer(reply, WorkerStatus::bad_request, "attach without memory");
    MappedRegion& r = regions_[request.a[0]];
    r.bytes = request.a[1];
    r.attached = true;
    const auto* records = static_cast<const run::TensorRecord*>(text.shared);
    take_records(r, records, request.a[2]);
    device_answer(reply, device_->attach(r, fd));
    close(fd);
    for (size_t i = 0; i < r.tensors.size(); ++i) r.tensors[i].tensor.data = r.base + records[i].offset;
  }

  template <class F>
  bool symbol(F& slot, const char* name, Reply& reply) {
    slot = reinterpret_cast<F>(dlsym(library_, name));
    if (!slot) answer(reply, WorkerStatus::missing_symbol, name);
    return slot != nullptr;
  }

  void load(Reply& reply) {
    library_ = dlopen(arguments_.candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) return answer(reply, WorkerStatus::load_failed, dlerror());
    if (!symbol(candidate_.abi_version, "stitch_abi_version", reply)) return;
    const int version = candidate_.abi_version();
    reply.number[0] = static_cast<uint64_t>(static_cast<int64_t>(version));
    if (version != STITCH_ABI_VERSION) return answer(reply, WorkerStatus::abi_version, "");
    if (!symbol(candidate_.manifest, "stitch_manifest", reply) || !symbol(candidate_.create, "stitch_create", reply) ||
        !symbol(candidate_.workspace_bytes, "stitch_workspace_bytes", reply) ||
        !symbol(candidate_.set_workspace, "stitch_set_workspace", reply) || !symbol(candidate_.run, "stitch_run", reply) ||
        !symbol(candidate_.last_error, "stitch_last_error", reply) || !symbol(candidate_.destroy, "stitch_destroy", reply))
      return;
    MappedTensor& text = region(Region::text).tensors.at(0);
    const char* manifest = candidate_.manifest();
    const size_t n = manifest ? strnlen(manifest, text.bytes) : 0;
    std::memcpy(text.shared, manifest, n);
    reply.number[0] = n;
  }

  std::string last_error() {
    const char* text = candidate_.last_error(program_);
    return text ? text : "";
  }

  void create(Reply& reply) {
    const auto weights = region(Region::weights).pointers();
    const auto started = std::chrono::steady_clock::now();
    program_ = candidate_.create(weights.data(), static_cast<int32_t>(weights.size()), device_->stream());
    if (!program_) return answer(reply, WorkerStatus::create_failed, last_error());
    device_answer(reply, device_->wait());
    reply.value[0] = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    reply.number[0] = candidate_.workspace_bytes(program_);
  }

  bool prepare(const Request& request, uint16_t workspace_poison, Reply& reply) {
    MappedRegion& workspace = region(Region::workspace);
    if (!workspace_set_ && !workspace.tensors.empty()) {
      workspace_set_ = true;
      if (candidate_.set_workspace(program_, workspace.tensors[0].tensor.data, workspace.tensors[0].bytes) != 0) {
        answer(reply, WorkerStatus::run_failed, "stitch_set_workspace: " + last_error());
        return false;
      }
    }
    device_answer(reply, device_->poison(output_slot(request.a[1]), workspace_poison));
    if (!workspace.tensors.empty()) device_answer(reply, device_->poison(workspace, workspace_poison));
    armed_inputs_ = input_slot(request.a[0]).pointers();
    armed_outputs_ = output_slot(request.a[1]).pointers();
    return reply.status == WorkerStatus::ok;
  }

  void run_once(const Request& request, Reply& reply) {
    if (arguments_.heap_buffers || arguments_.cuda) device_answer(reply, device_->upload(input_slot(request.a[0])));
    if (!prepare(request, static_cast<uint16_t>(request.a[2]), reply)) return;
    device_answer(reply, device_->wait());
    const int status = candidate_.run(program_, armed_inputs_.data(), armed_outputs_.data(), device_->stream());
    if (status != 0) answer(reply, WorkerStatus::run_failed, last_error());
    device_answer(reply, device_->wait());
    if (reply.status != WorkerStatus::ok) return;
    device_answer(reply, device_->fetch(output_slot(request.a[1])));
    // Evidence for "inputs and weights unchanged": device contents go back to where the parent compares them.
    if (arguments_.heap_buffers || arguments_.cuda) {
      device_answer(reply, device_->fetch(input_slot(request.a[0])));
      if (request.a[3] & 1) device_answer(reply, device_->fetch(region(Region::weights)));
    }
    if (arguments_.cuda && !region(Region::workspace).tensors.empty() && (request.a[3] & 1))
      device_answer(reply, device_->fetch(region(Region::workspace)));
  }

  void arm(const Request& request, Reply& reply) {
    if (!prepare(request, run::kPoisonNan, reply)) return;
    device_answer(reply, device_->flush(request.a[2]));
  }

  void go(Reply& reply) {
    device_answer(reply, device_->start());
    const int status = candidate_.run(program_, armed_inputs_.data(), armed_outputs_.data(), device_->stream());
    device_answer(reply, device_->stop(reply.value[0], reply.value[1], reply.value[2]));
    if (status != 0) answer(reply, WorkerStatus::run_failed, last_error());
  }

  Arguments arguments_;
  std::unique_ptr<Device> device_;
  std::string device_name_;
  double l2_bytes_ = 0;
  MappedRegion regions_[static_cast<size_t>(Region::count)];
  void* library_ = nullptr;
  Candidate candidate_;
  stitch_program* program_ = nullptr;
  bool workspace_set_ = false;
  std::vector<const DLTensor*> armed_inputs_, armed_outputs_;
};

bool parse(int argc, char** argv, Arguments& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--heap-buffers") out.heap_buffers = true;
    else if (flag == "--namespaces") out.namespaces = true;
    else if (flag == "--no-seccomp") out.seccomp = false;
    else if (!has_value) return false;
    else if (flag == "--target") out.cuda = std::string(argv[++i]) == "cuda";
    else if (flag == "--candidate") out.candidate = argv[++i];
    else if (flag == "--cudart") out.cudart = argv[++i];
    else if (flag == "--driver") out.driver = argv[++i];
    else if (flag == "--bind") out.binds.push_back({argv[++i], false});
    else if (flag == "--device") out.binds.push_back({argv[++i], true});
    else return false;
  }
  return !out.candidate.empty();
}

}  // namespace
}  // namespace stitch::worker

int main(int argc, char** argv) {
  using namespace stitch::worker;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(stderr, "stitch_worker is started by stitchcuda; it is not meant to be run by hand.\n");
    return 2;
  }
  if (arguments.namespaces) {
    if (auto error = enter_namespaces(arguments.binds); !error.empty()) {
      std::fprintf(stderr, "%s\n", error.c_str());
      return 125;  // the parent then tries a weaker sandbox
    }
  }
  if (auto error = drop_privileges(); !error.empty() && arguments.namespaces) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 125;
  }
  return Server(std::move(arguments)).serve();
}
