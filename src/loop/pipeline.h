#pragma once
// `stitchcuda run`: from a PyTorch program to a verified CUDA program, as steps of the state machine.

#include <filesystem>
#include <functional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "hw/device.h"
#include "loop/events.h"

namespace stitch::loop {

enum class Target { automatic, host, cuda };
Result<Target> target_from_name(std::string_view);  // "auto", "host", "cuda"

struct RunOptions {
  std::string input;                 // FILE.py, module:callable, FILE.pt2 or a .stitch folder
  std::string inputs_attribute;      // for module:callable: where its example inputs are
  std::filesystem::path out;
  Target target = Target::automatic;
  hw::PrecisionClass precision = hw::PrecisionClass::default_flags;
  std::string device = "h200";       // planning target when no GPU is asked
  int64_t seed = 42;
  int timed_calls = 60;              // on a GPU; 0: correctness only
  bool fresh = false;                // do not resume an interrupted run
  // Writes OUT/report.html; given by the user interface.
  std::function<Status(const std::filesystem::path& out)> write_report;
};

struct RunOutcome {
  int64_t run_id = 0;
  bool valid_and_correct = false;
  std::string verdict;               // verdict.json text
  std::string target;                // "host" or "cuda"
  std::string gpu;                   // name, "" when none was found
};

// Error: the run could not be finished (bad input, missing tool, candidate that never became correct). A finished run
// whose program is not correct is an outcome, not an error.
Result<RunOutcome> run_pipeline(const RunOptions&, const EventLog::Listener&);

}  // namespace stitch::loop
