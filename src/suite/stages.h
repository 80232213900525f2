#pragma once
// Internal: the suite's stages. Each takes all rows through one or several steps, several at a time, skips what stands from an earlier run, and
// saves a row as soon as a step of it is finished.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "suite/identity.h"
#include "suite/suite.h"

namespace stitch::suite {

struct Suite {
  const SuiteOptions& options;
  Identity identity;
  int jobs = 1;
  bool cuda = false;                       // verification runs on a GPU
  std::vector<Row> rows;
  std::array<double, kSteps> wall{};       // of this run
  double kernelbench_wall = 0;
  std::string commit;                      // as the run began

  const SuiteProgress& progress;
  std::mutex progress_mutex;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();

  std::filesystem::path folder(const Row& r) const { return options.out / r.problem.folder(); }
  std::filesystem::path bundle(const Row& r) const { return folder(r) / "program.stitch"; }
};

// Runs body(row) for `todo`, `jobs` at a time, and settles each; then calls settled(row). An exception fails the step.
void for_rows(Suite&, Step, int jobs, const std::vector<Row*>& todo, const std::function<Status(Row&)>& body, const std::function<void(Row&)>& settled = {});
// body(row); what it throws becomes an error.
Status guarded(const std::function<Status(Row&)>& body, Row&);
std::vector<Row*> rows_where(Suite&, const std::function<bool(const Row&)>& wanted);
// Records how the step ended, saves the row and reports it.
void settle(Suite&, Step, Row&, const Status&, double seconds, size_t done, size_t total);

Status capture_all(Suite&);
void plan_all(Suite&);
void code_all(Suite&);
// `built` is called with each row as its program is ready.
void build_all(Suite&, const std::function<void(Row&)>& built = {});
// Builds what is not built, and verifies. On GPUs the two go on side by side.
Status build_and_verify(Suite&);
Status kernelbench_all(Suite&);

}  // namespace stitch::suite
