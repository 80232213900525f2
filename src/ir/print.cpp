#include <fmt/ranges.h>

#include <cmath>

#include "base/json_full.h"
#include "base/json_util.h"
#include "ir/graph.h"
#include "ir/ops.h"

namespace stitch::ir {
namespace {

std::string quoted(const std::string& s) { return dump(Json(s), -1); }

// Shortest form that reads back as the same double, and never looks like an integer.
std::string number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  std::string s = fmt::format("{}", v);
  if (s.find_first_of(".en") == s.npos) s += ".0";
  return s;
}

std::string reference(const Graph& g, ValueRef v) {
  if (v.node < 0) return "none";
  const bool many = static_cast<size_t>(v.node) < g.nodes.size() && g.at(v).types.size() > 1;
  return many ? fmt::format("%{}.{}", v.node, v.output) : fmt::format("%{}", v.node);
}

struct Printer {
  const Graph& g;
  std::string operator()(None) const { return "none"; }
  std::string operator()(ValueRef v) const { return reference(g, v); }
  std::string operator()(const ValueList& list) const {
    std::vector<std::string> parts;
    for (ValueRef v : list) parts.push_back(reference(g, v));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(int64_t i) const { return fmt::format("{}", i); }
  std::string operator()(double d) const { return number(d); }
  std::string operator()(const std::string& s) const { return quoted(s); }
  std::string operator()(DType d) const { return std::string(name_of(d)); }
  std::string operator()(const IntList& l) const { return fmt::format("[{}]", fmt::join(l, ",")); }
  std::string operator()(const FloatList& l) const {
    std::vector<std::string> parts;
    for (double d : l) parts.push_back(number(d));
    return fmt::format("[{}]", fmt::join(parts, ","));
  }
};

// -0.0 equals the default 0.0 but is not the same.
bool same(const Arg& a, const Arg& b) {
  const auto *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  return a == b && (!x || !y || std::signbit(*x) == std::signbit(*y));
}

std::string print_args(const Graph& g, const Node& n) {
  std::vector<std::string> parts;
  size_t skipped = 0;  // positional Nones not yet written: trailing ones stay away
  for (size_t i = 0; i < n.args.size(); ++i) {
    if (!is_positional(n.op->params[i].kind)) continue;
    if (std::holds_alternative<None>(n.args[i])) {
      ++skipped;
      continue;
    }
    for (; skipped > 0; --skipped) parts.push_back("none");
    parts.push_back(std::visit(Printer{g}, n.args[i]));
  }
  for (size_t i = 0; i < n.args.size(); ++i) {
    const Param& p = n.op->params[i];
    if (is_positional(p.kind) || (!p.required && same(n.args[i], p.default_value))) continue;
    parts.push_back(fmt::format("{}={}", p.name, std::visit(Printer{g}, n.args[i])));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string attributes(std::initializer_list<std::pair<const char*, const std::string*>> list) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : list)
    if (!value->empty()) parts.push_back(fmt::format("{}={}", key, quoted(*value)));
  return parts.empty() ? "" : fmt::format(" {{{}}}", fmt::join(parts, ", "));
}

std::string print_types(const Node& n) {
  if (n.types.size() == 1) return to_string(n.types.front());
  std::vector<std::string> parts;
  for (const TensorType& t : n.types) parts.push_back(to_string(t));
  return fmt::format("({})", fmt::join(parts, ", "));
}

}  // namespace

std::string print(const Graph& g) {
  std::string out;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    out += fmt::format("%{}: {} = {}({}){}\n", i, print_types(n), n.op_name(), print_args(g, n),
                       attributes({{"name", &n.name}, {"scope", &n.scope}, {"source", &n.source}}));
  }
  std::vector<std::string> parts;
  const std::string none;
  for (const Output& o : g.outputs)
    parts.push_back(reference(g, o.value) +
                    attributes({{"name", &o.name},
                                {"mutates_weight", o.kind == Output::Kind::mutates_weight ? &o.target : &none},
                                {"mutates_input", o.kind == Output::Kind::mutates_input ? &o.target : &none}}));
  out += fmt::format("return {}\n", fmt::join(parts, ", "));
  return out;
}

}  // namespace stitch::ir
