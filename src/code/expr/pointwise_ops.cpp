// Pointwise ops: which C++ expression each one is. Functions op::... are in kernels/pointwise.cuh.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "code/expr/emitter.h"
#include "code/skill.h"
#include "ir/ops.h"
#include "ir/tensor.h"

namespace stitch::code {

using ir::DType;
using ir::ValueRef;

namespace {

// `text`: $0 $1 $2 are the operands, in the compute type of the result. `integer`: the form for integers and bool
// where it differs ("" = same).
struct Form {
  const char* text;
  const char* integer = "";
};

const std::unordered_map<std::string_view, Form>& simple_forms() {
  static const std::unordered_map<std::string_view, Form> forms = {
      {"neg", {"-$0", "op::neg($0)"}}, {"abs", {"op::abs($0)"}}, {"sign", {"op::sign($0)"}}, {"exp", {"exp($0)"}},
      {"exp2", {"exp2($0)"}}, {"expm1", {"expm1($0)"}}, {"log", {"log($0)"}}, {"log2", {"log2($0)"}},
      {"log10", {"log10($0)"}}, {"log1p", {"log1p($0)"}}, {"sqrt", {"sqrt($0)"}}, {"rsqrt", {"op::rsqrt($0)"}},
      {"reciprocal", {"op::reciprocal($0)"}}, {"sin", {"sin($0)"}}, {"cos", {"cos($0)"}}, {"tan", {"tan($0)"}},
      {"asin", {"asin($0)"}}, {"acos", {"acos($0)"}}, {"atan", {"atan($0)"}}, {"sinh", {"sinh($0)"}},
      {"cosh", {"cosh($0)"}}, {"tanh", {"tanh($0)"}}, {"asinh", {"asinh($0)"}}, {"acosh", {"acosh($0)"}},
      {"atanh", {"atanh($0)"}}, {"erf", {"erf($0)"}}, {"erfc", {"erfc($0)"}}, {"sigmoid", {"op::sigmoid($0)"}},
      {"log_sigmoid", {"op::log_sigmoid($0)"}}, {"relu", {"op::relu($0)"}}, {"silu", {"op::silu($0)"}},
      {"mish", {"op::mish($0)"}}, {"hardswish", {"op::hardswish($0)"}}, {"hardsigmoid", {"op::hardsigmoid($0)"}},
      {"floor", {"floor($0)", "$0"}}, {"ceil", {"ceil($0)", "$0"}}, {"trunc", {"trunc($0)", "$0"}},
      {"frac", {"op::frac($0)"}}, {"mul", {"$0 * $1", "op::mul($0, $1)"}}, {"maximum", {"op::maximum($0, $1)"}},
      {"minimum", {"op::minimum($0, $1)"}}, {"fmod", {"op::fmod($0, $1)"}}, {"remainder", {"op::remainder($0, $1)"}},
      {"atan2", {"atan2($0, $1)"}}, {"hypot", {"hypot($0, $1)"}}, {"logaddexp", {"op::logaddexp($0, $1)"}},
      {"xlogy", {"op::xlogy($0, $1)"}}, {"lerp", {"$0 + $2 * ($1 - $0)"}},
      {"bitwise_left_shift", {"op::shift_left($0, $1)"}}, {"bitwise_right_shift", {"op::shift_right($0, $1)"}},
  };
  return forms;
}

// Ops whose operands are compared in their promoted type; the result is b8.
const std::unordered_map<std::string_view, const char*>& comparison_forms() {
  static const std::unordered_map<std::string_view, const char*> forms = {
      {"eq", "$0 == $1"}, {"ne", "$0 != $1"}, {"lt", "$0 < $1"}, {"le", "$0 <= $1"}, {"gt", "$0 > $1"},
      {"ge", "$0 >= $1"}, {"isnan", "op::is_nan($0)"}, {"isinf", "op::is_inf($0)"}};
  return forms;
}
const std::unordered_map<std::string_view, const char*>& logical_forms() {
  static const std::unordered_map<std::string_view, const char*> forms = {{"logical_not", "!$0"},
                                                                          {"logical_and", "$0 && $1"},
                                                                          {"logical_or", "$0 || $1"},
                                                                          {"logical_xor", "$0 != $1"}};
  return forms;
}

std::string fill(std::string_view form, const std::vector<std::string>& operands) {
  std::string out;
  for (size_t i = 0; i < form.size(); ++i) {
    if (form[i] == '$') {
      const std::string& operand = operands.at(static_cast<size_t>(form[++i] - '0'));
      out += !out.empty() && out.back() == '-' && operand[0] == '-' ? "(" + operand + ")" : operand;
    } else {
      out += form[i];
    }
  }
  return out;
}

double as_number(const ir::Arg& a) {
  if (const auto* b = std::get_if<bool>(&a)) return *b ? 1 : 0;
  if (const auto* i = std::get_if<int64_t>(&a)) return static_cast<double>(*i);
  return std::get<double>(a);
}

bool is_immediate(const ir::Arg& a) {
  return std::holds_alternative<bool>(a) || std::holds_alternative<int64_t>(a) || std::holds_alternative<double>(a);
}

double rounded_to(double value, DType type) {
  if (type == DType::f16) return ir::half_to_float(ir::float_to_half(static_cast<float>(value)));
  if (type == DType::bf16) return ir::bfloat16_to_float(ir::float_to_bfloat16(static_cast<float>(value)));
  return value;
}

// pow with an exponent known now: products and roots are faster and more accurate than pow().
std::string power(const std::string& x, double exponent, const std::string& general) {
  if (exponent == 0.5) return fmt::format("sqrt({})", x);
  if (exponent == -0.5) return fmt::format("op::rsqrt({})", x);
  if (exponent == 1) return x;
  if (exponent == 2) return fmt::format("{0} * {0}", x);
  if (exponent == 3) return fmt::format("{0} * {0} * {0}", x);
  if (exponent == 4) return fmt::format("({0} * {0}) * ({0} * {0})", x);
  if (exponent == -1) return fmt::format("op::reciprocal({})", x);
  if (exponent == -2) return fmt::format("op::reciprocal({0} * {0})", x);
  return general;
}

double largest(DType t) {
  switch (t) {
    case DType::f64: return std::numeric_limits<double>::max();
    case DType::f16: return 65504;
    case DType::bf16: return 3.3895313892515355e38;
    default: return std::numeric_limits<float>::max();
  }
}

class Writer {
 public:
  Writer(Emitter& e, const ir::Node& node, const Coords& coords)
      : e_(e), node_(node), coords_(coords), type_(node.type().dtype) {}

