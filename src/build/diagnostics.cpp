#include <cxxabi.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <tuple>

#include "base/files.h"
#include "build/compiler.h"

namespace stitch::build {
namespace {

// Longer lines are template noise, or hostile.
constexpr size_t kLongestLine = 2000, kLongestMessage = 400, kMostDiagnostics = 200, kMostSources = 10;

int to_int(std::string_view s) {
  int v = 0;
  std::from_chars(s.data(), s.data() + s.size(), v);
  return v;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

std::string demangle(const std::string& symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  const std::string out = status == 0 && text ? text : symbol;
  std::free(text);
  return out;
}

// ptxas and nvlink name functions as '_Z1gf'.
std::string demangle_quoted(std::string_view text) {
  std::string out;
  while (true) {
    const size_t open = text.find("'_Z");
    const size_t close = open == text.npos ? text.npos : text.find('\'', open + 1);
    if (close == text.npos) return out + std::string(text);
    out += std::string(text.substr(0, open + 1)) + demangle(std::string(text.substr(open + 1, close - open - 1))) + "'";
    text.remove_prefix(close + 1);
  }
}

std::string_view between(std::string_view text, std::string_view open, std::string_view close) {
  const size_t a = text.find(open);
  if (a == text.npos) return {};
  const size_t begin = a + open.size();
  return trim(text.substr(begin, close.empty() ? text.npos : text.find(close, begin) - begin));
}

// What a linker says, in any of GNU ld's, mold's, ptxas's and nvlink's words.
std::string link_message(std::string_view line) {
  std::string_view symbol;
  if (line.find("undefined reference to") != line.npos) symbol = between(line, "undefined reference to `", "'");
  else if (line.find("undefined symbol: ") != line.npos) symbol = between(line, "undefined symbol: ", "");
  else if (line.find("Unresolved extern function '") != line.npos) symbol = between(line, "Unresolved extern function '", "'");
  else if (line.find("Undefined reference to '") != line.npos) symbol = between(line, "Undefined reference to '", "'");
  if (!symbol.empty()) return fmt::format("{} is used, but nothing in the program or its libraries defines it", demangle(std::string(symbol)));
  if (const auto twice = between(line, "multiple definition of `", "'"); !twice.empty()) return fmt::format("{} is defined more than once", demangle(std::string(twice)));
  if (const auto twice = between(line, "duplicate symbol: ", ""); !twice.empty()) return fmt::format("{} is defined more than once", twice.substr(twice.rfind(": ") == twice.npos ? 0 : twice.rfind(": ") + 2));
  std::string_view library = between(line, "cannot find -l", ":");
  if (library.empty()) library = between(line, "library not found: ", "");
  if (library.empty()) library = between(line, "unable to find library -l", "");
  if (!library.empty()) return fmt::format("the library {} cannot be found", library);
  return "";
}

// "file:line:col" or "file:line" or "file(line)", whatever is there.
void read_place(std::string_view head, Diagnostic& d) {
  if (!head.empty() && head.back() == ')') {
    const size_t open = head.rfind('(');
    if (open != head.npos && to_int(head.substr(open + 1)) > 0) {
      d.file = head.substr(0, open);
      d.line = to_int(head.substr(open + 1));
      return;
    }
  }
  const size_t last = head.rfind(':');
  const int number = last == head.npos ? 0 : to_int(head.substr(last + 1));
  if (number <= 0) return;  // the head is a tool: "g++", "collect2"
  const size_t before = last == 0 ? head.npos : head.rfind(':', last - 1);
  const int outer = before == head.npos ? 0 : to_int(head.substr(before + 1));
  d.file = head.substr(0, outer > 0 ? before : last);
  d.line = outer > 0 ? outer : number;
  d.column = outer > 0 ? number : 0;
}

struct Word {
  std::string_view text, severity;
};
// The first of these in a line decides, so that a warning whose text speaks of an error stays a warning.
constexpr Word kWords[] = {
    {": fatal error:", "fatal error"}, {": error:", "error"}, {": warning:", "warning"}, {": fatal:", "fatal error"},
    {": error #", "error"}, {": warning #", "warning"}, {": catastrophic error:", "fatal error"}, {": internal error:", "fatal error"},
    {" error   :", "error"}, {" fatal   :", "fatal error"}, {" warning :", "warning"}, {": sorry, unimplemented:", "error"},
};

bool parse_line(std::string_view line, Diagnostic& d) {
  const Word* found = nullptr;
  size_t at = line.npos;
  for (const Word& w : kWords)
    if (const size_t p = line.find(w.text); p < at) at = p, found = &w;
  if (const std::string link = link_message(line); !link.empty()) {
    d.severity = found && found->severity == "warning" ? "warning" : "error";
    d.message = link;
    return true;
  }
  if (!found) return false;
  d.severity = found->severity;
  read_place(trim(line.substr(0, at)), d);
  std::string_view message = line.substr(at + found->text.size());
  if (found->text.back() == '#') message.remove_prefix(std::min(message.size(), message.find(": ") + 2));  // its number
  d.message = demangle_quoted(trim(message).substr(0, kLongestMessage));
  return !d.message.empty();
}

// "collect2: error: ld returned 1 exit status" and the like only repeat that something failed.
bool only_repeats(const Diagnostic& d) {
  for (const char* text : {"returned 1 exit status", "Ptx assembly aborted", "compilation terminated"})
    if (d.message.find(text) != std::string::npos) return true;
  return false;
}

int rank(const Diagnostic& d) { return d.severity == "warning" ? 2 : only_repeats(d) ? 1 : 0; }

void add_source_line(Diagnostic& d, const fs::path& folder) {
  if (d.line <= 0) return;
  // The file's name comes from the candidate's own #line directives: nothing but a plain file of sensible size is opened.
  const fs::path file = folder / d.file;
  std::error_code ec;
  if (!fs::is_regular_file(file, ec) || fs::file_size(file, ec) > (8u << 20)) return;
  const auto text = read_file(file);
  if (!text) return;
  size_t at = 0;
  for (int l = 1; l < d.line && at != std::string::npos; ++l) {
    at = text->find('\n', at);
    if (at != std::string::npos) ++at;
  }
  if (at != std::string::npos) d.source_line = text->substr(at, std::min<size_t>(200, text->find('\n', at) - at));
}

}  // namespace

std::vector<Diagnostic> parse_diagnostics(const std::string& log, const fs::path& folder) {
  std::vector<Diagnostic> out;
  std::set<std::tuple<std::string, int, std::string>> seen;  // a symbol used in ten places is missing once
  bool instantiation_wanted = false;
  for (size_t at = 0; at < log.size() && out.size() < kMostDiagnostics;) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string_view line = std::string_view(log).substr(at, std::min(end - at, kLongestLine));
    at = end + 1;
    Diagnostic d;
    if (parse_line(line, d)) {
      instantiation_wanted = seen.insert({d.file, d.line, d.message}).second;
      if (instantiation_wanted) out.push_back(std::move(d));
    } else if (const size_t during = line.find("detected during"); during != line.npos && instantiation_wanted) {
      // The place in a header is of little use without the line that asked for it.
      out.back().message += fmt::format(" ({})", trim(line.substr(during)).substr(0, kLongestMessage));
      instantiation_wanted = false;
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Diagnostic& a, const Diagnostic& b) { return rank(a) < rank(b); });
  if (!out.empty() && rank(out.front()) == 0) std::erase_if(out, [](const Diagnostic& d) { return rank(d) == 1; });
  for (size_t i = 0; i < std::min(out.size(), kMostSources); ++i) add_source_line(out[i], folder);
  return out;
}

}  // namespace stitch::build
