#include "verify/protocol_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace stitch::verify {
namespace {

// What the sets together show; patterns over sets tell a cheat from a bug.
struct Tally {
  int stored_ok = 0, stored_wrong = 0, random_ok = 0, random_wrong = 0, property_ok = 0, property_wrong = 0;
  int property_skipped = 0;
  std::string first_wrong_random, first_wrong_stored, first_wrong_property;
  int64_t unwritten = 0;
  std::string unwritten_where;
  std::map<std::string, std::string> output_hashes;  // hash of all outputs -> set that gave it
  std::map<std::string, std::string> exact_hashes;
  std::string stale, first_hash;
  bool all_outputs_equal = true, exact_varies = false, bits_repeat = true;
  int ordinary = 0, low_precision = 0;
  std::string low_precision_where, bits_where;
  double worst_norm = 0;
};

std::vector<SetItem> schedule(const CheckContext& c) {
  std::vector<SetItem> items;
  std::mt19937_64 random(c.seed);
  const int trials = std::max(5, c.options.trials) + static_cast<int>(random() % 3);
  for (int i = 0; i < trials; ++i) items.push_back({SetItem::Kind::random, fmt::format("random {}", i + 1), random() | 1, Property::none, nullptr, false});
  // The program's own way of drawing, where PyTorch can be asked for it: other distributions hide other mistakes.
  if (c.own_inputs) items.push_back({SetItem::Kind::random, "own inputs", random() | 1, Property::none, nullptr, true});
  for (const auto& stored : c.cases) items.push_back({SetItem::Kind::stored, "case " + stored.name, 0, Property::none, &stored, false});
  const bool plain = std::any_of(c.models.begin(), c.models.end(), [](const InputModel& m) { return m.plain(); });
  if (c.options.properties && plain)
    for (Property p : kProperties) items.push_back({SetItem::Kind::property, name_of(p), random() | 1, p, nullptr, false});
  // Position must not tell the candidate what kind of set it is looking at.
  std::shuffle(items.begin(), items.end(), random);
  // Property sets are the only ones the time budget may cut, so the rest comes first within the shuffled order.
  std::stable_partition(items.begin(), items.end(), [&](const SetItem& i) { return i.kind != SetItem::Kind::property || random() % 3 == 0; });
  return items;
}

// Errors typical of arithmetic in a coarser type: everywhere small, nowhere absurd.
bool looks_like_low_precision(const Judgement& j, Tolerance t) {
  return j.unwritten == 0 && j.nonfinite_wrong == 0 && j.norm_error > t.norm / 4 && j.norm_error < 3e-2 && j.max_error < 0.5;
}

void note_outputs(Tally& tally, const SetItem& item, const SetAnswer& answer) {
  const auto &hash = answer.output_hash, &exact_hash = answer.exact_hash;
  const bool ok = answer.judgement.ok;
  if (tally.first_hash.empty()) tally.first_hash = hash;
  tally.all_outputs_equal = tally.all_outputs_equal && hash == tally.first_hash;
  tally.exact_varies = tally.exact_varies || (!tally.exact_hashes.empty() && !tally.exact_hashes.contains(exact_hash));
  if (auto seen = tally.output_hashes.find(hash); !ok && tally.stale.empty() && seen != tally.output_hashes.end() && !tally.exact_hashes.contains(exact_hash))
    tally.stale = fmt::format("Set \"{}\" got bit for bit the outputs of the earlier set \"{}\".", item.name, seen->second);
  tally.output_hashes.emplace(hash, item.name);
  tally.exact_hashes.emplace(exact_hash, item.name);
}

void count(Tally& tally, const SetItem& item, const SetResult& r) {
  auto note = [&](int& ok, int& wrong, std::string& first) {
    ++(r.ok ? ok : wrong);
    if (!r.ok && first.empty()) first = fmt::format("{}: {}", r.name, r.sentence);
  };
  switch (item.kind) {
    case SetItem::Kind::stored: note(tally.stored_ok, tally.stored_wrong, tally.first_wrong_stored); break;
    case SetItem::Kind::random: note(tally.random_ok, tally.random_wrong, tally.first_wrong_random); break;
    case SetItem::Kind::property: note(tally.property_ok, tally.property_wrong, tally.first_wrong_property); break;
  }
}

// The set's row in the verdict, and what it adds to the picture.
SetResult note_set(const CheckContext& c, const SetItem& item, const SetAnswer& answer, Tally& tally, Verdict& v) {
  const Judgement& worst = answer.judgement;
  if (!answer.repeats) {
    if (tally.bits_repeat) tally.bits_where = item.name;
    tally.bits_repeat = false;
  }
  if (worst.unwritten && tally.unwritten_where.empty()) {
    tally.unwritten = worst.unwritten;
    tally.unwritten_where = fmt::format("{}: {}", item.name, worst.sentence);
  }
  if (item.kind != SetItem::Kind::property) {
    ++tally.ordinary;
    if (!worst.ok && looks_like_low_precision(worst, c.tolerance)) {
      ++tally.low_precision;
      tally.worst_norm = std::max(tally.worst_norm, worst.norm_error);
    }
    v.precision.max_error = std::max(v.precision.max_error.value_or(0), worst.max_error);
    v.precision.norm_error = std::max(v.precision.norm_error.value_or(0), worst.norm_error);
    if (worst.reference_max_error) {
      v.precision.reference_max_error = std::max(v.precision.reference_max_error.value_or(0), *worst.reference_max_error);
      v.precision.reference_norm_error = std::max(v.precision.reference_norm_error.value_or(0), worst.reference_norm_error.value_or(0));
    }
  }
  if (answer.kernelbench) {
    if (!v.kernelbench) v.kernelbench = KernelBenchRule{kernelbench_tolerance(c.options.precision), true, 0, item.stored ? "PyTorch's expected outputs" : "PyTorch on this device"};
    v.kernelbench->ok = v.kernelbench->ok && answer.kernelbench->ok;
    v.kernelbench->max_abs_difference = std::max(v.kernelbench->max_abs_difference, answer.kernelbench->max_abs_difference);
  }
  note_outputs(tally, item, answer);
  return {item.name, item.seed, worst.ok, worst.sentence, worst.max_error, worst.norm_error, worst.reference_max_error,
          worst.reference_norm_error, worst.forgiven};
}

void conclude(const CheckContext& c, const Tally& t, const Evidence& e, Verdict& v) {
  const int random_total = t.random_ok + t.random_wrong;
  settle(v, "fresh_inputs", t.first_wrong_random, fmt::format("{} random input sets agree with the {}.", random_total, c.oracle_name), false);
  if (t.stored_ok + t.stored_wrong > 0)
    settle(v, "stored_cases", t.first_wrong_stored, fmt::format("{} stored cases agree with PyTorch and the oracle.", t.stored_ok), false);
  else
    v.guard("stored_cases").evidence = "The bundle has no stored cases.";
  if (t.property_ok + t.property_wrong > 0)
    settle(v, "property_inputs", t.first_wrong_property,
           fmt::format("{} sets with outliers, zeros, denormals, constant rows and other scales agree{}.", t.property_ok,
                       t.property_skipped ? fmt::format("; {} were skipped", t.property_skipped) : ""), false);
  else
    v.guard("property_inputs").evidence = t.property_skipped ? "The time budget was spent." : "No float input takes them.";
  // Special inputs go wrong while ordinary ones are right: the code was made for the test data.
  settle(v, "input_sniffing", t.property_wrong > 0 && t.random_wrong == 0 ? "Right on ordinary data only. " + t.first_wrong_property : "",
         "Ordinary and special inputs are treated alike.");
  settle(v, "hard_coded_outputs",
         t.stored_ok > 0 && t.stored_wrong == 0 && t.random_ok == 0 ? "Right on the stored cases, wrong on every fresh input." : "",
         "Fresh inputs do as well as the stored cases.");
  settle(v, "output_poison", t.unwritten_where, "Every output element was written in every call.");
  settle(v, "constant_output", t.exact_varies && t.all_outputs_equal && t.output_hashes.size() == 1 && t.exact_hashes.size() > 1
             ? "Every input set got bit for bit the same outputs." : "", "Outputs follow the inputs.");
  settle(v, "stale_result", t.stale, "No call returned the result of an earlier one; buffers were rewritten in place and rotated.");
  settle(v, "low_precision", t.low_precision > 0 && t.low_precision >= (t.ordinary + 1) / 2
             ? fmt::format("Errors look like arithmetic coarser than class {} allows: norm error {:.3g}, allowed {:.3g}.",
                           hw::name_of(c.options.precision), t.worst_norm, c.tolerance.norm) : "",
         "Errors stay within the precision class.");
  settle(v, "inputs_unmodified", e.inputs_modified, fmt::format("Inputs were compared after each of {} calls.", e.calls));
  settle(v, "weights_unmodified", e.weights_modified, fmt::format("Weights were compared after each of {} calls.", e.calls));
  settle(v, "out_of_bounds_writes", e.out_of_bounds, "Red zones around inputs, weights, outputs and workspace are intact.");
  settle(v, "late_writes", e.late_write, "Outputs did not change after the call.");
  v.deterministic = t.bits_repeat;
  settle(v, "repeatable", "", t.bits_repeat ? "Second runs repeat bit for bit."
                                            : fmt::format("Not deterministic: bits differ between two runs (first in {}); both were judged.", t.bits_where));
  if (t.exact_hashes.size() == 1 && random_total > 1)
    v.warnings.push_back("The program's output does not depend on its inputs, so checking it proves little.");
}

}  // namespace

