#pragma once
// Shows a run's events on a terminal: one line a step, with a live progress line where the output is a terminal. Output goes to stderr when
// stdout carries JSON.

#include <cstdio>
#include <string>

#include "loop/events.h"

namespace stitch::ui {

class TerminalView {
 public:
  explicit TerminalView(std::FILE* out);
  void show(const loop::Event&);

 private:
  void clear_progress();
  std::FILE* out_;
  bool live_;             // out_ is a terminal
  bool progress_shown_ = false;
  std::string last_progress_;
};

}  // namespace stitch::ui
