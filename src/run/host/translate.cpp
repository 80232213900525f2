#include "run/host/translate.h"

#include <algorithm>
#include <optional>

#include "run/host/lexer.h"

namespace stitch::host {
namespace {

struct Edit {
  size_t begin, end;  // replaced range of the source
  std::string text;
};

struct Declarator {
  std::string stars, name, dims;
  bool unsized = false;  // first dimension is []
};

const std::string kEmulatorMacro = "STITCH_HOST_EMULATOR", kDeviceMacro = "__CUDA_ARCH__";

class Translator {
 public:
  Translator(std::string_view source, const std::string& file) : s_(source), file_(file), tokens_(lex(source)) {}

  Result<std::string> run() {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (is(i, "#") && tokens_[i].in_directive && (i == 0 || !tokens_[i - 1].in_directive || directive_end(i - 1)))
        directive(i);
      if (skipping()) continue;
      track_scope(i);
      if (is_launch(i)) {
        STITCH_CHECK_OK(launch(i));
        i += 2;
      } else if (is(i, "__shared__")) {
        STITCH_TRY(const size_t end, shared(i));
        i = end;
      } else if (is(i, "__noinline__") && !(i > 0 && is(i - 1, "("))) {
        replace(i, i + 1, "__attribute__((noinline))");
      } else if ((is(i, "asm") || is(i, "__asm__") || is(i, "__asm")) && !tokens_[i].in_directive) {
        return error(i, "inline PTX (asm) cannot run on the host target; put it inside #ifdef __CUDA_ARCH__ (or #ifndef STITCH_HOST_EMULATOR) and "
                        "give a C++ form in the #else");
      }
    }
    return apply();
  }

 private:
  std::string_view text(size_t i) const { return s_.substr(tokens_[i].begin, tokens_[i].end - tokens_[i].begin); }
  bool is(size_t i, std::string_view word) const {
    return i < tokens_.size() && tokens_[i].kind != TokenKind::literal && text(i) == word;
  }
  bool identifier(size_t i) const { return i < tokens_.size() && tokens_[i].kind == TokenKind::identifier; }
  bool directive_end(size_t i) const { return tokens_[i].kind == TokenKind::directive_end; }
  bool adjacent(size_t i) const { return tokens_[i].end == tokens_[i + 1].begin; }
  bool triple(size_t i, std::string_view c) const {
    return is(i, c) && is(i + 1, c) && is(i + 2, c) && adjacent(i) && adjacent(i + 1);
  }
  bool is_launch(size_t i) const { return i > 0 && triple(i, "<"); }

  tl::unexpected<Error> error(size_t i, std::string_view message) const {
    return fail(ErrorKind::unsupported, "{}:{}: {}", file_, tokens_[i].line, message);
  }

  // Tokens [first, last) on one line, single spaces between them.
  std::string flat(size_t first, size_t last) const {
    std::string out;
    for (size_t i = first; i < last; ++i) {
      if (!out.empty() && !(tokens_[i - 1].end == tokens_[i].begin)) out += ' ';
      out += text(i);
    }
    return out;
  }

  // Replaces tokens [first, last) and keeps their line breaks (continued ones inside a macro), so that lines stay put.
  void replace(size_t first, size_t last, std::string text) {
    const size_t begin = tokens_[first].begin, end = tokens_[last - 1].end;
    const auto breaks = std::count(s_.begin() + static_cast<long>(begin), s_.begin() + static_cast<long>(end), '\n');
    for (long n = 0; n < breaks; ++n) text += tokens_[first].in_directive ? " \\\n" : "\n";
    edits_.push_back({begin, end, std::move(text)});
  }

  // ---- conditional compilation ----

