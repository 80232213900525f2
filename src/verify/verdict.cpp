#include "verify/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_full.h"

namespace stitch::verify {
namespace {

const char* name_of(GuardState s) {
  return s == GuardState::passed ? "passed" : s == GuardState::failed ? "failed" : "not run";
}

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto i = static_cast<size_t>(at);
  const double part = at - static_cast<double>(i);
  return i + 1 < sorted.size() ? sorted[i] * (1 - part) + sorted[i + 1] * part : sorted[i];
}

double median_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return quantile(v, 0.5);
}

// JSON has no infinity; an unbounded error is written as a string so that it cannot be mistaken for a small one.
Json number(double v) {
  if (std::isfinite(v)) return v;
  return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
}

Json to_json(const Timing& t) {
  return {{"median", t.median}, {"p10", t.p10}, {"p90", t.p90}, {"samples", t.samples}};
}

template <class T>
Json or_null(const std::optional<T>& v) {
  return v ? Json(*v) : Json(nullptr);
}

// The two measures of an error, or null where it was not computed.
Json errors(const std::optional<double>& max, const std::optional<double>& norm) {
  if (!max) return nullptr;
  return {{"max", number(*max)}, {"norm", number(norm.value_or(0))}};
}

Json precision_json(const Verdict& v) {
  const auto& p = v.precision;
  Json j = {{"class", p.precision_class}, {"oracle", p.oracle},
            {"tolerance", {{"max", p.tolerance_max}, {"norm", p.tolerance_norm}}},
            {"error", errors(p.max_error, p.norm_error)},
            {"reference_error", errors(p.reference_max_error, p.reference_norm_error)}, {"kernelbench", nullptr}};
  if (v.kernelbench)
    j["kernelbench"] = {{"tolerance", v.kernelbench->tolerance}, {"allclose", v.kernelbench->ok},
                        {"max_abs_difference", number(v.kernelbench->max_abs_difference)}, {"against", v.kernelbench->against}};
  return j;
}

Json sets_json(const Verdict& v) {
  Json list = Json::array();
  for (const auto& s : v.sets)
    list.push_back({{"name", s.name}, {"seed", s.seed ? Json(std::to_string(s.seed)) : Json(nullptr)}, {"ok", s.ok}, {"sentence", s.sentence},
                    {"error", errors(s.max_error, s.norm_error)},
                    {"reference_error", errors(s.reference_max_error, s.reference_norm_error)},
                    {"forgiven", s.forgiven}});
  return list;
}

}  // namespace

Timing summarise(std::vector<double> samples) {
  Timing t;
  t.samples = samples;
  std::sort(samples.begin(), samples.end());
  t.median = quantile(samples, 0.5);
  t.p10 = quantile(samples, 0.1);
  t.p90 = quantile(samples, 0.9);
  return t;
}

Speedup speedup_over(const std::string& baseline, const std::vector<double>& baseline_ms, const std::vector<double>& candidate_ms) {
  Speedup s{baseline};
  if (baseline_ms.empty() || candidate_ms.empty()) return s;
  s.ratio = median_of(baseline_ms) / median_of(candidate_ms);
  uint64_t state = 0x243f6a8885a308d3ull;
  auto next = [&](size_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<size_t>(state % n);
  };
  std::vector<double> ratios;
  for (int k = 0; k < 1000; ++k) {
    std::vector<double> a, b;
    for (size_t i = 0; i < baseline_ms.size(); ++i) a.push_back(baseline_ms[next(baseline_ms.size())]);
    for (size_t i = 0; i < candidate_ms.size(); ++i) b.push_back(candidate_ms[next(candidate_ms.size())]);
    ratios.push_back(median_of(std::move(a)) / median_of(std::move(b)));
  }
  std::sort(ratios.begin(), ratios.end());
  s.low = quantile(ratios, 0.025);
  s.high = quantile(ratios, 0.975);
  return s;
}

Guard& Verdict::guard(const std::string& name) {
  for (auto& g : guards)
    if (g.name == name) return g;
  guards.push_back({name});
  return guards.back();
}

const Guard* Verdict::find_guard(const std::string& name) const {
  for (const auto& g : guards)
    if (g.name == name) return &g;
  return nullptr;
}

