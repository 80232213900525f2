// Timed calls whose tensors the parent holds.
#include <algorithm>
#include <cstring>
#include <random>

#include "verify/speed.h"

namespace stitch::verify {
namespace {

constexpr int64_t kSampleChunks = 64, kChunk = 1024;
constexpr double kCheckSeconds = 3;  // spent on judging a block of timed calls

// Contiguous pieces of an output: {first element, count}.
using Samples = std::vector<std::pair<int64_t, int64_t>>;

struct TimedSample {
  std::vector<ir::Tensor> inputs;
  std::vector<ir::Tensor> outputs;        // the sampled elements, 1-d
  std::vector<Samples> where;
};

// New values for a timed call: the base data rotated by a random distance, cheap at any size and never the same twice.
// Data with structure (triangles, rows that sum to one) is drawn afresh instead.
std::vector<ir::Tensor> next_inputs(const CheckContext& c, const std::vector<ir::Tensor>& base, std::mt19937_64& random) {
  const bool structured = std::any_of(c.models.begin(), c.models.end(), [](const InputModel& m) {
    return m.lower_triangular || m.upper_triangular || m.symmetric || m.kind == InputModel::Kind::row_distribution;
  });
  if (structured) return draw_inputs(c.bundle, c.models, random() | 1, Property::none, c.sample);
  std::vector<ir::Tensor> out;
  for (size_t k = 0; k < base.size(); ++k) {
    ir::Tensor t = base[k];
    const auto size = static_cast<size_t>(ir::size_of(t.type.dtype)), n = t.data.size() / std::max<size_t>(1, size);
    if (c.models[k].kind != InputModel::Kind::fixed && n > 1) {
      const size_t shift = (1 + random() % (n - 1)) * size;
      std::memcpy(t.data.data(), base[k].data.data() + shift, t.data.size() - shift);
      std::memcpy(t.data.data() + t.data.size() - shift, base[k].data.data(), shift);
    }
    out.push_back(std::move(t));
  }
  return out;
}

// Where to look at an output: all of it when small, else random pieces chosen after the call.
Samples choose_samples(int64_t elements, std::mt19937_64& random) {
  if (elements <= kSampleChunks * kChunk) return elements ? Samples{{0, elements}} : Samples{};
  Samples pieces;
  for (int64_t i = 0; i < kSampleChunks; ++i)
    pieces.emplace_back(static_cast<int64_t>(random() % static_cast<uint64_t>(elements - kChunk)), kChunk);
  pieces.back().first = elements - kChunk;  // the tail is where code that stops early shows
  return pieces;
}

ir::Tensor sampled(const ir::Tensor& t, const Samples& pieces) {
  ir::Tensor out{t.name, {t.type.dtype, {0}}, {}};
  const auto size = ir::size_of(t.type.dtype);
  for (auto [start, count] : pieces) {
    out.data.insert(out.data.end(), t.data.begin() + start * size, t.data.begin() + (start + count) * size);
    out.type.shape[0] += count;
  }
  return out;
}

class HostTimed final : public TimedSide {
 public:
  HostTimed(const CheckContext& context, Session& session)
      : c_(context), session_(session), random_(context.seed ^ 0x71e5), base_(draw_inputs(c_.bundle, c_.models, random_() | 1, Property::none, c_.sample)) {}

  run::Worker& worker() override { return session_.worker(); }
  const Evidence& evidence() const override { return session_.evidence(); }

  // Outputs are sampled at once; they are judged after the block, when nobody waits.
  Result<run::Outcome<Session::TimedCall>> call(uint64_t flush_bytes) override {
    using Answer = run::Outcome<Session::TimedCall>;
    TimedSample s;
    s.inputs = next_inputs(c_, base_, random_);
    const int in = static_cast<int>(random_() % kSessionInputSlots), out = static_cast<int>(random_() % kSessionOutputSlots);
    auto call = session_.timed_run(s.inputs, in, out, flush_bytes);
    if (!call) return call;
    auto outputs = session_.fetch_outputs(out);
    if (!outputs) return Answer(tl::make_unexpected(outputs.error()));
    for (const auto& t : *outputs) {
      s.where.push_back(choose_samples(ir::numel(t.type.shape), random_));
      s.outputs.push_back(sampled(t, s.where.back()));
    }
    kept_.push_back(std::move(s));
    return call;
  }

  Result<std::vector<double>> baseline(const std::string&, int, uint64_t) override {
    return fail(ErrorKind::internal, "Baselines are timed where PyTorch holds the tensors.");
  }

  Result<Checked> check() override {
    Checked checked;
    std::shuffle(kept_.begin(), kept_.end(), random_);
    const double started = c_.seconds_spent();
    for (const auto& s : kept_) {
      if (checked.checked > 0 && c_.seconds_spent() - started > kCheckSeconds) break;
      STITCH_CHECK_OK(check_sample(s, checked));
    }
    kept_.clear();
    return checked;
  }

  Result<run::Outcome<Judgement>> last_call() override {
    using Answer = run::Outcome<Judgement>;
    session_.check_unchanged(0);
    session_.check_unchanged(1);
    const auto inputs = next_inputs(c_, base_, random_);
    auto after = session_.run(inputs, 0, 0, run::kPoisonNan);
    if (!after) return Answer(tl::make_unexpected(after.error()));
    Judge judge(*c_.oracle, c_.tolerance, c_.roundoff);
    STITCH_CHECK_OK(judge.set_inputs(inputs));
    STITCH_TRY(auto judgement, judge.judge(*after, run::kPoisonNan));
    return Answer(std::move(judgement));
  }

 private:
  // One timed call against the oracle, on the sampled elements.
  Status check_sample(const TimedSample& s, Checked& checked) {
    const auto parts = [&](std::vector<ir::Tensor> whole) {
      for (size_t i = 0; i < whole.size(); ++i) whole[i] = sampled(whole[i], s.where[i]);
      return whole;
    };
    STITCH_TRY(auto exact_outputs, c_.oracle->exact(s.inputs));
    const auto exact = parts(std::move(exact_outputs));
    std::vector<std::vector<ir::Tensor>> draws;
    std::string sentence;
    for (int round = 0; round < 2; ++round) {  // the reference's own error is asked for only when the tolerance does not settle it
      sentence.clear();
      for (size_t i = 0; i < s.outputs.size() && sentence.empty(); ++i) {
        std::vector<ir::Tensor> references;
        for (const auto& d : draws) references.push_back(d[i]);
        const auto result = compare(s.outputs[i].name, s.outputs[i], exact[i], references, c_.tolerance, run::kPoisonNan);
        if (!result.ok) sentence = result.sentence();
      }
      if (sentence.empty() || round == 1) break;
      for (int draw = 0; draw < 3; ++draw) {
        STITCH_TRY(auto d, c_.oracle->reference(s.inputs, draw, c_.roundoff));
        draws.push_back(parts(std::move(d)));
      }
    }
    ++checked.checked;
    checked.wrong += !sentence.empty();
    if (checked.first_wrong.empty()) checked.first_wrong = sentence;
    return {};
  }

  const CheckContext& c_;
  Session& session_;
  std::mt19937_64 random_;
  std::vector<ir::Tensor> base_;
  std::vector<TimedSample> kept_;
};

}  // namespace

std::unique_ptr<TimedSide> timed_in_host_memory(const CheckContext& context, Session& session) { return std::make_unique<HostTimed>(context, session); }

}  // namespace stitch::verify