  struct Condition {
    bool known = false, active = true;
  };
  bool skipping() const {
    return std::any_of(conditions_.begin(), conditions_.end(), [](const Condition& c) { return !c.active; });
  }
  // The host target defines STITCH_HOST_EMULATOR and leaves __CUDA_ARCH__ undefined. Only forms whose value is plain are
  // decided; of anything else, both branches are translated and the compiler decides.
  static Condition evaluate(const std::string& keyword, std::string e) {
    std::erase_if(e, [](char c) { return c == ' ' || c == '(' || c == ')'; });
    if (keyword == "ifdef" || keyword == "ifndef") {
      if (e != kEmulatorMacro && e != kDeviceMacro) return {};
      return {true, (e == kEmulatorMacro) == (keyword == "ifdef")};
    }
    if (e == "0") return {true, false};
    if (e.find("||") != std::string::npos) return {};
    if (e == kEmulatorMacro || e == "defined" + kEmulatorMacro || e == "!defined" + kDeviceMacro) return {true, true};
    for (size_t at = 0; at <= e.size();) {  // one false term makes the conjunction false
      const size_t next = std::min(e.find("&&", at), e.size());
      const std::string term = e.substr(at, next - at);
      if (term == "!defined" + kEmulatorMacro || term == "!" + kEmulatorMacro || term == "defined" + kDeviceMacro ||
          term.starts_with(kDeviceMacro + ">") || term == kDeviceMacro)
        return {true, false};
      at = next + 2;
    }
    return {};
  }
  void directive(size_t i) {
    size_t last = i + 1;
    while (last < tokens_.size() && !directive_end(last)) ++last;
    if (last <= i + 1) return;
    const std::string keyword(text(i + 1));
    if (keyword == "if" || keyword == "ifdef" || keyword == "ifndef") {
      conditions_.push_back(evaluate(keyword, flat(i + 2, last)));
    } else if (conditions_.empty()) {
      return;
    } else if (keyword == "endif") {
      conditions_.pop_back();
    } else if (keyword == "else") {
      Condition& c = conditions_.back();
      if (c.known) c.active = !c.active;
    } else if (keyword == "elif") {
      Condition& c = conditions_.back();
      if (c.known && c.active) c.active = false;
      else c = evaluate("if", flat(i + 2, last));
    }
  }

  // ---- scope: is a declaration at namespace level? ----

  void track_scope(size_t i) {
    if (tokens_[i].in_directive) return;
    if (is(i, "}") && !scopes_.empty()) scopes_.pop_back();
    if (!is(i, "{")) return;
    size_t before = i;
    while (before > 0 && (identifier(before - 1) || is(before - 1, "::")) && !is(before - 1, "namespace")) --before;
    const bool named = before > 0 && is(before - 1, "namespace");
    const bool linkage = i > 1 && tokens_[i - 1].kind == TokenKind::literal && is(i - 2, "extern");
    scopes_.push_back(named || linkage);
  }
  bool at_namespace_scope(size_t i) const {
    return !tokens_[i].in_directive && std::all_of(scopes_.begin(), scopes_.end(), [](bool n) { return n; });
  }

  // ---- launches ----

  // Index of the bracket that closes (step = 1) or opens (step = -1) the one at i.
  std::optional<size_t> match(size_t i, std::string_view open, std::string_view close, int step) const {
    int depth = 0;
    for (size_t j = i; j < tokens_.size(); j += static_cast<size_t>(step)) {
      if (is(j, open)) ++depth;
      if (is(j, close)) --depth;
      if (depth == 0) return j;
      if (j == 0 && step < 0) break;
    }
    return {};
  }
  // Opening '<' of the template argument list that ends at i; brackets inside may hold '>' of their own.
  std::optional<size_t> match_angle_back(size_t i) const {
    int depth = 0;
    for (size_t j = i;; --j) {
      if (is(j, ")") || is(j, "]") || is(j, "}")) {
        const auto open = is(j, ")") ? match(j, ")", "(", -1) : is(j, "]") ? match(j, "]", "[", -1) : match(j, "}", "{", -1);
        if (!open) return {};
        j = *open;
      } else if (is(j, ">") && !(j > 0 && is(j - 1, "-"))) {
        ++depth;
      } else if (is(j, "<") && --depth == 0) {
        return j;
      } else if (is(j, ";") || directive_end(j)) {
        return {};
      }
      if (j == 0) return {};
    }
  }

