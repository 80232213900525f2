#include "run/sandbox.h"

#include <chrono>
#include <mutex>
#include <set>

#include "base/process.h"

namespace stitch::run {
namespace fs = std::filesystem;
namespace {

// System folders a library needs to load; user folders, /home, /root and /tmp stay hidden.
const char* const kSystem[] = {"/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt", "/nix/store", "/etc/ld.so.cache",
                               "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"};
const char* const kCudaExtra[] = {"/sys", "/etc/nvidia", "/run/nvidia"};
const char* const kPlainDevices[] = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full"};

std::vector<std::string> cuda_devices() {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/dev", ignored))
    if (entry.path().filename().string().starts_with("nvidia")) out.push_back(entry.path().string());
  return out;
}

std::vector<std::string> readable_paths(const SandboxSpec& spec) {
  std::vector<std::string> out(std::begin(kSystem), std::end(kSystem));
  if (spec.cuda) out.insert(out.end(), std::begin(kCudaExtra), std::end(kCudaExtra));
  std::set<std::string> seen(out.begin(), out.end());
  for (const auto& p : spec.readable) {
    std::error_code ignored;
    const std::string real = fs::weakly_canonical(p, ignored).string();
    for (const auto& path : {fs::absolute(p, ignored).string(), real})
      if (!path.empty() && !path.starts_with("/usr/") && seen.insert(path).second) out.push_back(path);
  }
  return out;
}

std::vector<std::string> bubblewrap_argv(const SandboxSpec& spec, const std::vector<std::string>& worker) {
  std::vector<std::string> a = {find_program("bwrap").value_or("bwrap"), "--unshare-all", "--die-with-parent", "--new-session",
                                "--cap-drop", "ALL", "--hostname", "sandbox",
                                "--size", std::to_string(spec.tmp_bytes), "--tmpfs", "/tmp",
                                "--proc", "/proc", "--dev", "/dev"};
  for (const auto& path : readable_paths(spec)) {
    std::error_code ignored;
    if (fs::is_symlink(path, ignored)) {
      a.insert(a.end(), {"--symlink", fs::read_symlink(path, ignored).string(), path});
    } else {
      a.insert(a.end(), {"--ro-bind-try", path, path});
    }
  }
  if (spec.cuda)
    for (const auto& node : cuda_devices()) a.insert(a.end(), {"--dev-bind-try", node, node});
  if (!spec.writable.empty()) a.insert(a.end(), {"--bind", spec.writable.string(), spec.writable.string()});
  a.insert(a.end(), {"--chdir", "/tmp", "--"});
  a.insert(a.end(), worker.begin(), worker.end());
  return a;
}

std::vector<std::string> namespaces_argv(const SandboxSpec& spec, std::vector<std::string> worker) {
  worker.push_back("--namespaces");
  for (const auto& path : readable_paths(spec)) worker.insert(worker.end(), {"--bind", path});
  for (const char* node : kPlainDevices) worker.insert(worker.end(), {"--device", node});
  if (!spec.writable.empty()) worker.insert(worker.end(), {"--device", spec.writable.string()});  // bound as it is
  if (spec.cuda)
    for (const auto& node : cuda_devices()) worker.insert(worker.end(), {"--device", node});
  return worker;
}

bool runs(const std::vector<std::string>& argv) {
  ProcessSpec spec;
  spec.argv = argv;
  spec.timeout = std::chrono::seconds(10);
  auto result = run_process(spec);
  return result && result->ok();
}

SandboxLevel probe() {
  if (find_program("bwrap") && runs(bubblewrap_argv({}, {"/usr/bin/env", "true"}))) return SandboxLevel::bubblewrap;
  if (find_program("unshare") && (runs({"unshare", "-Urmpfn", "true"}) || runs({"unshare", "-mpfn", "true"})))
    return SandboxLevel::namespaces;
  return SandboxLevel::seccomp;
}

}  // namespace

const char* name_of(SandboxLevel level) {
  switch (level) {
    case SandboxLevel::automatic: return "automatic";
    case SandboxLevel::bubblewrap: return "bubblewrap";
    case SandboxLevel::namespaces: return "namespaces";
    case SandboxLevel::seccomp: return "seccomp";
    case SandboxLevel::none: return "none";
  }
  return "?";
}

SandboxLevel usable_sandbox() {
  static std::once_flag once;
  static SandboxLevel level;
  std::call_once(once, [] { level = probe(); });
  return level;
}

std::vector<std::string> sandboxed(const SandboxSpec& spec, SandboxLevel level, const std::vector<std::string>& worker_argv) {
  switch (level) {
    case SandboxLevel::bubblewrap: return bubblewrap_argv(spec, worker_argv);
    case SandboxLevel::namespaces: return namespaces_argv(spec, worker_argv);
    case SandboxLevel::none: {
      auto argv = worker_argv;
      argv.push_back("--no-seccomp");
      return argv;
    }
    default: return worker_argv;
  }
}

}  // namespace stitch::run
