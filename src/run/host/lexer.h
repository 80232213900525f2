#pragma once
// A C++ lexer that is just good enough to rewrite CUDA source in place: it knows comments, string and raw string literals
// and preprocessor lines, and keeps every token's offsets.

#include <string_view>
#include <vector>

namespace stitch::host {

enum class TokenKind {
  identifier,     // also keywords
  number,
  literal,        // string or character, any prefix
  punctuation,    // one character each; "::" is one token
  directive_end,  // empty token at the end of a preprocessor line
};

struct Token {
  TokenKind kind = TokenKind::punctuation;
  size_t begin = 0, end = 0;  // offsets in the source
  int line = 1;
  bool in_directive = false;
};

std::vector<Token> lex(std::string_view source);

}  // namespace stitch::host
