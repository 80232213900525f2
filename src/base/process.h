#pragma once
// The one process runner: spawn, feed, poll, limit, kill. No shell is involved. Children get their own process group
// that is killed with the parent (base/guardian.h), so that everything a child started dies with it.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace stitch {

struct ProcessSpec {
  std::vector<std::string> argv;                        // argv[0] is looked up on PATH
  std::string working_folder;                           // "" = current
  std::map<std::string, std::string> environment;       // added to (or replacing in) the parent's
  std::vector<std::string> unset;                       // removed from the parent's environment
  bool clear_environment = false;                       // start from nothing but `environment`
  std::string stdin_text;                               // written to the child's stdin, then closed
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
  size_t output_limit = 16u << 20;                      // bytes kept per stream; more is drained and counted, not kept
  bool kill_on_output_limit = false;
  std::optional<uint64_t> max_file_bytes;               // RLIMIT_FSIZE
  std::optional<uint64_t> max_processes;                // RLIMIT_NPROC
  std::optional<uint64_t> max_open_files;               // RLIMIT_NOFILE
  std::optional<std::chrono::seconds> max_cpu;          // RLIMIT_CPU: SIGXCPU, two seconds later SIGKILL
  std::optional<uint64_t> max_memory;                   // RLIMIT_AS; never set for a process that uses CUDA
  std::vector<std::pair<int, int>> inherit_fds;         // {parent fd, child fd number}; all others are closed
  std::function<void(std::string_view)> on_stdout_line; // called per complete line while the child runs
  std::function<void(std::string_view)> on_stderr_line;
};

struct ProcessResult {
  int exit_code = -1;        // 128 + signal when killed by one
  int signal = 0;            // 0 if it exited by itself
  bool timed_out = false;
  bool output_limited = false;
  std::string out, err;
  uint64_t out_bytes = 0, err_bytes = 0;  // written in all, kept or not
  double wall_seconds = 0;
  double cpu_seconds = 0;    // user + system, children included
  uint64_t max_rss_bytes = 0;
  bool ok() const { return exit_code == 0 && !timed_out && !output_limited; }
};

// Error only when the program cannot be started (message says which and why); a failing child is a result. An exception
// of a line callback kills the child and is passed on.
Result<ProcessResult> run_process(const ProcessSpec&);

// Runs all of them, at most `parallel` at a time; results in the order given.
std::vector<Result<ProcessResult>> run_processes(const std::vector<ProcessSpec>&, int parallel);

// Absolute path of a program on PATH (or the path itself when it has a slash), nullopt if it is not executable.
std::optional<std::string> find_program(std::string_view name);

// Printable command line with shell quoting, for messages and logs.
std::string to_command_line(const std::vector<std::string>& argv);

// Kills every running child of run_process (and those of remember_child), with their process groups. Safe in a signal handler.
void kill_all_children() noexcept;
// The same, and waits (two seconds at most) until they are gone.
void end_all_children() noexcept;
// For a child that was started by other means: both of the above reach it, as the leader of its process group, until it is forgotten.
void remember_child(pid_t) noexcept;
void forget_child(pid_t) noexcept;

}  // namespace stitch
