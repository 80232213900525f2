#pragma once
// Files and folders. Writes are atomic (temporary name in the same folder, fsync, rename): a full disk or a kill
// leaves either the old file or the new one, never half of it.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/interrupt.h"
#include "base/result.h"

namespace stitch {

namespace fs = std::filesystem;

Result<std::string> read_file(const fs::path& file);                  // whole file; message names the file and the reason
Status write_file(const fs::path& file, std::string_view bytes);      // atomic; creates missing parent folders
Status append_line(const fs::path& file, std::string_view line);      // one write(2) with O_APPEND, adds '\n'
Status make_folder(const fs::path& folder);                           // with parents
Status copy_tree(const fs::path& from, const fs::path& to);
void remove_tree(const fs::path& folder) noexcept;

// A private (0700) temporary folder under $TMPDIR, removed on destruction and when the process is interrupted. Its maker holds a lock on it, so
// that one whose maker was killed is known by being free; the first create() of a process removes those.
class TempFolder {
 public:
  static Result<TempFolder> create(std::string_view prefix);
  TempFolder(TempFolder&&) noexcept;
  TempFolder& operator=(TempFolder&&) noexcept;
  ~TempFolder();
  const fs::path& path() const { return path_; }
  void keep();  // leave the folder on disk

 private:
  TempFolder(fs::path p, int lock);
  fs::path path_;
  int lock_ = -1;
  std::unique_ptr<OnInterrupt> tidy_;
};

// Removes the folders of this user in `parent` whose names begin with `prefix` and that no living process holds a lock (flock) on.
void remove_left_over(const fs::path& parent, const std::string& prefix) noexcept;
// The temporary folders among them: what killed processes had in TempFolders.
void remove_left_over_temp_folders() noexcept;

// Exclusive advisory lock on a file (flock), held until destruction, released by the kernel on death.
class FileLock {
 public:
  static Result<FileLock> acquire(const fs::path& file);             // waits
  static Result<FileLock> try_acquire(const fs::path& file);         // environment error if held elsewhere
  FileLock(FileLock&&) noexcept;
  FileLock& operator=(FileLock&&) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// Where this program keeps things outside the project: $STITCHCUDA_HOME, else $XDG_DATA_HOME/stitchcuda, else
// ~/.local/share/stitchcuda. Holds the Python environment (venv/) and the build cache (cache/).
fs::path data_home();
// The checkout (or installed tree) that holds include/, kernels/, python/, prompts/: $STITCHCUDA_ROOT if set, else
// found upwards from the running executable, else the source folder the binary was built from.
fs::path source_root();

}  // namespace stitch
