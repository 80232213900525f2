#include "ui/terminal_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/terminal.h"

namespace stitch::ui {

using loop::EventKind;

TerminalView::TerminalView(std::FILE* out) : out_(out), live_(is_tty(fileno(out))) {}

void TerminalView::clear_progress() {
  if (progress_shown_) std::fputs("\r\033[K", out_);
  progress_shown_ = false;
}

void TerminalView::show(const loop::Event& e) {
  if (e.kind == EventKind::step_progress) {
    std::string line = e.fraction >= 0 ? fmt::format("  {:<9} {:3.0f} %  {}", e.step, e.fraction * 100, printable(e.text))
                                       : fmt::format("  {:<9} {}", e.step, printable(e.text));
    if (line == last_progress_) return;
    last_progress_ = line;
    if (!live_) return;  // a log file needs results, not ticks
    clear_progress();
    const auto width = static_cast<size_t>(terminal_width());
    if (line.size() >= width) line.resize(width - 1);
    std::fputs(line.c_str(), out_);
    progress_shown_ = true;
    std::fflush(out_);
    return;
  }
  clear_progress();
  const std::string attempt = e.attempt > 1 ? fmt::format(" (attempt {})", e.attempt) : "";
  switch (e.kind) {
    case EventKind::run_started: break;
    case EventKind::run_resumed: fmt::print(out_, "Resuming: {}.\n", printable(e.text)); break;
    case EventKind::step_started:
      if (live_) {
        fmt::print(out_, "  {:<9} ...", e.step);
        progress_shown_ = true;
      }
      break;
    case EventKind::step_finished:
      fmt::print(out_, "  {:<9} {:>8}  {}{}\n", e.step, format_duration(e.seconds), printable(e.text), attempt);
      break;
    case EventKind::step_skipped: fmt::print(out_, "  {:<9} {:>8}  {}\n", e.step, "-", printable(e.text)); break;
    case EventKind::step_failed: fmt::print(out_, "  {:<9} {:>8}  failed{}\n", e.step, format_duration(e.seconds), attempt); break;
    case EventKind::feedback: fmt::print(out_, "  {:<9} {:>8}  back for another attempt: {}\n", e.step, format_duration(e.seconds), printable(e.text)); break;
    default: break;
  }
  std::fflush(out_);
}

}  // namespace stitch::ui
