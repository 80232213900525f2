#include "loop/pipeline.h"

#include <optional>

#include "base/files.h"
#include "base/hash.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/process.h"
#include "build/compiler.h"
#include "build/toolkit.h"
#include "capture/capture.h"
#include "ir/bundle.h"
#include "loop/machine.h"
#include "loop/out_folder.h"
#include "loop/program.h"
#include "run/candidate.h"
#include "run/host/build_program.h"
#include "verify/verify.h"

namespace stitch::loop {
namespace {

constexpr std::pair<host::Sanitize, const char*> kChecked[] = {{host::Sanitize::address, "build/program_host_address.so"},
                                                               {host::Sanitize::race, "build/program_host_race.so"}};

// What a run works on; steps hand results to each other through files, and through these members where re-reading would be waste.
class Run {
 public:
  explicit Run(const RunOptions& options) : o_(options), gpu_(run::gpu_present()) {}

  std::vector<Step> steps() {
    return {
        {"capture", "Capture", [this](const StepContext& c) { return capture(c); }, {bundle_folder()}},
        {"plan", "Plan", [this](const StepContext& c) { return plan(c); }, in_out({"plan.json"})},
        {"code", "Code", [this](const StepContext& c) { return code(c); }, in_out({"kernels.cu", "program.cpp", "model_new.py", "include"})},
        {"build", "Build", [this](const StepContext& c) { return build(c); }, in_out({"program.so", "program_host.so", "build"})},
        {"verify", "Verify", [this](const StepContext& c) { return verify(c); }, in_out({"verdict.json"})},
        {"report", "Report", [this](const StepContext&) { return report(); }, in_out({"report.html"})},
    };
  }
  bool on_gpu() const { return o_.target == Target::cuda || (o_.target == Target::automatic && gpu_); }

 private:
  std::vector<fs::path> in_out(std::initializer_list<const char*> names) const {
    std::vector<fs::path> paths;
    for (const char* name : names) paths.push_back(o_.out / name);
    return paths;
  }
  bool is_bundle() const { return fs::is_directory(o_.input); }
  fs::path bundle_folder() const { return is_bundle() ? fs::path(o_.input) : o_.out / "program.stitch"; }
  // The GPU build is part of every run unless the user asks for the host alone.
  bool cuda_wanted() const { return o_.target != Target::host; }

  Result<const ir::Bundle*> bundle() {
    if (!bundle_) {
      STITCH_TRY(bundle_, ir::read_bundle(bundle_folder()));
    }
    return &*bundle_;
  }
  Result<StepResult> capture(const StepContext& c) {
    if (is_bundle()) {
      STITCH_TRY(const ir::Bundle* b, bundle());
      STITCH_CHECK_OK(check_tensors(*b));
      remove_stale();
      return described(*b, "read");
    }
    capture::CaptureOptions options;
    options.target = o_.input;
    options.out = bundle_folder();
    options.inputs_attribute = o_.inputs_attribute;
    options.seed = o_.seed;
    STITCH_TRY(bundle_, capture::capture(options, [&](const std::string& text) { c.progress(text, -1); }));
    remove_stale();
    return described(*bundle_, "captured");
  }
  // Damaged tensors are found here, not after minutes of building.
  static Status check_tensors(const ir::Bundle& b) {
    STITCH_CHECK_OK(ir::read_weights(b).map([](const auto&) {}));
    for (const std::string& name : b.case_names) STITCH_CHECK_OK(ir::read_case(b, name).map([](const auto&) {}));
    return {};
  }
  // What an earlier run of another program left would be read as this one's result.
  void remove_stale() {
    std::error_code ec;
    for (const char* name : {"plan.json", "kernels.cu", "program.cpp", "model_new.py", "program.so", "program_host.so", "verdict.json", "report.html"})
      fs::remove(o_.out / name, ec);
  }
  static StepResult described(const ir::Bundle& b, const char* verb) {
    const size_t work = b.graph.nodes.size() - b.inputs.size() - b.weights.size();
    return {fmt::format("{} {}: {} operations, {} inputs, {} weights, {} outputs", verb, b.name, work, b.inputs.size(), b.weights.size(), b.graph.outputs.size()),
            dump(Json{{"nodes", b.graph.nodes.size()}, {"program", b.name}}, -1), "", ""};
  }

  Result<StepResult> plan(const StepContext& c) {
    STITCH_TRY(const ir::Bundle* b, bundle());
    STITCH_TRY(const hw::Device device, hw::find_device(o_.device));
    plan::PlanOptions options{device, o_.precision};
    options.fuse = c.attempt < kLastAttempt;
    STITCH_TRY(planned_, plan_program(*b, options, coder_options(c.attempt), o_.out));
    const plan::Plan& p = planned_->plan;
    return StepResult{fmt::format("{} tasks for {}, roofline floor {:.3g} us", p.tasks.size(), p.device, p.floor_us),
                      dump(Json{{"tasks", p.tasks.size()}, {"floor_us", p.floor_us}, {"attempt", c.attempt}}, -1), "", ""};
  }
  // A second attempt leaves out the special skills, a third takes the plainest road: one node, one task.
  static constexpr int kLastAttempt = 3;
  static Result<int> attempt_of(const StepContext& c) {
    STITCH_TRY(const Json plan, parse_json(c.data.at("plan"), "the record of the plan step"));
    return plan.value("attempt", 1);
  }
  code::CoderOptions coder_options(int attempt) const {
    code::CoderOptions options;
    options.precision = o_.precision;
    options.generic_only = attempt > 1;
    return options;
  }

