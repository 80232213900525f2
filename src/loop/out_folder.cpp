#include "loop/out_folder.h"

namespace stitch::loop {
namespace {

constexpr const char* kLog = "events.jsonl";
constexpr const char* kLock = ".lock";

fs::path outermost_missing(fs::path p) {
  fs::path missing;
  std::error_code ec;
  for (; !p.empty() && !fs::exists(fs::symlink_status(p, ec)); p = p.parent_path()) {
    missing = p;
    if (p == p.parent_path()) break;
  }
  return missing;
}

// Removes the folder, then those above it that were made for it, as far as they are empty.
void remove_made(const fs::path& folder, const fs::path& first_made) {
  if (first_made.empty()) return;
  remove_tree(folder);
  std::error_code ec;
  for (fs::path p = folder; p != first_made;) {
    p = p.parent_path();
    if (!fs::remove(p, ec)) return;
  }
}

}  // namespace

void remove_half_written(const fs::path& folder) {
  std::vector<fs::path> dead;
  for (const fs::path& place : {folder, folder / "build"}) {
    std::error_code ec;
    for (auto it = fs::directory_iterator(place, ec); !ec && it != fs::directory_iterator(); it.increment(ec)) {
      const std::string name = it->path().filename().string();
      if (name.starts_with(".") && (name.find(".tmp") != name.npos || name.starts_with(".program.stitch."))) dead.push_back(it->path());
    }
  }
  for (const fs::path& p : dead) remove_tree(p);
}

Result<OutFolder> OutFolder::open(const fs::path& folder) {
  OutFolder out;
  out.folder_ = folder;
  out.first_made_ = outermost_missing(folder);
  if (const Status made = make_folder(folder); !made) {
    remove_made(folder, out.first_made_);
    return tl::make_unexpected(made.error());
  }
  std::error_code ec;
  out.had_lock_ = fs::exists(folder / kLock, ec);
  if (!out.had_lock_ && !fs::exists(folder / kLog, ec) && !fs::is_empty(folder, ec))
    return fail(ErrorKind::bad_input, "{} holds files that are not from stitchcuda; give --out an empty or a new folder.", folder.string());
  auto lock = FileLock::try_acquire(folder / kLock);
  if (!lock) {
    remove_made(folder, out.first_made_);
    return tl::make_unexpected(lock.error());
  }
  out.lock_ = std::move(*lock);
  remove_half_written(folder);
  out.tidy_ = std::make_unique<OnInterrupt>([folder] { remove_half_written(folder); });
  return out;
}

void OutFolder::start_log() {
  if (auto text = read_file(folder_ / kLog)) old_log_ = std::move(*text);
  std::error_code ec;
  fs::remove(folder_ / kLog, ec);
}

void OutFolder::take_back() {
  if (is_new()) return remove_made(folder_, first_made_);
  std::error_code ec;
  if (old_log_) (void)write_file(folder_ / kLog, *old_log_);
  else fs::remove(folder_ / kLog, ec);
  if (!had_lock_) fs::remove(folder_ / kLock, ec);
}

}  // namespace stitch::loop
