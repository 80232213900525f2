#include "base/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

namespace stitch {

bool is_tty(int fd) { return isatty(fd) == 1; }

int terminal_width() {
  winsize w{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 100;
}

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  constexpr const char* units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double v = static_cast<double>(bytes) / 1000;
  size_t u = 0;
  while (v >= 999.95 && u + 1 < std::size(units)) {  // 999.95 would print as 1000.0
    v /= 1000;
    ++u;
  }
  return fmt::format("{:.1f} {}", v, units[u]);
}

std::string format_duration(double s) {
  if (!std::isfinite(s) || s < 0) return "?";
  if (s > 0 && s < 0.01) return s < 9.995e-4 ? fmt::format("{:.0f} us", s * 1e6) : fmt::format("{:.1f} ms", s * 1e3);
  if (s < 59.995) return fmt::format("{:.2f} s", s);
  const auto whole = static_cast<int64_t>(std::min(s, 1e15) + 0.5);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

bool use_colour(int fd) {
  if (const char* no = std::getenv("NO_COLOR"); no && *no) return false;
  const char* term = std::getenv("TERM");
  return is_tty(fd) && term && *term && std::string_view(term) != "dumb";
}

std::string styled(std::string_view text, Style style, bool on) {
  if (!on) return std::string(text);
  constexpr const char* codes[] = {"1", "2", "31", "32", "33", "34"};
  return fmt::format("\033[{}m{}\033[0m", codes[static_cast<size_t>(style)], text);
}

size_t control_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  if (byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0) return 2;  // U+0080 to U+009F: 0x9b is the same as ESC [
  if (byte(0) != 0xe2) return 0;
  const unsigned last = byte(2);
  const bool separator_or_turn = byte(1) == 0x80 && (last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae));  // U+200E, 200F, 2028 to 202E
  const bool isolate = byte(1) == 0x81 && last >= 0xa6 && last <= 0xa9;                                              // U+2066 to 2069
  return separator_or_turn || isolate ? 3 : 0;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t control = text[i] == '\n' || text[i] == '\t' ? 0 : control_length(text, i);
    if (control > 0) out += '?';
    else out += text[i];
    i += std::max<size_t>(1, control);
  }
  return out;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = std::min(text.find('m', i), text.size() - 1);
      continue;
    }
    width += (text[i] & 0xc0) != 0x80;
  }
  return width;
}

std::string Table::text() const {
  std::vector<size_t> width;
  std::vector<bool> right;
  std::vector<std::string> names;
  for (const std::string& h : header_) {
    right.push_back(!h.empty() && h[0] == '>');
    names.push_back(right.back() ? h.substr(1) : h);
    width.push_back(display_width(names.back()));
  }
  for (const auto& row : rows_)
    for (size_t c = 0; c < std::min(row.size(), width.size()); ++c) width[c] = std::max(width[c], display_width(row[c]));
  const auto line = [&](const std::vector<std::string>& row) {
    std::string out;
    for (size_t c = 0; c < width.size(); ++c) {
      const std::string& cell = c < row.size() ? row[c] : std::string();
      const std::string space(width[c] - display_width(cell), ' ');
      out += (c ? "  " : "") + (right[c] ? space + cell : cell + space);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::string out = line(names);
  for (const auto& row : rows_) out += line(row);
  return out;
}

}  // namespace stitch
