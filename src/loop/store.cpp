#include "loop/store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/files.h"

namespace stitch::loop {
namespace {

constexpr int kVersion = 2;
constexpr const char* kSchema = R"sql(
CREATE TABLE IF NOT EXISTS runs(
  id INTEGER PRIMARY KEY, program TEXT NOT NULL, input TEXT NOT NULL, out TEXT NOT NULL, key TEXT NOT NULL,
  status TEXT NOT NULL, started REAL NOT NULL, finished REAL NOT NULL DEFAULT 0, verdict TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS steps(
  run INTEGER NOT NULL REFERENCES runs(id), step TEXT NOT NULL, attempt INTEGER NOT NULL, seconds REAL NOT NULL,
  data TEXT NOT NULL, recorded REAL NOT NULL, files TEXT NOT NULL DEFAULT '', PRIMARY KEY(run, step));
CREATE INDEX IF NOT EXISTS runs_by_out ON runs(out, key, status);
PRAGMA user_version=2;
)sql";
constexpr const char* kFrom1 = R"sql(
ALTER TABLE runs ADD COLUMN reason TEXT NOT NULL DEFAULT '';
ALTER TABLE steps ADD COLUMN files TEXT NOT NULL DEFAULT '';
UPDATE runs SET status='interrupted', key='' WHERE status='abandoned';
PRAGMA user_version=2;
)sql";

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

tl::unexpected<Error> failed(sqlite3* db) {
  return fail(ErrorKind::environment, "The run store cannot be used ({}); free disk space or move the file away, then run again.",
              db ? sqlite3_errmsg(db) : "no memory");
}

// One prepared statement; values are bound in order.
class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) : db_(db) {
    ok_ = sqlite3_prepare_v2(db, sql.c_str(), -1, &s_, nullptr) == SQLITE_OK;
  }
  ~Statement() { sqlite3_finalize(s_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& v) {
    return bound(sqlite3_bind_text(s_, ++next_, v.data(), static_cast<int>(v.size()), SQLITE_TRANSIENT));
  }
  Statement& bind(int64_t v) { return bound(sqlite3_bind_int64(s_, ++next_, v)); }
  Statement& bind(double v) { return bound(sqlite3_bind_double(s_, ++next_, v)); }

  Result<bool> step() {  // true while there is a row
    if (!ok_) return failed(db_);
    const int rc = sqlite3_step(s_);
    if (rc == SQLITE_ROW) return true;
    if (rc == SQLITE_DONE) return false;
    return failed(db_);
  }
  Status run() {
    if (const Result<bool> r = step(); !r) return tl::make_unexpected(r.error());
    return {};
  }
  std::string text(int c) const {
    const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(s_, c));
    return p ? std::string(p, static_cast<size_t>(sqlite3_column_bytes(s_, c))) : std::string();
  }
  int64_t integer(int c) const { return sqlite3_column_int64(s_, c); }
  double real(int c) const { return sqlite3_column_double(s_, c); }

 private:
  Statement& bound(int rc) {
    ok_ = ok_ && rc == SQLITE_OK;
    return *this;
  }
  sqlite3* db_;
  sqlite3_stmt* s_ = nullptr;
  int next_ = 0;
  bool ok_ = false;
};

const std::string kSelectRun = "SELECT id, program, input, out, key, status, started, finished, verdict, reason FROM runs ";

RunRow read_run(const Statement& s) {
  return {s.integer(0), s.text(1), s.text(2), s.text(3), s.text(4), s.text(5), s.real(6), s.real(7), s.text(8), s.text(9)};
}

Status execute(sqlite3* db, const char* sql) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return failed(db);
}

Result<int64_t> version_of(sqlite3* db) {
  Statement s(db, "PRAGMA user_version");
  STITCH_CHECK_OK(s.step().map([](bool) {}));
  return s.integer(0);
}

