#include "run/host/lexer.h"

#include <cctype>
#include <string>
#include <utility>

namespace stitch::host {
namespace {

bool starts_identifier(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool continues_identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : s_(source) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) step();
    if (in_directive_) end_directive();
    return std::move(tokens_);
  }

 private:
  char peek(size_t n = 0) const { return at_ + n < s_.size() ? s_[at_ + n] : '\0'; }

  void advance(size_t n) {
    for (; n > 0 && at_ < s_.size(); --n)
      if (s_[at_++] == '\n') ++line_;
  }
  void push(TokenKind kind, size_t length) {
    tokens_.push_back({kind, at_, at_ + length, line_, in_directive_});
    advance(length);
    line_start_ = false;
  }
  void end_directive() {
    tokens_.push_back({TokenKind::directive_end, at_, at_, line_, true});
    in_directive_ = false;
  }

  void step() {
    const char c = peek();
    if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) return advance(peek(1) == '\n' ? 2 : 3);
    if (c == '\n') {
      if (in_directive_) end_directive();
      line_start_ = true;
      return advance(1);
    }
    if (std::isspace(static_cast<unsigned char>(c))) return advance(1);
    if (c == '/' && peek(1) == '/') return line_comment();
    if (c == '/' && peek(1) == '*') {
      const size_t end = s_.find("*/", at_ + 2);
      return advance(end == std::string_view::npos ? s_.size() - at_ : end + 2 - at_);
    }
    if (c == '#' && line_start_) in_directive_ = true;
    if (starts_identifier(c)) return identifier();
    if (std::isdigit(static_cast<unsigned char>(c)) || (c == '.' && std::isdigit(static_cast<unsigned char>(peek(1)))))
      return number();
    if (c == '"' || c == '\'') return quoted(0);
    if (c == ':' && peek(1) == ':') return push(TokenKind::punctuation, 2);
    push(TokenKind::punctuation, 1);
  }

  void line_comment() {
    while (at_ < s_.size() && peek() != '\n') advance(peek() == '\\' && peek(1) == '\n' ? 2 : 1);
  }

  void identifier() {
    size_t n = 1;
    while (continues_identifier(peek(n))) ++n;
    const std::string_view word = s_.substr(at_, n);
    if (peek(n) == '"' || peek(n) == '\'') {
      if (peek(n) == '"' && word.ends_with('R') && word.size() <= 3) return raw_string(n);
      if (word == "L" || word == "u" || word == "U" || word == "u8") return quoted(n);
    }
    push(TokenKind::identifier, n);
  }

  void number() {
    size_t n = 1;
    for (;; ++n) {
      const char c = peek(n), before = peek(n - 1);
      if ((c == '+' || c == '-') && (before == 'e' || before == 'E' || before == 'p' || before == 'P')) continue;
      if (c == '\'' && continues_identifier(peek(n + 1))) continue;  // digit separator
      if (!continues_identifier(c) && c != '.') break;
    }
    push(TokenKind::number, n);
  }

  void quoted(size_t prefix) {
    const char quote = peek(prefix);
    size_t n = prefix + 1;
    while (at_ + n < s_.size() && peek(n) != quote && peek(n) != '\n') n += peek(n) == '\\' ? 2 : 1;
    push(TokenKind::literal, n + 1);
  }

  void raw_string(size_t prefix) {
    const size_t open = s_.find('(', at_ + prefix);
    if (open == std::string_view::npos) return push(TokenKind::literal, s_.size() - at_);
    std::string close = ")";
    close += s_.substr(at_ + prefix + 1, open - at_ - prefix - 1);
    close += '"';
    const size_t end = s_.find(close, open);
    push(TokenKind::literal, end == std::string_view::npos ? s_.size() - at_ : end + close.size() - at_);
  }

  std::string_view s_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true, in_directive_ = false;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace stitch::host
