#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/terminal.h"

namespace stitch {
namespace {

std::atomic<LogLevel>& level() {
  static std::atomic<LogLevel> value = [] {
    const char* v = std::getenv("STITCHCUDA_LOG");
    return log_level_from_name(v ? v : "").value_or(LogLevel::info);
  }();
  return value;
}

}  // namespace

LogLevel log_level() { return level().load(std::memory_order_relaxed); }
void set_log_level(LogLevel l) { level() = l; }

std::optional<LogLevel> log_level_from_name(std::string_view name) {
  if (name == "quiet") return LogLevel::quiet;
  if (name == "info") return LogLevel::info;
  if (name == "debug") return LogLevel::debug;
  return std::nullopt;
}

void detail::log_line(std::string_view prefix, fmt::string_view format, fmt::format_args args) {
  const std::string line = "stitchcuda: " + std::string(prefix) + printable(fmt::vformat(format, args)) + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t n = write(STDERR_FILENO, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody listens: nothing better to do
    rest.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace stitch
