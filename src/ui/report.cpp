#include "ui/report.h"

#include <algorithm>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/terminal.h"
#include "loop/events.h"

namespace stitch::ui {
namespace {

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--line:#8884;--good:#1a7f37;--bad:#c62828;--dim:#888}
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}.dim{color:var(--dim)}
pre{overflow:auto;padding:.8rem;border:1px solid var(--line);border-radius:6px;font:13px/1.45 ui-monospace,monospace;max-height:40rem}
.lead{font-size:1.1rem}.bar{height:.6rem;background:#4a90d9;border-radius:3px;min-width:2px}
)css";

class Page {
 public:
  explicit Page(fs::path out) : out_(std::move(out)) {}

  Status write() {
    STITCH_TRY(plan_, json("plan.json"));
    STITCH_TRY(verdict_, json("verdict.json"));
    if (auto events = loop::read_events(out_ / "events.jsonl")) events_ = std::move(*events);
    add("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">");
    add("<title>{}: stitchcuda report</title><style>{}</style>", text(plan_, "program"), kStyle);
    headline();
    speed();
    precision();
    tasks();
    guards();
    steps();
    advice();
    sources();
    add("</html>\n");
    return write_file(out_ / "report.html", html_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> f, Args&&... args) { html_ += fmt::format(f, std::forward<Args>(args)...); }

  Result<Json> json(const char* name) {
    STITCH_TRY(const std::string raw, read_file(out_ / name));
    return parse_json(raw, name);
  }
  // A member as escaped text, whatever its JSON type; "" when absent or null.
  static std::string text(const Json& j, const char* key) {
    if (!j.is_object() || !j.contains(key) || j.at(key).is_null()) return "";
    const Json& v = j.at(key);
    return escape_html(v.is_string() ? v.get<std::string>() : v.is_number_float() ? fmt::format("{:.4g}", v.get<double>()) : dump(v, -1));
  }
  static bool truth(const Json& j, const char* key) { return j.is_object() && j.contains(key) && j.at(key).is_boolean() && j.at(key).get<bool>(); }
  static const Json& member(const Json& j, const char* key) {
    static const Json none;
    return j.is_object() && j.contains(key) ? j.at(key) : none;
  }

  void headline() {
    const bool good = truth(verdict_, "valid") && truth(verdict_, "correct");
    add("<h1>{}</h1><p class=\"lead\"><span class=\"{}\">{}</span> on target <b>{}</b>, planned by {} for {}.</p>", text(plan_, "program"),
        good ? "good" : "bad", good ? "Verified correct" : "Not verified", text(verdict_, "target"), text(plan_, "planner"), text(plan_, "device"));
    if (const std::string summary = text(verdict_, "sentence"); !summary.empty()) add("<p>{}</p>", summary);
  }

  void speed() {
    add("<h2>Speed</h2>");
    const Json& latency = member(verdict_, "latency_ms");
    if (!latency.is_object()) {
      add("<p>No GPU timing was made, so no speed is claimed. The roofline floor of the program on {} is {} us.</p>", text(plan_, "device"), text(plan_, "floor_us"));
      return;
    }
    add("<table><tr><th>program<th class=n>median ms<th class=n>p10<th class=n>p90<th class=n>speedup of this program</tr>");
    add("<tr><td><b>stitched</b><td class=n>{}<td class=n>{}<td class=n>{}<td></tr>", text(latency, "median"), text(latency, "p10"), text(latency, "p90"));
    for (const auto& [name, b] : member(verdict_, "baselines").items())
      add("<tr><td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}</tr>", escape_html(name), text(b, "median"), text(b, "p10"),
          text(b, "p90"), text(member(member(verdict_, "speedup"), name.c_str()), "ratio"));
    add("</table><p>Roofline floor {} ms, share of floor reached {}.</p>", text(verdict_, "floor_ms"), text(verdict_, "of_floor"));
  }

  void precision() {
    const Json& p = member(verdict_, "precision");
    if (!p.is_object()) return;
    add("<h2>Precision</h2><table>");
    for (const auto& [key, value] : p.items()) {
      if (value.is_array() && !value.empty() && value.front().is_object()) continue;
      add("<tr><td>{}<td>{}</tr>", escape_html(key), text(p, key.c_str()));
    }
    add("</table>");
    for (const auto& [key, value] : p.items())
      if (value.is_array() && !value.empty() && value.front().is_object()) object_table(value);
  }

  void object_table(const Json& rows) {
    add("<table><tr>");
    for (const auto& [column, v] : rows.front().items()) add("<th>{}", escape_html(column));
    add("</tr>");
    for (const Json& row : rows) {
      add("<tr>");
      for (const auto& [column, v] : rows.front().items()) add("<td>{}", text(row, column.c_str()));
      add("</tr>");
    }
    add("</table>");
  }

  void tasks() {
    double longest = 0;
    for (const Json& t : member(plan_, "tasks")) longest = std::max(longest, t.value("floor_us", 0.0));
    add("<h2>Tasks</h2><table><tr><th>task<th>kind<th>skill<th>why<th>bound<th class=n>floor us<th style=\"width:8rem\"></tr>");
    for (const Json& t : member(plan_, "tasks")) {
      const double floor = t.value("floor_us", 0.0);
      add("<tr><td><code>{}</code><td>{}<td>{}<td>{}<td>{}<td class=n title=\"{}\">{:.3g}<td><div class=bar style=\"width:{:.0f}%\"></div></tr>", text(t, "name"),
          text(t, "kind"), text(t, "skill"), text(t, "why"), text(t, "bottleneck"), text(t, "floor"), floor, longest > 0 ? 100 * floor / longest : 0);
    }
    add("</table>");
  }

  void guards() {
    add("<h2>Checks</h2><table><tr><th>check<th>outcome<th>evidence</tr>");
    for (const Json& g : member(verdict_, "guards")) {
      const std::string state = text(g, "state");
      add("<tr><td>{}<td class=\"{}\">{}<td>{}</tr>", text(g, "name"), state == "passed" ? "good" : state == "failed" ? "bad" : "dim", state, text(g, "evidence"));
    }
    add("</table>");
  }

  void steps() {
    add("<h2>Steps</h2><table><tr><th>step<th class=n>seconds<th>result</tr>");
    for (const loop::Event& e : events_) {
      if (e.kind != loop::EventKind::step_finished && e.kind != loop::EventKind::step_failed && e.kind != loop::EventKind::feedback) continue;
      add("<tr><td>{}{}<td class=n>{:.2f}<td>{}</tr>", escape_html(e.step), e.attempt > 1 ? fmt::format(" (attempt {})", e.attempt) : "", e.seconds,
          escape_html(e.text));
    }
    add("</table>");
  }

  void advice() {
    const Json& feedback = member(verdict_, "feedback");
    if (!feedback.is_array() || feedback.empty()) return;
    add("<h2>Advice</h2><ol>");
    for (const Json& f : feedback) add("<li>{}", f.is_string() ? escape_html(f.get<std::string>()) : escape_html(dump(f, -1)));
    add("</ol>");
  }

  void sources() {
    add("<h2>Sources</h2>");
    for (const char* name : {"kernels.cu", "program.cpp", "model_new.py", "plan.json", "verdict.json"})
      if (const auto body = read_file(out_ / name); body && body->size() < (2u << 20))
        add("<details><summary><code>{}</code> ({})</summary><pre>{}</pre></details>", name, format_bytes(body->size()), escape_html(*body));
  }

  fs::path out_;
  Json plan_, verdict_;
  std::vector<loop::Event> events_;
  std::string html_;
};

}  // namespace

std::string escape_html(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (char c : s) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

Status write_report(const fs::path& out) { return Page(out).write(); }

}  // namespace stitch::ui
