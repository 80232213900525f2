#include "loop/store.h"

#include <sqlite3.h>

#include <chrono>
#include <utility>

#include "base/files.h"

namespace stitch::loop {
namespace {

constexpr const char* kSchema = R"sql(
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
CREATE TABLE IF NOT EXISTS runs(
  id INTEGER PRIMARY KEY, program TEXT NOT NULL, input TEXT NOT NULL, out TEXT NOT NULL, key TEXT NOT NULL,
  status TEXT NOT NULL, started REAL NOT NULL, finished REAL NOT NULL DEFAULT 0, verdict TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS steps(
  run INTEGER NOT NULL REFERENCES runs(id), step TEXT NOT NULL, attempt INTEGER NOT NULL, seconds REAL NOT NULL,
  data TEXT NOT NULL, recorded REAL NOT NULL, PRIMARY KEY(run, step));
CREATE INDEX IF NOT EXISTS runs_by_out ON runs(out, key, status);
PRAGMA user_version=1;
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

const std::string kSelectRun = "SELECT id, program, input, out, key, status, started, finished, verdict FROM runs ";

RunRow read_run(const Statement& s) {
  return {s.integer(0), s.text(1), s.text(2), s.text(3), s.text(4), s.text(5), s.real(6), s.real(7), s.text(8)};
}

}  // namespace

Result<RunStore> RunStore::open(const std::filesystem::path& file) {
  STITCH_CHECK_OK(make_folder(file.parent_path()));
  sqlite3* db = nullptr;
  const int rc = sqlite3_open(file.c_str(), &db);
  RunStore store(db);
  sqlite3_busy_timeout(db, 5000);
  if (rc != SQLITE_OK || sqlite3_exec(db, kSchema, nullptr, nullptr, nullptr) != SQLITE_OK)
    return fail(ErrorKind::environment, "The run store {} cannot be used ({}); check permissions and disk space, or move it away and run again.",
                file.string(), db ? sqlite3_errmsg(db) : "no memory");
  return store;
}

RunStore::RunStore(RunStore&& o) noexcept : db_(std::exchange(o.db_, nullptr)) {}
RunStore& RunStore::operator=(RunStore&& o) noexcept {
  std::swap(db_, o.db_);
  return *this;
}
RunStore::~RunStore() { sqlite3_close(db_); }

Result<int64_t> RunStore::begin(const RunRow& r) {
  Statement s(db_, "INSERT INTO runs(program, input, out, key, status, started) VALUES(?,?,?,?,'running',?)");
  s.bind(r.program).bind(r.input).bind(r.out).bind(r.key).bind(now());
  STITCH_CHECK_OK(s.run());
  return sqlite3_last_insert_rowid(db_);
}

Status RunStore::record_step(int64_t run, const StepRow& row) {
  Statement s(db_, "INSERT OR REPLACE INTO steps(run, step, attempt, seconds, data, recorded) VALUES(?,?,?,?,?,?)");
  s.bind(run).bind(row.step).bind(static_cast<int64_t>(row.attempt)).bind(row.seconds).bind(row.data).bind(now());
  return s.run();
}

Status RunStore::forget_step(int64_t run, const std::string& step) {
  Statement s(db_, "DELETE FROM steps WHERE run=? AND step=?");
  return s.bind(run).bind(step).run();
}

Status RunStore::abandon(const std::string& out) {
  Statement s(db_, "UPDATE runs SET status='abandoned', finished=? WHERE out=? AND status='running'");
  return s.bind(now()).bind(out).run();
}

Status RunStore::finish(int64_t run, const std::string& status, const std::string& verdict) {
  Statement s(db_, "UPDATE runs SET status=?, finished=?, verdict=? WHERE id=?");
  return s.bind(status).bind(now()).bind(verdict).bind(run).run();
}

Result<std::optional<RunRow>> RunStore::find_unfinished(const std::string& out, const std::string& key) {
  Statement s(db_, kSelectRun + "WHERE out=? AND key=? AND status='running' ORDER BY id DESC LIMIT 1");
  s.bind(out).bind(key);
  STITCH_TRY(const bool found, s.step());
  return found ? std::optional(read_run(s)) : std::nullopt;
}

Result<std::vector<StepRow>> RunStore::steps(int64_t run) {
  Statement s(db_, "SELECT step, attempt, seconds, data FROM steps WHERE run=? ORDER BY recorded");
  s.bind(run);
  std::vector<StepRow> rows;
  while (true) {
    STITCH_TRY(const bool more, s.step());
    if (!more) return rows;
    rows.push_back({s.text(0), static_cast<int>(s.integer(1)), s.real(2), s.text(3)});
  }
}

Result<std::vector<RunRow>> RunStore::list(int limit) {
  Statement s(db_, kSelectRun + "ORDER BY id DESC LIMIT ?");
  s.bind(static_cast<int64_t>(limit));
  std::vector<RunRow> rows;
  while (true) {
    STITCH_TRY(const bool more, s.step());
    if (!more) return rows;
    rows.push_back(read_run(s));
  }
}

Result<std::optional<RunRow>> RunStore::get(int64_t run) {
  Statement s(db_, kSelectRun + "WHERE id=?");
  s.bind(run);
  STITCH_TRY(const bool found, s.step());
  return found ? std::optional(read_run(s)) : std::nullopt;
}

}  // namespace stitch::loop
