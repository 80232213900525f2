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
  std::string status;    // "running", "done", "failed"
  double started = 0, finished = 0;  // seconds since the epoch; 0 = not yet
  std::string verdict;   // verdict.json text, "" if none
};

struct StepRow {
  std::string step;
  int attempt = 1;
  double seconds = 0;
  std::string data;      // JSON text: the step's figures
};

class RunStore {
 public:
  static Result<RunStore> open(const std::filesystem::path& file);
  RunStore(RunStore&&) noexcept;
  RunStore& operator=(RunStore&&) noexcept;
  ~RunStore();

  Result<int64_t> begin(const RunRow&);
  Status record_step(int64_t run, const StepRow&);
  Status forget_step(int64_t run, const std::string& step);
  // Marks unfinished runs with this output folder as abandoned, so that the next run starts afresh.
  Status abandon(const std::string& out);
  Status finish(int64_t run, const std::string& status, const std::string& verdict);
  // The newest unfinished run with this output folder and key.
  Result<std::optional<RunRow>> find_unfinished(const std::string& out, const std::string& key);
  Result<std::vector<StepRow>> steps(int64_t run);
  Result<std::vector<RunRow>> list(int limit);
  Result<std::optional<RunRow>> get(int64_t run);

 private:
  explicit RunStore(sqlite3* db) : db_(db) {}
  sqlite3* db_ = nullptr;
};

}  // namespace stitch::loop
