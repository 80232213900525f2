#include <fmt/format.h>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/terminal.h"
#include "ir/bundle.h"
#include "ui/commands.h"
#include "verify/verify.h"

namespace stitch::ui {
namespace {

verify::Target target_of(const std::string& name) {
  return name == "host" ? verify::Target::host : name == "cuda" ? verify::Target::cuda : verify::Target::automatic;
}

Result<verify::Verdict> verdict_of(const VerifyArguments& a) {
  const fs::path candidate = a.candidate;
  std::error_code ec;
  if (!fs::exists(candidate, ec)) return fail(ErrorKind::bad_input, "{} does not exist; check the path.", a.candidate);
  const fs::path beside = fs::is_directory(candidate, ec) ? candidate : candidate.parent_path();
  const fs::path folder = a.bundle.empty() ? beside / "program.stitch" : fs::path(a.bundle);
  if (a.bundle.empty() && !fs::exists(folder, ec))
    return fail(ErrorKind::bad_input, "There is no program.stitch beside {}; give the captured program with --bundle.", a.candidate);
  STITCH_TRY(const ir::Bundle bundle, ir::read_bundle(folder));
  if (!a.source.empty() && !fs::is_regular_file(a.source, ec)) return fail(ErrorKind::bad_input, "{} does not exist; check --source.", a.source);
  verify::VerifyOptions o;
  o.target = target_of(a.target);
  STITCH_TRY(o.precision, hw::precision_class_from_name(a.precision));
  o.trials = a.trials;
  o.timed_calls = a.timed_calls;
  o.time_budget_seconds = a.time_budget;
  o.seed = a.seed;
  if (!a.source.empty()) o.reference_source = fs::absolute(a.source);
  const bool live = is_tty(fileno(stderr));
  auto v = verify::verify(bundle, candidate, o, [&](std::string_view stage, double) {
    if (live) fmt::print(stderr, "\r\033[K  {}", stage);
  });
  if (live) fmt::print(stderr, "\r\033[K");
  return v;
}

}  // namespace

int verify_command(const VerifyArguments& a) {
  const auto verdict = verdict_of(a);
  if (!verdict) return report_error(verdict.error());
  const Json j = verify::to_json(*verdict);
  if (!a.out.empty())
    if (const Status written = write_file(a.out, dump(j, 1) + "\n"); !written) return report_error(written.error());
  fmt::print(a.json ? stderr : stdout, "{}", printable(verify::to_text(*verdict)));
  if (a.json) fmt::print("{}\n", dump(j, -1));
  return verdict->exit_code();
}

}  // namespace stitch::ui
