#pragma once
// What a terminal shows: sizes, durations, colours, aligned tables.

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stitch {

bool is_tty(int fd);
int terminal_width();                       // columns of stderr, 100 when unknown
std::string format_bytes(uint64_t);         // "3.2 MB"
std::string format_duration(double seconds);  // "3.1 ms", "0.31 s", "2 min 05 s", "1 h 02 min"

// Colour is wanted: fd is a terminal that knows colours and NO_COLOR (no-color.org) is not set.
bool use_colour(int fd);
enum class Style { bold, dim, red, green, yellow, blue };
// `text` in that style, or as it is when `on` is false.
std::string styled(std::string_view text, Style, bool on);

// Bytes of the character at text[at] if it acts on what shows it instead of being shown: control characters (C0, DEL, C1), line and
// paragraph separators, and the marks that turn the direction of writing, which can make source text look like other text. Else 0.
size_t control_length(std::string_view text, size_t at);

// Text of others (a compiler, a model's names) made safe to print: characters that act on the terminal become '?'; tabs and newlines stay.
std::string printable(std::string_view text);

// Columns that text takes: code points, escape sequences of styled() not counted.
size_t display_width(std::string_view text);

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
