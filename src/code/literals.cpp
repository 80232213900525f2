#include "code/literals.h"

#include <fmt/format.h>

#include "base/json_full.h"
#include "base/json_util.h"
#include "base/terminal.h"

namespace stitch::code {

std::string comment_text(std::string_view text, size_t longest) {
  std::string out;
  for (char c : printable(text)) {
    if (c == '\n' || c == '\t') c = ' ';
    if (c == '\\') c = '/';
    const char before = out.empty() ? '\0' : out.back();
    if ((before == '*' && c == '/') || (before == '/' && c == '*') || (before == '?' && c == '?')) out += ' ';
    out += c;
  }
  if (out.size() <= longest) return out;
  size_t end = longest - 3;
  while (end > 0 && (out[end] & 0xc0) == 0x80) --end;  // not inside a character
  return out.substr(0, end) + "...";
}

std::string c_string(std::string_view text) {
  std::string out = "\"";
  char before = '\0';
  for (unsigned char c : text) {
    // "??/" would be a backslash where trigraphs are on.
    if (c == '"' || c == '\\' || (c == '?' && before == '?')) out += fmt::format("\\{}", static_cast<char>(c));
    else if (c < 0x20 || c > 0x7e) out += fmt::format("\\{:03o}", c);
    else out += static_cast<char>(c);
    before = static_cast<char>(c);
  }
  return out + "\"";
}

// JSON's escapes are Python's too, and what needs none stays UTF-8 (an escaped surrogate pair would be two characters).
std::string python_string(std::string_view text) { return dump(Json(text), -1); }

}  // namespace stitch::code
