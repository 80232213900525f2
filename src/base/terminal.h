#pragma once
// What a terminal shows: sizes, durations, aligned tables.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace stitch {

bool is_tty(int fd);
int terminal_width();                       // columns of stderr, 100 when unknown
std::string format_bytes(uint64_t);         // "3.2 MB"
std::string format_duration(double seconds);  // "0.31 s", "2 min 05 s"

// Left-aligned columns, except those whose header starts with '>' (right-aligned; the sign is not printed).
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace stitch