Json to_json(const Verdict& v) {
  Json j;
  j["version"] = 1;
  j["program"] = v.program;
  j["candidate"] = v.candidate;
  j["target"] = v.target;
  j["valid"] = v.valid;
  j["compiled"] = v.compiled;
  j["correct"] = v.correct;
  j["outcome"] = v.outcome;
  j["sentence"] = v.sentence;
  j["precision"] = precision_json(v);
  j["deterministic"] = or_null(v.deterministic);
  j["latency_ms"] = v.latency_ms ? to_json(*v.latency_ms) : Json(nullptr);
  j["create_ms"] = or_null(v.create_ms);
  j["baselines"] = Json::object();
  for (const auto& b : v.baselines) {
    Json entry = b.timing ? to_json(*b.timing) : Json::object();
    entry["status"] = b.timing ? "measured" : "not run";
    entry["note"] = b.note;
    j["baselines"][b.name] = entry;
  }
  j["speedup"] = Json::object();
  for (const auto& s : v.speedup) j["speedup"][s.baseline] = {{"ratio", s.ratio}, {"low", s.low}, {"high", s.high}};
  j["floor_ms"] = or_null(v.floor_ms);
  j["of_floor"] = or_null(v.of_floor);
  j["guards"] = Json::array();
  for (const auto& g : v.guards)
    j["guards"].push_back({{"name", g.name}, {"state", name_of(g.state)}, {"evidence", g.evidence}, {"rule", g.rule}});
  j["coverage"] = {{"own", or_null(v.own_share)}, {"library", or_null(v.library_share)},
                   {"framework", or_null(v.framework_share)}, {"note", v.coverage_note}};
  j["profile"] = v.profile.empty() ? Json(nullptr) : Json(v.profile);
  j["bottleneck"] = v.bottleneck.empty() ? Json(nullptr) : Json(v.bottleneck);
  j["feedback"] = v.feedback;
  j["cost"] = {{"build_seconds", or_null(v.build_seconds)}, {"verify_seconds", v.verify_seconds},
               {"llm_tokens", v.llm_tokens}, {"llm_money", v.llm_money}};
  if (!v.verify_steps.empty()) j["cost"]["verify_steps"] = v.verify_steps;
  j["sandbox"] = {{"level", v.sandbox}, {"note", v.sandbox_note}};
  j["sets"] = sets_json(v);
  j["inputs"] = v.input_models;
  j["warnings"] = v.warnings;
  j["device"] = v.device;
  j["machine_note"] = v.machine_note;
  j["seed"] = std::to_string(v.seed);
  j["printed"] = v.printed;
  return j;
}

std::string to_text(const Verdict& v) {
  std::string out = fmt::format("{}  valid {}  correct {}\n{}\n", v.valid && v.correct ? "PASS" : "FAIL", v.valid ? "yes" : "no",
                                v.correct ? "yes" : "no", v.sentence);
  for (const auto& g : v.guards)
    if (g.state == GuardState::failed) out += fmt::format("  guard {} failed: {}\n", g.name, g.evidence);
  if (v.precision.max_error)
    out += fmt::format("  error {:.3g} (norm {:.3g}) against the {}, class {}\n", *v.precision.max_error, v.precision.norm_error.value_or(0),
                       v.precision.oracle, v.precision.precision_class);
  if (v.latency_ms)
    out += fmt::format("  latency {:.4g} ms (p10 {:.4g}, p90 {:.4g})\n", v.latency_ms->median, v.latency_ms->p10, v.latency_ms->p90);
  for (const auto& s : v.speedup)
    out += fmt::format("  {:.3g}x over {} ({:.3g} to {:.3g})\n", s.ratio, s.baseline, s.low, s.high);
  if (v.sandbox == "none" || v.sandbox == "seccomp")
    out += fmt::format("  WARNING sandbox: {}. The candidate could read this machine's files.\n", v.sandbox);
  if (!v.sandbox_note.empty()) out += fmt::format("  sandbox: {}\n", v.sandbox_note);
  for (const auto& w : v.warnings) out += fmt::format("  note: {}\n", w);
  if (!v.machine_note.empty()) out += v.machine_note + "\n";
  return out;
}

}  // namespace stitch::verify
