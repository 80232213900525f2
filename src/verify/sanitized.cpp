// The sanitized build of a host candidate: exact-size heap buffers, so that the sanitizer sees every tensor's bounds.
#include "base/files.h"
#include "run/host/compile.h"
#include "run/host/report.h"
#include "verify/protocol_run.h"

namespace stitch::verify {
namespace {

const char* name_of(host::Sanitize flavour) {
  return flavour == host::Sanitize::race ? "race" : flavour == host::Sanitize::address ? "address" : "plain";
}

struct CheckedRun {
  std::string fault;    // "" when none
  std::string not_run;  // why the build could not be used at all
};

// The first fault in one sentence, "" when there is none. The report was written by the candidate's process, which is gone by
// now: it can only add faults to what was seen from outside, and what it left there may be no file at all.
std::string faults_of(const std::filesystem::path& report, const std::string& printed) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(report, ignored);
  const bool there = std::filesystem::exists(status);
  if (there && (!std::filesystem::is_regular_file(status) || std::filesystem::file_size(report, ignored) > (16u << 20)))
    return "The fault report is not a file of reasonable size.";
  const auto faults = host::read_faults(there ? report : std::filesystem::path(), printed);
  if (!faults) return faults.error().message;
  if (faults->empty()) return "";
  return host::to_string(faults->front()) + (faults->size() > 1 ? fmt::format(" (and {} more)", faults->size() - 1) : "");
}

Result<CheckedRun> run_checked(const CheckContext& c, run::WorkerSpec spec, const std::vector<ir::Tensor>& weights,
                               const VerifyOptions::CheckedBuild& build) {
  CheckedRun result;
  STITCH_TRY(const auto folder, TempFolder::create("stitch-faults"));
  const auto report = folder.path() / "faults.jsonl";
  spec.writable = folder.path();
  auto environment = host::run_environment(build.flavour, report, /*shared_library=*/true);
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
  const std::string printed = failure ? failure->printed : (*started)->worker().printed();
  if (started) (*started)->worker().quit();
  result.fault = faults_of(report, printed);
  if (result.fault.empty() && failure) {
    // A build that cannot even be loaded says nothing about the candidate.
    const bool unusable = failure->kind == run::FailureKind::load_failed || failure->kind == run::FailureKind::not_elf;
    (unusable ? result.not_run : result.fault) = failure->sentence;
  }
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
