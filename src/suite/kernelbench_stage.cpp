// KernelBench's own evaluator (python/stitchcuda/kernelbench_eval.py) on the model_new.py files: several processes, the problems dealt out.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/files.h"
#include "base/hash.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/process.h"
#include "capture/capture.h"
#include "suite/gpus.h"
#include "suite/stages.h"

namespace stitch::suite {
namespace {

using Clock = std::chrono::steady_clock;

struct Group {
  std::vector<Row*> rows;
  std::string gpu;
};

std::string key_of(const Row& r) { return fmt::format("{}/{}", r.problem.level, r.problem.id); }

Result<std::string> artefact_key(const Suite& s, const Row& row) {
  Sha256 h;
  h.field(row.product_key);
  for (const char* name : {"program.so", "model_new.py"}) {
    STITCH_TRY(const std::string digest, sha256_of_file(s.folder(row) / name));
    h.field(digest);
  }
  return h.hex();
}

ProcessSpec evaluator(const Suite& s, const Group& g, const std::string& python, const fs::path& out) {
  ProcessSpec spec;
  spec.argv = {python, "-m", "stitchcuda.kernelbench_eval", "--kernelbench-root", find_levels(s.options.root)->parent_path().string(), "--out", out.string(),
               "--inputs-on-device"};
  for (const Row* r : g.rows) spec.argv.push_back(fmt::format("{}={}", key_of(*r), s.folder(*r).string()));
  const char* path = std::getenv("PYTHONPATH");
  spec.environment["PYTHONPATH"] = (source_root() / "python").string() + (path && *path ? std::string(":") + path : "");
  spec.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  spec.environment["CUDA_VISIBLE_DEVICES"] = g.gpu;
  spec.timeout = std::chrono::seconds(660) * static_cast<int64_t>(g.rows.size()) + std::chrono::minutes(5);
  return spec;
}

void take_result(const Suite& s, Row& row, const Json& results, const std::string& otherwise) {
  const std::string key = key_of(row);
  if (!results.contains(key)) {
    row.kernelbench_reason = otherwise;  // not evaluated: neither correct nor wrong
    return;
  }
  const Json& r = results.at(key);
  row.correct_by_kernelbench = get_bool(r, "correct", "").value_or(false);
  row.kernelbench_reason = get_string(r, "reason", "").value_or("");
  if (const auto e = get_number(r, "max_error", "")) row.kernelbench_max_error = *e;
  row.device_ms.clear();
  if (const auto ms = get_object(r, "device_ms", ""))
    for (const auto& [owner, value] : (*ms)->items()) {
      const std::string name = owner == "vendor" ? "library" : owner == "own" || owner == "framework" ? owner : "other";
      if (value.is_number()) row.device_ms[name] += value.get<double>();
    }
  row.kernelbench_key = artefact_key(s, row).value_or("");
}

Status evaluate(Suite& s, const Group& g, const std::string& python, const fs::path& out) {
  STITCH_TRY(const ProcessResult r, run_process(evaluator(s, g, python, out)));
  std::string why = r.timed_out ? "KernelBench's evaluator did not end in time." : fmt::format("KernelBench's evaluator ended with exit code {}.", r.exit_code);
  constexpr std::string_view mark = "stitchcuda: ";
  if (const size_t at = r.err.rfind(mark); at != r.err.npos) why = r.err.substr(at + mark.size(), r.err.find('\n', at) - at - mark.size());
  const auto text = read_file(out);
  const auto j = text ? parse_json(*text, "the evaluator's results") : Result<Json>(Json::object());
  const Json results = j && j->contains("results") ? j->at("results") : Json::object();
  for (Row* row : g.rows) {
    take_result(s, *row, results, why);
    STITCH_CHECK_OK(save_row(s.folder(*row), *row));
  }
  return {};
}

// Small problems side by side on each GPU; then the large ones, one at a time on each. The evaluator holds the original, the new module and two
// sets of results: half of what verification needs.
std::vector<std::vector<Group>> deal(const std::vector<Row*>& todo, const std::vector<Gpu>& gpus, int jobs) {
  std::vector<Group> small(gpus.size() * static_cast<size_t>(jobs)), large(gpus.size());
  for (size_t i = 0; i < small.size(); ++i) small[i].gpu = gpus[i % gpus.size()].id;
  for (size_t i = 0; i < large.size(); ++i) large[i].gpu = gpus[i].id;
  size_t a = 0, b = 0;
  for (Row* row : todo) {
    const bool fits = verification_bytes(row->gpu_bytes) / 2 * static_cast<uint64_t>(jobs) <= GpuSlots(gpus, jobs).budget(0);
    if (fits) small[a++ % small.size()].rows.push_back(row);
    else large[b++ % large.size()].rows.push_back(row);
  }
  for (auto* groups : {&small, &large}) std::erase_if(*groups, [](const Group& g) { return g.rows.empty(); });
  return {small, large};
}

}  // namespace

Status kernelbench_all(Suite& s) {
  const std::vector<Gpu> gpus = find_gpus();
  STITCH_TRY(const std::string python, capture::find_python());
  STITCH_TRY(const TempFolder scratch, TempFolder::create("kernelbench"));
  std::vector<Row*> todo;
  for (Row& r : s.rows) {
    if (!r.ok(Step::build)) continue;
    const auto key = artefact_key(s, r);
    if (r.correct_by_kernelbench && key && *key == r.kernelbench_key) continue;
    r.correct_by_kernelbench.reset();
    r.kernelbench_reason.clear();
    r.kernelbench_max_error.reset();
    r.device_ms.clear();
    todo.push_back(&r);
  }
  const auto started = Clock::now();
  size_t file = 0;
  for (const std::vector<Group>& groups : deal(todo, gpus, s.options.gpu_jobs)) {
    std::vector<Status> ended(groups.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < groups.size(); ++i)
      threads.emplace_back([&, i, out = scratch.path() / fmt::format("{}.json", file++)] { ended[i] = evaluate(s, groups[i], python, out); });
    for (std::thread& t : threads) t.join();
    for (const Status& status : ended) STITCH_CHECK_OK(status);
  }
  s.kernelbench_wall += std::chrono::duration<double>(Clock::now() - started).count();
  return {};
}

}  // namespace stitch::suite
