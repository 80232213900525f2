#pragma once
// A run that is killed with SIGKILL cannot tidy up, and the kernel's parent-death signal reaches only the direct children: what they started (the
// compiler passes behind nvcc, a sandbox that is just being set up) would live on. The guardian is a small process that knows the process group of
// every child and kills those groups once the process that it guards is gone.

#include <sys/types.h>

namespace stitch {

// Call once, early in main, while the process is small and has one thread: the guardian keeps a copy of its memory. Without a guardian (it was not
// started, or no process could be had) the parent-death signal remains. `argv` is main's: process lists show the guardian under its own name.
void start_guardian(char** argv) noexcept;
// When all children have ended: not every init collects the processes that are left to it. Async-signal-safe.
void stop_guardian() noexcept;

// For a child between fork and exec: makes it lead a process group of its own, which dies when `parent`, the process that forked it, does. Ends the
// child if that has happened already. Async-signal-safe.
void lead_guarded_group(pid_t parent) noexcept;

// For the parent, when it reaps the child: from then on the number may be someone else's. Async-signal-safe.
void forget_guarded_group(pid_t child) noexcept;

}  // namespace stitch
