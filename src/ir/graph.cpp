#include "ir/graph.h"

#include <stdexcept>

#include "ir/ops.h"

namespace stitch::ir {

std::string_view Node::op_name() const { return op->name; }

const Arg& Node::arg(std::string_view parameter) const {
  const int i = op->index_of(parameter);
  if (i < 0) throw std::logic_error(fmt::format("op {} has no parameter {}", op->name, parameter));
  return args[static_cast<size_t>(i)];
}
bool Node::has_arg(std::string_view parameter) const {
  const int i = op->index_of(parameter);
  return i >= 0 && !std::holds_alternative<None>(args[static_cast<size_t>(i)]);
}

namespace {
[[noreturn]] void wrong(const Node& n, std::string_view parameter, const char* wanted) {
  throw std::logic_error(fmt::format("argument {} of {} is not {}", parameter, n.op_name(), wanted));
}
}  // namespace

ValueRef Node::value(std::string_view parameter) const {
  if (const auto* v = std::get_if<ValueRef>(&arg(parameter))) return *v;
  wrong(*this, parameter, "a tensor");
}
int64_t Node::integer(std::string_view parameter) const {
  const Arg& a = arg(parameter);
  if (const auto* v = std::get_if<int64_t>(&a)) return *v;
  if (const auto* v = std::get_if<bool>(&a)) return *v;
  wrong(*this, parameter, "an integer");
}
double Node::number(std::string_view parameter) const {
  const Arg& a = arg(parameter);
  if (const auto* v = std::get_if<double>(&a)) return *v;
  if (const auto* v = std::get_if<int64_t>(&a)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<bool>(&a)) return *v;
  wrong(*this, parameter, "a number");
}
bool Node::boolean(std::string_view parameter) const {
  if (const auto* v = std::get_if<bool>(&arg(parameter))) return *v;
  wrong(*this, parameter, "true or false");
}
const IntList& Node::integers(std::string_view parameter) const {
  if (const auto* v = std::get_if<IntList>(&arg(parameter))) return *v;
  wrong(*this, parameter, "a list of integers");
}
const std::string& Node::text(std::string_view parameter) const {
  if (const auto* v = std::get_if<std::string>(&arg(parameter))) return *v;
  wrong(*this, parameter, "a string");
}

std::vector<int32_t> Graph::inputs() const {
  std::vector<int32_t> out;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].op_name() == "input") out.push_back(static_cast<int32_t>(i));
  return out;
}
std::vector<int32_t> Graph::weights() const {
  std::vector<int32_t> out;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].op_name() == "weight") out.push_back(static_cast<int32_t>(i));
  return out;
}

std::vector<ValueRef> operands(const Node& n) {
  std::vector<ValueRef> out;
  for (const Arg& a : n.args) {
    if (const auto* v = std::get_if<ValueRef>(&a)) out.push_back(*v);
    else if (const auto* list = std::get_if<ValueList>(&a))
      for (const ValueRef& v : *list)
        if (v.node >= 0) out.push_back(v);
  }
  return out;
}

std::vector<std::vector<int32_t>> users(const Graph& g) {
  std::vector<std::vector<int32_t>> out(g.nodes.size());
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (const ValueRef& v : operands(g.nodes[i])) {
      auto& list = out[static_cast<size_t>(v.node)];
      if (list.empty() || list.back() != static_cast<int32_t>(i)) list.push_back(static_cast<int32_t>(i));
    }
  return out;
}

}  // namespace stitch::ir
