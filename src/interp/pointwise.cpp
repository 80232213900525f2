// Pointwise ops: brings operands of any shape and dtype into blocks, and calls the functions of pointwise_*.cpp.
#include "interp/pointwise.h"

#include <atomic>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "interp/rules.h"
#include "interp/strided.h"
#include "ir/ops.h"

namespace stitch::interp {
namespace {

constexpr int64_t kBlock = 1024;
constexpr double kInf = std::numeric_limits<double>::infinity();

// One operand: a tensor seen in the result's shape, or a number.
struct Operand {
  const Value* tensor = nullptr;
  Layout layout;
  bool direct = false;  // dense in the result's shape: blocks point into it
  double number = 0;
  int64_t integer = 0;
  bool limit = false;    // stands for a missing bound: the last integer there is, in any dtype
};

Operand from_number(double v) { return {nullptr, {}, false, v, float_to_integer(v, ir::DType::i64)}; }

Operand operand_of(const Call& c, const ir::Arg& arg, const ir::Shape& shape, double if_none) {
  if (const auto* v = std::get_if<ir::ValueRef>(&arg)) {
    const Value& t = c.value(*v);
    return {&t, collapse(broadcast_to(t.type.shape, shape)), t.type.shape == shape};
  }
  if (const auto* v = std::get_if<double>(&arg)) return from_number(*v);
  if (const auto* v = std::get_if<int64_t>(&arg)) return {nullptr, {}, false, static_cast<double>(*v), *v};
  if (const auto* v = std::get_if<bool>(&arg)) return from_number(*v);
  Operand none = from_number(if_none);
  none.limit = true;
  none.integer = if_none > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
  return none;
}

bool is_float_number(const ir::Arg& a) { return std::holds_alternative<double>(a); }

// What a comparison computes in: the promoted dtype of its tensors, and of numbers where those are of a higher kind.
ir::DType compared_in(const Call& c) {
  std::optional<ir::DType> d;
  bool float_number = false, int_number = false;
  for (const ir::Arg& a : c.node.args) {
    if (const auto* v = std::get_if<ir::ValueRef>(&a)) {
      const ir::DType t = c.value(*v).type.dtype;
      d = d ? ir::promote(*d, t) : t;
    }
    float_number = float_number || is_float_number(a);
    int_number = int_number || std::holds_alternative<int64_t>(a);
  }
  if (float_number && !(d && ir::is_floating(*d))) return ir::DType::f32;
  if (!d || (int_number && ir::is_bool(*d))) return ir::DType::i64;
  return *d;
}

// The arithmetic of one node: where its operands are and which numbers the functions get.
struct Plan {
  std::vector<Operand> operands;
  Numbers numbers{};
  ir::DType dtype = ir::DType::f64;  // computed in
  bool round = false;                // operands are rounded to that dtype when they are converted
};

Plan plan_of(const Call& c, ir::DType dtype) {
  Plan plan;
  plan.dtype = dtype;
  plan.round = c.options.round_to_dtype;
  size_t numbers = 0;
  for (size_t k = 0; k < c.node.args.size(); ++k) {
    const ir::ParamKind kind = c.node.op->params[k].kind;
    if (ir::is_positional(kind)) {
      const bool lower = c.node.op->params[k].name == "min";
      plan.operands.push_back(operand_of(c, c.node.args[k], c.node.type().shape, lower ? -kInf : kInf));
    } else if (kind == ir::ParamKind::number || kind == ir::ParamKind::integer) {
      plan.numbers[numbers++] = c.node.number(c.node.op->params[k].name);
    }
  }
  return plan;
}

// Numbers meet f16 and bf16 tensors in f32, PyTorch's arithmetic type for them.
double number_in(const Plan& plan, double v) {
  return plan.round && plan.dtype != ir::DType::f64 ? static_cast<double>(static_cast<float>(v)) : v;
}

// Elements [start, start + n) of an operand as doubles; `buffer` is used unless they are already there.
const double* floats(const Plan& plan, const Operand& o, int64_t start, int64_t n, double* buffer) {
  if (!o.tensor) {
    std::fill_n(buffer, n, number_in(plan, o.number));
    return buffer;
  }
  const bool round = plan.round && o.tensor->type.dtype != plan.dtype;
  if (o.tensor->floating()) {
    if (o.direct && !round) return o.tensor->f.data() + start;
    gather(o.layout, o.tensor->f.data(), start, n, buffer, [](double v) { return v; });
  } else {
    gather(o.layout, o.tensor->i.data(), start, n, buffer, [](int64_t v) { return static_cast<double>(v); });
  }
  if (round)
    for (int64_t i = 0; i < n; ++i) buffer[i] = store_as(buffer[i], plan.dtype);
  return buffer;
}

const int64_t* integers(const Plan& plan, const Operand& o, int64_t start, int64_t n, int64_t* buffer) {
  if (!o.tensor) {
    // PyTorch converts a number to the tensors' dtype, also where it does not fit.
    std::fill_n(buffer, n, o.limit || plan.dtype == ir::DType::b8 ? o.integer : wrap(o.integer, plan.dtype));
    return buffer;
  }
  const ir::DType from = o.tensor->type.dtype;
  const ir::DType to = ir::is_floating(plan.dtype) ? from : plan.dtype;
  if (o.direct && from == to) return o.tensor->i.data() + start;
  gather(o.layout, o.tensor->i.data(), start, n, buffer, [&](int64_t v) { return wrap(v, to); });
  return buffer;
}

// Calls body(start, n) for blocks of the result, in parallel.
void for_each_block(int64_t elements, const std::function<void(int64_t, int64_t)>& body) {
  parallel_for((elements + kBlock - 1) / kBlock, 8, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) body(b * kBlock, std::min(kBlock, elements - b * kBlock));
  });
}

