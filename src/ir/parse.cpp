#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json_full.h"
#include "base/json_util.h"
#include "base/terminal.h"
#include "ir/graph.h"
#include "ir/ops.h"

namespace stitch::ir {
namespace {

constexpr size_t kMaxRank = 12;

// Recursive descent over one line. Every mistake is one sentence with the line number.
class LineParser {
 public:
  LineParser(std::string_view text, std::string_view what, int line, const Graph& g) : text_(text), what_(what), line_(line), g_(g) {}

  Result<Node> node(int32_t index) {
    STITCH_CHECK_OK(expect('%'));
    STITCH_TRY(const int64_t id, integer());
    if (id != index) return wrong(fmt::format("node number %{} here, found %{}", index, id));
    STITCH_CHECK_OK(expect(':'));
    Node n;
    STITCH_TRY(n.types, types());
    STITCH_CHECK_OK(expect('='));
    const std::string name = word();
    n.op = find_op(name);
    if (!n.op) return unknown_op(name);
    for (const Param& p : n.op->params) n.args.push_back(p.default_value);
    STITCH_CHECK_OK(arguments(n));
    STITCH_CHECK_OK(attributes([&](const std::string& key, std::string value) {
      if (key == "name") n.name = std::move(value);
      else if (key == "scope") n.scope = std::move(value);
      else if (key == "source") n.source = std::move(value);
      else return false;
      return true;
    }));
    STITCH_CHECK_OK(end());
    return n;
  }

  Result<std::vector<Output>> outputs() {
    std::vector<Output> out;
    if (word() != "return") return wrong("\"return\"");
    while (!at_end()) {
      if (!out.empty()) STITCH_CHECK_OK(expect(','));
      Output o;
      STITCH_TRY(o.value, reference());
      if (o.value.node < 0) return wrong("a value such as %3");
      STITCH_CHECK_OK(attributes([&](const std::string& key, std::string value) {
        if (key == "name") o.name = std::move(value);
        else if (key == "mutates_weight" || key == "mutates_input") {
          o.kind = key == "mutates_weight" ? Output::Kind::mutates_weight : Output::Kind::mutates_input;
          o.target = std::move(value);
        } else return false;
        return true;
      }));
      out.push_back(std::move(o));
    }
    return out;
  }

 private:
  tl::unexpected<Error> wrong(const std::string& expected) const {
    const std::string rest = printable(text_.substr(std::min(at_, text_.size()), 24));
    return fail(ErrorKind::bad_input, "{}, line {}: expected {} before \"{}\".", what_, line_, expected, rest);
  }

  tl::unexpected<Error> unknown_op(const std::string& name) const {
    // Nearest by edit distance, to help with a typing mistake.
    std::string_view best;
    size_t best_distance = 4;
    for (const OpSchema& op : all_ops()) {
      const size_t d = distance(name, op.name);
      if (d < best_distance) {
        best_distance = d;
        best = op.name;
      }
    }
    const std::string hint = best.empty() ? "" : fmt::format("; did you mean \"{}\"?", best);
    return fail(ErrorKind::unsupported, "{}, line {}: there is no op \"{}\"{}.", what_, line_, name.substr(0, 64), hint);
  }
  static size_t distance(std::string_view a, std::string_view b) {
    if (a.size() > 64) return 64;
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= b.size(); ++j) {
        const size_t up = row[j];
        row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
        diagonal = up;
      }
    }
    return row.back();
  }

  void skip() { while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_; }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  Status expect(char c) {
    if (!accept(c)) return wrong(fmt::format("'{}'", c));
    return {};
  }
  bool at_end() { return peek() == '\0' || peek() == '#'; }
  Status end() {
    if (!at_end()) return wrong("the end of the line");
    return {};
  }
  std::string word() {
    skip();
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }
  Result<int64_t> integer() {
    skip();
    int64_t v = 0;
    const auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (r.ec != std::errc{}) return wrong("an integer");
    at_ = static_cast<size_t>(r.ptr - text_.data());
    return v;
  }

