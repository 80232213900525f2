// Entry point of the type rules, and the rules of sources, pointwise ops, reductions, scans and rows.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <unordered_set>

#include "ir/infer_rules.h"

namespace stitch::ir {

bool sane_extents(const Shape& s) {
  int64_t total = 1;
  for (int64_t e : s) {
    // Each extent alone too: beside a zero, the product says nothing about the others.
    if (e < 0 || e > kMaxElements || (e > 0 && total > kMaxElements / e)) return false;
    total *= e;
  }
  return true;
}

namespace rules {
namespace {

using OpSet = std::unordered_set<std::string_view>;

const OpSet& comparisons() {
  static const OpSet ops = {"eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor", "isnan", "isinf"};
  return ops;
}
const OpSet& float_only() {
  static const OpSet ops = {
      "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin",
      "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "log_sigmoid", "gelu", "silu",
      "mish", "hardswish", "hardsigmoid", "elu", "leaky_relu", "softplus", "hardshrink", "softshrink", "frac", "atan2", "hypot",
      "logaddexp", "xlogy", "lerp", "addcdiv"};
  return ops;
}
const OpSet& bitwise() {
  static const OpSet ops = {"bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"};
  return ops;
}

Status check_choice(const Ctx& c, std::string_view parameter, std::initializer_list<std::string_view> choices) {
  const int i = c.n.op->index_of(parameter);
  if (i < 0 || !c.n.has_arg(parameter)) return {};
  const std::string& value = c.n.text(parameter);
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) return c.bad("{} \"{}\" is unknown", parameter, value.substr(0, 40));
  return {};
}

// The result's dtype is PyTorch's promotion, done by capture; only what cannot be right is refused here.
Result<DType> pointwise_dtype(const Ctx& c) {
  const std::string_view op = c.n.op->name;
  const DType d = c.declared();
  if (comparisons().count(op)) return DType::b8;
  if (op == "cast") return d;
  if (op == "where" && std::holds_alternative<ValueRef>(c.n.arg("condition")) && !is_bool(c.in("condition").dtype))
    return c.bad("the condition must be b8, not {}", name_of(c.in("condition").dtype));
  bool float_operand = false;
  for (size_t i = op == "where" ? 1 : 0; i < c.n.args.size(); ++i)
    if (const auto* v = std::get_if<ValueRef>(&c.n.args[i])) float_operand = float_operand || is_floating(c.g.type_of(*v).dtype);
  if (bitwise().count(op)) {
    if (float_operand || is_floating(d)) return c.bad("works on integers and bools only");
    return d;
  }
  const bool gives_float = float_only().count(op) || (op == "div" && !c.n.has_arg("rounding_mode"));
  if ((gives_float || float_operand) && !is_floating(d)) return c.bad("the result is a float, but {} is declared", name_of(d));
  return d;
}

Result<Shape> reduced(const Ctx& c, const IntList& dims, bool keepdim) {
  const Shape& s = c.shape("x");
  std::vector<bool> drop(s.size(), dims.empty());
  for (int64_t d : dims) {
    STITCH_TRY(const size_t k, dim_in(c, d, s.size()));
    if (s.empty()) continue;
    if (drop[k]) return c.bad("dim {} is named twice", k);
    drop[k] = true;
  }
  Shape out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (!drop[i]) out.push_back(s[i]);
    else if (keepdim) out.push_back(1);
  }
  return out;
}

// The largest of no elements does not exist: PyTorch refuses it too.
Status not_over_nothing(const Ctx& c, const Shape& result) {
  if (numel(c.shape("x")) == 0 && numel(result) != 0) return c.bad("reduces over zero elements, which has no result");
  return {};
}

// sum, prod and their scans: ints and bools add up in an integer dtype (i64 unless the program asked for another).
DType accumulated(const Ctx& c) {
  const bool fits = is_floating(c.in("x").dtype) ? is_floating(c.declared()) : is_integral(c.declared());
  if (fits) return c.declared();
  return is_floating(c.in("x").dtype) ? c.in("x").dtype : DType::i64;
}

}  // namespace

Result<size_t> dim_in(const Ctx& c, int64_t d, size_t rank) {
  if (d < 0 || d >= static_cast<int64_t>(std::max<size_t>(rank, 1))) return c.bad("dim {} is out of range for rank {}", d, rank);
  return static_cast<size_t>(d);
}
Result<size_t> real_dim_in(const Ctx& c, int64_t d, size_t rank) {
  if (rank == 0) return c.bad("a scalar has no dims");
  return dim_in(c, d, rank);
}
Status shape_is(const Ctx& c, std::string_view p, const Shape& want) {
  if (c.n.has_arg(p) && c.shape(p) != want) return c.bad("{} must have shape {}, not {}", p, to_string(want), to_string(c.shape(p)));
  return {};
}
Status one_dtype(const Ctx& c, std::initializer_list<std::string_view> parameters) {
  const TensorType* first = nullptr;
  for (std::string_view p : parameters) {
    if (!c.n.has_arg(p)) continue;
    const TensorType& t = c.in(p);
    if (!first) first = &t;
    else if (t.dtype != first->dtype) return c.bad("{} is {} but {} is {}; cast one of them", *parameters.begin(), name_of(first->dtype), p, name_of(t.dtype));
  }
  return {};
}
Result<DType> float_result(const Ctx& c) {
  if (!is_floating(c.declared())) return c.bad("the result is a float, but {} is declared", name_of(c.declared()));
  return c.declared();
}

