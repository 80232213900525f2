#include "suite/row.h"

#include <algorithm>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"

namespace stitch::suite {
namespace {

constexpr const char* kFile = "row.json";
constexpr std::array<std::string_view, kSteps> kNames{"capture", "plan", "code", "build", "verify"};
constexpr std::array<std::string_view, kSteps> kPast{"captured", "planned", "coded", "built", "verified"};

size_t index_of(Step s) { return static_cast<size_t>(s); }

template <class T>
Json or_null(const std::optional<T>& v) {
  return v ? Json(*v) : Json(nullptr);
}

template <class T>
void read(const Json& j, const char* key, T& into) {
  if (j.contains(key) && !j.at(key).is_null()) into = j.at(key).get<T>();
}
template <class T>
void read(const Json& j, const char* key, std::optional<T>& into) {
  if (j.contains(key) && !j.at(key).is_null()) into = j.at(key).get<T>();
}

Json keys_json(const Row& r) {
  return {{"capture", r.capture_key}, {"product", r.product_key}, {"verify", r.verify_key}, {"kernelbench", r.kernelbench_key}};
}

void read_row(const Json& j, Row& r) {
  read(j, "sha256", r.sha256);
  for (size_t i = 0; i < kSteps; ++i) {
    read(j, kPast[i].data(), r.done[i]);
    read(j.at("seconds"), kNames[i].data(), r.seconds[i]);
  }
  read(j, "reason", r.reason);
  read(j, "note", r.note);
  read(j, "nodes", r.nodes);
  read(j, "tasks", r.tasks);
  read(j, "kernels", r.kernels);
  read(j, "lines", r.lines);
  read(j, "workspace_bytes", r.workspace_bytes);
  read(j, "gpu_bytes", r.gpu_bytes);
  read(j, "peak_memory_bytes", r.peak_memory_bytes);
  read(j, "aten_ops", r.aten_ops);
  read(j, "tasks_by_skill", r.tasks_by_skill);
  read(j, "link_libs", r.link_libs);
  read(j, "correct", r.correct);
  read(j, "target", r.target);
  read(j, "outcome", r.outcome);
  read(j, "sentence", r.sentence);
  read(j, "max_error", r.max_error);
  read(j, "reference_max_error", r.reference_max_error);
  read(j, "tolerance", r.tolerance);
  read(j, "device_ms", r.device_ms);
  read(j, "correct_by_kernelbench", r.correct_by_kernelbench);
  read(j, "kernelbench_reason", r.kernelbench_reason);
  read(j, "kernelbench_max_error", r.kernelbench_max_error);
  const Json& keys = j.at("keys");
  read(keys, "capture", r.capture_key);
  read(keys, "product", r.product_key);
  read(keys, "verify", r.verify_key);
  read(keys, "kernelbench", r.kernelbench_key);
}

}  // namespace

std::string_view name_of(Step s) { return kNames[index_of(s)]; }
std::string_view past_of(Step s) { return kPast[index_of(s)]; }

Result<Step> step_from_name(std::string_view name) {
  for (const Step s : kAllSteps)
    if (name_of(s) == name) return s;
  return fail(ErrorKind::bad_input, "\"{}\" is no step; use capture, plan, code, build or verify.", name);
}

bool Row::failed() const {
  return std::any_of(done.begin(), done.end(), [](const auto& d) { return d && !*d; }) || correct == false;
}

bool Row::passed(Step asked) const { return ok(asked) && (asked != Step::verify || correct == true); }

void Row::finish(Step s, double took) {
  done[index_of(s)] = true;
  seconds[index_of(s)] = took;
}

void Row::finish(Step s, double took, const Error& e) {
  done[index_of(s)] = false;
  seconds[index_of(s)] = took;
  reason = e.message;
}

void Row::forget_from(Step first) {
  for (size_t i = index_of(first); i < kSteps; ++i) {
    done[i].reset();
    seconds[i] = 0;
  }
  reason.clear();
  correct.reset();
  correct_by_kernelbench.reset();
  max_error = reference_max_error = tolerance = kernelbench_max_error = std::nullopt;
  device_ms.clear();
  target = outcome = sentence = kernelbench_reason = verify_key = kernelbench_key = "";
  if (first <= Step::code) {
    note.clear();
    kernels = 0;
    lines = 0;
    workspace_bytes = gpu_bytes = 0;
    tasks_by_skill.clear();
    link_libs.clear();
  }
  if (first <= Step::plan) nodes = tasks = 0;
  if (first <= Step::capture) {
    aten_ops.clear();
    peak_memory_bytes = 0;
  }
}

Json to_json(const Row& r) {
  Json j{{"level", r.problem.level}, {"id", r.problem.id}, {"name", r.problem.name}, {"file", (r.problem.file.parent_path().filename() / r.problem.file.filename()).string()}, {"sha256", r.sha256}};
  Json seconds = Json::object();
  for (size_t i = 0; i < kSteps; ++i) {
    j[std::string(kPast[i])] = or_null(r.done[i]);
    seconds[std::string(kNames[i])] = r.done[i] ? Json(r.seconds[i]) : Json(nullptr);
  }
  j["correct"] = or_null(r.correct);
  j["correct_by_kernelbench"] = or_null(r.correct_by_kernelbench);
  j["reason"] = r.reason;
  j["note"] = r.note;
  j["seconds"] = seconds;
  j["nodes"] = r.nodes;
  j["tasks"] = r.tasks;
  j["kernels"] = r.kernels;
  j["lines"] = r.lines;
  j["workspace_bytes"] = r.workspace_bytes;
  j["gpu_bytes"] = r.gpu_bytes;
  j["peak_memory_bytes"] = r.peak_memory_bytes;
  j["aten_ops"] = r.aten_ops;
  j["tasks_by_skill"] = r.tasks_by_skill;
  j["link_libs"] = r.link_libs;
  j["target"] = r.target;
  j["outcome"] = r.outcome;
  j["sentence"] = r.sentence;
  j["max_error"] = or_null(r.max_error);
  j["reference_max_error"] = or_null(r.reference_max_error);
  j["tolerance"] = or_null(r.tolerance);
  j["device_ms"] = r.device_ms;
  j["kernelbench_reason"] = r.kernelbench_reason;
  j["kernelbench_max_error"] = or_null(r.kernelbench_max_error);
  return j;
}

Status save_row(const fs::path& folder, const Row& r) {
  Json j = to_json(r);
  j["keys"] = keys_json(r);
  return write_file(folder / kFile, dump(j, 1) + "\n");
}

Row load_row(const fs::path& folder, const Problem& problem) {
  Row row;
  row.problem = problem;
  const auto text = read_file(folder / kFile);
  if (!text) return row;
  const auto j = parse_json(*text, kFile);
  if (!j) return row;
  try {
    Row saved = row;
    read_row(*j, saved);
    return saved;
  } catch (const Json::exception&) {
    return row;  // of another version: the problem starts over
  }
}

}  // namespace stitch::suite
