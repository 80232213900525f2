#pragma once
// The output folder of a run: made and locked for one run at a time, freed of what a killed run left half-written, and given back as it
// was when nothing comes of the run.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/interrupt.h"
#include "base/result.h"

namespace stitch::loop {

// Removes the hidden names that write_file and the capture give to what is not yet in place. Only where their writer is dead: in a locked folder.
void remove_half_written(const std::filesystem::path& folder);

class OutFolder {
 public:
  // Refuses a folder with other people's files: a run replaces kernels.cu, include/ and more.
  static Result<OutFolder> open(const std::filesystem::path& folder);

  bool is_new() const { return !first_made_.empty(); }
  void start_log();     // a new run: the old log is kept in memory until the run has done something
  void take_back();     // the folder as it was before open(); absent if it was absent

 private:
  OutFolder() = default;
  std::filesystem::path folder_, first_made_;  // first_made_: the outermost folder that open() made
  std::optional<FileLock> lock_;
  std::unique_ptr<OnInterrupt> tidy_;
  bool had_lock_ = false;
  std::optional<std::string> old_log_;
};

}  // namespace stitch::loop
