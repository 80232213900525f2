#include "loop/events.h"

#include <chrono>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"

namespace stitch::loop {
namespace {

constexpr std::pair<EventKind, std::string_view> kNames[] = {
    {EventKind::run_started, "run_started"},     {EventKind::run_resumed, "run_resumed"},
    {EventKind::step_started, "step_started"},   {EventKind::step_progress, "step_progress"},
    {EventKind::step_finished, "step_finished"}, {EventKind::step_skipped, "step_skipped"},
    {EventKind::step_failed, "step_failed"},     {EventKind::feedback, "feedback"},
    {EventKind::run_finished, "run_finished"},
};

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string_view name_of(EventKind kind) {
  for (const auto& [k, name] : kNames)
    if (k == kind) return name;
  return "unknown";
}

Json to_json(const Event& e) {
  Json j{{"time", e.time}, {"event", std::string(name_of(e.kind))}};
  if (!e.step.empty()) j["step"] = e.step;
  if (e.attempt != 1) j["attempt"] = e.attempt;
  if (!e.text.empty()) j["text"] = e.text;
  if (e.seconds > 0) j["seconds"] = e.seconds;
  if (e.fraction >= 0) j["fraction"] = e.fraction;
  if (!e.data.empty()) {
    auto data = parse_json(e.data, "event data");
    j["data"] = data ? *data : Json(e.data);
  }
  return j;
}

Result<Event> event_from_json(const Json& j) {
  Event e;
  STITCH_TRY(const std::string name, get_string(j, "event", "event"));
  bool known = false;
  for (const auto& [k, text] : kNames)
    if (text == name) {
      e.kind = k;
      known = true;
    }
  if (!known) return fail(ErrorKind::bad_input, "events.jsonl holds an event \"{}\" that this version does not know.", name);
  e.time = j.value("time", 0.0);
  e.step = j.value("step", "");
  e.attempt = j.value("attempt", 1);
  e.text = j.value("text", "");
  e.seconds = j.value("seconds", 0.0);
  e.fraction = j.value("fraction", -1.0);
  if (j.contains("data")) e.data = dump(j.at("data"), -1);
  return e;
}

Status EventLog::emit(Event e) {
  if (e.time == 0) e.time = now();
  // Progress is for the eye; writing each tick would bury the log.
  Status written;
  if (e.kind != EventKind::step_progress) written = append_line(file_, dump(to_json(e), -1));
  if (listener_) listener_(e);
  return written;
}

Result<std::vector<Event>> read_events(const std::filesystem::path& file) {
  STITCH_TRY(const std::string text, read_file(file));
  std::vector<Event> events;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == text.npos) break;
    STITCH_TRY(const Json j, parse_json(std::string_view(text).substr(at, end - at), file.string()));
    STITCH_TRY(Event e, event_from_json(j));
    events.push_back(std::move(e));
    at = end + 1;
  }
  return events;
}

}  // namespace stitch::loop
