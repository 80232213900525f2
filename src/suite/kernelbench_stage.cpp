// KernelBench's own evaluator (python/stitchcuda/kernelbench_eval.py) on the model_new.py files: several processes, the problems dealt out.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "base/files.h"
#include "base/hash.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "base/process.h"
#include "capture/capture.h"
#include "run/gpu_memory.h"
#include "suite/gpus.h"
#include "suite/stages.h"

namespace stitch::suite {
namespace {

using Clock = std::chrono::steady_clock;

struct Group {
  std::vector<Row*> rows;
  Gpu gpu;
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

// The evaluator holds the original, the new module, the results of both and what comparing them takes.
uint64_t evaluation_bytes(const Row& row) { return 4 * row.gpu_bytes + (uint64_t{3} << 30); }

Result<ProcessSpec> evaluator(const Suite& s, const Group& g, const std::string& python, const fs::path& out) {
  STITCH_TRY(const fs::path turns, run::GpuMemoryTurn::folder_of(g.gpu.id));
  ProcessSpec spec;
  spec.argv = {python, "-m", "stitchcuda.kernelbench_eval", "--kernelbench-root", find_levels(s.options.root)->parent_path().string(), "--out", out.string(),
               "--inputs-on-device", "--memory-turns", turns.string(), "--memory-pieces", std::to_string(run::GpuMemoryTurn::pieces_of(g.gpu.memory / 10 * 9))};
  for (const Row* r : g.rows) {
    spec.argv.push_back("--memory");
    spec.argv.push_back(fmt::format("{}={}", key_of(*r), evaluation_bytes(*r)));
  }
  for (const Row* r : g.rows) spec.argv.push_back(fmt::format("{}={}", key_of(*r), s.folder(*r).string()));
  const char* path = std::getenv("PYTHONPATH");
  spec.environment["PYTHONPATH"] = (source_root() / "python").string() + (path && *path ? std::string(":") + path : "");
  spec.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  spec.environment["CUDA_VISIBLE_DEVICES"] = g.gpu.id;
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

Json results_in(const fs::path& out) {
  const auto text = read_file(out);
  const auto j = text ? parse_json(*text, "the evaluator's results") : Result<Json>(Json::object());
  return j && j->contains("results") ? j->at("results") : Json::object();
}

Status evaluate(Suite& s, const Group& g, const std::string& python, const fs::path& out) {
  STITCH_TRY(ProcessSpec spec, evaluator(s, g, python, out));
  // A problem's result counts from when it is there: an interrupted suite keeps what it has.
  std::set<const Row*> taken;
  spec.on_stderr_line = [&](std::string_view line) {
    for (Row* row : g.rows) {
      if (!line.starts_with(key_of(*row) + ": ") || !taken.insert(row).second) continue;
      take_result(s, *row, results_in(out), "");
      (void)save_row(s.folder(*row), *row);
    }
  };
  STITCH_TRY(const ProcessResult r, run_process(spec));
  std::string why = r.timed_out ? "KernelBench's evaluator did not end in time." : fmt::format("KernelBench's evaluator ended with exit code {}.", r.exit_code);
  constexpr std::string_view mark = "stitchcuda: ";
  if (const size_t at = r.err.rfind(mark); at != r.err.npos) why = r.err.substr(at + mark.size(), r.err.find('\n', at) - at - mark.size());
  const Json results = results_in(out);
  for (Row* row : g.rows) {
    take_result(s, *row, results, why);
    STITCH_CHECK_OK(save_row(s.folder(*row), *row));
  }
  return {};
}

// `jobs` evaluators side by side on each GPU, each with some of every size: they take turns at its memory.
std::vector<Group> deal(std::vector<Row*> todo, const std::vector<Gpu>& gpus, int jobs) {
  std::stable_sort(todo.begin(), todo.end(), [](const Row* a, const Row* b) { return a->gpu_bytes > b->gpu_bytes; });
  std::vector<Group> groups(std::min(gpus.size() * static_cast<size_t>(jobs), todo.size()));
  for (size_t i = 0; i < groups.size(); ++i) groups[i].gpu = gpus[i % gpus.size()];
  for (size_t i = 0; i < todo.size(); ++i) groups[i % groups.size()].rows.push_back(todo[i]);
  return groups;
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
  const std::vector<Group> groups = deal(todo, gpus, s.options.gpu_jobs);
  std::vector<Status> ended(groups.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups.size(); ++i)
    threads.emplace_back([&, i] { ended[i] = evaluate(s, groups[i], python, scratch.path() / fmt::format("{}.json", i)); });
  for (std::thread& t : threads) t.join();
  for (const Status& status : ended) STITCH_CHECK_OK(status);
  s.kernelbench_wall += std::chrono::duration<double>(Clock::now() - started).count();
  return {};
}

}  // namespace stitch::suite