Result<Types> source(const Ctx& c) {
  if (c.is("full")) return Types{{c.declared(), c.n.integers("size")}};
  if (c.is("eye")) return Types{{c.declared(), {c.n.integer("rows"), c.n.integer("cols")}}};
  if (c.is("arange")) {
    const double step = c.n.number("step");
    const double count = std::ceil((c.n.number("end") - c.n.number("start")) / step);
    if (step == 0 || !std::isfinite(count)) return c.bad("start, end and step must be finite, and step not 0");
    if (count > static_cast<double>(kMaxElements)) return c.bad("has more than 2^48 elements");
    return Types{{c.declared(), {static_cast<int64_t>(std::max(0.0, count))}}};
  }
  return c.n.types;  // input, weight
}

Result<Types> pointwise(const Ctx& c) {
  STITCH_CHECK_OK(check_choice(c, "approximate", {"none", "tanh"}));
  STITCH_CHECK_OK(check_choice(c, "rounding_mode", {"floor", "trunc"}));
  Shape shape;
  for (const Arg& a : c.n.args)
    if (const auto* v = std::get_if<ValueRef>(&a)) {
      const Shape& s = c.g.type_of(*v).shape;
      const auto b = broadcast(shape, s);
      if (!b) return c.bad("shapes {} and {} do not broadcast", to_string(shape), to_string(s));
      shape = *b;
    }
  STITCH_TRY(const DType dtype, pointwise_dtype(c));
  return Types{{dtype, std::move(shape)}};
}

Result<Types> reduction(const Ctx& c) {
  STITCH_TRY(Shape shape, reduced(c, c.n.integers("dims"), c.n.boolean("keepdim")));
  if (c.is("any") || c.is("all")) return Types{{DType::b8, std::move(shape)}};
  if (c.is("sum") || c.is("prod")) return Types{{accumulated(c), std::move(shape)}};
  if (c.is("amax") || c.is("amin")) {
    STITCH_CHECK_OK(not_over_nothing(c, shape));
    return Types{{c.in("x").dtype, std::move(shape)}};
  }
  if (!is_floating(c.in("x").dtype)) return c.bad("x must be a float, not {}; cast it first", name_of(c.in("x").dtype));
  STITCH_TRY(const DType dtype, float_result(c));
  return Types{{dtype, std::move(shape)}};
}

Result<Types> arg_reduction(const Ctx& c) {
  IntList dims;
  if (c.n.has_arg("dim")) dims = {c.n.integer("dim")};
  STITCH_TRY(Shape shape, reduced(c, dims, c.n.boolean("keepdim")));
  STITCH_CHECK_OK(not_over_nothing(c, shape));
  if (c.n.op->max_results == 1) return Types{{DType::i64, shape}};
  return Types{{c.in("x").dtype, shape}, {DType::i64, shape}};
}

Result<Types> scan(const Ctx& c) {
  const TensorType& x = c.in("x");
  STITCH_CHECK_OK(dim_in(c, c.n.integer("dim"), x.shape.size()).map([](size_t) {}));
  if (c.n.op->max_results == 2) return Types{x, {DType::i64, x.shape}};
  if (!c.is("logcumsumexp")) return Types{{accumulated(c), x.shape}};
  STITCH_TRY(const DType dtype, float_result(c));
  return Types{{dtype, x.shape}};
}

Result<Types> row(const Ctx& c) {
  STITCH_CHECK_OK(dim_in(c, c.n.integer("dim"), c.shape("x").size()).map([](size_t) {}));
  STITCH_TRY(const DType dtype, float_result(c));
  return Types{{dtype, c.shape("x")}};
}

}  // namespace rules

namespace {

Result<rules::Types> by_class(const rules::Ctx& c) {
  switch (c.n.op->cls) {
    case OpClass::source: return rules::source(c);
    case OpClass::pointwise: return rules::pointwise(c);
    case OpClass::movement: return c.is("upsample_nearest") ? rules::resample(c) : rules::movement(c);
    case OpClass::reduction: return rules::reduction(c);
    case OpClass::arg_reduction: return rules::arg_reduction(c);
    case OpClass::scan: return rules::scan(c);
    case OpClass::row: return rules::row(c);
    case OpClass::norm: return rules::norm(c);
    case OpClass::contraction: return rules::contraction(c);
    case OpClass::convolution: return rules::convolution(c);
    case OpClass::pool: return rules::pool(c);
    case OpClass::index: return rules::index(c);
    case OpClass::sort: return rules::sort(c);
    case OpClass::attention: return rules::attention(c);
    case OpClass::recurrent: return rules::recurrent(c);
  }
  return fail(ErrorKind::internal, "{} has no type rule", c.n.op_name());
}

// Keeps the rules' arithmetic far from overflow.
bool small_integers(const Node& n) {
  const auto small = [](int64_t v) { return v >= -kMaxElements && v <= kMaxElements; };
  for (size_t i = 0; i < n.args.size(); ++i) {
    const ParamKind k = n.op->params[i].kind;
    if (k == ParamKind::operand || k == ParamKind::operand_opt) continue;  // an immediate: any value is data
    if (const auto* v = std::get_if<int64_t>(&n.args[i]); v && !small(*v)) return false;
    if (const auto* l = std::get_if<IntList>(&n.args[i]); l && !std::all_of(l->begin(), l->end(), small)) return false;
  }
  return true;
}

}  // namespace

Result<std::vector<TensorType>> infer_types(const Graph& g, const Node& n) {
  const rules::Ctx c{g, n};
  if (!small_integers(n)) return c.bad("an integer argument is beyond 2^48");
  STITCH_TRY(rules::Types types, by_class(c));
  for (const TensorType& t : types)
    if (!sane_extents(t.shape)) return c.bad("the result {} has a negative extent or more than 2^48 elements", to_string(t));
  return types;
}

}  // namespace stitch::ir
