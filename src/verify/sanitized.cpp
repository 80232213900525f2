// The sanitized build of a host candidate: exact-size heap buffers, so that the sanitizer sees every tensor's bounds.
#include <algorithm>
#include <sstream>

#include "verify/protocol_run.h"

namespace stitch::verify {
namespace {

// The line that says what happened, and the first frame that names a source file.
std::string fault_in(const std::string& printed) {
  std::istringstream lines(printed);
  std::string fault, place;
  for (std::string line; std::getline(lines, line);) {
    const bool headline = line.find("ERROR: AddressSanitizer") != std::string::npos || line.find("runtime error:") != std::string::npos ||
                          line.find("WARNING: ThreadSanitizer") != std::string::npos || line.find("STITCH_FAULT") != std::string::npos;
    if (headline && fault.empty()) {
      fault = line;
      // "file.cu:12:3: runtime error: ..." already names its place.
      if (line.find("runtime error:") != std::string::npos || line.find("STITCH_FAULT") != std::string::npos) return fault;
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

Status run_sanitized(const CheckContext& c, run::WorkerSpec spec, const std::vector<ir::Tensor>& weights, Verdict& v) {
  auto& guard = v.guard("memory_and_race_faults");
  if (c.options.sanitized_library.empty()) {
    guard.evidence = "No sanitized build was given.";
    return {};
  }
  spec.candidate = c.options.sanitized_library;
  spec.heap_buffers = true;
  spec.preload = c.options.sanitizer_preload;
  spec.call_timeout *= 10;
  spec.environment = {{"ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0:exitcode=86:symbolize=1:handle_abort=1"},
                      {"UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1:exitcode=86"},
                      {"TSAN_OPTIONS", "exitcode=86:halt_on_error=1"},
                      {"STITCH_HOST_CHECK", "1"}};
  STITCH_TRY(auto started, Session::start(c.bundle, spec, weights));
  std::optional<run::CandidateFailure> failure;
  std::string printed;
  if (!started) {
    failure = started.error();
  } else {
    for (Property p : {Property::none, Property::outliers}) {
      auto got = (*started)->run(draw_inputs(c.bundle, c.models, c.seed ^ 0x5a17, p, c.sample), 0, 0, run::kPoisonNan);
      if (!got) {
        failure = got.error();
        break;
      }
    }
    printed = (*started)->worker().printed();
    if (!failure) (*started)->worker().quit();
  }
  if (failure) printed = failure->printed;
  const std::string fault = fault_in(printed);
  // The build is not needed for the verdict itself: one that cannot be loaded (no sanitizer runtime) is "not run".
  if (failure && fault.empty() && (failure->kind == run::FailureKind::load_failed || failure->kind == run::FailureKind::not_elf)) {
    guard.evidence = failure->sentence;
    return {};
  }
  const std::string evidence = !fault.empty() ? fault : failure ? failure->sentence : "";
  settle(v, "memory_and_race_faults", evidence, "The sanitized build ran without a fault.");
  if (!evidence.empty()) v.correct = false;
  return {};
}

}  // namespace stitch::verify
