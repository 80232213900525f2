#include "verify/verify.h"

#include <algorithm>
#include <cstdlib>

#include "run/gpu_memory.h"
#include "verify/device_session.h"
#include "verify/protocol_run.h"
#include "verify/reference_worker.h"
#include "verify/speed.h"

namespace stitch::verify {
namespace {

using Clock = std::chrono::steady_clock;

// Guards that this target cannot check, so that their absence is visible.
void list_gpu_guards(Verdict& v) {
  for (const char* name : {"timed_outputs", "streams_joined", "parent_clock", "roofline", "kernel_trace", "ghost_replay"})
    v.guard(name).evidence = "Needs a GPU.";
}

// Guards of the GPU that were not reached, with the reason.
void note_what_was_not_run(const VerifyOptions& options, Verdict& v) {
  for (const char* name : {"kernel_trace", "ghost_replay"}) v.guard(name).evidence = "The profiler was not asked.";
  if (v.latency_ms) return;
  const char* why = options.timed_calls > 0 ? "Not timed: the results are wrong." : "Not timed: only correctness was asked for.";
  for (const char* name : {"timed_outputs", "streams_joined", "parent_clock", "roofline"})
    if (auto& g = v.guard(name); g.state == GuardState::not_run && g.evidence.empty()) g.evidence = why;
  if (v.baselines.empty())
    for (const auto& mode : options.baselines) v.baselines.push_back({mode, std::nullopt, why});
}

// The verdict when the candidate itself ended the matter.
void apply_failure(Verdict& v, const run::CandidateFailure& f) {
  v.correct = false;
  v.outcome = run::name_of(f.kind);
  v.sentence = f.sentence;
  v.printed = f.printed;
  using K = run::FailureKind;
  const char* guard = nullptr;
  switch (f.kind) {
    case K::not_elf: case K::load_failed: case K::missing_symbol: case K::abi_version: case K::manifest: guard = "loads"; break;
    case K::protocol: guard = "control_channel"; break;
    case K::memory_limit: case K::thread_limit: case K::output_flood: case K::timed_out: guard = "process_limits"; break;
    case K::crashed: case K::exited: case K::create_failed: case K::run_failed: case K::device: guard = "completes"; break;
  }
  auto& g = v.guard(guard);
  g.state = GuardState::failed;
  g.evidence = f.sentence;
  g.rule = true;
  v.compiled = f.kind != K::not_elf && f.kind != K::load_failed;
}

void finish(Verdict& v) {
  v.valid = v.outcome.empty() || v.outcome == "ok";
  const Guard *broken = nullptr, *wrong = nullptr;
  for (const auto& g : v.guards)
    if (g.state == GuardState::failed) {
      if (g.rule && !broken) broken = &g;
      if (!g.rule && !wrong) wrong = &g;
    }
  if (broken) v.valid = false;
  if (wrong) v.correct = false;
  if (!v.outcome.empty()) return;  // the candidate ended the matter itself
  if (broken) {
    v.outcome = "rules_broken";
    v.sentence = fmt::format("Not accepted, guard {}: {}", broken->name, broken->evidence);
  } else if (wrong || !v.correct) {
    v.outcome = "wrong";
    v.sentence = wrong ? fmt::format("Wrong results. {}", wrong->evidence) : "Too few checks were run to call it correct.";
  } else {
    v.outcome = "ok";
    v.sentence = fmt::format("Correct on {} input sets, largest error {:.3g} of the local scale.", v.sets.size(), v.precision.max_error.value_or(0));
  }
}

void give_advice(Verdict& v) {
  if (v.outcome != "ok") v.feedback.push_back(v.sentence);
  for (const auto& g : v.guards)
    if (g.state == GuardState::failed && v.sentence.find(g.evidence) == std::string::npos)
      v.feedback.push_back(fmt::format("{}: {}", g.name, g.evidence));
  if (v.deterministic && !*v.deterministic)
    v.feedback.push_back("Results differ between runs in their last bits; a fixed order of summation would make them repeatable.");
}

run::WorkerSpec worker_spec(const VerifyOptions& o, const std::filesystem::path& library, bool cuda) {
  run::WorkerSpec spec;
  spec.candidate = library;
  spec.cuda = cuda;
  spec.sandbox = o.sandbox;
  spec.load_timeout = o.load_timeout;
  spec.call_timeout = o.call_timeout;
  // The CUDA driver and its libraries keep gigabytes of host memory of their own.
  spec.memory_limit = cuda ? std::max(o.memory_limit, uint64_t{64} << 30) : o.memory_limit;
  return spec;
}

Result<std::vector<ir::Case>> read_cases(const ir::Bundle& bundle) {
  std::vector<ir::Case> cases;
  for (const auto& name : bundle.case_names) {
    STITCH_TRY(auto one, ir::read_case(bundle, name));
    cases.push_back(std::move(one));
  }
  return cases;
}

struct Run {
  const ir::Bundle& bundle;
  const VerifyOptions& options;
  const Progress& progress;
  Clock::time_point started = Clock::now();
  double seconds() const { return std::chrono::duration<double>(Clock::now() - started).count(); }
};

Result<CheckContext> make_context(const Run& run, Verdict& v) {
  const auto& bundle = run.bundle;
  CheckContext context{bundle, run.options, run.progress, {}, std::nullopt, {}, nullptr, {}, {}, 0, 0, v.seed, [&run] { return run.seconds(); }};
  STITCH_TRY(context.cases, read_cases(bundle));
  if (!context.cases.empty()) context.sample = context.cases.front();
  context.models = infer_models(bundle, context.sample);
  for (size_t i = 0; i < context.models.size(); ++i)
    v.input_models.push_back(fmt::format("{}: {}", bundle.inputs[i].name, context.models[i].text()));
  // PyTorch on a CPU has no TF32, whatever the program's flags, and neither has what the host target emulates of the class.
  const ir::PrecisionFlags flags = v.target == "cuda" ? bundle.precision : ir::PrecisionFlags{false, false};
  context.tolerance = tolerance_of(run.options.precision, bundle.graph, flags);
  v.precision.precision_class = hw::name_of(run.options.precision);
  v.precision.tolerance_max = context.tolerance.max;
  v.precision.tolerance_norm = context.tolerance.norm;
  context.roundoff = roundoff_of(run.options.precision, bundle.graph, flags);
  context.special_rounding = summation_error(context.roundoff, longest_sum(bundle.graph));
  return context;
}

void note_worker(Verdict& v, run::Worker& worker, double create_seconds) {
  v.compiled = true;
  v.sandbox = run::name_of(worker.sandbox());
  v.sandbox_note = worker.sandbox_note();
  v.create_ms = create_seconds * 1000;
  settle(v, "loads", "", "Symbols, ABI version and manifest fit the program.");
}

using Failure = std::optional<run::CandidateFailure>;

// The parent holds all tensors and judges: the host target, and GPUs without PyTorch. `speed` is null on the host.
Result<Failure> check_with_host_memory(CheckContext& context, const run::WorkerSpec& spec, SpeedRun* speed, Verdict& v) {
  const auto& bundle = context.bundle;
  STITCH_TRY(auto weights, ir::read_weights(bundle));
  const auto oracle = interpreter_oracle(bundle.graph, weights);
  context.oracle = oracle.get();
  v.precision.oracle = context.oracle_name = oracle->name();
  STITCH_TRY(auto started, Session::start(bundle, spec, weights));
  if (!started) return Failure(started.error());
  auto& session = **started;
  note_worker(v, session.worker(), session.create_seconds());
  HostSets sets(context, session);
  STITCH_TRY(auto failure, run_checks(context, sets, v));
  if (failure) return failure;
  settle(v, "completes", "", fmt::format("{} calls returned.", session.evidence().calls));
  if (speed && v.correct && context.options.timed_calls > 0) {
    const auto side = timed_in_host_memory(context, session);
    STITCH_TRY(auto broke, speed->measure(context, *side, v));
    if (broke) return broke;
  }
  v.printed = session.worker().printed();
  session.worker().quit();
  if (v.correct || !spec.cuda) {
    STITCH_TRY(auto second, check_weights_are_used(context, spec, weights, v));
    if (second) return second;
  }
  if (!spec.cuda) {
    STITCH_CHECK_OK(run_sanitized(context, spec, weights, v));
    list_gpu_guards(v);
  }
  return Failure();
}

// Device memory that a verification may take at its peak: lent buffers, private copies, references and fp64 forms of inputs, outputs and weights, and
// a few of the largest intermediate values in fp64, which a library's workspace may need too.
uint64_t peak_device_bytes(const ir::Bundle& bundle) {
  const int64_t inputs = ir::bytes_of(ir::types_of(bundle.inputs)), outputs = ir::bytes_of(ir::output_types(bundle)), weights = ir::bytes_of(ir::types_of(bundle.weights));
  int64_t largest = 0;
  for (const auto& node : bundle.graph.nodes)
    for (const auto& type : node.types) largest = std::max(largest, ir::bytes_of(type));
  return static_cast<uint64_t>(4 * inputs + 8 * outputs + 4 * weights + 8 * largest) + (uint64_t{3} << 30);
}

// PyTorch holds the tensors in device memory and judges them there. `begun`: the candidate has run, so an error is final.
Result<Failure> check_on_device(CheckContext& context, const run::WorkerSpec& spec, SpeedRun& speed, Verdict& v, bool& begun) {
  ReferenceWorker& reference = *speed.reference();
  context.own_inputs = true;
  v.precision.oracle = context.oracle_name = "PyTorch in fp64 on " + reference.device_name();
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto since = Clock::now();
  STITCH_TRY(const auto turn, run::GpuMemoryTurn::take(visible ? visible : "", reference.device_bytes() / 10 * 9, peak_device_bytes(context.bundle)));
  reference.add_spent("wait_for_gpu", since);
  STITCH_TRY(auto started, DeviceSession::start(context, spec, reference));
  if (!started) return begun = true, Failure(started.error());
  DeviceSession& session = **started;
  note_worker(v, session.worker(), session.create_seconds());
  STITCH_TRY(auto failure, run_checks(context, session, v));
  begun = true;
  if (failure) return failure;
  settle(v, "completes", "", fmt::format("{} calls returned.", session.evidence().calls));
  if (v.correct && context.options.timed_calls > 0) {
    STITCH_CHECK_OK(session.begin_timing());
    STITCH_TRY(auto broke, speed.measure(context, session, v));
    if (broke) return broke;
  }
  v.printed = session.worker().printed();
  session.worker().quit();
  started->reset();
  // Last, because the reference keeps the other weights.
  return v.correct ? check_weights_are_used_on_device(context, spec, reference, v) : Failure();
}

Status check_candidate(const Run& run, const std::filesystem::path& library, bool cuda, Verdict& v) {
  STITCH_TRY(auto context, make_context(run, v));
  auto spec = worker_spec(run.options, library, cuda);
  Result<Failure> failure = Failure();
  if (!cuda) {
    failure = check_with_host_memory(context, spec, nullptr, v);
  } else {
    STITCH_TRY(auto libraries, run::find_cuda_libraries());
    spec.cudart = libraries.cudart;
    spec.library_folders = libraries.folders;
    STITCH_TRY(auto speed, SpeedRun::start(run.bundle, run.options, v));
    bool begun = false;
    if (speed->reference()) {
      failure = check_on_device(context, spec, *speed, v, begun);
      v.verify_steps = speed->reference()->spent();
    }
    // A model may refuse fp64, or not fit into the GPU's memory twice: then the interpreter judges, if it can.
    if (!failure && !begun && run.bundle.has_weights) v.warnings.push_back(fmt::format("PyTorch is not the oracle: {}", failure.error().message));
    const bool fall_back = !speed->reference() || (!failure && !begun && run.bundle.has_weights);
    if (fall_back) {
      v.sets.clear();
      v.precision.max_error = v.precision.norm_error = v.precision.reference_max_error = v.precision.reference_norm_error = std::nullopt;
      context.own_inputs = false;
      failure = check_with_host_memory(context, spec, speed.get(), v);
    }
    note_what_was_not_run(run.options, v);
  }
  if (!failure) return tl::make_unexpected(failure.error());
  if (*failure) apply_failure(v, **failure);
  return {};
}

}  // namespace

Result<Verdict> verify(const ir::Bundle& bundle, const std::filesystem::path& candidate, const VerifyOptions& options,
                       const Progress& progress) {
  Run run{bundle, options, progress};
  const bool gpu = run::gpu_present();
  if (options.target == Target::cuda && !gpu)
    return fail(ErrorKind::environment, "No GPU was found; use --target host to check correctness without one.");
  const bool cuda = options.target == Target::cuda || (options.target == Target::automatic && gpu);
  STITCH_TRY(auto library, run::locate_library(candidate, cuda));
  Verdict v;
  v.program = bundle.name;
  v.candidate = candidate.string();
  v.target = cuda ? "cuda" : "host";
  v.seed = options.seed ? options.seed : random_seed();
  v.device = cuda ? "" : "host";
  if (!cuda) v.machine_note = gpu ? "The host target proves correctness only; no speed is claimed." : run::kNoGpu;
  v.coverage_note = cuda ? "No kernel trace was taken." : "Needs a GPU.";
  STITCH_CHECK_OK(check_candidate(run, library, cuda, v));
  if (v.sandbox == "none" || v.sandbox == "seccomp")
    v.warnings.push_back(fmt::format("sandbox: {}. The candidate was not shut in; run it only if you trust it.", v.sandbox));
  finish(v);
  if (!v.valid || !v.correct) {  // no speed is claimed for a program that is not right
    v.latency_ms.reset();
    v.speedup.clear();
    v.of_floor.reset();
  }
  give_advice(v);
  v.verify_seconds = run.seconds();
  return v;
}

}  // namespace stitch::verify
