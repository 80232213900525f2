#pragma once
// Ctrl-C, SIGTERM and a closed terminal end the process cleanly: every child is killed, what was registered here is removed, and the exit code is
// 128 + the signal. A SIGKILL leaves things behind; those who make them look for left-overs when they start.

#include <cstddef>
#include <functional>

namespace stitch {

// Removes something temporary if the process is interrupted while this object lives.
class OnInterrupt {
 public:
  explicit OnInterrupt(std::function<void()> tidy);
  OnInterrupt(const OnInterrupt&) = delete;
  OnInterrupt& operator=(const OnInterrupt&) = delete;
  ~OnInterrupt();

 private:
  size_t id_;
};

// Call once, early in main. `advice` is printed after "Interrupted.".
void handle_interrupts(const char* advice);

// Does not return once the process is being interrupted. For threads whose child was killed by that: what they would report is no result.
void stop_if_interrupted() noexcept;

}  // namespace stitch