  // First token of the kernel expression that ends just before `end`: a name with any qualification and template
  // arguments, a call, an element of an array of function pointers, or something in parentheses.
  std::optional<size_t> kernel_begin(size_t end) const {
    size_t i = end;
    while (i > 0) {
      size_t part = i - 1;
      if (is(part, ">")) {
        const auto open = match_angle_back(part);
        if (!open || *open == 0) return {};
        part = *open - 1;
        if (!identifier(part)) return {};
      } else if (is(part, ")") || is(part, "]")) {
        const auto open = is(part, ")") ? match(part, ")", "(", -1) : match(part, "]", "[", -1);
        if (!open) return {};
        part = *open;
        if (part > 0 && (identifier(part - 1) || is(part - 1, "]")) && !is(part - 1, "return")) {
          i = part;
          continue;
        }
      } else if (!identifier(part)) {
        return {};
      }
      i = part;
      if (i > 0 && is(i - 1, "template")) --i;
      if (i > 0 && (is(i - 1, "::") || is(i - 1, "."))) {
        --i;
        if (i == 0 || !(identifier(i - 1) || is(i - 1, ">") || is(i - 1, ")")) || is(i - 1, "return")) return i;
        continue;
      }
      if (i > 1 && is(i - 1, ">") && is(i - 2, "-")) {
        i -= 2;
        continue;
      }
      return i;
    }
    return i;
  }

  Status launch(size_t open) {
    const auto begin = kernel_begin(open);
    if (!begin || *begin == open) return error(open, "cannot find the kernel name before <<<");
    size_t close = open + 3;
    for (;; ++close) {
      if (close >= tokens_.size() || is(close, ";"))
        return error(open, "<<< without a matching >>>(");
      if (is(close, "(") || is(close, "[") || is(close, "{")) {
        const auto end = is(close, "(") ? match(close, "(", ")", 1) : is(close, "[") ? match(close, "[", "]", 1) : match(close, "{", "}", 1);
        if (!end) return error(open, "unbalanced brackets in the launch configuration");
        close = *end;
      } else if (triple(close, ">") && is(close + 3, "(")) {
        break;  // the last three of a run of '>', so that f<g<T>>>> style template arguments stay whole
      }
    }
    const std::string k = flat(*begin, open);
    std::string name = k;
    for (size_t at = 0; (at = name.find_first_of("\"\\", at)) != std::string::npos; at += 2) name.insert(at, "\\");
    replace(*begin, open,
            fmt::format("[=](auto stitch_t) {{ if constexpr (requires {{ ::stitch_emu::pointer_kernel(stitch_t, \"\", {0}); }}) "
                        "return ::stitch_emu::pointer_kernel(stitch_t, \"{1}\", {0}); else return ::stitch_emu::generic_kernel("
                        "\"{1}\", [=](auto... stitch_a) {{ {0}(stitch_a...); }}); }}(0)", k, name));
    replace(open, open + 3, ".configure(");
    replace(close, close + 3, ")");
    return {};
  }

  // ---- shared memory ----

  bool is_align(size_t i) const { return is(i, "alignas") || is(i, "__align__") || is(i, "__builtin_align__"); }

  // Declaration specifiers may stand before __shared__.
  size_t shared_begin(size_t i) const {
    static constexpr std::string_view words[] = {"extern", "static", "volatile", "const", "float", "double", "int",
                                                 "unsigned", "char", "short", "long", "half", "bool"};
    for (;;) {
      if (i > 0 && std::any_of(std::begin(words), std::end(words), [&](auto w) { return is(i - 1, w); })) {
        --i;
        continue;
      }
      if (i > 0 && is(i - 1, ")")) {
        const auto open = match(i - 1, ")", "(", -1);
        if (open && *open > 0 && is_align(*open - 1)) {
          i = *open - 1;
          continue;
        }
      }
      if (i > 1 && is(i - 1, "]") && is(i - 2, "]")) {
        const auto open = match(i - 1, "]", "[", -1);
        if (open) {
          i = *open;
          continue;
        }
      }
      return i;
    }
  }