  std::string x(std::string_view name) { return x(name, type_); }
  std::string x(std::string_view name, DType type) {
    const Val v = e_.operand(node_.arg(name), coords_, node_.type().shape, type);
    depth_ = std::max(depth_, v.depth);
    return v.text;
  }
  std::string number(std::string_view name) const { return e_.literal(node_.number(name), type_).text; }
  std::string literal(double v) const { return e_.literal(v, type_).text; }
  bool floating() const { return ir::is_floating(type_); }
  int depth() const { return depth_; }

  std::string expression();

 private:
  std::string with_alpha(char sign);
  std::string cast();
  std::string special();
  std::string bitwise();
  std::string compared(const char* form, DType type);

  Emitter& e_;
  const ir::Node& node_;
  const Coords& coords_;
  DType type_;
  int depth_ = 0;
};

std::string Writer::with_alpha(char sign) {
  const double alpha = node_.number("alpha");
  const std::string a = x("x");
  std::string b = x("y");
  if (floating()) {
    if (alpha != 1) b = fmt::format("{} * {}", number("alpha"), b);
    return fmt::format("{} {} {}", a, sign, b);
  }
  if (alpha != 1) b = fmt::format("op::mul({}, {})", number("alpha"), b);
  return fmt::format("op::{}({}, {})", sign == '+' ? "add" : "sub", a, b);
}

std::string Writer::cast() {
  const ir::Arg& arg = node_.arg("x");
  const DType from = is_immediate(arg) ? type_ : e_.graph().type_of(std::get<ValueRef>(arg)).dtype;
  const std::string v = x("x");
  if ((type_ == DType::f16 || type_ == DType::bf16) && from != type_ && !ir::is_bool(from))
    return fmt::format("widen(narrow<{}>({}))", cpp_type(type_), v);
  return v;
}

std::string Writer::bitwise() {
  const std::string_view name = node_.op->name;
  if (name == "bitwise_not") return ir::is_bool(type_) ? "!" + x("x") : fmt::format("static_cast<{}>(~{})", compute_type(type_), x("x"));
  const char sign = name == "bitwise_and" ? '&' : name == "bitwise_or" ? '|' : '^';
  const std::string a = x("x");
  return fmt::format("static_cast<{}>({} {} {})", compute_type(type_), a, sign, x("y"));
}

std::string Writer::compared(const char* form, DType type) {
  std::vector<std::string> operands;
  for (const ir::Arg& arg : node_.args) {
    if (is_immediate(arg)) {
      operands.push_back(e_.literal(rounded_to(as_number(arg), type), type).text);
      continue;
    }
    const Val v = e_.operand(arg, coords_, node_.type().shape, type);
    depth_ = std::max(depth_, v.depth);
    operands.push_back(v.text);
  }
  return fill(form, operands);
}

std::string Writer::special() {
  const std::string_view name = node_.op->name;
  const DType t = type_;
  if (name == "add") return with_alpha('+');
  if (name == "sub") return with_alpha('-');
  if (name == "cast") return cast();
  if (name == "gelu") return fmt::format("op::{}({})", node_.text("approximate") == "tanh" ? "gelu_tanh" : "gelu", x("x"));
  if (name == "elu")
    return fmt::format("op::elu({}, {}, {}, {})", x("x"), number("alpha"), number("scale"), number("input_scale"));
  if (name == "leaky_relu") return fmt::format("op::leaky_relu({}, {})", x("x"), number("negative_slope"));
  if (name == "softplus") return fmt::format("op::softplus({}, {}, {})", x("x"), number("beta"), number("threshold"));
  if (name == "hardshrink" || name == "softshrink") return fmt::format("op::{}({}, {})", name, x("x"), number("lambd"));
  if (name == "threshold") return fmt::format("op::threshold({}, {}, {})", x("x"), number("threshold"), number("value"));
  if (name == "round") {
    if (!floating()) return x("x");
    const int64_t d = node_.integer("decimals");
    if (d == 0) return fmt::format("op::round_even({})", x("x"));
    return fmt::format("op::round_decimals({}, {}, {})", x("x"), literal(std::pow(10.0, std::abs(static_cast<double>(d)))), d < 0);
  }
  if (name == "nan_to_num") {
    if (!floating()) return x("x");
    const double big = largest(t);
    const auto or_else = [&](const char* p, double v) { return literal(node_.has_arg(p) ? node_.number(p) : v); };
    return fmt::format("op::nan_to_num({}, {}, {}, {})", x("x"), or_else("nan", 0), or_else("posinf", big), or_else("neginf", -big));
  }
  if (name == "div") {
    const std::string a = x("x"), b = x("y");
    if (!node_.has_arg("rounding_mode")) return fmt::format("{} / {}", a, b);
    return fmt::format("op::div_{}({}, {})", node_.text("rounding_mode"), a, b);
  }
  if (name == "pow") {
    const std::string a = x("x"), b = x("y");
    const std::string general = floating() ? fmt::format("pow({}, {})", a, b) : fmt::format("op::pow({}, {})", a, b);
    return floating() && is_immediate(node_.arg("y")) ? power(a, as_number(node_.arg("y")), general) : general;
  }
  if (name == "where") {
    const std::string c = x("condition", DType::b8), a = x("x");
    return fmt::format("{} ? {} : {}", c, a, x("y"));
  }
  if (name == "clamp") {
    const bool low = node_.has_arg("min"), high = node_.has_arg("max");
    const std::string v = x("x");
    if (low && high) {
      const std::string l = x("min");
      return fmt::format("op::clamp({}, {}, {})", v, l, x("max"));
    }
    if (low) return fmt::format("op::maximum({}, {})", v, x("min"));
    if (high) return fmt::format("op::minimum({}, {})", v, x("max"));
    return v;
  }
  if (name == "addcmul" || name == "addcdiv") {
    const std::string v = x("x"), a = x("a"), b = x("b");
    if (!floating()) return fmt::format("op::add({}, op::mul({}, op::mul({}, {})))", v, number("value"), a, b);
    const char sign = name == "addcmul" ? '*' : '/';
    if (node_.number("value") == 1) return fmt::format("{} + {} {} {}", v, a, sign, b);
    return fmt::format("{} + {} * ({} {} {})", v, number("value"), a, sign, b);
  }
  if (name.starts_with("bitwise_")) return bitwise();
  e_.refuse(fmt::format("pointwise op {} has no code", name));
  return literal(0);
}

std::string Writer::expression() {
  const std::string_view name = node_.op->name;
  if (const auto it = comparison_forms().find(name); it != comparison_forms().end())
    return compared(it->second, promoted_type(e_.graph(), node_));
  if (const auto it = logical_forms().find(name); it != logical_forms().end()) return compared(it->second, DType::b8);
  const auto it = simple_forms().find(name);
  if (it == simple_forms().end()) return special();
  std::vector<std::string> operands;
  for (size_t i = 0; i < node_.args.size(); ++i) {
    const auto kind = node_.op->params[i].kind;
    if (kind == ir::ParamKind::operand || kind == ir::ParamKind::operand_opt) operands.push_back(x(node_.op->params[i].name));
  }
  const Form& form = it->second;
  return fill(!floating() && *form.integer ? form.integer : form.text, operands);
}

int category(DType t) { return ir::is_bool(t) ? 0 : ir::is_integral(t) ? 1 : 2; }

DType wider(DType a, DType b) {
  if (a == b) return a;
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  if (category(a) == 2) {
    if (a == DType::f64 || b == DType::f64) return DType::f64;
    return DType::f32;  // f32 with a half, or the two halves with each other
  }
  if (a == DType::u8 || b == DType::u8) {
    const DType other = a == DType::u8 ? b : a;
    return other == DType::i8 ? DType::i16 : other;
  }
  return ir::size_of(a) > ir::size_of(b) ? a : b;
}

}  // namespace

// PyTorch's result_type: tensors with dims beat 0-d tensors beat numbers, unless the later kind is of a higher category.
DType promoted_type(const ir::Graph& graph, const ir::Node& node) {
  std::optional<DType> tensors, scalars, numbers;
  const auto merge = [](std::optional<DType>& into, DType t) { into = into ? wider(*into, t) : t; };
  for (const ir::Arg& arg : node.args) {
    if (const auto* v = std::get_if<ValueRef>(&arg)) {
      const ir::TensorType& type = graph.type_of(*v);
      merge(type.shape.empty() ? scalars : tensors, type.dtype);
    } else if (std::holds_alternative<bool>(arg)) {
      merge(numbers, DType::b8);
    } else if (std::holds_alternative<int64_t>(arg)) {
      merge(numbers, DType::i64);
    } else if (std::holds_alternative<double>(arg)) {
      merge(numbers, DType::f32);
    }
  }
  std::optional<DType> result;
  for (const auto& group : {tensors, scalars, numbers}) {
    if (!group) continue;
    if (!result || category(*group) > category(*result)) result = group;
  }
  return result.value_or(DType::f32);
}

Val emit_pointwise(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  Writer writer(e, node, coords);
  const std::string text = writer.expression();
  return e.define(fmt::format("v{}", v.node), node.type().dtype, text, writer.depth(), label(e.graph(), v.node));
}

Val emit_batch_norm(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const DType t = node.type().dtype;
  const auto channel = [&](std::string_view name) { return e.convert(e.value(node.value(name), {coords[1]}), t); };
  const Val x = e.convert(e.value(node.value("x"), coords), t);
  const Val mean = channel("running_mean"), var = channel("running_var");
  const std::string name = fmt::format("v{}", v.node), what = label(e.graph(), v.node);
  Val scale = e.define(name, t, fmt::format("op::rsqrt({} + {})", var.text, e.literal(node.number("eps"), t).text), var.depth,
                       what + ": scale");
  if (node.has_arg("weight")) {
    const Val w = channel("weight");
    scale = e.define(name, t, fmt::format("{} * {}", scale.text, w.text), std::max(scale.depth, w.depth));
  }
  std::string text = fmt::format("({} - {}) * {}", x.text, mean.text, scale.text);
  int depth = std::max({x.depth, mean.depth, scale.depth});
  if (node.has_arg("bias")) {
    const Val b = channel("bias");
    text += " + " + b.text;
    depth = std::max(depth, b.depth);
  }
  return e.define(name, t, text, depth, what);
}

}  // namespace stitch::code