  Result<TensorType> type() {
    const std::string name = word();
    const auto dtype = dtype_from_name(name);
    if (!dtype) return wrong("a type such as f32[2,3]");
    TensorType t{*dtype, {}};
    STITCH_CHECK_OK(expect('['));
    while (peek() != ']') {
      if (!t.shape.empty()) STITCH_CHECK_OK(expect(','));
      STITCH_TRY(const int64_t e, integer());
      if (t.shape.size() >= kMaxRank) return wrong(fmt::format("at most {} dimensions", kMaxRank));
      t.shape.push_back(e);
    }
    STITCH_CHECK_OK(expect(']'));
    return t;
  }
  Result<std::vector<TensorType>> types() {
    std::vector<TensorType> out;
    if (!accept('(')) {
      STITCH_TRY(TensorType t, type());
      out.push_back(std::move(t));
      return out;
    }
    do {
      STITCH_TRY(TensorType t, type());
      out.push_back(std::move(t));
    } while (accept(','));
    STITCH_CHECK_OK(expect(')'));
    return out;
  }

  // "%N" or "%N.K" of an earlier node.
  Result<ValueRef> reference() {
    STITCH_CHECK_OK(expect('%'));
    STITCH_TRY(const int64_t node, integer());
    int64_t output = 0;
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      STITCH_TRY(output, integer());
    }
    if (node < 0 || node >= static_cast<int64_t>(g_.nodes.size())) return wrong(fmt::format("an earlier node (there is no %{} yet)", node));
    if (output < 0 || output >= static_cast<int64_t>(g_.nodes[static_cast<size_t>(node)].types.size()))
      return wrong(fmt::format("a result of %{} (there is no %{}.{})", node, node, output));
    return ValueRef{static_cast<int32_t>(node), static_cast<int32_t>(output)};
  }

  Result<std::string> string() {
    skip();
    const size_t start = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) return wrong("a closing quote");
    ++at_;
    STITCH_TRY(const Json j, parse_json(text_.substr(start, at_ - start), fmt::format("The string in line {} of {}", line_, what_)));
    return j.get<std::string>();
  }

  Result<Arg> scalar_number() {
    skip();
    const char* first = text_.data() + at_;
    const char* last = text_.data() + text_.size();
    size_t n = 0;
    while (first + n < last && (std::isalnum(static_cast<unsigned char>(first[n])) || first[n] == '.' || first[n] == '-' || first[n] == '+')) ++n;
    const std::string_view token(first, n);
    if (token.find_first_of(".enai") == token.npos) {
      STITCH_TRY(const int64_t i, integer());
      return Arg(i);
    }
    double d = 0;
    const auto r = std::from_chars(first, first + n, d);
    if (r.ec != std::errc{} || r.ptr != first + n) return wrong("a number");
    at_ += n;
    return Arg(d);
  }

  Result<Arg> list() {
    STITCH_CHECK_OK(expect('['));
    ValueList values;
    IntList ints;
    FloatList floats;
    while (peek() != ']') {
      if (!values.empty() || !ints.empty() || !floats.empty()) STITCH_CHECK_OK(expect(','));
      if (peek() == '%') {
        STITCH_TRY(const ValueRef v, reference());
        values.push_back(v);
      } else if (peek() == 'n' && text_.substr(at_, 4) == "none") {
        at_ += 4;
        values.push_back({-1, 0});
      } else {
        STITCH_TRY(const Arg a, scalar_number());
        if (const auto* i = std::get_if<int64_t>(&a); i && floats.empty()) ints.push_back(*i);
        else floats.push_back(std::holds_alternative<double>(a) ? std::get<double>(a) : static_cast<double>(std::get<int64_t>(a)));
      }
      if ((!values.empty()) + (!ints.empty()) + (!floats.empty()) > 1) return wrong("entries of one kind");
    }
    STITCH_CHECK_OK(expect(']'));
    if (!values.empty()) return Arg(std::move(values));
    if (!floats.empty()) return Arg(std::move(floats));
    return Arg(std::move(ints));
  }

  Result<Arg> value() {
    const char c = peek();
    if (c == '%') {
      STITCH_TRY(const ValueRef v, reference());
      return Arg(v);
    }
    if (c == '[') return list();
    if (c == '"') {
      STITCH_TRY(std::string s, string());
      return Arg(std::move(s));
    }
    if (std::isalpha(static_cast<unsigned char>(c))) {
      const size_t mark = at_;
      const std::string w = word();
      if (w == "none") return Arg(None{});
      if (w == "true") return Arg(true);
      if (w == "false") return Arg(false);
      if (w == "inf") return Arg(std::numeric_limits<double>::infinity());
      if (w == "nan") return Arg(std::numeric_limits<double>::quiet_NaN());
      if (const auto d = dtype_from_name(w)) return Arg(*d);
      at_ = mark;
      return wrong("a value");
    }
    return scalar_number();
  }

  // Parameters that are written without their name: tensors and operands, whatever stands between them in the table.
  static std::vector<size_t> positional_parameters(const OpSchema& op) {
    std::vector<size_t> out;
    for (size_t i = 0; i < op.params.size(); ++i)
      if (is_positional(op.params[i].kind)) out.push_back(i);
    return out;
  }

  Status arguments(Node& n) {
    STITCH_CHECK_OK(expect('('));
    const std::vector<size_t> positional = positional_parameters(*n.op);
    size_t next = 0;
    bool first = true;
    std::vector<bool> given(n.args.size(), false);
    while (peek() != ')') {
      if (!first) STITCH_CHECK_OK(expect(','));
      first = false;
      size_t index = n.args.size();
      const auto take_positional = [&] { if (next < positional.size()) index = positional[next++]; };
      const size_t mark = at_;
      if (std::isalpha(static_cast<unsigned char>(peek()))) {
        const std::string key = word();
        if (peek() == '=') {
          ++at_;
          const int i = n.op->index_of(key);
          if (i < 0) return wrong(fmt::format("a parameter of {} (it has no \"{}\")", n.op->name, key.substr(0, 40)));
          index = static_cast<size_t>(i);
        } else {
          at_ = mark;
          take_positional();
        }
      } else {
        take_positional();
      }
      if (index >= n.args.size()) return wrong(fmt::format("no more arguments of {}", n.op->name));
      if (given[index]) return wrong(fmt::format("each argument of {} once", n.op->name));
      STITCH_TRY(n.args[index], value());
      given[index] = true;
    }
    STITCH_CHECK_OK(expect(')'));
    canonicalise(g_, n);
    for (size_t i = 0; i < n.args.size(); ++i)
      if (n.op->params[i].required && !given[i])
        return fail(ErrorKind::bad_input, "{}, line {}: {} needs the argument \"{}\".", what_, line_, n.op->name, n.op->params[i].name);
    return {};
  }

  template <class F>
  Status attributes(F&& set) {
    if (!accept('{')) return {};
    bool first = true;
    while (peek() != '}') {
      if (!first) STITCH_CHECK_OK(expect(','));
      first = false;
      const std::string key = word();
      STITCH_CHECK_OK(expect('='));
      if (peek() != '"') return wrong("a string in quotes");
      STITCH_TRY(std::string v, string());
      if (!set(key, std::move(v))) return wrong(fmt::format("a known attribute (\"{}\" is none)", key.substr(0, 40)));
    }
    return expect('}');
  }

  std::string_view text_, what_;
  int line_;
  const Graph& g_;
  size_t at_ = 0;
};

}  // namespace

Result<Graph> parse(std::string_view text, std::string_view what) {
  Graph g;
  bool returned = false;
  int line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view raw = text.substr(at, end - at);
    at = end + 1;
    ++line;
    const size_t start = raw.find_first_not_of(" \t\r");
    if (start == raw.npos || raw[start] == '#') continue;
    if (raw.find('\0') != raw.npos) return fail(ErrorKind::bad_input, "{}, line {}: it holds a zero byte; the text is damaged.", what, line);
    if (returned) return fail(ErrorKind::bad_input, "{}, line {}: nothing may follow the return line.", what, line);
    LineParser p(raw, what, line, g);
    if (raw.substr(start, 6) == "return") {
      STITCH_TRY(g.outputs, p.outputs());
      returned = true;
    } else {
      STITCH_TRY(Node n, p.node(static_cast<int32_t>(g.nodes.size())));
      g.nodes.push_back(std::move(n));
    }
  }
  if (!returned) return fail(ErrorKind::bad_input, "{} ends without a return line; it is cut off.", what);
  return g;
}

}  // namespace stitch::ir
