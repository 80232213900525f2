#include "suite/summary.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/json_full.h"
#include "base/terminal.h"

namespace stitch::suite {
namespace {

template <class F>
int64_t count(const Suite& s, F f) {
  return std::count_if(s.rows.begin(), s.rows.end(), f);
}

double rounded(double v) { return std::round(v * 1000) / 1000; }

// The largest process of this run, this one included.
uint64_t peak_rss() {
  uint64_t peak = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    struct rusage u {};
    if (getrusage(who, &u) == 0) peak = std::max(peak, static_cast<uint64_t>(u.ru_maxrss) * 1024);
  }
  return peak;
}

Json wall_json(const Suite& s) {
  Json j = Json::object();
  for (const Step step : kAllSteps) j[std::string(name_of(step))] = rounded(s.wall[static_cast<size_t>(step)]);
  j["kernelbench"] = rounded(s.kernelbench_wall);
  return j;
}

Json spent_json(const Suite& s) {
  Json j = Json::object();
  for (const Step step : kAllSteps) {
    double sum = 0;
    for (const Row& r : s.rows) sum += r.seconds[static_cast<size_t>(step)];
    j[std::string(name_of(step))] = rounded(sum);
  }
  return j;
}

Json skills_json(const Suite& s) {
  std::map<std::string, int64_t> tasks;
  int64_t total = 0;
  for (const Row& r : s.rows)
    for (const auto& [skill, n] : r.tasks_by_skill) tasks[skill] += n, total += n;
  Json j = Json::object();
  for (const auto& [skill, n] : tasks) j[skill] = {{"tasks", n}, {"share", rounded(static_cast<double>(n) / static_cast<double>(total))}};
  return j;
}

// Shares of device time: of all time together, and the mean over the problems, each counted alike. Null when nothing was traced.
Json time_share_json(const Suite& s) {
  constexpr std::array owners{"own", "library", "framework", "other"};
  std::map<std::string, double> sum, mean;
  double all = 0;
  int64_t problems = 0;
  for (const Row& r : s.rows) {
    double total = 0;
    for (const auto& [owner, ms] : r.device_ms) total += ms;
    if (total <= 0) continue;
    ++problems;
    all += total;
    for (const auto& [owner, ms] : r.device_ms) sum[owner] += ms, mean[owner] += ms / total;
  }
  if (!problems) return nullptr;
  Json weighted = Json::object(), each = Json::object();
  for (const char* owner : owners) {
    weighted[owner] = rounded(sum[owner] / all);
    each[owner] = rounded(mean[owner] / static_cast<double>(problems));
  }
  return {{"problems", problems}, {"milliseconds", rounded(all)}, {"of_all_time", weighted}, {"mean_of_problems", each}};
}

Json summary_json(const Suite& s) {
  std::set<std::string> met, handled;
  int64_t nodes = 0, tasks = 0, kernels = 0;
  for (const Row& r : s.rows) {
    met.insert(r.aten_ops.begin(), r.aten_ops.end());
    if (r.ok(Step::code)) handled.insert(r.aten_ops.begin(), r.aten_ops.end());
    nodes += r.nodes, tasks += r.tasks, kernels += r.kernels;
  }
  std::set<std::string> missing;
  std::set_difference(met.begin(), met.end(), handled.begin(), handled.end(), std::inserter(missing, missing.end()));
  Json j{{"step", std::string(name_of(s.options.step))}, {"levels", s.options.levels}, {"problems", s.rows.size()}};
  for (const Step step : kAllSteps) j[std::string(past_of(step))] = count(s, [&](const Row& r) { return r.ok(step); });
  j["correct"] = count(s, [](const Row& r) { return r.correct == true; });
  j["correct_by_kernelbench"] = count(s, [](const Row& r) { return r.correct_by_kernelbench == true; });
  j["evaluated_by_kernelbench"] = count(s, [](const Row& r) { return r.correct_by_kernelbench.has_value(); });
  j["failed"] = count(s, [&](const Row& r) { return !r.passed(s.options.step); });
  j["wall_seconds"] = wall_json(s);
  j["spent_seconds"] = spent_json(s);
  j["peak_rss_bytes"] = peak_rss();
  j["nodes"] = nodes;
  j["tasks"] = tasks;
  j["kernels"] = kernels;
  j["aten_ops_met"] = met.size();
  j["aten_ops_handled"] = handled.size();
  j["aten_ops_not_handled"] = missing;
  j["tasks_by_skill"] = skills_json(s);
  j["time_share"] = time_share_json(s);
  j["precision"] = std::string(hw::name_of(s.options.precision));
  j["commit"] = s.commit;
  j["machine"] = describe_machine();
  return j;
}

std::string cell(const std::optional<bool>& v) { return !v ? "" : *v ? "yes" : "**no**"; }

// Text of others in a Markdown table cell: no line breaks, no column marks, no HTML.
std::string table_text(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '\n' || c == '\t') out += ' ';
    else if (c == '|' || c == '<' || c == '*' || c == '`' || c == '_' || c == '[' || c == '\\') out += '\\', out += c;
    else out += c;
  }
  return out;
}

}  // namespace

