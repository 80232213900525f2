#pragma once
// How a candidate is shut in. Three levels, the best usable one is taken and named in the verdict:
//   bubblewrap   read-only private root, no network, own PID namespace, private /tmp; plus a system call filter
//   namespaces   the same built by the worker itself, where bubblewrap is missing
//   seccomp      only the system call filter and resource limits: the machine refuses namespaces
// A user may ask for `none`, which switches everything but resource limits off and is said loudly.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace stitch::run {

enum class SandboxLevel { automatic, bubblewrap, namespaces, seccomp, none };
const char* name_of(SandboxLevel);

struct SandboxSpec {
  SandboxLevel level = SandboxLevel::automatic;
  bool cuda = false;
  std::vector<std::filesystem::path> readable;  // folders and files shown read-only besides the system's own
  std::filesystem::path writable;               // "" or one folder the candidate may write to (fault reports)
  uint64_t tmp_bytes = 256u << 20;
};

// The level that `automatic` means on this machine; probed once per process by running a trivial program.
SandboxLevel usable_sandbox();

// The command line that runs `worker_argv` (absolute program first) at that level.
std::vector<std::string> sandboxed(const SandboxSpec&, SandboxLevel, const std::vector<std::string>& worker_argv);

}  // namespace stitch::run
