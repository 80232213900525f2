#pragma once
// Internal: the suite's stages. Each takes all rows through one or several steps, several at a time, skips what stands from an earlier run, and
// saves a row as soon as a step of it is finished.

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

  std::filesystem::path folder(const Row& r) const { return options.out / r.problem.folder(); }
  std::filesystem::path bundle(const Row& r) const { return folder(r) / "program.stitch"; }
};

// Runs body(row) for the rows that `wanted` picks, `jobs` at a time, and settles each. An exception fails the step.
void for_rows(Suite&, Step, int jobs, const std::function<bool(const Row&)>& wanted, const std::function<Status(Row&)>& body);
// Records how the step ended, saves the row and reports it.
void settle(Suite&, Step, Row&, const Status&, double seconds, size_t done, size_t total);

Status capture_all(Suite&);
void plan_all(Suite&);
void code_all(Suite&);
void build_all(Suite&);
Status verify_all(Suite&);
Status kernelbench_all(Suite&);

}  // namespace stitch::suite
