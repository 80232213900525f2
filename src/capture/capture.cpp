#include "capture/capture.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/files.h"
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
  if (j.contains("ok")) return {};
  if (!j.contains("error")) return fail(ErrorKind::bad_input, "The capture worker's answer was overwritten by the program; it must not write to files it does not know.");
  const Json& e = j.at("error");
  const auto text = [&](const char* key, const char* otherwise) { return get_string(e, key, "").value_or(otherwise); };
  return tl::make_unexpected(Error{kind_from_name(text("kind", "internal")), text("message", "Capture failed."), text("detail", "")});
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
  const fs::path answer_file = scratch.path() / "answer.json";
  ProcessSpec spec;
  spec.argv = {python, "-m", "stitchcuda.capture", options.target, "-o", fs::absolute(options.out).string(), "--seed", std::to_string(options.seed),
               "--cases", std::to_string(options.cases), "--result-file", answer_file.string()};
  if (options.expected) spec.argv.insert(spec.argv.end(), {"--expected", *options.expected ? "yes" : "no"});
  if (options.dropout_as_input) spec.argv.insert(spec.argv.end(), {"--train-dropout", "input"});
  if (options.no_weights) spec.argv.push_back("--no-weights");
  if (!options.inputs_attribute.empty()) spec.argv.insert(spec.argv.end(), {"--inputs", options.inputs_attribute});
  const char* path = std::getenv("PYTHONPATH");
  spec.environment["PYTHONPATH"] = (source_root() / "python").string() + (path && *path ? std::string(":") + path : "");
  spec.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  spec.timeout = std::chrono::minutes(30);
  spec.on_stderr_line = [&](std::string_view line) {
    constexpr std::string_view mark = "progress: ";
    if (line.substr(0, mark.size()) == mark) progress(std::string(line.substr(mark.size())));
  };
  STITCH_TRY(const ProcessResult result, run_process(spec));
  STITCH_CHECK_OK(read_answer(read_file(answer_file).value_or(""), result));
  return ir::read_bundle(options.out);
}

}  // namespace stitch::capture
