#include "suite/suite.h"

#include <algorithm>

#include "base/files.h"
#include "base/hash.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/parallel.h"
#include "build/compiler.h"
#include "build/toolkit.h"
#include "capture/capture.h"
#include "loop/out_folder.h"
#include "run/candidate.h"
#include "suite/stages.h"
#include "suite/summary.h"

namespace stitch::suite {
namespace {

Result<std::vector<Problem>> selected(const SuiteOptions& o) {
  STITCH_TRY(const Selection selection, Selection::parse(o.problems));
  std::vector<Problem> all;
  for (const int level : o.levels) {
    STITCH_TRY(const std::vector<Problem> found, find_problems(o.root, level, selection));
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

// What a later step needs and a machine may lack is missed now and not after minutes.
Status check_machine(const SuiteOptions& o) {
  STITCH_CHECK_OK(hw::find_device(o.device).map([](const auto&) {}));
  STITCH_CHECK_OK(capture::find_python().map([](const auto&) {}));
  if (o.step >= Step::build && build::find_cuda_toolkit().nvcc.empty())
    return fail(ErrorKind::environment, "No CUDA compiler (nvcc) was found; run make setup to install it, or use --step code.");
  if (o.step == Step::verify && o.target == "cuda" && !run::gpu_present())
    return fail(ErrorKind::environment, "--target cuda needs an NVIDIA GPU, and none was found; use --target host or --step build.");
  return {};
}

bool artefacts_stand(const Suite& s, const Row& r, Step step) {
  const fs::path folder = s.folder(r);
  std::error_code ec;
  switch (step) {
    case Step::capture: return fs::exists(s.bundle(r) / "program.json", ec);
    case Step::plan: return fs::exists(folder / "plan.json", ec);
    case Step::code: return fs::exists(folder / "kernels.cu", ec) && fs::exists(folder / "program.cpp", ec) && fs::exists(folder / "model_new.py", ec);
    case Step::build:
      return fs::exists(folder / "program.so", ec) && (s.options.step != Step::verify || s.cuda || fs::exists(folder / "program_host.so", ec));
    case Step::verify: return fs::exists(folder / "verdict.json", ec);
  }
  return false;
}

// The row with those steps of an earlier run that still stand: same problem file, same product, artefacts in place.
Result<Row> resume(const Suite& s, const Problem& problem) {
  const SuiteOptions& o = s.options;
  Row row = load_row(o.out / problem.folder(), problem);
  if (o.fresh) row = Row{problem};
  STITCH_TRY(row.sha256, sha256_of_file(problem.file));
  Sha256 capture, product;
  capture.field(s.identity.capture).field(row.sha256).field(std::to_string(o.seed));
  const std::string capture_key = capture.hex();
  product.field(s.identity.product).field(capture_key).field(o.device).field(hw::name_of(o.precision));
  const std::string product_key = product.hex();
  if (row.capture_key != capture_key) row.forget_from(Step::capture);
  else if (row.product_key != product_key) row.forget_from(Step::plan);
  row.capture_key = capture_key;
  row.product_key = product_key;
  for (const Step step : kAllSteps)
    if (!row.ok(step) || !artefacts_stand(s, row, step)) {
      row.forget_from(step);  // a failed step is tried again: its cause may have been the machine
      break;
    }
  return row;
}

Status run_stages(Suite& s) {
  const Step last = s.options.step;
  STITCH_CHECK_OK(capture_all(s));
  if (last >= Step::plan) plan_all(s);
  if (last >= Step::code) code_all(s);
  if (last == Step::build) build_all(s);
  if (last == Step::verify) {
    STITCH_CHECK_OK(build_and_verify(s));
    if (s.cuda && s.options.kernelbench_eval) STITCH_CHECK_OK(kernelbench_all(s));
  }
  return {};
}

}  // namespace

Result<SuiteOutcome> run_suite(const SuiteOptions& options, const SuiteProgress& progress) {
  SuiteOptions o = options;
  o.out = fs::absolute(o.out).lexically_normal();
  STITCH_TRY(const std::vector<Problem> problems, selected(o));
  STITCH_CHECK_OK(check_machine(o));
  STITCH_TRY(const loop::OutFolder lock, loop::OutFolder::open(o.out));
  Suite s{o, {}, 1, false, {}, {}, 0, "", progress};
  STITCH_TRY(s.identity, product_identity());
  s.commit = commit_of_source();
  s.jobs = o.jobs > 0 ? o.jobs : hardware_threads();
  s.cuda = o.target == "cuda" || (o.target == "auto" && run::gpu_present());
  for (const Problem& p : problems) {
    loop::remove_half_written(o.out / p.folder());
    STITCH_TRY(Row row, resume(s, p));
    s.rows.push_back(std::move(row));
  }
  STITCH_CHECK_OK(run_stages(s));
  build::trim_cache({});

  SuiteOutcome outcome;
  outcome.json_file = o.out / "suite.json";
  outcome.table_file = o.out / "suite.md";
  const Json j = to_json(s);
  STITCH_CHECK_OK(write_file(outcome.json_file, dump(j, 1) + "\n"));
  STITCH_CHECK_OK(write_file(outcome.table_file, to_markdown(s, j)));
  outcome.summary = dump(j.at("summary"), -1);
  outcome.all_passed = std::all_of(s.rows.begin(), s.rows.end(), [&](const Row& r) { return r.passed(o.step); });
  outcome.rows = std::move(s.rows);
  return outcome;
}

}  // namespace stitch::suite
