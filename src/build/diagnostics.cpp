#include <algorithm>
#include <charconv>

#include "base/files.h"
#include "build/compiler.h"

namespace stitch::build {
namespace {

int to_int(std::string_view s) {
  int v = 0;
  std::from_chars(s.data(), s.data() + s.size(), v);
  return v;
}

// g++:  file:line:col: error: text      nvcc: file(line): error: text   or   file(line): error #20: text
bool parse_line(std::string_view line, Diagnostic& d) {
  for (std::string_view severity : {"fatal error", "error", "warning"}) {
    size_t at = line.find(std::string(": ") + std::string(severity));
    if (at == line.npos) continue;
    const std::string_view head = line.substr(0, at);
    const size_t colon = line.find(':', at + 2 + severity.size());
    if (colon == line.npos) continue;
    d.severity = severity;
    d.message = line.substr(std::min(line.size(), colon + 2));
    if (!head.empty() && head.back() == ')') {
      const size_t open = head.rfind('(');
      if (open == head.npos) continue;
      d.file = head.substr(0, open);
      d.line = to_int(head.substr(open + 1));
      return true;
    }
    const size_t last = head.rfind(':');
    if (last == head.npos) {
      d.file = head;
      return severity != "warning";
    }
    const size_t before = head.rfind(':', last - 1);
    if (before != head.npos && to_int(head.substr(before + 1)) > 0) {
      d.file = head.substr(0, before);
      d.line = to_int(head.substr(before + 1));
      d.column = to_int(head.substr(last + 1));
    } else {
      d.file = head.substr(0, last);
      d.line = to_int(head.substr(last + 1));
    }
    return true;
  }
  // Linker: "undefined reference to `x'", "cannot find -lx"
  for (std::string_view key : {"undefined reference to", "undefined symbol", "cannot find -l", "unable to find library"})
    if (line.find(key) != line.npos) {
      d.severity = "error";
      d.message = line;
      return true;
    }
  return false;
}

void add_source_line(Diagnostic& d) {
  if (d.line <= 0) return;
  const auto text = read_file(d.file);
  if (!text) return;
  size_t at = 0;
  for (int l = 1; l < d.line && at != std::string::npos; ++l) {
    at = text->find('\n', at);
    if (at != std::string::npos) ++at;
  }
  if (at != std::string::npos) d.source_line = text->substr(at, std::min<size_t>(200, text->find('\n', at) - at));
}

}  // namespace

std::vector<Diagnostic> parse_diagnostics(const std::string& log) {
  std::vector<Diagnostic> out;
  for (size_t at = 0; at < log.size() && out.size() < 200;) {
    const size_t end = std::min(log.find('\n', at), log.size());
    Diagnostic d;
    if (parse_line(std::string_view(log).substr(at, end - at), d)) out.push_back(std::move(d));
    at = end + 1;
  }
  std::stable_sort(out.begin(), out.end(), [](const Diagnostic& a, const Diagnostic& b) { return (a.severity == "warning") < (b.severity == "warning"); });
  for (size_t i = 0; i < std::min<size_t>(out.size(), 10); ++i) add_source_line(out[i]);
  return out;
}

}  // namespace stitch::build
