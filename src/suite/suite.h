#pragma once
// `stitchcuda suite kernelbench`: the problems of a KernelBench level through capture, plan, code, build and verify, with a row for each. A
// problem that fails gets its reason and the suite goes on. See docs/suite.md.

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hw/device.h"
#include "suite/row.h"

namespace stitch::suite {

struct SuiteOptions {
  std::filesystem::path root;              // a KernelBench checkout, or its KernelBench/ folder
  std::vector<int> levels;
  std::string problems;                    // "1,5-9"; "" = all
  Step step = Step::build;                 // the last step to do
  std::filesystem::path out;
  int jobs = 0;                            // problems at a time; 0 = one per core
  bool fresh = false;                      // redo what an earlier run left
  std::string device = "h200";             // planning target
  hw::PrecisionClass precision = hw::PrecisionClass::default_flags;
  int64_t seed = 42;
  std::chrono::seconds capture_timeout{300};

  // verify
  std::string target = "auto";             // auto, host, cuda
  int gpu_jobs = 4;                        // problems at a time on one GPU
  int trials = 5;
  double time_budget = 900;                // seconds of checking a problem after which special input sets are left out
  bool kernelbench_eval = true;            // KernelBench's own evaluator beside, on a GPU
  std::chrono::seconds verify_timeout{1800};
  std::chrono::seconds stop_after{0};      // from the suite's start: later no further verification begins; 0 = never
  std::filesystem::path program;           // the stitchcuda program, which verifies each problem in a process of its own
};

// Called from several threads, one at a time: `done` of `total` problems have been through a step; `row` is the latest.
using SuiteProgress = std::function<void(Step, size_t done, size_t total, const Row& row)>;

struct SuiteOutcome {
  std::string summary;                     // JSON on one line: {"summary": {...}, "rows": N, ...} as in suite.json without the rows
  bool all_passed = false;
  std::vector<Row> rows;
  std::filesystem::path json_file, table_file;
};

// Error: nothing could be started (bad root, no such level, no Python). Failures of problems are rows.
Result<SuiteOutcome> run_suite(const SuiteOptions&, const SuiteProgress&);

}  // namespace stitch::suite
