#pragma once
// The loop's state machine. A run is an ordered list of steps; each leaves its artefacts in the output folder and is then
// recorded. A step may send the run back (the Verifier asking the Coder or Planner for another attempt). Killing the
// process at any instant loses at most the step in hand: the next run with the same input and folder goes on from there.

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "loop/events.h"
#include "loop/store.h"

namespace stitch::loop {

// What a step tells the machine.
struct StepResult {
  std::string text;        // one line for the reader: "14 tasks, floor 3.1 us"
  std::string data;        // JSON text, kept in the store and given back on resume
  std::string back_to;     // name of an earlier step to run again; "" = go on
  std::string feedback;    // why, when going back
};

// Progress of the step in hand: a line of text and a fraction (0..1, -1 unknown).
using Progress = std::function<void(const std::string& text, double fraction)>;

struct StepContext {
  int attempt = 1;                                  // 1 on first entry; counts every time the step is entered
  const std::map<std::string, std::string>& data;   // recorded data of finished steps by name
  Progress progress;
};

struct Step {
  std::string name;
  std::string title;                                // "Capture", for the terminal
  std::function<Result<StepResult>(const StepContext&)> run;
  // Files and folders that the step leaves. When a run is resumed and one of them is missing or was changed, the step and all later ones run again.
  std::vector<std::filesystem::path> outputs;
};

struct MachineOptions {
  std::string program, input, key;
  std::filesystem::path out;
  int max_attempts = 3;                             // how often a step may be entered before the run fails
};

// Runs (or resumes) the steps. Returns the recorded data of every step. The error is the failing step's.
Result<std::map<std::string, std::string>> run_steps(const std::vector<Step>&, const MachineOptions&, RunStore&, EventLog&,
                                                     int64_t* run_id);

}  // namespace stitch::loop
