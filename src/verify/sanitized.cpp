// The sanitized build of a host candidate: exact-size heap buffers, so that the sanitizer sees every tensor's bounds.
#include <algorithm>
#include <sstream>

#include "run/host/compile.h"
#include "verify/protocol_run.h"

namespace stitch::verify {
namespace {

// The line that says what happened, and the first frame that names a source file.
std::string fault_in(const std::string& printed) {
  std::istringstream lines(printed);
  std::string fault, place;
  for (std::string line; std::getline(lines, line);) {
    const bool headline = line.find("ERROR: AddressSanitizer") != std::string::npos || line.find("runtime error:") != std::string::npos ||
                          line.find("stitch host target:") != std::string::npos;
    if (headline && fault.empty()) {
      fault = line;
      // "file.cu:12:3: runtime error: ..." and the emulator's own reports already name their place.
      if (line.find("ERROR: AddressSanitizer") == std::string::npos) return fault;
    } else if (!fault.empty() && place.empty()) {
      const auto frame = line.find(" in ");
      const auto source = std::min({line.find(".cu:"), line.find(".cpp:"), line.find(".cuh:"), line.find(".h:"), line.find(".cc:")});
      if (line.find('#') != std::string::npos && frame != std::string::npos && source != std::string::npos) place = line.substr(frame + 4);
    }
  }
  if (fault.empty()) return "";
  return place.empty() ? fault : fault + " at " + place;
}

}  // namespace

namespace {

const char* name_of(host::Sanitize flavour) {
  return flavour == host::Sanitize::race ? "race" : flavour == host::Sanitize::address ? "address" : "plain";
}

struct CheckedRun {
  std::string fault;    // "" when none
  std::string not_run;  // why the build could not be used at all
};

Result<CheckedRun> run_checked(const CheckContext& c, run::WorkerSpec spec, const std::vector<ir::Tensor>& weights,
                               const VerifyOptions::CheckedBuild& build) {
  CheckedRun result;
  auto environment = host::run_environment(build.flavour, {}, /*shared_library=*/true);
  if (!environment) {
    result.not_run = environment.error().message;
    return result;
  }
  spec.candidate = build.library;
  spec.heap_buffers = true;  // exact sizes, so that the checks know every tensor's bounds
  spec.call_timeout *= 10;
  for (const auto& [name, value] : *environment) {
    if (name == "LD_PRELOAD") spec.preload = value;
    else spec.environment.emplace_back(name, value);
  }
  STITCH_TRY(auto started, Session::start(c.bundle, spec, weights));
  std::optional<run::CandidateFailure> failure;
  if (!started) {
    failure = started.error();
  } else {
    for (Property p : {Property::none, Property::outliers}) {
      auto got = (*started)->run(draw_inputs(c.bundle, c.models, c.seed ^ 0x5a17, p, c.sample), 0, 0, run::kPoisonNan);
      if (got) continue;
      failure = got.error();
      break;
    }
  }
  result.fault = fault_in(failure ? failure->printed : (*started)->worker().printed());
  if (result.fault.empty() && failure) {
    // A build that cannot even be loaded says nothing about the candidate.
    const bool unusable = failure->kind == run::FailureKind::load_failed || failure->kind == run::FailureKind::not_elf;
    (unusable ? result.not_run : result.fault) = failure->sentence;
  }
  if (!failure) (*started)->worker().quit();
  return result;
}

}  // namespace

Status run_sanitized(const CheckContext& c, run::WorkerSpec spec, const std::vector<ir::Tensor>& weights, Verdict& v) {
  if (c.options.checked_builds.empty()) v.guard("memory_and_race_faults").evidence = "No build with fault checks was given.";
  for (const auto& build : c.options.checked_builds) {
    if (c.progress) c.progress(fmt::format("{} checks", name_of(build.flavour)), 0.95);
    STITCH_TRY(auto run, run_checked(c, spec, weights, build));
    auto& guard = v.guard("memory_and_race_faults");
    const std::string note = fmt::format("{}: {}", name_of(build.flavour), !run.not_run.empty() ? "not run, " + run.not_run : "no fault");
    if (!run.fault.empty()) {
      settle(v, guard.name, run.fault, "");
      v.correct = false;
    } else if (guard.state != GuardState::failed) {
      // One flavour that could not be run leaves the guard "not run", whatever the other said.
      const bool first = guard.evidence.empty();
      if (!run.not_run.empty()) guard.state = GuardState::not_run;
      else if (first) guard.state = GuardState::passed;
      guard.evidence += (first ? "" : "; ") + note;
    }
  }
  return {};
}

}  // namespace stitch::verify
