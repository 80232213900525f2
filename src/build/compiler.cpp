#include "build/compiler.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "base/files.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/process.h"
#include "build/toolkit.h"

namespace stitch::build {
namespace {

fs::path cache_folder() { return data_home() / "cache/build"; }

// Which compiler this is: its path and version text, asked once per process.
Result<std::string> compiler_identity(const std::string& program) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  const std::lock_guard lock(mutex);
  if (const auto it = known.find(program); it != known.end()) return it->second;
  ProcessSpec spec;
  spec.argv = {program, "--version"};
  spec.timeout = std::chrono::seconds(30);
  STITCH_TRY(const ProcessResult r, run_process(spec));
  return known[program] = program + "\n" + r.out;
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (auto it = fs::recursive_directory_iterator(folder, ec); !ec && it != fs::recursive_directory_iterator(); it.increment(ec))
    if (it->is_regular_file(ec)) out.push_back(it->path());
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::string> key_of(const CompileStep& step) {
  Sha256 h;
  STITCH_TRY(const std::string identity, compiler_identity(step.argv.front()));
  h.field(identity);
  for (const std::string& a : step.argv) h.field(a);
  const auto add = [&](const fs::path& file, const std::string& name) -> Status {
    STITCH_TRY(const std::string digest, sha256_of_file(file));
    h.field(name).field(digest);
    return {};
  };
  for (const fs::path& f : step.inputs) STITCH_CHECK_OK(add(f, f.filename().string()));
  for (const fs::path& folder : step.folders)
    for (const fs::path& f : files_below(folder)) STITCH_CHECK_OK(add(f, f.lexically_relative(folder).string()));
  return h.hex();
}

// An entry is the file and its digest; a file whose digest differs (torn write, bit rot, tampering) is no hit.
bool fetch(const std::string& key, const fs::path& output) {
  const fs::path entry = cache_folder() / key;
  const auto digest = read_file(entry.string() + ".sha256");
  if (!digest) return false;
  const auto bytes = read_file(entry);
  if (!bytes || sha256_hex(*bytes) != *digest) return false;
  if (!write_file(output, *bytes)) return false;
  std::error_code ec;
  fs::permissions(output, fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec, ec);
  fs::last_write_time(entry, fs::file_time_type::clock::now(), ec);  // most recently used
  return true;
}

void keep(const std::string& key, const fs::path& output) {
  const auto bytes = read_file(output);
  if (!bytes) return;
  const fs::path entry = cache_folder() / key;
  if (write_file(entry, *bytes)) (void)write_file(entry.string() + ".sha256", sha256_hex(*bytes));
}

std::string summarise(const CompileStep& step, const StepOutcome& o, const ProcessResult& r) {
  if (r.timed_out) return fmt::format("{}: the compiler did not finish in {} s.", step.name, step.timeout.count());
  for (const Diagnostic& d : o.diagnostics)
    if (d.severity != "warning") {
      const std::string place = d.line > 0 ? fmt::format("{}:{}: ", fs::path(d.file).filename().string(), d.line) : "";
      return fmt::format("{}: {}{}", step.name, place, d.message);
    }
  return fmt::format("{}: {} ended with code {}.", step.name, step.argv.front(), r.exit_code);
}

}  // namespace

Result<StepOutcome> run_step(const CompileStep& step) {
  if (!find_program(step.argv.front()))
    return fail(ErrorKind::environment, "The compiler {} cannot be found; run make setup.", step.argv.front());
  STITCH_TRY(const std::string key, key_of(step));
  StepOutcome outcome;
  if (fetch(key, step.output)) {
    outcome.ok = outcome.cached = true;
    return outcome;
  }
  STITCH_CHECK_OK(make_folder(step.output.parent_path()));
  const fs::path temporary = step.output.parent_path() / fmt::format(".{}.{}.tmp{}", step.output.filename().string(), ::getpid(), step.output.extension().string());
  ProcessSpec spec;
  for (std::string a : step.argv) {
    if (const size_t at = a.find("{out}"); at != a.npos) a.replace(at, 5, temporary.string());
    spec.argv.push_back(std::move(a));
  }
  spec.timeout = step.timeout;
  STITCH_TRY(const ProcessResult r, run_process(spec));
  outcome.seconds = r.wall_seconds;
  outcome.log = r.out + r.err;
  outcome.diagnostics = parse_diagnostics(outcome.log);
  std::error_code ec;
  outcome.ok = r.ok() && fs::exists(temporary);
  if (!outcome.ok) {
    fs::remove(temporary, ec);
    if (outcome.log.find("No space left on device") != std::string::npos)
      return fail(ErrorKind::environment, "The disk is full: {} could not be compiled; free some space and run again.", step.name);
    outcome.summary = summarise(step, outcome, r);
    return outcome;
  }
  fs::rename(temporary, step.output, ec);
  if (ec) return fail(ErrorKind::environment, "{} cannot be put in place: {}.", step.output.string(), ec.message());
  keep(key, step.output);
  return outcome;
}

std::vector<Result<StepOutcome>> run_steps(const std::vector<CompileStep>& steps, int parallel) {
  std::vector<Result<StepOutcome>> out(steps.size(), fail(ErrorKind::internal, "not started"));
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next++) < steps.size();) out[i] = run_step(steps[i]);
  };
  std::vector<std::jthread> threads;
  for (int t = 1; t < std::min<int>(parallel, static_cast<int>(steps.size())); ++t) threads.emplace_back(work);
  work();
  threads.clear();
  return out;
}

void trim_cache(const CacheLimits& limits) {
  struct Entry {
    fs::path path;
    uint64_t bytes;
    fs::file_time_type used;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(cache_folder(), ec)) {
    if (e.path().extension() == ".sha256") continue;
    entries.push_back({e.path(), e.file_size(ec), e.last_write_time(ec)});
    total += entries.back().bytes;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& e : entries) {
    if (total <= limits.bytes) return;
    fs::remove(e.path, ec);
    fs::remove(e.path.string() + ".sha256", ec);
    total -= std::min(total, e.bytes);
  }
}

}  // namespace stitch::build
