#include "build/compiler.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"

namespace stitch::build {
namespace {

fs::path cache_folder() { return data_home() / "cache/build"; }

// What g++ and nvcc read besides their arguments.
constexpr const char* kVariables[] = {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "SOURCE_DATE_EPOCH",
                                      "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"};

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
  h.field("2").field(identity);  // the number changes with the layout of an entry
  for (const std::string& a : step.argv) h.field(a);
  h.field("versions");
  for (const std::string& v : step.versions) h.field(v);
  for (const char* name : kVariables) {
    const char* value = std::getenv(name);
    h.field(value ? value : "");
  }
  const auto add = [&](const fs::path& file, const std::string& name) -> Status {
    STITCH_TRY(const std::string digest, sha256_of_file(file));
    h.field(name).field(digest);
    return {};
  };
  for (const fs::path& f : step.inputs) STITCH_CHECK_OK(add(f, f.filename().string()));
  for (const fs::path& folder : step.folders) {
    h.field("folder");
    for (const fs::path& f : files_below(folder)) STITCH_CHECK_OK(add(f, f.lexically_relative(folder).string()));
  }
  return h.hex();
}

// An entry is the digest of a file and the file. One whose digest differs (torn write, bit rot, tampering) is no hit.
constexpr size_t kDigest = 64;

bool fetch(const std::string& key, const fs::path& output) {
  const fs::path entry = cache_folder() / key;
  auto bytes = read_file(entry);
  if (!bytes || bytes->size() <= kDigest) return false;
  const std::string_view content = std::string_view(*bytes).substr(kDigest);
  if (sha256_hex(content) != std::string_view(*bytes).substr(0, kDigest)) return false;
  if (!write_file(output, content)) return false;
  std::error_code ec;
  fs::permissions(output, fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec, ec);
  fs::last_write_time(entry, fs::file_time_type::clock::now(), ec);  // most recently used
  return true;
}

// A cache that cannot be written costs time, not correctness, so it is no error.
void keep(const std::string& key, const fs::path& output) {
  const auto bytes = read_file(output);
  if (bytes && !bytes->empty()) (void)write_file(cache_folder() / key, sha256_hex(*bytes) + *bytes);
}

std::string summarise(const CompileStep& step, const StepOutcome& o, const ProcessResult& r) {
  if (r.timed_out) return fmt::format("{}: the compiler did not finish in {} s.", step.name, step.timeout.count());
  const auto errors = std::count_if(o.diagnostics.begin(), o.diagnostics.end(), [](const Diagnostic& d) { return d.severity != "warning"; });
  if (errors == 0) {
    const std::string_view last = std::string_view(o.log).substr(0, o.log.find('\n')).substr(0, 200);
    return fmt::format("{}: {} ended with code {}{}{}", step.name, step.argv.front(), r.exit_code, last.empty() ? "." : ": ", last);
  }
  const Diagnostic& d = o.diagnostics.front();
  const std::string place = d.line > 0 ? fmt::format("{}:{}: ", fs::path(d.file).filename().string(), d.line) : "";
  const std::string more = errors > 1 ? fmt::format(" (and {} more error{})", errors - 1, errors > 2 ? "s" : "") : "";
  return fmt::format("{}: {}{}{}", step.name, place, d.message, more);
}

// What is wrong with the machine and not with the source, if anything is.
Status check_machine(const CompileStep& step, const StepOutcome& o, const ProcessResult& r) {
  const auto says = [&](const char* text) { return o.log.find(text) != std::string::npos; };
  if (says("No space left on device") || says("Disk quota exceeded"))
    return fail(ErrorKind::environment, "The disk is full: {} could not be compiled; free some space and run again.", step.name);
  if (says("virtual memory exhausted") || says("out of memory allocating") || says("Killed signal terminated program") || (r.signal == SIGKILL && !r.timed_out))
    return fail(ErrorKind::environment, "The compiler ran out of memory at {}; close some programs and run again.", step.name);
  return {};
}

// Runs the compiler; `output` is complete or not there.
Result<StepOutcome> compile(const CompileStep& step) {
  static std::atomic<unsigned> counter{0};
  std::error_code ec;
  const fs::path folder = fs::absolute(step.output, ec).parent_path();  // the compiler may run elsewhere
  STITCH_CHECK_OK(make_folder(folder));
  const fs::path temporary = folder / fmt::format(".{}.{}.{}.tmp{}", step.output.stem().string(), ::getpid(), counter++, step.output.extension().string());
  // nvcc leaves its intermediate files behind when it is killed: they go to a folder that does not outlive this step.
  STITCH_TRY(const TempFolder scratch, TempFolder::create("build"));
  ProcessSpec spec;
  for (std::string a : step.argv) {
    if (const size_t at = a.find("{out}"); at != a.npos) a.replace(at, 5, temporary.string());
    spec.argv.push_back(std::move(a));
  }
  spec.timeout = step.timeout;
  spec.working_folder = step.working_folder.string();
  spec.environment = {{"TMPDIR", scratch.path().string()}, {"LC_ALL", "C"}};  // diagnostics are parsed
  StepOutcome outcome;
  STITCH_TRY(const ProcessResult r, run_process(spec));
  outcome.seconds = r.wall_seconds;
  outcome.log = r.out + r.err;
  outcome.diagnostics = parse_diagnostics(outcome.log, step.working_folder);
  outcome.ok = r.ok() && fs::exists(temporary, ec);
  if (!outcome.ok) {
    fs::remove(temporary, ec);
    STITCH_CHECK_OK(check_machine(step, outcome, r));
    outcome.summary = summarise(step, outcome, r);
    return outcome;
  }
  fs::rename(temporary, step.output, ec);
  if (ec) return fail(ErrorKind::environment, "{} cannot be put in place: {}.", step.output.string(), ec.message());
  return outcome;
}

}  // namespace

