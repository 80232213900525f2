#pragma once
// What happens in a run, as typed events. The terminal view, the report and `runs` read only these (and the store), so
// nothing a user sees is known to the loop alone.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace stitch::loop {

enum class EventKind {
  run_started, run_resumed, step_started, step_progress, step_finished, step_skipped, step_failed, feedback, run_finished,
};
std::string_view name_of(EventKind);

struct Event {
  EventKind kind = EventKind::run_started;
  double time = 0;         // seconds since the epoch
  std::string step;        // "capture", "plan", ...; "" for run events
  int attempt = 1;
  std::string text;        // one line for a reader
  double seconds = 0;      // duration, for finished steps
  double fraction = -1;    // progress 0..1, -1 when unknown
  std::string data;        // JSON text with the step's figures, "" if none
};

Json to_json(const Event&);
Result<Event> event_from_json(const Json&);

// Appends events to OUT/events.jsonl and hands each to `listener` (the terminal view).
class EventLog {
 public:
  using Listener = std::function<void(const Event&)>;
  EventLog(std::filesystem::path file, Listener listener) : file_(std::move(file)), listener_(std::move(listener)) {}
  Status emit(Event);

 private:
  std::filesystem::path file_;
  Listener listener_;
};

// Reads a log; a last line cut off by a kill is ignored.
Result<std::vector<Event>> read_events(const std::filesystem::path& file);

}  // namespace stitch::loop
