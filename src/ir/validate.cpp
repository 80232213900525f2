#include <set>

#include "ir/graph.h"
#include "ir/infer_rules.h"
#include "ir/ops.h"

namespace stitch::ir {
namespace {

struct Site {
  const Graph& g;
  const Node& n;
  int32_t index;
};

Status check_operands(const Site& s) {
  for (const ValueRef& v : operands(s.n)) {
    if (v.node >= s.index || v.node < 0)
      return fail(ErrorKind::bad_input, "reads %{}, which is not computed before it", v.node);
    if (v.output < 0 || static_cast<size_t>(v.output) >= s.g.at(v).types.size())
      return fail(ErrorKind::bad_input, "reads result {} of %{}, which has {}", v.output, v.node, s.g.at(v).types.size());
  }
  return {};
}

bool fits(ParamKind kind, const Arg& a) {
  const bool none = std::holds_alternative<None>(a), value = std::holds_alternative<ValueRef>(a);
  const bool number = std::holds_alternative<double>(a) || std::holds_alternative<int64_t>(a) || std::holds_alternative<bool>(a);
  switch (kind) {
    case ParamKind::tensor: return value;
    case ParamKind::tensor_opt: return value || none;
    case ParamKind::operand: return value || number;
    case ParamKind::operand_opt: return value || number || none;
    case ParamKind::tensors: return std::holds_alternative<ValueList>(a);
    case ParamKind::integer: return std::holds_alternative<int64_t>(a);
    case ParamKind::integer_opt: return std::holds_alternative<int64_t>(a) || none;
    case ParamKind::number: return std::holds_alternative<double>(a) || std::holds_alternative<int64_t>(a);
    case ParamKind::number_opt: return std::holds_alternative<double>(a) || std::holds_alternative<int64_t>(a) || none;
    case ParamKind::boolean: return std::holds_alternative<bool>(a);
    case ParamKind::text: return std::holds_alternative<std::string>(a);
    case ParamKind::text_opt: return std::holds_alternative<std::string>(a) || none;
    case ParamKind::dtype: return std::holds_alternative<DType>(a);
    case ParamKind::integers: return std::holds_alternative<IntList>(a);
    case ParamKind::integers_opt: return std::holds_alternative<IntList>(a) || none;
  }
  return false;
}

Status check_arguments(const Site& s) {
  if (s.n.args.size() != s.n.op->params.size())
    return fail(ErrorKind::bad_input, "has {} arguments, {} takes {}", s.n.args.size(), s.n.op->name, s.n.op->params.size());
  for (size_t i = 0; i < s.n.args.size(); ++i)
    if (!fits(s.n.op->params[i].kind, s.n.args[i]))
      return fail(ErrorKind::bad_input, "has an argument \"{}\" of the wrong kind", s.n.op->params[i].name);
  return {};
}

Status check_extents(const Site& s) {
  if (s.n.types.empty()) return fail(ErrorKind::bad_input, "has no result");
  if (static_cast<int>(s.n.types.size()) > s.n.op->max_results)
    return fail(ErrorKind::bad_input, "has {} results, {} gives at most {}", s.n.types.size(), s.n.op->name, s.n.op->max_results);
  for (const TensorType& t : s.n.types)
    if (!sane_extents(t.shape)) return fail(ErrorKind::bad_input, "has a negative extent or more than 2^48 elements: {}", to_string(t));
  return {};
}

Status check_types(const Site& s) {
  STITCH_TRY(const std::vector<TensorType> inferred, infer_types(s.g, s.n));
  if (inferred.size() != s.n.types.size())
    return fail(ErrorKind::bad_input, "declares {} results, but its arguments give {}", s.n.types.size(), inferred.size());
  for (size_t k = 0; k < inferred.size(); ++k)
    if (!(inferred[k] == s.n.types[k]))
      return fail(ErrorKind::bad_input, "is declared as {}, but its arguments give {}", to_string(s.n.types[k]), to_string(inferred[k]));
  return {};
}

bool is_leaf(const Node& n) { return n.op_name() == "input" || n.op_name() == "weight"; }

Status check_leaf(const Site& s) {
  if (!is_leaf(s.n)) return {};
  if (s.n.name.empty()) return fail(ErrorKind::bad_input, "has no name");
  if (s.index > 0 && !is_leaf(s.g.nodes[static_cast<size_t>(s.index) - 1])) return fail(ErrorKind::bad_input, "stands after a computed value");
  return {};
}

// In this order: later rules rely on earlier ones.
struct Rule {
  const char* name;
  Status (*check)(const Site&);
};
constexpr Rule kRules[] = {
    {"operands exist and precede", check_operands}, {"arguments fit the op", check_arguments},
    {"extents are sane", check_extents},            {"types follow from the arguments", check_types},
    {"inputs and weights are named and come first", check_leaf},
};

Status check_outputs(const Graph& g) {
  std::set<std::string> names, output_names, targets;
  for (const Node& n : g.nodes)
    if (is_leaf(n))
      if (!names.insert(std::string(n.op_name()) + ":" + n.name).second)
        return fail(ErrorKind::bad_input, "Two {}s are named \"{}\".", n.op_name(), n.name);
  for (const Output& o : g.outputs) {
    if (o.value.node < 0 || static_cast<size_t>(o.value.node) >= g.nodes.size() || o.value.output < 0 ||
        static_cast<size_t>(o.value.output) >= g.at(o.value).types.size())
      return fail(ErrorKind::bad_input, "Output \"{}\" names a value that does not exist.", o.name);
    if (!o.name.empty() && !output_names.insert(o.name).second) return fail(ErrorKind::bad_input, "Two outputs are named \"{}\".", o.name);
    if (o.kind == Output::Kind::user) continue;
    const char* op = o.kind == Output::Kind::mutates_weight ? "weight" : "input";
    const Node* target = nullptr;
    for (const Node& n : g.nodes)
      if (n.op_name() == op && n.name == o.target) target = &n;
    if (!targets.insert(fmt::format("{}:{}", op, o.target)).second)
      return fail(ErrorKind::bad_input, "Two outputs change the {} \"{}\".", op, o.target);
    if (!target) return fail(ErrorKind::bad_input, "Output \"{}\" changes the {} \"{}\", which does not exist.", o.name, op, o.target);
    if (!(target->type() == g.type_of(o.value)))
      return fail(ErrorKind::bad_input, "Output \"{}\" is {}, but the {} it changes is {}.", o.name, to_string(g.type_of(o.value)), op, to_string(target->type()));
  }
  return {};
}

}  // namespace

Status validate(const Graph& g) {
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    if (!n.op) return fail(ErrorKind::internal, "Node %{} has no op.", i);
    for (const Rule& rule : kRules) {
      const Status s = rule.check({g, n, static_cast<int32_t>(i)});
      if (s) continue;
      const std::string where = n.source.empty() ? "" : fmt::format(" (from {})", n.source);
      Error e = s.error();
      const std::string prefix = fmt::format("{}: ", n.op_name());  // of infer_types' errors
      if (e.message.starts_with(prefix)) e.message = "does not fit: " + e.message.substr(prefix.size());
      e.message = fmt::format("Node %{} {}{} {}.", i, n.op_name(), where, e.message);
      e.detail = fmt::format("rule: {}", rule.name);
      return tl::make_unexpected(std::move(e));
    }
  }
  return check_outputs(g);
}

}  // namespace stitch::ir
