// Verification of every built program, each in a `stitchcuda verify` process of its own: whatever one does to its GPU context or its memory
// touches no other.
#include <algorithm>
#include <atomic>
#include <thread>

#include "base/files.h"
#include "base/hash.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/process.h"
#include "suite/gpus.h"
#include "suite/stages.h"

namespace stitch::suite {
namespace {

Result<std::string> key_of(const Suite& s, const Row& row) {
  Sha256 h;
  STITCH_TRY(const std::string library, sha256_of_file(s.folder(row) / (s.cuda ? "program.so" : "program_host.so")));
  h.field(row.product_key).field(library).field(s.cuda ? "cuda" : "host").field(std::to_string(s.options.trials)).field(fmt::format("{}", s.options.time_budget));
  return h.hex();
}

// A verification that did not come to a verdict: its one sentence on stderr, else how it ended.
Error why(const ProcessResult& r) {
  constexpr std::string_view mark = "stitchcuda: ";
  std::string text = r.err;
  while (text.ends_with('\n')) text.pop_back();
  const size_t at = text.rfind(mark);
  if (r.timed_out) return {ErrorKind::candidate, fmt::format("Verification did not end within {:.0f} s.", r.wall_seconds), r.err};
  if (at != text.npos && (at == 0 || text[at - 1] == '\n')) return {ErrorKind::environment, text.substr(at + mark.size()), r.err};
  if (r.signal) return {ErrorKind::internal, fmt::format("The verifying process died of signal {}.", r.signal), r.err};
  return {ErrorKind::internal, fmt::format("The verifying process ended with exit code {} and no verdict.", r.exit_code), r.err};
}

void read_number(const Json& j, const char* key, std::optional<double>& into) {
  if (j.is_object() && j.contains(key) && j.at(key).is_number()) into = j.at(key).get<double>();
}

Status read_verdict(const fs::path& file, Row& row) {
  STITCH_TRY(const std::string text, read_file(file));
  STITCH_TRY(const Json v, parse_json(text, "verdict.json"));
  STITCH_TRY(const bool valid, get_bool(v, "valid", "verdict.json"));
  STITCH_TRY(const bool correct, get_bool(v, "correct", "verdict.json"));
  row.correct = valid && correct;
  row.target = get_string(v, "target", "").value_or("");
  row.outcome = get_string(v, "outcome", "").value_or("");
  row.sentence = get_string(v, "sentence", "").value_or("");
  const Json precision = v.value("precision", Json::object());
  const auto worst = [&](const char* key, std::optional<double>& into) {
    if (precision.is_object() && precision.contains(key)) read_number(precision.at(key), "max", into);
  };
  worst("error", row.max_error);
  worst("reference_error", row.reference_max_error);
  worst("tolerance", row.tolerance);
  return {};
}

Status verify_one(Suite& s, Row& row, const std::string& gpu) {
  const fs::path folder = s.folder(row), verdict = folder / "verdict.json";
  std::error_code ec;
  fs::remove(verdict, ec);
  STITCH_TRY(row.verify_key, key_of(s, row));
  ProcessSpec spec;
  spec.argv = {s.options.program.string(), "verify", (folder / (s.cuda ? "program.so" : "program_host.so")).string(), "--bundle", s.bundle(row).string(),
               "--source", row.problem.file.string(), "--target", s.cuda ? "cuda" : "host", "--precision", std::string(hw::name_of(s.options.precision)),
               "--trials", std::to_string(s.options.trials), "--timed-calls", "0", "--time-budget", fmt::format("{}", s.options.time_budget), "--out", verdict.string()};
  if (!gpu.empty()) spec.environment["CUDA_VISIBLE_DEVICES"] = gpu;
  spec.timeout = s.options.verify_timeout;
  STITCH_TRY(const ProcessResult r, run_process(spec));
  if (!fs::exists(verdict, ec)) return tl::make_unexpected(why(r));
  return read_verdict(verdict, row);
}

// Rows whose programs are ready, handed out the largest first: small ones fill the GPU beside it and afterwards.
class ReadyRows {
 public:
  void add(Row& row) {
    const std::lock_guard lock(mutex_);
    rows_.push_back(&row);
    changed_.notify_one();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  // Waits; nullptr once there will be no more.
  Row* take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !rows_.empty(); });
    if (rows_.empty()) return nullptr;
    const auto largest = std::max_element(rows_.begin(), rows_.end(), [](const Row* a, const Row* b) { return a->gpu_bytes < b->gpu_bytes; });
    Row* row = *largest;
    rows_.erase(largest);
    return row;
  }

 private:
  std::vector<Row*> rows_;
  bool closed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

bool may_start_another(const Suite& s) {
  return s.options.stop_after.count() == 0 || std::chrono::steady_clock::now() - s.started < s.options.stop_after;
}

// `gpu_jobs` problems at a time on each GPU, whose memory they share out among themselves (run/gpu_memory.h).
void verify_on_gpus(Suite& s, const std::vector<Gpu>& gpus, ReadyRows& ready, size_t total) {
  const auto started = std::chrono::steady_clock::now();
  const auto seconds = [](auto from) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count(); };
  std::atomic<size_t> done{0};
  const auto work = [&](const std::string& gpu) {
    while (Row* row = ready.take()) {
      if (!may_start_another(s)) continue;
      const auto begun = std::chrono::steady_clock::now();
      const Status status = guarded([&](Row& r) { return verify_one(s, r, gpu); }, *row);
      settle(s, Step::verify, *row, status, seconds(begun), ++done, total);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < s.options.gpu_jobs; ++i)
    for (const Gpu& gpu : gpus) threads.emplace_back(work, gpu.id);
  for (std::thread& t : threads) t.join();
  s.wall[static_cast<size_t>(Step::verify)] += seconds(started);
}

}  // namespace

Status build_and_verify(Suite& s) {
  const std::vector<Gpu> gpus = s.cuda ? find_gpus() : std::vector<Gpu>{};
  if (s.cuda && gpus.empty()) return fail(ErrorKind::environment, "--target cuda needs an NVIDIA GPU that nvidia-smi lists; use --target host or --step build.");
  for (Row& r : s.rows) {
    const auto key = r.ok(Step::build) ? key_of(s, r) : Result<std::string>("");
    if (!key || *key != r.verify_key) r.forget_from(Step::verify);
  }
  const auto unverified = [](const Row& r) { return r.ok(Step::build) && !r.ok(Step::verify); };
  if (!s.cuda) {
    build_all(s);
    for_rows(s, Step::verify, s.jobs, rows_where(s, unverified), [&](Row& row) { return verify_one(s, row, ""); });
    return {};
  }
  ReadyRows ready;
  for (Row* row : rows_where(s, unverified)) ready.add(*row);
  const size_t total = rows_where(s, [](const Row& r) { return r.ok(Step::code) && !r.ok(Step::verify); }).size();
  std::thread verifying([&] { verify_on_gpus(s, gpus, ready, total); });
  build_all(s, [&](Row& row) { ready.add(row); });
  ready.close();
  verifying.join();
  return {};
}

}  // namespace stitch::suite
