#include "base/files.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace stitch {
namespace {

// One sentence for a failed system call on a file; the common cases say what to do.
tl::unexpected<Error> file_error(const char* what, const fs::path& file, int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return fail(ErrorKind::environment, "The disk holding {} is full; free some space and run again.", file.string());
    case EFBIG:
      return fail(ErrorKind::environment, "{} cannot be written: a file size limit was reached; raise it (ulimit -f) and run again.", file.string());
    case ENOENT: return fail(ErrorKind::bad_input, "{} does not exist; check the path.", file.string());
    case EACCES:
    case EROFS: return fail(ErrorKind::environment, "Cannot {} {}: no permission.", what, file.string());
    case EISDIR: return fail(ErrorKind::bad_input, "{} is a folder, but a file is needed.", file.string());
    case ENAMETOOLONG:
    case ELOOP: return fail(ErrorKind::bad_input, "Cannot {} {}: {}.", what, file.string(), std::strerror(error));
    case ENOTDIR: return fail(ErrorKind::bad_input, "Cannot {} {}: a part of the path is a file, not a folder.", what, file.string());
    default: return fail(ErrorKind::environment, "Cannot {} {}: {}.", what, file.string(), std::strerror(error));
  }
}

constexpr size_t kMostFromDevice = size_t{1} << 28;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { if (fd_ >= 0) ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

// 0 or errno.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

Result<std::string> read_file(const fs::path& file) {
  const Descriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return file_error("read", file, errno);
  struct stat s {};
  if (::fstat(fd.get(), &s) != 0) return file_error("read", file, errno);
  if (S_ISDIR(s.st_mode)) return file_error("read", file, EISDIR);
  std::string text;
  try {
    text.reserve(static_cast<size_t>(s.st_size));
  } catch (const std::exception&) {  // a sparse file may claim any size
    return fail(ErrorKind::environment, "{} ({} bytes) does not fit in memory.", file.string(), s.st_size);
  }
  char buffer[1 << 16];
  while (true) {
    // /dev/zero has no end.
    if (!S_ISREG(s.st_mode) && text.size() > kMostFromDevice)
      return fail(ErrorKind::bad_input, "{} is no plain file and has no end in sight; give a file.", file.string());
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("read", file, errno);
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

Status write_file(const fs::path& file, std::string_view bytes) {
  static std::atomic<unsigned> counter{0};
  if (file.has_parent_path()) STITCH_CHECK_OK(make_folder(file.parent_path()));
  // A name may be taken by a killed process with the same number, or by one of another container that shares the folder.
  // Short, because the file's own name may already have the greatest length.
  fs::path temporary;
  int opened = -1;
  for (int attempt = 0; attempt < 1000 && opened < 0; ++attempt) {
    temporary = file.parent_path() / fmt::format(".stitch.{}.{}.tmp", ::getpid(), counter++);
    opened = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (opened < 0 && errno != EEXIST) break;
  }
  if (opened < 0) return file_error("write", file, errno);
  Descriptor fd(opened);
  int error = write_all(fd.get(), bytes);
  if (error == 0 && ::fsync(fd.get()) != 0 && errno != EINVAL && errno != EROFS) error = errno;
  if (fd.close() != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), file.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    return file_error("write", file, error);
  }
  return {};
}

Status append_line(const fs::path& file, std::string_view line) {
  const Descriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (fd.get() < 0) return file_error("write", file, errno);
  std::string text(line);
  text += '\n';
  const off_t before = ::lseek(fd.get(), 0, SEEK_END);
  if (const int error = write_all(fd.get(), text)) {
    // Half a line would spoil the next one.
    if (before >= 0) [[maybe_unused]] const int ignored = ::ftruncate(fd.get(), before);
    return file_error("write", file, error);
  }
  return {};
}

Status make_folder(const fs::path& folder) {
  if (folder.empty()) return {};
  std::error_code ec, looked;
  fs::create_directories(folder, ec);
  if (fs::is_directory(folder, looked)) return {};
  return file_error("create folder", folder, ec ? ec.value() : ENOTDIR);
}

Status copy_tree(const fs::path& from, const fs::path& to) {
  std::error_code ec;
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing, ec);
  const bool about_target = ec.value() == ENOSPC || ec.value() == EDQUOT || ec.value() == EROFS;
  if (ec) return file_error("copy", about_target ? to : from, ec.value());
  return {};
}

void remove_tree(const fs::path& folder) noexcept {
  std::error_code ec;
  fs::remove_all(folder, ec);
}

namespace {

constexpr const char* kTempPrefix = "stitchcuda.";
constexpr const char* kKeep = ".keep";  // in a folder that is to outlive its maker

fs::path temp_root() {
  const char* base = std::getenv("TMPDIR");
  return base && *base == '/' ? base : "/tmp";
}

bool same_file(int fd, const fs::path& path) {
  struct stat held {}, there {};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &there) == 0 && held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

void remove_if_left_over(const fs::path& folder) {
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat s {};
  if (fd.get() < 0 || ::fstat(fd.get(), &s) != 0 || s.st_uid != ::geteuid()) return;
  std::error_code ec;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && !fs::exists(folder / kKeep, ec)) remove_tree(folder);
}

}  // namespace

