#include "ui/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/log.h"
#include "base/terminal.h"
#include "capture/capture.h"
#include "loop/pipeline.h"
#include "loop/store.h"
#include "ui/doctor.h"
#include "ui/report.h"
#include "ui/terminal_view.h"

namespace stitch::ui {
namespace {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::candidate: return 1;
    case ErrorKind::bad_input: return 2;
    case ErrorKind::unsupported: return 3;
    case ErrorKind::environment: return 4;
    case ErrorKind::internal: return 5;
  }
  return 5;
}

std::string default_out(const std::string& input) {
  std::string name = fs::path(input).stem().string();
  if (const size_t colon = input.rfind(':'); colon != input.npos && !fs::exists(input)) name = input.substr(colon + 1);
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c) && c != '_' && c != '-'; }, '_');
  return "out/" + (name.empty() ? "program" : name);
}

std::string text_of(const Json& j, const char* key) {
  if (!j.is_object() || !j.contains(key) || j.at(key).is_null()) return "";
  const Json& v = j.at(key);
  if (v.is_string()) return v.get<std::string>();
  return v.is_number_float() ? fmt::format("{:.3g}", v.get<double>()) : dump(v, -1);
}

void print_speed(std::FILE* out, const Json& v) {
  const Json& latency = v.contains("latency_ms") ? v.at("latency_ms") : Json();
  if (!latency.is_object()) {
    const std::string note = text_of(v, "machine_note");
    fmt::print(out, "{}\n", note.empty() ? "No timing was made, so no speed is claimed." : note);
    return;
  }
  Table t({"program", ">median ms", ">p10", ">p90", ">speedup"});
  t.add({"stitched", text_of(latency, "median"), text_of(latency, "p10"), text_of(latency, "p90"), ""});
  const auto add = [&](const std::string& name, const Json& b) {
    const Json speedups = v.value("speedup", Json::object());
    std::string ratio;
    if (speedups.is_object() && speedups.contains(name)) ratio = speedups.at(name).is_object() ? text_of(speedups.at(name), "ratio") : text_of(speedups, name.c_str());
    t.add({name, text_of(b, "median"), text_of(b, "p10"), text_of(b, "p90"), ratio});
  };
  if (v.contains("baselines") && v.at("baselines").is_object())
    for (const auto& [name, b] : v.at("baselines").items()) add(name, b);
  fmt::print(out, "{}", t.text());
}

void print_outcome(std::FILE* out, const Json& v, const loop::RunOutcome& o, const fs::path& folder) {
  int passed = 0, failed = 0, not_run = 0;
  const auto count = [&](const Json& g) {
    const std::string s = text_of(g, "state");
    (s == "passed" ? passed : s == "failed" ? failed : not_run)++;
  };
  if (v.contains("guards"))
    for (const Json& g : v.at("guards")) count(g);
  fmt::print(out, "\n");
  Table t({"result", ""});
  t.add({"verdict", o.valid_and_correct ? "valid and correct" : "NOT verified"});
  t.add({"target", o.target == "host" ? "host (CPU emulation of the CUDA program)" : fmt::format("cuda, {}", o.gpu)});
  if (v.contains("precision") && v.at("precision").is_object()) {
    const Json& p = v.at("precision");
    const auto worst = [&](const char* key) { return p.contains(key) ? text_of(p.at(key), "max") : std::string(); };
    const std::string own = worst("reference_error");
    t.add({"error against fp64", fmt::format("{} ({}tolerance {})", worst("error"), own.empty() ? "" : fmt::format("reference's own {}, ", own), worst("tolerance"))});
  }
  t.add({"checks", fmt::format("{} passed, {} failed, {} not run", passed, failed, not_run)});
  t.add({"output folder", folder.string()});
  t.add({"report", (folder / "report.html").string()});
  fmt::print(out, "{}", t.text());
  print_speed(out, v);
}

}  // namespace

std::string version() { return STITCH_VERSION; }