// The version that the file has then. Several processes may find an old file at once: the first changes it.
Result<int64_t> bring_up_to_date(sqlite3* db) {
  STITCH_TRY(int64_t version, version_of(db));
  if (version < kVersion) {
    STITCH_CHECK_OK(execute(db, "BEGIN IMMEDIATE"));
    STITCH_TRY(version, version_of(db));
    if (version < kVersion) STITCH_CHECK_OK(execute(db, version == 0 ? kSchema : kFrom1));
    STITCH_CHECK_OK(execute(db, "COMMIT"));
  }
  return std::max<int64_t>(version, kVersion);
}

// Of the whole open file and not of the process, so that it also excludes another store of the same process.
struct flock byte_lock(int64_t run) {
  struct flock l {};
  l.l_type = F_WRLCK;
  l.l_whence = SEEK_SET;
  l.l_start = run;
  l.l_len = 1;
  return l;
}

}  // namespace

Result<RunStore> RunStore::open(const std::filesystem::path& file) {
  STITCH_CHECK_OK(make_folder(file.parent_path()));
  sqlite3* db = nullptr;
  const int rc = sqlite3_open(file.c_str(), &db);
  RunStore store(db, file.string() + ".lock");
  sqlite3_busy_timeout(db, 5000);
  const auto unusable = [&](const std::string& why) {
    return ::stitch::fail(ErrorKind::environment, "The run store {} cannot be used ({}); check permissions and disk space, or move it away and run again.",
                          file.string(), why);
  };
  if (rc != SQLITE_OK || sqlite3_exec(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;", nullptr, nullptr, nullptr) != SQLITE_OK)
    return unusable(db ? sqlite3_errmsg(db) : "no memory");
  const auto version = bring_up_to_date(db);
  if (!version) return unusable(sqlite3_errmsg(db));
  if (*version > kVersion) return unusable(fmt::format("version {} of its format is newer than this stitchcuda", *version));
  return store;
}

RunStore::RunStore(RunStore&& o) noexcept
    : db_(std::exchange(o.db_, nullptr)), locks_(std::move(o.locks_)), held_(std::exchange(o.held_, -1)) {}
RunStore& RunStore::operator=(RunStore&& o) noexcept {
  std::swap(db_, o.db_);
  std::swap(locks_, o.locks_);
  std::swap(held_, o.held_);
  return *this;
}
RunStore::~RunStore() {
  release();
  sqlite3_close(db_);
}

Status RunStore::hold(int64_t run) {
  release();
  held_ = ::open(locks_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  struct flock l = byte_lock(run);
  if (held_ >= 0 && ::fcntl(held_, F_OFD_SETLK, &l) == 0) return {};
  const int error = errno;
  if (error == EAGAIN || error == EACCES) return ::stitch::fail(ErrorKind::environment, "Run {} is going on in another process; wait for it to finish.", run);
  return ::stitch::fail(ErrorKind::environment, "{} cannot be locked: {}.", locks_.string(), std::strerror(error));
}

void RunStore::release() {
  if (held_ >= 0) ::close(std::exchange(held_, -1));
}

bool RunStore::is_running(int64_t run) const {
  // Opened anew: a lock never excludes the open file that holds it.
  const int fd = ::open(locks_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct flock l = byte_lock(run);
  const bool held = ::fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
  ::close(fd);
  return held;
}

RunRow RunStore::seen(RunRow r) const {
  if (r.status == "running" && !is_running(r.id)) r.status = "interrupted";
  return r;
}

Result<int64_t> RunStore::begin(const RunRow& r) {
  STITCH_CHECK_OK(execute(db_, "BEGIN IMMEDIATE"));
  const auto insert = [&]() -> Result<int64_t> {
    Statement s(db_, "INSERT INTO runs(program, input, out, key, status, started) VALUES(?,?,?,?,'running',?)");
    s.bind(r.program).bind(r.input).bind(r.out).bind(r.key).bind(now());
    STITCH_CHECK_OK(s.run());
    const int64_t id = sqlite3_last_insert_rowid(db_);
    STITCH_CHECK_OK(hold(id));  // before anybody can see it
    return id;
  };
  Result<int64_t> id = insert();
  if (id)
    if (const Status s = execute(db_, "COMMIT"); !s) id = tl::make_unexpected(s.error());
  if (!id) (void)execute(db_, "ROLLBACK");
  return id;
}

Status RunStore::take_up(int64_t run) {
  STITCH_CHECK_OK(hold(run));
  Statement s(db_, "UPDATE runs SET status='running', finished=0, reason='' WHERE id=?");
  return s.bind(run).run();
}

Status RunStore::record_step(int64_t run, const StepRow& row) {
  Statement s(db_, "INSERT OR REPLACE INTO steps(run, step, attempt, seconds, data, recorded, files) VALUES(?,?,?,?,?,?,?)");
  s.bind(run).bind(row.step).bind(static_cast<int64_t>(row.attempt)).bind(row.seconds).bind(row.data).bind(now()).bind(row.files);
  return s.run();
}

Status RunStore::forget_step(int64_t run, const std::string& step) {
  Statement s(db_, "DELETE FROM steps WHERE run=? AND step=?");
  return s.bind(run).bind(step).run();
}

Status RunStore::set_aside(const std::string& out) {
  Statement s(db_, "UPDATE runs SET key='', status=CASE status WHEN 'running' THEN 'interrupted' ELSE status END WHERE out=? AND status IN ('running', 'failed')");
  return s.bind(out).run();
}

Status RunStore::fail(int64_t run, const std::string& reason) {
  Statement s(db_, "UPDATE runs SET status='failed', finished=?, reason=? WHERE id=?");
  const Status done = s.bind(now()).bind(reason).bind(run).run();
  release();
  return done;
}

Status RunStore::finish(int64_t run, const std::string& status, const std::string& verdict, const std::string& reason) {
  Statement s(db_, "UPDATE runs SET status=?, finished=?, verdict=?, reason=? WHERE id=?");
  STITCH_CHECK_OK(s.bind(status).bind(now()).bind(verdict).bind(reason).bind(run).run());
  release();
  return {};
}

Result<std::optional<RunRow>> RunStore::find_unfinished(const std::string& out, const std::string& key) {
  Statement s(db_, kSelectRun + "WHERE out=? AND key=? AND status IN ('running', 'failed') ORDER BY id DESC LIMIT 1");
  s.bind(out).bind(key);
  STITCH_TRY(const bool found, s.step());
  return found ? std::optional(seen(read_run(s))) : std::nullopt;
}

Result<std::vector<StepRow>> RunStore::steps(int64_t run) {
  Statement s(db_, "SELECT step, attempt, seconds, data, files FROM steps WHERE run=? ORDER BY recorded");
  s.bind(run);
  std::vector<StepRow> rows;
  while (true) {
    STITCH_TRY(const bool more, s.step());
    if (!more) return rows;
    rows.push_back({s.text(0), static_cast<int>(s.integer(1)), s.real(2), s.text(3), s.text(4)});
  }
}

Result<std::vector<RunRow>> RunStore::list(int limit) {
  Statement s(db_, kSelectRun + "ORDER BY id DESC LIMIT ?");
  s.bind(static_cast<int64_t>(limit));
  std::vector<RunRow> rows;
  while (true) {
    STITCH_TRY(const bool more, s.step());
    if (!more) return rows;
    rows.push_back(seen(read_run(s)));
  }
}

Result<std::optional<RunRow>> RunStore::get(int64_t run) {
  Statement s(db_, kSelectRun + "WHERE id=?");
  s.bind(run);
  STITCH_TRY(const bool found, s.step());
  return found ? std::optional(seen(read_run(s))) : std::nullopt;
}

}  // namespace stitch::loop
