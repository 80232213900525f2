#pragma once
// Messages for the person at the terminal, one line each on stderr. Results go to stdout and never through here.
// Level: set_log_level (a flag of the command line), else $STITCHCUDA_LOG (quiet, info, debug), else info.

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

namespace stitch {

enum class LogLevel { quiet, info, debug };  // quiet: warnings only; debug: every program run, every cache decision

LogLevel log_level();
void set_log_level(LogLevel);
std::optional<LogLevel> log_level_from_name(std::string_view);

namespace detail {
void log_line(std::string_view prefix, fmt::string_view format, fmt::format_args args);
}

// Thread-safe: a line is one write(2), so lines of several threads and processes do not mix.
template <class... A>
void log_warning(fmt::format_string<A...> format, A&&... a) {
  detail::log_line("warning: ", format, fmt::make_format_args(a...));
}
template <class... A>
void log_info(fmt::format_string<A...> format, A&&... a) {
  if (log_level() >= LogLevel::info) detail::log_line("", format, fmt::make_format_args(a...));
}
template <class... A>
void log_debug(fmt::format_string<A...> format, A&&... a) {
  if (log_level() >= LogLevel::debug) detail::log_line("debug: ", format, fmt::make_format_args(a...));
}

}  // namespace stitch
