#include "plan/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "ir/ops.h"

namespace stitch::plan {
namespace {

constexpr size_t kWords = 4;

std::string convolution_word(const ir::Graph& g, const ir::Node& n) {
  const ir::Shape& x = g.type_of(n.value("x")).shape;
  const int64_t groups = n.integer("groups");
  const char* depthwise = groups > 1 && groups == x[1] ? "depthwise_" : groups > 1 ? "grouped_" : "";
  return fmt::format("{}conv{}{}d", depthwise, n.boolean("transposed") ? "_transpose" : "", x.size() - 2);
}

std::string power_word(const ir::Node& n) {
  const ir::Arg& exponent = n.arg("y");
  const bool number = std::holds_alternative<double>(exponent) || std::holds_alternative<int64_t>(exponent);
  const double p = number ? n.number("y") : 0;
  return p == 2 ? "square" : p == 3 ? "cube" : p == 0.5 ? "sqrt" : "pow";
}

bool near(double a, double b) { return std::abs(a - b) < 1e-6; }

// Arithmetic that names a computation better than the elementwise steps around it.
bool is_anchor(const ir::Node& n) {
  switch (n.op->cls) {
    case ir::OpClass::pointwise:
    case ir::OpClass::movement:
    case ir::OpClass::source: return false;
    default: return true;
  }
}

}  // namespace

std::string word_for(const ir::Graph& g, const ir::Node& n) {
  const std::string op(n.op_name());
  if (op == "scaled_dot_product_attention") return "attention";
  if (op == "convolution") return convolution_word(g, n);
  if (op == "pow") return power_word(n);
  if (op == "elu" && near(n.number("scale"), 1.0507009873554805)) return "selu";
  if (op.ends_with("_pool")) return fmt::format("{}{}d", op, n.types.front().shape.size() - 2);
  if (op == "matmul") {
    const ir::Shape &a = g.type_of(n.value("a")).shape, &b = g.type_of(n.value("b")).shape;
    if (a.size() == 1 && b.size() == 1) return "dot";
    if (a.size() == 1 || b.size() == 1 || b.back() == 1) return "matvec";
  }
  return op;
}

std::string describe_nodes(const ir::Graph& g, const std::vector<int32_t>& nodes) {
  struct Word {
    std::string text;
    bool anchor;
  };
  std::vector<Word> words;
  for (const int32_t m : nodes) {
    const ir::Node& n = g.nodes[static_cast<size_t>(m)];
    if (n.op_name() == "view" || n.op_name() == "expand") continue;
    std::string text = word_for(g, n);
    const auto same = std::find_if(words.begin(), words.end(), [&](const Word& w) { return w.text == text; });
    if (same == words.end()) words.push_back({std::move(text), is_anchor(n)});
  }
  if (words.empty()) return "view";
  std::vector<std::string> kept;
  if (words.size() <= kWords) {
    for (const Word& w : words) kept.push_back(w.text);
    return fmt::format("{}", fmt::join(kept, "_"));
  }
  constexpr size_t room = kWords - 1;
  size_t anchors = static_cast<size_t>(std::count_if(words.begin(), words.end(), [](const Word& w) { return w.anchor; }));
  size_t others = anchors >= room ? 0 : room - anchors;
  anchors = room - others;
  for (const Word& w : words) {
    size_t& left = w.anchor ? anchors : others;
    if (left == 0) continue;
    --left;
    kept.push_back(w.text);
  }
  return fmt::format("{}_and_{}_more", fmt::join(kept, "_"), words.size() - room);
}

std::string describe_task(const ir::Graph& g, const std::vector<int32_t>& nodes, const std::vector<ir::ValueRef>& outputs) {
  std::string target;
  for (const ir::ValueRef& v : outputs) {
    bool state = false;
    for (const ir::Output& o : g.outputs)
      if (o.value == v) {
        if (o.kind == ir::Output::Kind::user) return describe_nodes(g, nodes);
        state = true;
        if (target.empty()) target = o.target;
      }
    if (!state) return describe_nodes(g, nodes);
  }
  if (target.empty()) return describe_nodes(g, nodes);
  constexpr size_t longest = 48;  // the end of a module path says more than its beginning
  if (target.size() > longest) target.erase(0, target.size() - longest);
  for (char& c : target)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return "update_" + target;
}

}  // namespace stitch::plan
