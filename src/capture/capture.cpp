#include "capture/capture.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/files.h"
#include "base/interrupt.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/process.h"

namespace stitch::capture {
namespace {

bool has_torch(const std::string& python) {
  // Looking the package up is enough; importing it takes seconds.
  ProcessSpec spec;
  spec.argv = {python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"};
  spec.timeout = std::chrono::seconds(60);
  const auto r = run_process(spec);
  return r && r->ok();
}

ErrorKind kind_from_name(const std::string& kind) {
  if (kind == "bad_input") return ErrorKind::bad_input;
  if (kind == "unsupported") return ErrorKind::unsupported;
  if (kind == "environment") return ErrorKind::environment;
  return ErrorKind::internal;
}

std::string tail(const std::string& text, size_t bytes) { return text.size() > bytes ? text.substr(text.size() - bytes) : text; }

// An answer that is valid JSON: {"ok": true, ...} or {"error": {...}}.
Status outcome_of(const Json& j) {
  if (j.contains("ok")) return {};
  if (!j.contains("error")) return fail(ErrorKind::bad_input, "The capture worker's answer was overwritten by the program; it must not write to files it does not know.");
  const Json& e = j.at("error");
  const auto text = [&](const char* key, const char* otherwise) { return get_string(e, key, "").value_or(otherwise); };
  return tl::make_unexpected(Error{kind_from_name(text("kind", "internal")), text("message", "Capture failed."), text("detail", "")});
}

// The worker's answer arrives on a descriptor of its own, so that the user's program can print what it likes.
Status read_answer(const std::string& answer, const ProcessResult& r) {
  if (r.timed_out) return fail(ErrorKind::bad_input, "Capture did not finish in {:.0f} s; the program hangs while it is built or exported.", r.wall_seconds);
  if (answer.empty()) {
    Error e{ErrorKind::bad_input, fmt::format("The Python process ended without an answer (exit code {}); the program may call exit() or crash while it is built.", r.exit_code),
            tail(r.err, 4000)};
    if (r.signal == 9) e.message = "The Python process was killed, probably for lack of memory; capture with --no-weights or use smaller inputs.";
    return tl::make_unexpected(std::move(e));
  }
  STITCH_TRY(const Json j, parse_json(answer, "The capture worker's answer"));
  return outcome_of(j);
}

ProcessSpec worker_spec(const std::string& python) {
  ProcessSpec spec;
  spec.argv = {python, "-m", "stitchcuda.capture"};
  const char* path = std::getenv("PYTHONPATH");
  spec.environment["PYTHONPATH"] = (source_root() / "python").string() + (path && *path ? std::string(":") + path : "");
  spec.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  spec.environment["CUDA_VISIBLE_DEVICES"] = "";  // capture computes nothing; a CUDA context would not survive the batch mode's forks
  return spec;
}

}  // namespace

Result<std::string> find_python() {
  std::vector<std::string> candidates;
  if (const char* given = std::getenv("STITCHCUDA_PYTHON"); given && *given) candidates = {given};
  else candidates = {(data_home() / "venv/bin/python").string(), "python3"};
  for (const std::string& c : candidates)
    if (const auto path = find_program(c); path && has_torch(*path)) return *path;
  return fail(ErrorKind::environment, "No Python with PyTorch was found; run make setup, or set STITCHCUDA_PYTHON to one that has it.");
}

Status check_target(const std::string& target) {
  if (target.empty()) return fail(ErrorKind::bad_input, "The program's name is empty; give FILE.py, module:callable, FILE.pt2 or a .stitch folder.");
  std::error_code ec;
  if (fs::exists(target, ec) || target.find(':') != target.npos) return {};
  if (ec && ec != std::errc::not_a_directory) return fail(ErrorKind::bad_input, "{} cannot be read: {}.", target, ec.message());
  return fail(ErrorKind::bad_input, "{} does not exist; check the path.", target);
}

Result<ir::Bundle> capture(const CaptureOptions& options, const Progress& progress) {
  STITCH_CHECK_OK(check_target(options.target));
  STITCH_TRY(const std::string python, find_python());
  STITCH_TRY(const TempFolder scratch, TempFolder::create("capture"));
  fs::path out = fs::absolute(options.out).lexically_normal();
  if (!out.has_filename()) out = out.parent_path();  // a trailing slash
  // Python writes the bundle beside its place, into a folder that it holds a lock on (bundle.py).
  const auto sweep = [out] { remove_left_over(out.parent_path(), fmt::format(".{}.", out.filename().string())); };
  sweep();
  const OnInterrupt sweep_again(sweep);
  const fs::path answer_file = scratch.path() / "answer.json";
  ProcessSpec spec = worker_spec(python);
  spec.argv.insert(spec.argv.end(), {options.target, "-o", out.string(), "--seed", std::to_string(options.seed), "--cases",
                                     std::to_string(options.cases), "--result-file", answer_file.string()});
  if (options.expected) spec.argv.insert(spec.argv.end(), {"--expected", *options.expected ? "yes" : "no"});
  if (options.dropout_as_input) spec.argv.insert(spec.argv.end(), {"--train-dropout", "input"});
  if (options.no_weights) spec.argv.push_back("--no-weights");
  if (!options.inputs_attribute.empty()) spec.argv.insert(spec.argv.end(), {"--inputs", options.inputs_attribute});
  spec.timeout = std::chrono::minutes(30);
  spec.on_stderr_line = [&](std::string_view line) {
    constexpr std::string_view mark = "progress: ";
    if (line.substr(0, mark.size()) == mark) progress(std::string(line.substr(mark.size())));
  };
  STITCH_TRY(const ProcessResult result, run_process(spec));
  STITCH_CHECK_OK(read_answer(read_file(answer_file).value_or(""), result));
  return ir::read_bundle(options.out);
}

namespace {

BatchResult batch_result(const Json& j) {
  BatchResult r;
  r.status = outcome_of(j);
  r.seconds = get_number(j, "wall_seconds", "").value_or(0);
  r.max_rss_bytes = static_cast<uint64_t>(get_integer(j, "max_rss_bytes", "").value_or(0));
  const Json& holder = j.contains("error") ? j.at("error") : j;
  if (const auto ops = get_array(holder, "aten_ops", ""))
    for (const Json& op : **ops)
      if (op.is_string()) r.aten_ops.push_back(op.get<std::string>());
  return r;
}

}  // namespace

Status capture_batch(const std::vector<BatchItem>& items, const BatchOptions& options, const std::function<void(size_t, BatchResult)>& on_result) {
  STITCH_TRY(const std::string python, find_python());
  STITCH_TRY(const TempFolder scratch, TempFolder::create("capture"));
  const fs::path list = scratch.path() / "targets.jsonl";
  // A process that ends before its list does gives up the item in hand; the next process goes on behind it.
  for (size_t done = 0; done < items.size();) {
    std::string lines;
    for (size_t i = done; i < items.size(); ++i) lines += dump(Json{{"target", items[i].target}, {"out", fs::absolute(items[i].out).string()}}, -1) + "\n";
    STITCH_CHECK_OK(write_file(list, lines));
    ProcessSpec spec = worker_spec(python);
    spec.argv.insert(spec.argv.end(), {"--batch", "--list", list.string(), "--no-weights", "--seed", std::to_string(options.seed), "--train-dropout",
                                       options.dropout_as_input ? "input" : "refuse", "--timeout", std::to_string(options.timeout.count())});
    spec.timeout = options.timeout * static_cast<int64_t>(items.size() - done) + std::chrono::minutes(10);  // PyTorch itself may take long to load
    Status unusable;  // an answer about no program: this Python cannot capture at all
    spec.on_stdout_line = [&](std::string_view line) {
      const auto j = parse_json(line, "The capture worker's answer");
      if (!j) return;
      if (!j->contains("target")) unusable = outcome_of(*j);
      else if (done < items.size() && get_string(*j, "target", "").value_or("") == items[done].target) {
        on_result(done, batch_result(*j));
        ++done;
      }
    };
    STITCH_TRY(const ProcessResult r, run_process(spec));
    STITCH_CHECK_OK(unusable);
    if (done < items.size()) on_result(done++, {read_answer("", r)});
  }
  return {};
}

}  // namespace stitch::capture