  // Rewrites the declaration around `keyword`; returns the index of its ';'.
  Result<size_t> shared(size_t keyword) {
    const size_t begin = shared_begin(keyword);
    size_t end = keyword;
    while (end < tokens_.size() && !is(end, ";")) {
      if (is(end, "{")) return error(end, "give the type of a __shared__ struct or union a name before it is used");
      if (directive_end(end)) break;
      ++end;
    }
    if (end >= tokens_.size()) return error(keyword, "__shared__ declaration without ';'");
    bool is_extern = false;
    std::string align;
    std::vector<size_t> rest;
    for (size_t i = begin; i < end; ++i) {
      if (is(i, "extern")) is_extern = true;
      else if (is(i, "__shared__") || is(i, "static")) continue;
      else if (is_align(i) && is(i + 1, "(")) {
        const size_t close = match(i + 1, "(", ")", 1).value_or(i + 1);
        align = flat(i + 2, close);
        i = close;
      } else if (is(i, "[") && is(i + 1, "[")) i = match(i, "[", "]", 1).value_or(i);
      else rest.push_back(i);
    }
    std::string base;
    const std::vector<Declarator> declarators = parse(rest, base);
    if (declarators.empty() || base.empty()) return error(keyword, "cannot read this __shared__ declaration");
    std::string out;
    for (const Declarator& d : declarators) {
      STITCH_TRY(const std::string one, emit(d, base, align, is_extern, keyword));
      out += (out.empty() ? "" : "; ") + one;
    }
    replace(begin, end, out);
    return end;
  }

  std::vector<Declarator> parse(const std::vector<size_t>& t, std::string& base) const {
    std::vector<Declarator> out;
    size_t from = 0;
    while (from < t.size()) {
      // The name is the last identifier before the first '[' or ',' outside template arguments and parentheses.
      int angle = 0, paren = 0;
      size_t name = t.size(), stop = from;
      for (; stop < t.size(); ++stop) {
        const size_t i = t[stop];
        if (is(i, "(")) ++paren;
        if (is(i, ")")) --paren;
        if (paren) continue;
        if (is(i, "<")) ++angle;
        if (is(i, ">")) --angle;
        if (angle) continue;
        if (is(i, "[") || is(i, ",")) break;
        if (identifier(i)) name = stop;
      }
      if (name == t.size()) return {};
      Declarator d;
      d.name = text(t[name]);
      size_t stars = name;
      while (stars > from && is(t[stars - 1], "*")) --stars;
      d.stars.assign(name - stars, '*');
      if (out.empty())
        for (size_t k = from; k < stars; ++k) base += (base.empty() ? "" : " ") + std::string(text(t[k]));
      int depth = 0;
      for (; stop < t.size() && !(depth == 0 && is(t[stop], ",")); ++stop) {
        if (is(t[stop], "[") || is(t[stop], "(") || is(t[stop], "{")) ++depth;
        if (is(t[stop], "]") || is(t[stop], ")") || is(t[stop], "}")) --depth;
        d.dims += std::string(text(t[stop])) + " ";
      }
      d.unsized = d.dims.starts_with("[ ]");
      if (d.unsized) d.dims.erase(0, 4);
      out.push_back(std::move(d));
      from = stop + 1;
    }
    return out;
  }

  Result<std::string> emit(const Declarator& d, const std::string& base, const std::string& align, bool is_extern,
                           size_t at) const {
    const std::string type = base + d.stars + (d.dims.empty() ? "" : " " + d.dims);
    if (is_extern || d.unsized) {
      if (at_namespace_scope(at))
        return fmt::format("[[maybe_unused]] static ::stitch_emu::DynamicShared<{}> {}", type, d.name);
      return fmt::format("[[maybe_unused]] auto* {} = ::stitch_emu::dynamic_shared<{}>()", d.name, type);
    }
    if (at_namespace_scope(at)) return error(at, "a __shared__ variable outside a function cannot be emulated; declare it in the kernel");
    return fmt::format("[[maybe_unused]] auto& {0} = ::stitch_emu::shared<{1}>([] {{}}, \"{0}\"{2})", d.name, type,
                       align.empty() ? "" : ", " + align);
  }

  std::string apply() {
    std::sort(edits_.begin(), edits_.end(), [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
    std::string out = "#line 1 \"" + file_ + "\"\n";
    size_t at = 0;
    for (const Edit& e : edits_) {
      out += s_.substr(at, e.begin - at);
      out += e.text;
      at = e.end;
    }
    out += s_.substr(at);
    return out;
  }

  std::string_view s_;
  const std::string& file_;
  std::vector<Token> tokens_;
  std::vector<Edit> edits_;
  std::vector<Condition> conditions_;
  std::vector<bool> scopes_;  // true = namespace or extern "C"
};

}  // namespace

Result<std::string> translate(std::string_view cu_source, const std::string& file_name) {
  return Translator(cu_source, file_name).run();
}

}  // namespace stitch::host
