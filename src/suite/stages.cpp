#include "suite/stages.h"

#include <atomic>
#include <thread>

#include "base/files.h"

namespace stitch::suite {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// The long story of a failure (a traceback, a compiler's output), beside the row.
void keep_evidence(const fs::path& folder, const std::string& detail) {
  const fs::path file = folder / "failure.txt";
  std::error_code ec;
  if (detail.empty()) fs::remove(file, ec);
  else (void)write_file(file, detail + "\n");
}

}  // namespace

Status guarded(const std::function<Status(Row&)>& body, Row& row) {
  try {
    return body(row);
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::environment, "Memory ran out; run fewer --jobs at a time.");
  } catch (const std::exception& e) {
    return fail(ErrorKind::internal, "Internal error ({}); please report it with this problem.", e.what());
  }
}

void settle(Suite& s, Step step, Row& row, const Status& status, double seconds, size_t done, size_t total) {
  if (status) row.finish(step, seconds);
  else row.finish(step, seconds, status.error());
  keep_evidence(s.folder(row), status ? "" : status.error().detail);
  if (const Status saved = save_row(s.folder(row), row); !saved && status) row.finish(step, seconds, saved.error());
  const std::lock_guard lock(s.progress_mutex);
  if (s.progress) s.progress(step, done, total, row);
}

std::vector<Row*> rows_where(Suite& s, const std::function<bool(const Row&)>& wanted) {
  std::vector<Row*> rows;
  for (Row& r : s.rows)
    if (wanted(r)) rows.push_back(&r);
  return rows;
}

void for_rows(Suite& s, Step step, int jobs, const std::vector<Row*>& todo, const std::function<Status(Row&)>& body, const std::function<void(Row&)>& settled) {
  std::atomic<size_t> next{0}, done{0};
  const auto work = [&] {
    for (size_t i = next++; i < todo.size(); i = next++) {
      const auto started = Clock::now();
      const Status status = guarded(body, *todo[i]);
      settle(s, step, *todo[i], status, since(started), ++done, todo.size());
      if (settled) settled(*todo[i]);
    }
  };
  const auto started = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 1; i < jobs && static_cast<size_t>(i) < todo.size(); ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  s.wall[static_cast<size_t>(step)] += since(started);
}

}  // namespace stitch::suite