template <class Function, class Out>
void run_floats(const Plan& plan, Function function, std::vector<Out>& out) {
  for_each_block(static_cast<int64_t>(out.size()), [&](int64_t start, int64_t n) {
    double buffers[3][kBlock];
    FloatBlock block{{}, n, plan.numbers};
    for (size_t k = 0; k < 3; ++k) block.in[k] = k < plan.operands.size() ? floats(plan, plan.operands[k], start, n, buffers[k]) : block.in[0];
    function(block, out.data() + start);
  });
}

bool run_integers(const Plan& plan, IntFunction function, std::vector<int64_t>& out) {
  std::atomic<bool> ok = true;
  for_each_block(static_cast<int64_t>(out.size()), [&](int64_t start, int64_t n) {
    int64_t buffers[3][kBlock];
    IntBlock block{{}, n, plan.numbers, plan.dtype};
    for (size_t k = 0; k < 3; ++k) block.in[k] = k < plan.operands.size() ? integers(plan, plan.operands[k], start, n, buffers[k]) : block.in[0];
    if (!function(block, out.data() + start)) ok = false;
  });
  return ok;
}

std::string_view variant_of(const Call& c) {
  if (c.is("gelu")) return c.node.text("approximate");
  if (c.is("div") && c.node.has_arg("rounding_mode")) return c.node.text("rounding_mode");
  if (c.is("pow")) {
    const auto* exponent = std::get_if<double>(&c.node.arg("y"));
    if (exponent && *exponent == 0.5) return "root";
    if (exponent && *exponent == -0.5) return "inverse_root";
  }
  return "";
}

Result<Values> integer_result(const Call& c, const Plan& plan, std::string_view variant) {
  Value out = c.result();
  const IntFunction function = find_int_function(c.node.op_name(), variant);
  if (!function) return fail(ErrorKind::internal, "The interpreter cannot compute {} in {}; please report this.", c.where(), ir::name_of(plan.dtype));
  if (!run_integers(plan, function, out.i)) return c.bad("an integer is divided by zero");
  return one(std::move(out));
}

