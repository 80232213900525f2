#pragma once
// verify(): runs one candidate against its program and says what is known about it. docs/verification.md describes
// the protocol and every guard.

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hw/device.h"
#include "ir/bundle.h"
#include "run/host/compile.h"
#include "run/sandbox.h"
#include "verify/verdict.h"

namespace stitch::verify {

enum class Target { automatic, host, cuda };  // automatic: cuda where a GPU answers, else host

struct VerifyOptions {
  Target target = Target::automatic;
  hw::PrecisionClass precision = hw::PrecisionClass::default_flags;
  int trials = 5;                    // fresh random input sets; at least 5
  bool properties = true;
  uint64_t seed = 0;                 // 0: drawn from the kernel and recorded
  run::SandboxLevel sandbox = run::SandboxLevel::automatic;
  std::chrono::milliseconds load_timeout{60000}, call_timeout{120000};
  uint64_t memory_limit = uint64_t{8} << 30;  // host target
  double time_budget_seconds = 900;  // of checking; property sets are left out beyond it (said in the verdict)

  // Further builds of the candidate with fault checks (host target); their faults become failing guards.
  struct CheckedBuild {
    std::filesystem::path library;
    host::Sanitize flavour = host::Sanitize::address;
  };
  std::vector<CheckedBuild> checked_builds;

  // cuda target
  int timed_calls = 60;              // per side, in blocks interleaved with the baselines
  int warmup_calls = 5;
  std::vector<std::string> baselines = {"eager", "cuda_graph", "compile"};  // also compile_reduce_overhead, compile_max_autotune
  std::optional<hw::Device> device;  // for the floor; absent: by the GPU's name
  std::filesystem::path reference_source;  // the user's PyTorch file; "": the one the bundle names
};

using Progress = std::function<void(std::string_view stage, double fraction)>;

// Error: something of ours is missing or broken (no worker program, no oracle for this graph, the oracle contradicts
// PyTorch). Whatever the candidate does is a Verdict.
Result<Verdict> verify(const ir::Bundle&, const std::filesystem::path& candidate, const VerifyOptions&, const Progress& = {});

}  // namespace stitch::verify
