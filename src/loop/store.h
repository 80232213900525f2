#pragma once
// The run store: one SQLite file for all runs of a user (data_home()/runs.sqlite). A step is recorded only after its
// artefacts are on disk, in one transaction, so a killed run resumes from the last recorded step.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

struct sqlite3;

namespace stitch::loop {

struct RunRow {
  int64_t id = 0;
  std::string program;   // name of the program
  std::string input;     // what the user asked to run
  std::string out;       // absolute output folder
  std::string key;       // hash of input and options: a resume needs the same
  std::string status;    // "running", "interrupted", "failed", "incorrect" or "done"
  double started = 0, finished = 0;  // seconds since the epoch; 0 = not yet
  std::string verdict;   // verdict.json text, "" if none
  std::string reason;    // why it failed or is incorrect, in one sentence
};

struct StepRow {
  std::string step;
  int attempt = 1;
  double seconds = 0;
  std::string data;      // JSON text: the step's figures
  std::string files;     // stamps of what it left on disk (loop/stamps.h)
};

// A run counts as running only while the process that runs it lives: it holds a lock on one byte of a file beside the store, which the kernel
// releases whatever way the process ends.
class RunStore {
 public:
  static Result<RunStore> open(const std::filesystem::path& file);
  RunStore(RunStore&&) noexcept;
  RunStore& operator=(RunStore&&) noexcept;
  ~RunStore();

  Result<int64_t> begin(const RunRow&);
  // An unfinished run is gone on with, by this process.
  Status take_up(int64_t run);
  Status record_step(int64_t run, const StepRow&);
  Status forget_step(int64_t run, const std::string& step);
  // No unfinished run of this output folder can be gone on with any more; what became of it stays on record.
  Status set_aside(const std::string& out);
  Status fail(int64_t run, const std::string& reason);
  Status finish(int64_t run, const std::string& status, const std::string& verdict, const std::string& reason = "");
  // The newest run with this output folder and key that was interrupted or failed.
  Result<std::optional<RunRow>> find_unfinished(const std::string& out, const std::string& key);
  Result<std::vector<StepRow>> steps(int64_t run);
  Result<std::vector<RunRow>> list(int limit);
  Result<std::optional<RunRow>> get(int64_t run);

 private:
  RunStore(sqlite3* db, std::filesystem::path locks) : db_(db), locks_(std::move(locks)) {}
  Status hold(int64_t run);
  void release();
  bool is_running(int64_t run) const;
  RunRow seen(RunRow) const;

  sqlite3* db_ = nullptr;
  std::filesystem::path locks_;
  int held_ = -1;  // the open lock file of the run that this process does
};

}  // namespace stitch::loop
