#include "verify/protocol_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/hash.h"

namespace stitch::verify {
namespace {

struct Item {
  enum class Kind { stored, random, property } kind;
  std::string name;
  uint64_t seed = 0;
  Property property = Property::none;
  const ir::Case* stored = nullptr;
};

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

std::string hash_of(const std::vector<ir::Tensor>& tensors) {
  Sha256 sha;
  for (const auto& t : tensors) sha.field({reinterpret_cast<const char*>(t.data.data()), t.data.size()});
  return sha.hex();
}

std::vector<Item> schedule(const CheckContext& c) {
  std::vector<Item> items;
  std::mt19937_64 random(c.seed);
  const int trials = std::max(5, c.options.trials) + static_cast<int>(random() % 3);
  for (int i = 0; i < trials; ++i) items.push_back({Item::Kind::random, fmt::format("random {}", i + 1), random() | 1, Property::none, nullptr});
  for (const auto& stored : c.cases) items.push_back({Item::Kind::stored, "case " + stored.name, 0, Property::none, &stored});
  const bool plain = std::any_of(c.models.begin(), c.models.end(), [](const InputModel& m) { return m.plain(); });
  if (c.options.properties && plain)
    for (Property p : kProperties) items.push_back({Item::Kind::property, name_of(p), random() | 1, p, nullptr});
  // Position must not tell the candidate what kind of set it is looking at.
  std::shuffle(items.begin(), items.end(), random);
  // Property sets are the only ones the time budget may cut, so the rest comes first within the shuffled order.
  std::stable_partition(items.begin(), items.end(), [&](const Item& i) { return i.kind != Item::Kind::property || random() % 3 == 0; });
  return items;
}

// Errors typical of arithmetic in a coarser type: everywhere small, nowhere absurd.
bool looks_like_low_precision(const Judgement& j, Tolerance t) {
  return j.unwritten == 0 && j.nonfinite_wrong == 0 && j.norm_error > t.norm / 4 && j.norm_error < 3e-2 && j.max_error < 0.5;
}

void note_outputs(Tally& tally, const Item& item, const std::vector<ir::Tensor>& got, const std::vector<ir::Tensor>& exact, bool ok) {
  const auto hash = hash_of(got), exact_hash = hash_of(exact);
  if (tally.first_hash.empty()) tally.first_hash = hash;
  tally.all_outputs_equal = tally.all_outputs_equal && hash == tally.first_hash;
  tally.exact_varies = tally.exact_varies || (!tally.exact_hashes.empty() && !tally.exact_hashes.contains(exact_hash));
  if (auto seen = tally.output_hashes.find(hash); !ok && tally.stale.empty() && seen != tally.output_hashes.end() && !tally.exact_hashes.contains(exact_hash))
    tally.stale = fmt::format("Set \"{}\" got bit for bit the outputs of the earlier set \"{}\".", item.name, seen->second);
  tally.output_hashes.emplace(hash, item.name);
  tally.exact_hashes.emplace(exact_hash, item.name);
}

void count(Tally& tally, const Item& item, const SetResult& r) {
  auto note = [&](int& ok, int& wrong, std::string& first) {
    ++(r.ok ? ok : wrong);
    if (!r.ok && first.empty()) first = fmt::format("{}: {}", r.name, r.sentence);
  };
  switch (item.kind) {
    case Item::Kind::stored: note(tally.stored_ok, tally.stored_wrong, tally.first_wrong_stored); break;
    case Item::Kind::random: note(tally.random_ok, tally.random_wrong, tally.first_wrong_random); break;
    case Item::Kind::property: note(tally.property_ok, tally.property_wrong, tally.first_wrong_property); break;
  }
}

// PyTorch's stored outputs must themselves pass against the oracle; if not, one of the two is wrong and no verdict on
// anybody else can be trusted.
Status check_oracle(const CheckContext& c, Judge& judge, const ir::Case& stored) {
  Judge agreement(*c.oracle, tolerance_of(hw::PrecisionClass::default_flags, c.bundle.graph, c.bundle.precision), c.special_rounding);
  STITCH_CHECK_OK(agreement.set_inputs(stored.inputs));
  STITCH_TRY(auto j, agreement.judge(stored.expected, run::kPoisonNan));
  if (!j.ok) {
    Error e{ErrorKind::internal,
            fmt::format("No verdict: the {} and PyTorch disagree on case {}; please report this program.", c.oracle->name(), stored.name),
            j.sentence};
    return tl::make_unexpected(e);
  }
  judge.add_reference(stored.expected);
  return {};
}

void note_kernelbench(const CheckContext& c, Verdict& v, const std::vector<ir::Tensor>& got, const std::vector<ir::Tensor>& expected,
                      const char* against) {
  if (!v.kernelbench) v.kernelbench = KernelBenchRule{kernelbench_tolerance(c.options.precision), true, 0, against};
  for (size_t i = 0; i < got.size(); ++i) {
    const auto a = all_close(got[i], expected[i], v.kernelbench->tolerance);
    v.kernelbench->ok = v.kernelbench->ok && a.ok;
    v.kernelbench->max_abs_difference = std::max(v.kernelbench->max_abs_difference, a.max_abs_difference);
  }
}

struct SetRun {
  std::vector<ir::Tensor> first, second;
};

// Two calls on the same inputs, with two kinds of poison: an element nobody writes cannot be right both times.
run::Outcome<SetRun> call_twice(Session& session, const std::vector<ir::Tensor>& inputs, std::mt19937_64& random) {
  // Fetching all weights from a GPU after every call would cost more than the calls; a change stays until it is seen.
  const bool thorough = !session.cuda() || random() % 4 == 0;
  auto first = session.run(inputs, static_cast<int>(random() % kSessionInputSlots), 0, run::kPoisonNan, thorough);
  if (!first) return tl::make_unexpected(first.error());
  auto second = session.run(inputs, static_cast<int>(random() % kSessionInputSlots), 1, run::kPoisonFinite, thorough);
  if (!second) return tl::make_unexpected(second.error());
  session.check_unchanged(0);
  session.check_unchanged(1);
  return SetRun{std::move(*first), std::move(*second)};
}

Result<SetResult> judge_set(const CheckContext& c, const Item& item, const std::vector<ir::Tensor>& inputs, const SetRun& run, bool measure,
                            Tally& tally, Verdict& v) {
  Judge judge(*c.oracle, c.tolerance, item.kind == Item::Kind::property ? c.special_rounding : c.roundoff);
  STITCH_CHECK_OK(judge.set_inputs(inputs));
  if (item.stored && !item.stored->expected.empty()) STITCH_CHECK_OK(check_oracle(c, judge, *item.stored));
  STITCH_TRY(auto first, judge.judge(run.first, run::kPoisonNan, measure));
  Judgement worst = first;
  const bool repeats = hash_of(run.first) == hash_of(run.second);
  if (!repeats) {
    if (tally.bits_repeat) tally.bits_where = item.name;
    tally.bits_repeat = false;
    STITCH_TRY(auto second, judge.judge(run.second, run::kPoisonFinite, false));
    if (first.ok && !second.ok) worst = second;
  }
  SetResult r{item.name, item.seed, worst.ok, worst.sentence, worst.max_error, worst.norm_error,
              worst.reference_max_error.value_or(0), worst.reference_norm_error.value_or(0), worst.forgiven};
  if (worst.unwritten && tally.unwritten_where.empty()) {
    tally.unwritten = worst.unwritten;
    tally.unwritten_where = fmt::format("{}: {}", item.name, worst.sentence);
  }
  if (item.kind != Item::Kind::property) {
    ++tally.ordinary;
    if (!worst.ok && looks_like_low_precision(worst, c.tolerance)) {
      ++tally.low_precision;
      tally.worst_norm = std::max(tally.worst_norm, worst.norm_error);
    }
    v.precision.max_error = std::max(v.precision.max_error, worst.max_error);
    v.precision.norm_error = std::max(v.precision.norm_error, worst.norm_error);
    if (worst.reference_max_error) {
      v.precision.reference_max_error = std::max(v.precision.reference_max_error.value_or(0), *worst.reference_max_error);
      v.precision.reference_norm_error = std::max(v.precision.reference_norm_error.value_or(0), worst.reference_norm_error.value_or(0));
    }
    if (item.stored && !item.stored->expected.empty()) note_kernelbench(c, v, run.first, item.stored->expected, "PyTorch's expected outputs");
  }
  note_outputs(tally, item, run.first, judge.exact(), worst.ok);
  return r;
}

// Inputs of an item. An index the graph refuses (bounds could not be inferred) falls back to the stored data's own.
std::vector<ir::Tensor> inputs_of(const CheckContext& c, const Item& item) {
  if (item.stored) return item.stored->inputs;
  return draw_inputs(c.bundle, c.models, item.seed, item.property, c.sample);
}

void conclude(const CheckContext& c, const Tally& t, const Evidence& e, Verdict& v) {
  const int random_total = t.random_ok + t.random_wrong;
  settle(v, "fresh_inputs", t.first_wrong_random, fmt::format("{} random input sets agree with the {}.", random_total, c.oracle->name()), false);
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

void settle(Verdict& v, const std::string& name, const std::string& failure, const std::string& good, bool rule) {
  auto& g = v.guard(name);
  g.rule = rule;
  if (g.state == GuardState::failed) return;
  g.state = failure.empty() ? GuardState::passed : GuardState::failed;
  g.evidence = failure.empty() ? good : failure;
}

Result<std::optional<run::CandidateFailure>> run_checks(const CheckContext& c, Session& session, Verdict& v) {
  Tally tally;
  std::mt19937_64 random(c.seed ^ 0x5eed);
  const auto items = schedule(c);
  bool measured = false;
  std::vector<std::vector<ir::Tensor>> exact_seen;
  for (size_t k = 0; k < items.size(); ++k) {
    const auto& item = items[k];
    if (c.progress) c.progress(item.name, static_cast<double>(k) / static_cast<double>(items.size()));
    if (item.kind == Item::Kind::property && c.seconds_spent() > c.options.time_budget_seconds) {
      ++tally.property_skipped;
      continue;
    }
    const auto inputs = inputs_of(c, item);
    auto run = call_twice(session, inputs, random);
    if (!run) return std::optional(run.error());
    const bool measure = !measured && item.kind == Item::Kind::random;
    measured = measured || measure;
    auto result = judge_set(c, item, inputs, *run, measure, tally, v);
    if (!result) return tl::make_unexpected(result.error());
    count(tally, item, *result);
    v.sets.push_back(std::move(*result));
  }
  conclude(c, tally, session.evidence(), v);
  const auto changed = session.worker().changed_code();
  if (changed) settle(v, "code_integrity", *changed, "Code and tables of the worker and its libraries are unchanged.");
  else v.guard("code_integrity").evidence = "The worker's memory could not be read.";
  settle(v, "control_channel", "", "Every answer came from the worker in order; printed text was not interpreted.");
  settle(v, "process_limits", "", fmt::format("Peak memory {} MiB, {} threads.", session.worker().peak_rss() >> 20, session.worker().peak_threads()));
  v.correct = tally.random_ok >= 5 && tally.random_wrong == 0 && tally.stored_wrong == 0 && tally.property_wrong == 0;
  return std::optional<run::CandidateFailure>();
}

}  // namespace stitch::verify
