#include <atomic>
#include <chrono>
#include <thread>

#include "base/files.h"
#include "capture/capture.h"
#include "suite/gpus.h"
#include "suite/stages.h"

namespace stitch::suite {
namespace {

using Clock = std::chrono::steady_clock;

// A bundle is read back at once: what the worker wrote must be a valid program.
Status record(Suite& s, Row& row, const capture::BatchResult& r) {
  row.aten_ops = r.aten_ops;
  row.peak_memory_bytes = r.max_rss_bytes;
  STITCH_CHECK_OK(r.status);
  STITCH_TRY(const ir::Bundle b, ir::read_bundle(s.bundle(row)));
  row.gpu_bytes = tensor_bytes(b);
  return {};
}

}  // namespace

Status capture_all(Suite& s) {
  std::vector<Row*> todo;
  for (Row& r : s.rows)
    if (!r.ok(Step::capture)) todo.push_back(&r);
  if (todo.empty()) return {};
  const auto started = Clock::now();
  // Dealt out in turn: neighbours are alike (ten convolutions in a row), so every process gets some of each kind.
  const size_t processes = std::min(static_cast<size_t>(s.jobs), todo.size());
  std::atomic<size_t> done{0};
  std::vector<Status> ended(processes);
  const auto work = [&](size_t process) {
    std::vector<Row*> mine;
    std::vector<capture::BatchItem> items;
    for (size_t i = process; i < todo.size(); i += processes) {
      mine.push_back(todo[i]);
      items.push_back({todo[i]->problem.file.string(), s.bundle(*todo[i])});
      remove_tree(items.back().out);
    }
    capture::BatchOptions options;
    options.seed = s.options.seed;
    options.timeout = s.options.capture_timeout;
    ended[process] = capture::capture_batch(items, options, [&](size_t i, const capture::BatchResult& r) {
      const Status status = record(s, *mine[i], r);
      settle(s, Step::capture, *mine[i], status, r.seconds, ++done, todo.size());
    });
  };
  std::vector<std::thread> threads;
  for (size_t p = 1; p < processes; ++p) threads.emplace_back(work, p);
  work(0);
  for (std::thread& t : threads) t.join();
  s.wall[static_cast<size_t>(Step::capture)] += std::chrono::duration<double>(Clock::now() - started).count();
  for (const Status& status : ended) STITCH_CHECK_OK(status);
  return {};
}

}  // namespace stitch::suite