Json to_json(const Suite& s) {
  Json rows = Json::array();
  for (const Row& r : s.rows) rows.push_back(to_json(r));
  return {{"version", 1}, {"suite", "kernelbench"}, {"summary", summary_json(s)}, {"rows", rows}};
}

std::string to_markdown(const Suite& s, const Json& whole) {
  const Json& sum = whole.at("summary");
  const auto number = [&](const char* key) { return sum.at(key).get<int64_t>(); };
  std::string out = fmt::format("# KernelBench level {}, to step {}\n\n", fmt::join(s.options.levels, ", "), name_of(s.options.step));
  out += "| problems | captured | planned | coded | built | verified | correct | correct by KernelBench | failed |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n\n", number("problems"), number("captured"), number("planned"), number("coded"), number("built"),
                     number("verified"), number("correct"), number("correct_by_kernelbench"), number("failed"));
  std::string walls;
  for (const auto& [step, seconds] : sum.at("wall_seconds").items())
    if (seconds.get<double>() > 0) walls += fmt::format("{}{} {}", walls.empty() ? "" : ", ", step, format_duration(seconds.get<double>()));
  out += fmt::format("Wall time of this run: {}. {} nodes in {} tasks, {} kernels; {} of {} ATen operators handled; largest process {}. Commit {}.\n\n",
                     walls.empty() ? "nothing was left to do" : walls, number("nodes"), number("tasks"), number("kernels"), number("aten_ops_handled"), number("aten_ops_met"),
                     format_bytes(sum.at("peak_rss_bytes").get<uint64_t>()), sum.at("commit").get<std::string>());
  out += "| problem | captured | planned | coded | built | correct | KernelBench | tasks | kernels | s | why |\n| --- | --- | --- | --- | --- | --- | --- | ---: | ---: | ---: | --- |\n";
  for (const Row& r : s.rows) {
    double seconds = 0;
    for (const double d : r.seconds) seconds += d;
    const auto done = [&](Step step) { return cell(r.done[static_cast<size_t>(step)]); };
    std::string why = r.reason.empty() && r.correct == false ? r.sentence : r.reason;
    if (why.empty() && r.correct_by_kernelbench == false) why = r.kernelbench_reason;
    if (why.empty()) why = r.note;
    out += fmt::format("| {}/{} {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1f} | {} |\n", r.problem.level, r.problem.id, table_text(r.problem.name), done(Step::capture),
                       done(Step::plan), done(Step::code), done(Step::build), cell(r.correct), cell(r.correct_by_kernelbench), r.tasks, r.kernels, seconds, table_text(why));
  }
  return out;
}

}  // namespace stitch::suite