void print_error(std::string message) {
  message = printable(message);  // paths, flags and a program's own exceptions may hold anything
  std::replace_if(message.begin(), message.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  std::fprintf(stderr, "stitchcuda: %s\n", message.c_str());
}

int report_error(const Error& e) {
  print_error(e.message);
  if (!e.detail.empty()) log_debug("{}", e.detail);  // evidence is long
  return exit_code(e.kind);
}

int run_command(const RunArguments& a) {
  loop::RunOptions o;
  o.input = a.input;
  o.inputs_attribute = a.inputs_attribute;
  o.out = a.out.empty() ? default_out(a.input) : a.out;
  o.device = a.device;
  o.seed = a.seed;
  o.fresh = a.fresh;
  o.timed_calls = a.timed_calls;
  o.write_report = [](const fs::path& out) { return write_report(out); };
  const auto target = loop::target_from_name(a.target);
  if (!target) return report_error(target.error());
  o.target = *target;
  const auto precision = hw::precision_class_from_name(a.precision);
  if (!precision) return report_error(precision.error());
  o.precision = *precision;

  std::FILE* view_out = a.json ? stderr : stdout;
  fmt::print(view_out, "stitchcuda run {}\n", a.input);
  TerminalView view(view_out);
  const auto outcome = loop::run_pipeline(o, [&](const loop::Event& e) { view.show(e); });
  if (!outcome) return report_error(outcome.error());
  const auto verdict = parse_json(outcome->verdict, "verdict.json");
  if (!verdict) return report_error(verdict.error());
  print_outcome(view_out, *verdict, *outcome, o.out);
  if (a.json) fmt::print("{}\n", dump(*verdict, -1));
  return outcome->valid_and_correct ? 0 : 1;
}

int capture_command(const CaptureArguments& a) {
  capture::CaptureOptions o;
  o.target = a.input;
  o.out = a.out;
  o.inputs_attribute = a.inputs_attribute;
  o.seed = a.seed;
  o.cases = a.cases;
  o.no_weights = a.no_weights;
  if (a.expected_given) o.expected = a.expected;
  const bool live = is_tty(fileno(stderr));
  const auto bundle = capture::capture(o, [&](const std::string& text) {
    if (live) fmt::print(stderr, "\r\033[K  {}", text);
  });
  if (live) fmt::print(stderr, "\r\033[K");
  if (!bundle) return report_error(bundle.error());
  const size_t work = bundle->graph.nodes.size() - bundle->inputs.size() - bundle->weights.size();
  fmt::print("{}: {} operations, {} inputs, {} weights, {} outputs, {} cases\n", a.out, work, bundle->inputs.size(), bundle->weights.size(),
             bundle->graph.outputs.size(), bundle->case_names.size());
  return 0;
}

int doctor_command(bool json) {
  const std::vector<Finding> findings = examine_machine();
  if (json) fmt::print("{}\n", dump(to_json(findings), 1));
  else print_findings(findings);
  const bool usable = std::all_of(findings.begin(), findings.end(), [](const Finding& f) { return f.present || !f.required; });
  return usable ? 0 : 4;
}

namespace {

Result<loop::RunStore> store() { return loop::RunStore::open(data_home() / "runs.sqlite"); }

std::string when(double seconds) {
  const auto t = static_cast<time_t>(seconds);
  char text[32];
  std::tm local{};
  localtime_r(&t, &local);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

// `runs show` has the whole sentence.
std::string shortened(const std::string& s) {
  constexpr size_t most = 80;
  if (s.size() <= most) return s;
  size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(s[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return s.substr(0, end) + "...";
}

Result<loop::RunRow> find_run(loop::RunStore& s, int64_t id) {
  STITCH_TRY(const auto row, s.get(id));
  if (!row) return fail(ErrorKind::bad_input, "There is no run {}; see stitchcuda runs list.", id);
  return *row;
}

int show_run(int64_t id) {
  auto s = store();
  if (!s) return report_error(s.error());
  const auto row = find_run(*s, id);
  if (!row) return report_error(row.error());
  const auto steps = s->steps(id);
  if (!steps) return report_error(steps.error());
  fmt::print("{}", printable(fmt::format("run {}: {}\n  input   {}\n  folder  {}\n  started {}\n  status  {}{}\n\n", row->id, row->program, row->input, row->out,
                                         when(row->started), row->status, row->reason.empty() ? "" : ": " + row->reason)));
  Table t({"step", ">attempt", ">seconds", "figures"});
  for (const loop::StepRow& r : *steps) t.add({r.step, std::to_string(r.attempt), fmt::format("{:.2f}", r.seconds), r.data});
  fmt::print("{}", printable(t.text()));
  return 0;
}

}  // namespace

int runs_list_command(int limit) {
  auto s = store();
  if (!s) return report_error(s.error());
  const auto rows = s->list(limit);
  if (!rows) return report_error(rows.error());
  Table t({">run", "program", "status", "started", ">seconds", "folder", "reason"});
  for (const loop::RunRow& r : *rows)
    t.add({std::to_string(r.id), r.program, r.status, when(r.started), r.finished > 0 ? fmt::format("{:.1f}", r.finished - r.started) : "", r.out, shortened(r.reason)});
  fmt::print("{}", printable(t.text()));
  return 0;
}

int runs_show_command(int64_t id) { return show_run(id); }

int runs_diff_command(int64_t a, int64_t b) {
  auto s = store();
  if (!s) return report_error(s.error());
  const auto left = find_run(*s, a), right = find_run(*s, b);
  if (!left) return report_error(left.error());
  if (!right) return report_error(right.error());
  Table t({"", fmt::format("run {}", a), fmt::format("run {}", b)});
  t.add({"program", left->program, right->program});
  t.add({"status", left->status, right->status});
  std::map<std::string, std::pair<std::string, std::string>> seconds;
  for (const auto& [id, second] : {std::pair{a, false}, std::pair{b, true}})
    if (const auto steps = s->steps(id))
      for (const loop::StepRow& r : *steps) (second ? seconds[r.step].second : seconds[r.step].first) = fmt::format("{:.2f} s", r.seconds);
  for (const char* step : {"capture", "plan", "code", "build", "verify", "report"})
    if (seconds.count(step)) t.add({step, seconds[step].first, seconds[step].second});
  const auto l = parse_json(left->verdict.empty() ? "{}" : left->verdict, "verdict"), r = parse_json(right->verdict.empty() ? "{}" : right->verdict, "verdict");
  if (l && r)
    for (const char* key : {"valid", "correct", "latency_ms", "floor_ms", "of_floor"}) {
      const auto cell = [&](const Json& j) { return j.contains(key) && j.at(key).is_object() ? text_of(j.at(key), "median") : text_of(j, key); };
      t.add({key, cell(*l), cell(*r)});
    }
  fmt::print("{}", printable(t.text()));
  return 0;
}

}  // namespace stitch::ui