tl::unexpected<Error> oracle_disagrees(const CheckContext& c, const std::string& stored_case, const std::string& sentence) {
  return tl::make_unexpected(Error{ErrorKind::internal,
                                   fmt::format("No verdict: the {} and PyTorch disagree on case {}; please report this program.", c.oracle_name, stored_case), sentence});
}

void settle(Verdict& v, const std::string& name, const std::string& failure, const std::string& good, bool rule) {
  auto& g = v.guard(name);
  g.rule = rule;
  if (g.state == GuardState::failed) return;
  g.state = failure.empty() ? GuardState::passed : GuardState::failed;
  g.evidence = failure.empty() ? good : failure;
}

Result<std::optional<run::CandidateFailure>> run_checks(const CheckContext& c, SetRunner& sets, Verdict& v) {
  Tally tally;
  const auto items = schedule(c);
  bool measured = false;
  const double begun = c.seconds_spent();  // waiting for a GPU does not count
  for (size_t k = 0; k < items.size(); ++k) {
    const auto& item = items[k];
    if (c.progress) c.progress(item.name, static_cast<double>(k) / static_cast<double>(items.size()));
    if (item.kind == SetItem::Kind::property && c.seconds_spent() - begun > c.options.time_budget_seconds) {
      ++tally.property_skipped;
      continue;
    }
    const bool measure = !measured && item.kind == SetItem::Kind::random;
    measured = measured || measure;
    STITCH_TRY(auto answer, sets.run(item, measure));
    if (!answer) return std::optional(answer.error());
    auto result = note_set(c, item, *answer, tally, v);
    count(tally, item, result);
    v.sets.push_back(std::move(result));
  }
  conclude(c, tally, sets.evidence(), v);
  const auto changed = sets.worker().changed_code();
  if (changed) settle(v, "code_integrity", *changed, "Code and tables of the worker and its libraries are unchanged.");
  else v.guard("code_integrity").evidence = "The worker's memory could not be read.";
  settle(v, "control_channel", "", "Every answer came from the worker in order; printed text was not interpreted.");
  settle(v, "process_limits", "", fmt::format("Peak memory {} MiB, {} threads.", sets.worker().peak_rss() >> 20, sets.worker().peak_threads()));
  v.correct = tally.random_ok >= 5 && tally.random_wrong == 0 && tally.stored_wrong == 0 && tally.property_wrong == 0;
  return std::optional<run::CandidateFailure>();
}

}  // namespace stitch::verify