void remove_left_over(const fs::path& parent, const std::string& prefix) noexcept {
  try {
    std::error_code ec;
    std::vector<fs::path> found;
    for (auto it = fs::directory_iterator(parent, ec); !ec && it != fs::directory_iterator(); it.increment(ec))
      if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path());
    for (const fs::path& p : found) remove_if_left_over(p);
  } catch (const std::exception&) {  // no memory: another time
  }
}

void remove_left_over_temp_folders() noexcept { remove_left_over(temp_root(), kTempPrefix); }

Result<TempFolder> TempFolder::create(std::string_view prefix) {
  static std::once_flag swept;
  std::call_once(swept, remove_left_over_temp_folders);
  while (true) {
    std::string pattern = (temp_root() / fmt::format("{}{}.XXXXXX", kTempPrefix, prefix)).string();
    if (!::mkdtemp(pattern.data())) return file_error("create a temporary folder at", pattern, errno);
    const int fd = ::open(pattern.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
      const int error = errno;
      if (error == ENOENT) continue;  // another process took it for a left-over
      remove_tree(pattern);
      return file_error("create a temporary folder at", pattern, error);
    }
    while (::flock(fd, LOCK_EX) != 0 && errno == EINTR) {}
    if (same_file(fd, pattern)) return TempFolder(pattern, fd);
    ::close(fd);  // the same, while this one waited for the lock
  }
}
TempFolder::TempFolder(fs::path p, int lock) : path_(std::move(p)), lock_(lock), tidy_(std::make_unique<OnInterrupt>([path = path_] {
  // What a killed child had started may write for a moment longer.
  for (int tries = 0; tries < 100 && ::access(path.c_str(), F_OK) == 0; ++tries) {
    if (tries > 0) ::usleep(10'000);
    remove_tree(path);
  }
})) {}
TempFolder::TempFolder(TempFolder&& o) noexcept : path_(std::exchange(o.path_, {})), lock_(std::exchange(o.lock_, -1)), tidy_(std::move(o.tidy_)) {}
TempFolder& TempFolder::operator=(TempFolder&& o) noexcept {
  std::swap(path_, o.path_);
  std::swap(lock_, o.lock_);
  std::swap(tidy_, o.tidy_);
  return *this;
}
TempFolder::~TempFolder() {
  if (!path_.empty()) remove_tree(path_);
  if (lock_ >= 0) ::close(lock_);
}
void TempFolder::keep() {
  (void)write_file(path_ / kKeep, "");
  tidy_.reset();
  path_.clear();
}

namespace {
Result<int> lock(const fs::path& file, int flags) {
  if (file.has_parent_path()) STITCH_CHECK_OK(make_folder(file.parent_path()));
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return file_error("lock", file, errno);
  while (::flock(fd, flags) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    ::close(fd);
    if (error == EWOULDBLOCK)
      return fail(ErrorKind::environment, "{} is in use by another process; wait for it to finish.", file.string());
    return file_error("lock", file, error);
  }
  // The holder may have removed the file while this process waited; a lock on a removed file protects nothing.
  if (same_file(fd, file)) return fd;
  ::close(fd);
  return lock(file, flags);
}
}  // namespace

Result<FileLock> FileLock::acquire(const fs::path& file) {
  STITCH_TRY(const int fd, lock(file, LOCK_EX));
  return FileLock(fd);
}
Result<FileLock> FileLock::try_acquire(const fs::path& file) {
  STITCH_TRY(const int fd, lock(file, LOCK_EX | LOCK_NB));
  return FileLock(fd);
}
FileLock::FileLock(FileLock&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
FileLock& FileLock::operator=(FileLock&& o) noexcept {
  std::swap(fd_, o.fd_);
  return *this;
}
FileLock::~FileLock() { if (fd_ >= 0) ::close(fd_); }

fs::path data_home() {
  const auto variable = [](const char* name) -> fs::path {
    const char* v = std::getenv(name);
    return v && *v ? fs::path(v) : fs::path();
  };
  std::error_code ec;
  if (const fs::path p = variable("STITCHCUDA_HOME"); !p.empty()) return fs::absolute(p, ec);
  if (const fs::path p = variable("XDG_DATA_HOME"); p.is_absolute()) return p / "stitchcuda";  // relative: invalid, says the XDG standard
  if (const fs::path p = variable("HOME"); p.is_absolute()) return p / ".local/share/stitchcuda";
  passwd entry{}, *found = nullptr;
  char buffer[4096];
  if (::getpwuid_r(::getuid(), &entry, buffer, sizeof buffer, &found) == 0 && found && found->pw_dir && *found->pw_dir == '/')
    return fs::path(found->pw_dir) / ".local/share/stitchcuda";
  // A name of its own per user: what is cached there is loaded as code.
  return fmt::format("/tmp/stitchcuda-{}", ::getuid());
}

fs::path source_root() {
  static const fs::path root = []() -> fs::path {
    std::error_code ec;
    if (const char* v = std::getenv("STITCHCUDA_ROOT"); v && *v) return fs::absolute(v, ec);
    const auto is_root = [&](const fs::path& p) { return fs::exists(p / "include/stitch/abi.h", ec) && fs::exists(p / "schemas", ec); };
    for (fs::path p = fs::read_symlink("/proc/self/exe", ec).parent_path(); !p.empty(); p = p.parent_path()) {
      if (is_root(p)) return p;
      if (p == p.parent_path()) break;
    }
    return STITCH_SOURCE_ROOT;
  }();
  return root;
}

}  // namespace stitch