  Result<StepResult> code(const StepContext& c) {
    STITCH_TRY(const ir::Bundle* b, bundle());
    if (!planned_) {  // a resumed run
      STITCH_TRY(planned_, load_plan(*b, o_.out));
    }
    STITCH_TRY(const int attempt, attempt_of(c));
    STITCH_TRY(const Written w, write_program(*b, *planned_, coder_options(attempt), o_.out));
    return StepResult{fmt::format("kernels.cu and program.cpp, {} lines, workspace {} bytes", w.lines, w.workspace_bytes),
                      dump(Json{{"lines", w.lines}, {"link_libs", w.link_libs}}, -1), "", ""};
  }

  Result<StepResult> build(const StepContext& c) {
    STITCH_TRY(const Json code, parse_json(c.data.at("code"), "the record of the code step"));
    std::vector<std::string> parts;
    const auto started = std::chrono::steady_clock::now();
    if (cuda_wanted()) {
      c.progress("nvcc for sm_90", -1);
      build::CudaProgram p{o_.out, o_.out / "program.so", "sm_90", code.value("link_libs", std::vector<std::string>{})};
      STITCH_TRY(const build::ProgramOutcome r, build::build_cuda(p));
      if (!r.ok) return failed_build(c, r.summary);
      parts.push_back(fmt::format("sm_90 {}", r.cached ? "from the cache" : fmt::format("{:.1f} s", r.seconds)));
    }
    if (!on_gpu()) {
      c.progress("g++ for the host target", -1);
      host::HostProgram p{o_.out, o_.out / "program_host.so"};
      STITCH_TRY(const build::ProgramOutcome r, host::build_program(p));
      if (!r.ok) return failed_build(c, r.summary);
      parts.push_back(fmt::format("host {}", r.cached ? "from the cache" : fmt::format("{:.1f} s", r.seconds)));
      // The same program with fault checks: out-of-bounds accesses, then races and uninitialised shared memory.
      for (const auto& [flavour, name] : kChecked) {
        c.progress(fmt::format("g++ for the fault checks: {}", fs::path(name).filename().string()), -1);
        p.output = o_.out / name;
        p.sanitize = flavour;
        STITCH_TRY(const build::ProgramOutcome s, host::build_program(p));
        if (!s.ok) return failed_build(c, s.summary);
      }
      parts.push_back("two checked host builds");
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return StepResult{fmt::format("{}", fmt::join(parts, ", ")), dump(Json{{"seconds", seconds}}, -1), "", ""};
  }
  // The built-in Coder's second road is the generic skill for every task; after that there is nothing left to try.
  static Result<StepResult> failed_build(const StepContext& c, const std::string& summary) {
    STITCH_TRY(const int attempt, attempt_of(c));
    if (attempt > 1) return fail(ErrorKind::candidate, "The generated program does not compile: {}", summary);
    return StepResult{"", "", "plan", summary};
  }

  Result<StepResult> verify(const StepContext& c) {
    STITCH_TRY(const ir::Bundle* b, bundle());
    verify::VerifyOptions options;
    options.target = on_gpu() ? verify::Target::cuda : verify::Target::host;
    options.precision = o_.precision;
    options.timed_calls = o_.timed_calls;
    for (const auto& [flavour, name] : kChecked)
      if (!on_gpu() && fs::exists(o_.out / name)) options.checked_builds.push_back({o_.out / name, flavour});
    STITCH_TRY(verify::Verdict v, verify::verify(*b, o_.out / (on_gpu() ? "program.so" : "program_host.so"), options,
                                                 [&](std::string_view stage, double fraction) { c.progress(std::string(stage), fraction); }));
    v.candidate = "program.cpp, kernels.cu";
    STITCH_TRY(const Json built, parse_json(c.data.at("build"), "the record of the build step"));
    v.build_seconds = built.value("seconds", 0.0);
    const std::string text = dump(verify::to_json(v), 1) + "\n";
    STITCH_CHECK_OK(write_file(o_.out / "verdict.json", text));
    STITCH_TRY(const int attempt, attempt_of(c));
    if (!(v.valid && v.correct) && attempt < kLastAttempt) return StepResult{"", "", "plan", v.sentence};
    return StepResult{v.sentence, dump(Json{{"valid", v.valid}, {"correct", v.correct}}, -1), "", ""};
  }

  Result<StepResult> report() {
    if (o_.write_report) STITCH_CHECK_OK(o_.write_report(o_.out));
    return StepResult{(o_.out / "report.html").string(), "{}", "", ""};
  }

  const RunOptions& o_;
  bool gpu_;
  std::optional<ir::Bundle> bundle_;
  std::optional<Planned> planned_;
};

// Identifies what is asked for: a run is resumed only if this is the same.
Result<std::string> run_key(const RunOptions& o) {
  Sha256 h;
  h.field(o.input).field(o.inputs_attribute).field(hw::name_of(o.precision)).field(o.device).field(std::to_string(o.seed));
  h.field(std::to_string(static_cast<int>(o.target))).field(std::to_string(o.timed_calls));
  const fs::path content = fs::is_directory(o.input) ? fs::path(o.input) / "program.json" : fs::path(o.input);
  if (fs::is_regular_file(content)) {
    STITCH_TRY(const std::string digest, sha256_of_file(content));
    h.field(digest);
  }
  return h.hex();
}

std::string gpu_name() {
  ProcessSpec spec;
  spec.argv = {"nvidia-smi", "--query-gpu=name", "--format=csv,noheader"};
  spec.timeout = std::chrono::seconds(30);
  const auto r = run_process(spec);
  return r && r->ok() ? r->out.substr(0, r->out.find('\n')) : "";
}

}  // namespace

Result<Target> target_from_name(std::string_view name) {
  if (name == "auto") return Target::automatic;
  if (name == "host") return Target::host;
  if (name == "cuda") return Target::cuda;
  return fail(ErrorKind::bad_input, "\"{}\" is not a target; use host, cuda or auto.", name);
}

Result<RunOutcome> run_pipeline(const RunOptions& options, const EventLog::Listener& listener) {
  RunOptions o = options;
  o.out = fs::absolute(o.out).lexically_normal();
  if (!o.out.has_filename()) o.out = o.out.parent_path();
  STITCH_CHECK_OK(capture::check_target(o.input));
  STITCH_CHECK_OK(hw::find_device(o.device).map([](const auto&) {}));
  if (o.target == Target::cuda && !run::gpu_present())
    return fail(ErrorKind::environment, "--target cuda needs an NVIDIA GPU, and none was found; use --target host or auto.");
  if (o.target != Target::host && build::find_cuda_toolkit().nvcc.empty())
    return fail(ErrorKind::environment, "No CUDA compiler (nvcc) was found; run make setup to install it, or use --target host to do without.");
  STITCH_TRY(const std::string key, run_key(o));
  STITCH_TRY(RunStore store, RunStore::open(data_home() / "runs.sqlite"));
  STITCH_TRY(OutFolder folder, OutFolder::open(o.out));
  EventLog log(o.out / "events.jsonl", listener);
  STITCH_TRY(auto unfinished, store.find_unfinished(o.out.string(), key));
  if (o.fresh) unfinished.reset();
  if (!unfinished) {
    // Another run that was killed here cannot go on: its files are about to be replaced.
    STITCH_CHECK_OK(store.set_aside(o.out.string()));
    folder.start_log();
  }

  Run run(o);
  const std::vector<Step> steps = run.steps();
  MachineOptions machine{fs::path(o.input).stem().string(), o.input, key, o.out};
  RunOutcome outcome;
  const auto data = run_steps(steps, machine, store, log, &outcome.run_id);
  if (!data) {
    // Nothing half-written stays. A wrong program stays wrong, so only what the machine or the candidate broke is kept to go on from.
    const auto done = store.steps(outcome.run_id);
    const bool nothing_done = !unfinished && (!done || done->empty());
    const bool hopeless = data.error().kind == ErrorKind::bad_input || data.error().kind == ErrorKind::unsupported;
    (void)store.fail(outcome.run_id, data.error().message);
    if (nothing_done || hopeless) (void)store.set_aside(o.out.string());
    if (nothing_done || (hopeless && folder.is_new())) folder.take_back();
    return tl::make_unexpected(data.error());
  }
  STITCH_TRY(outcome.verdict, read_file(o.out / "verdict.json"));
  STITCH_TRY(const Json verdict, parse_json(outcome.verdict, "verdict.json"));
  outcome.valid_and_correct = verdict.value("valid", false) && verdict.value("correct", false);
  outcome.target = run.on_gpu() ? "cuda" : "host";
  if (run::gpu_present()) outcome.gpu = gpu_name();
  STITCH_CHECK_OK(store.finish(outcome.run_id, outcome.valid_and_correct ? "done" : "incorrect", outcome.verdict,
                               outcome.valid_and_correct ? "" : verdict.value("sentence", "")));
  STITCH_CHECK_OK(log.emit({EventKind::run_finished, 0, "", 1, outcome.valid_and_correct ? "verified" : "not verified"}));
  build::trim_cache({});
  return outcome;
}

}  // namespace stitch::loop
