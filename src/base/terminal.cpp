#include "base/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace stitch {

bool is_tty(int fd) { return isatty(fd) == 1; }

int terminal_width() {
  winsize w{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 100;
}

std::string format_bytes(uint64_t bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double v = static_cast<double>(bytes);
  size_t u = 0;
  while (v >= 1000 && u + 1 < std::size(units)) {
    v /= 1000;
    ++u;
  }
  return u == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", v, units[u]);
}

std::string format_duration(double s) {
  if (s < 60) return fmt::format("{:.2f} s", s);
  const auto whole = static_cast<int64_t>(s + 0.5);
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string Table::text() const {
  std::vector<size_t> width;
  std::vector<bool> right;
  std::vector<std::string> names;
  for (const std::string& h : header_) {
    right.push_back(!h.empty() && h[0] == '>');
    names.push_back(right.back() ? h.substr(1) : h);
    width.push_back(names.back().size());
  }
  for (const auto& row : rows_)
    for (size_t c = 0; c < std::min(row.size(), width.size()); ++c) width[c] = std::max(width[c], row[c].size());
  const auto line = [&](const std::vector<std::string>& row) {
    std::string out;
    for (size_t c = 0; c < width.size(); ++c) {
      const std::string& cell = c < row.size() ? row[c] : std::string();
      out += fmt::format("{}{}", c ? "  " : "", right[c] ? fmt::format("{:>{}}", cell, width[c]) : fmt::format("{:<{}}", cell, width[c]));
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::string out = line(names);
  for (const auto& row : rows_) out += line(row);
  return out;
}

}  // namespace stitch