Result<Values> arithmetic(const Call& c) {
  Value out = c.result();
  Plan plan = plan_of(c, out.type.dtype);
  if (!out.floating()) return integer_result(c, plan, variant_of(c));
  if (c.is("nan_to_num")) {
    const auto number = [&](std::string_view p, double otherwise) { return c.node.has_arg(p) ? c.node.number(p) : otherwise; };
    const double limit = largest(out.type.dtype);
    plan.numbers = {number("nan", 0), number("posinf", limit), number("neginf", -limit)};
  }
  for (double& v : plan.numbers) v = number_in(plan, v);
  const FloatFunction function = find_float_function(c.node.op_name(), variant_of(c));
  if (!function) return fail(ErrorKind::internal, "The interpreter cannot compute {} in floats; please report this.", c.where());
  run_floats(plan, function, out.f);
  return one(std::move(out));
}

Result<Values> comparison(const Call& c) {
  const Plan plan = plan_of(c, compared_in(c));
  if (!ir::is_floating(plan.dtype)) return integer_result(c, plan, "");
  Value out = c.result();
  run_floats(plan, find_test_function(c.node.op_name()), out.i);
  return one(std::move(out));
}

template <class T, class Read>
void choose(const Plan& plan, Read read, std::vector<T>& out) {
  for_each_block(static_cast<int64_t>(out.size()), [&](int64_t start, int64_t n) {
    T x_buffer[kBlock], y_buffer[kBlock];
    int64_t condition_buffer[kBlock];
    const int64_t* condition = integers(plan, plan.operands[0], start, n, condition_buffer);
    const T* x = read(plan, plan.operands[1], start, n, x_buffer);
    const T* y = read(plan, plan.operands[2], start, n, y_buffer);
    for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(start + i)] = condition[i] ? x[i] : y[i];
  });
}

Result<Values> where(const Call& c) {
  Value out = c.result();
  Plan plan = plan_of(c, out.type.dtype);
  if (!plan.operands[0].tensor) plan.operands[0].integer = plan.operands[0].number != 0;
  if (out.floating()) choose(plan, floats, out.f);
  else choose(plan, integers, out.i);
  return one(std::move(out));
}

Result<Values> cast(const Call& c) {
  Value out = c.result();
  const Plan plan = plan_of(c, out.type.dtype);
  const Operand& x = plan.operands[0];
  const ir::DType to = out.type.dtype;
  for_each_block(ir::numel(out.type.shape), [&](int64_t start, int64_t n) {
    if (out.floating()) {
      double buffer[kBlock];
      std::copy_n(floats(plan, x, start, n, buffer), n, out.f.data() + start);
    } else if (x.tensor && !x.tensor->floating()) {
      std::copy_n(x.tensor->i.data() + start, n, out.i.data() + start);
    } else {
      for (int64_t i = start; i < start + n; ++i) out.i[static_cast<size_t>(i)] = float_to_integer(x.tensor ? x.tensor->f[static_cast<size_t>(i)] : x.number, to);
    }
  });
  return one(std::move(out));
}

std::vector<Entry> entries() {
  std::vector<Entry> out;
  for (const ir::OpSchema& op : ir::all_ops()) {
    if (op.cls != ir::OpClass::pointwise) continue;
    const bool known = find_test_function(op.name) || find_float_function(op.name, op.name == "gelu" ? "none" : "") || find_int_function(op.name, "");
    if (!known && op.name != "where" && op.name != "cast") continue;
    const Rule rule = op.name == "where" ? where : op.name == "cast" ? cast : find_test_function(op.name) ? comparison : arithmetic;
    out.push_back({op.name, rule});
  }
  return out;
}

}  // namespace

std::span<const Entry> families::pointwise() {
  static const std::vector<Entry> all = entries();
  return all;
}

}  // namespace stitch::interp
