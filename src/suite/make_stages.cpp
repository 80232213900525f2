// Plan, code and build: from bundles to program.so.
#include <algorithm>

#include "base/files.h"
#include "build/compiler.h"
#include "loop/program.h"
#include "run/host/build_program.h"
#include "suite/gpus.h"
#include "suite/stages.h"

namespace stitch::suite {
namespace {

std::vector<Row*> after(Suite& s, Step previous, Step step) {
  return rows_where(s, [=](const Row& r) { return r.ok(previous) && !r.ok(step); });
}

code::CoderOptions coder_options(const Suite& s, bool generic_only) {
  code::CoderOptions options;
  options.precision = s.options.precision;
  options.generic_only = generic_only;
  return options;
}

Result<loop::Planned> make_plan(const Suite& s, const Row& row, const ir::Bundle& bundle, bool generic_only) {
  STITCH_TRY(const hw::Device device, hw::find_device(s.options.device));
  return loop::plan_program(bundle, {device, s.options.precision}, coder_options(s, generic_only), s.folder(row));
}

Status write_sources(Suite& s, Row& row, bool generic_only) {
  STITCH_TRY(const ir::Bundle bundle, ir::read_bundle(s.bundle(row)));
  STITCH_TRY(const loop::Planned planned, generic_only ? make_plan(s, row, bundle, true) : loop::load_plan(bundle, s.folder(row)));
  const code::CoderOptions options = coder_options(s, generic_only);
  STITCH_TRY(const loop::Written w, loop::write_program(bundle, planned, options, s.folder(row)));
  row.kernels = w.kernels;
  row.lines = static_cast<int64_t>(w.lines);
  row.workspace_bytes = w.workspace_bytes;
  row.gpu_bytes = tensor_bytes(bundle) + w.workspace_bytes;
  row.tasks_by_skill = w.tasks_by_skill;
  row.link_libs = w.link_libs;
  return {};
}

// Builds for the GPU, and for the host where that is where it will be verified.
Result<build::ProgramOutcome> compile(Suite& s, const Row& row) {
  const fs::path folder = s.folder(row);
  STITCH_TRY(build::ProgramOutcome r, build::build_cuda({folder, folder / "program.so", "sm_90", row.link_libs}));
  if (!r.ok || s.options.step != Step::verify || s.cuda) return r;
  return host::build_program({folder, folder / "program_host.so"});
}

std::string log_of(const build::ProgramOutcome& r) {
  std::string log;
  for (const build::StepOutcome& step : r.steps) log += step.log;
  return log;
}

// As `run` does: a program that does not compile gets a second chance with the generic skill for every task.
Status build_one(Suite& s, Row& row) {
  STITCH_TRY(build::ProgramOutcome r, compile(s, row));
  if (r.ok) return {};
  row.note = fmt::format("Written by the generic skill, because the first sources did not compile: {}", r.summary);
  STITCH_CHECK_OK(write_sources(s, row, true));
  STITCH_TRY(r, compile(s, row));
  if (r.ok) return {};
  return tl::make_unexpected(Error{ErrorKind::candidate, "The generated program does not compile: " + r.summary, log_of(r)});
}

}  // namespace

void plan_all(Suite& s) {
  for_rows(s, Step::plan, s.jobs, after(s, Step::capture, Step::plan), [&](Row& row) -> Status {
    STITCH_TRY(const ir::Bundle bundle, ir::read_bundle(s.bundle(row)));
    STITCH_TRY(const loop::Planned p, make_plan(s, row, bundle, false));
    row.tasks = static_cast<int>(p.plan.tasks.size());
    row.nodes = 0;
    for (const plan::Task& t : p.plan.tasks) row.nodes += static_cast<int>(t.nodes.size());
    return {};
  });
}

void code_all(Suite& s) {
  for_rows(s, Step::code, s.jobs, after(s, Step::plan, Step::code), [&](Row& row) { return write_sources(s, row, false); });
}

void build_all(Suite& s, const std::function<void(Row&)>& built) {
  std::vector<Row*> todo = after(s, Step::code, Step::build);
  // The longest sources first, so that no long build is left over at the end.
  std::stable_sort(todo.begin(), todo.end(), [](const Row* a, const Row* b) { return a->lines > b->lines; });
  for_rows(s, Step::build, s.jobs, todo, [&](Row& row) { return build_one(s, row); }, [&](Row& row) {
    if (built && row.ok(Step::build)) built(row);
  });
}

}  // namespace stitch::suite