Result<std::string> compiler_identity(const std::string& program) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  const auto path = find_program(program);
  if (!path) return fail(ErrorKind::environment, "The compiler {} cannot be found; run make setup.", program);
  const std::lock_guard lock(mutex);
  if (const auto it = known.find(*path); it != known.end()) return it->second;
  ProcessSpec spec;
  spec.argv = {*path, "--version"};
  spec.timeout = std::chrono::seconds(30);
  STITCH_TRY(const ProcessResult r, run_process(spec));
  return known[*path] = *path + "\n" + r.out;
}

Result<StepOutcome> run_step(const CompileStep& step) {
  STITCH_TRY(const std::string key, key_of(step));
  StepOutcome hit;
  hit.ok = hit.cached = true;
  if (fetch(key, step.output)) {
    log_debug("{}: from the cache ({})", step.name, key.substr(0, 12));
    return hit;
  }
  // Whoever comes second waits for the first and then finds its result. The lock only saves work: without it (a cache
  // that cannot be written) the step is compiled all the same.
  const fs::path lock_file = cache_folder() / (key + ".lock");
  const auto lock = FileLock::acquire(lock_file);
  Result<StepOutcome> outcome = hit;
  if (!lock || !fetch(key, step.output)) {
    outcome = compile(step);
    if (outcome && outcome->ok) keep(key, step.output);
  }
  std::error_code ec;
  if (lock) fs::remove(lock_file, ec);
  return outcome;
}

std::vector<Result<StepOutcome>> run_steps(const std::vector<CompileStep>& steps, int parallel) {
  std::vector<Result<StepOutcome>> out(steps.size(), fail(ErrorKind::internal, "not started"));
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next++) < steps.size();) out[i] = run_step(steps[i]);
  };
  std::vector<std::jthread> threads;
  try {
    for (int t = 1; t < std::min<int>(parallel, static_cast<int>(steps.size())); ++t) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads on this machine: those that started do all the work.
  }
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
    std::error_code gone;  // by another process
    const Entry entry{e.path(), e.file_size(gone), e.last_write_time(gone)};
    if (gone || e.path().extension() == ".lock") continue;
    entries.push_back(entry);
    total += entry.bytes;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& e : entries) {
    if (total <= limits.bytes) return;
    fs::remove(e.path, ec);
    total -= std::min(total, e.bytes);
  }
}

}  // namespace stitch::build
