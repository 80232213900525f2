// Elementwise functions of doubles. Formulas follow PyTorch's where they decide about NaN and infinity; where only
// rounding differs, the more accurate form is used.
#include <cmath>
#include <iterator>
#include <limits>

#include "interp/pointwise.h"

namespace stitch::interp {
namespace {

template <auto F>
void unary(const FloatBlock& b, double* out) {
  for (int64_t i = 0; i < b.n; ++i) out[i] = F(b.in[0][i]);
}
template <auto F>
void unary_p(const FloatBlock& b, double* out) {
  const Numbers p = b.p;
  for (int64_t i = 0; i < b.n; ++i) out[i] = F(b.in[0][i], p);
}
template <auto F>
void binary(const FloatBlock& b, double* out) {
  for (int64_t i = 0; i < b.n; ++i) out[i] = F(b.in[0][i], b.in[1][i]);
}
template <auto F>
void binary_p(const FloatBlock& b, double* out) {
  const Numbers p = b.p;
  for (int64_t i = 0; i < b.n; ++i) out[i] = F(b.in[0][i], b.in[1][i], p);
}
template <auto F>
void ternary_p(const FloatBlock& b, double* out) {
  const Numbers p = b.p;
  for (int64_t i = 0; i < b.n; ++i) out[i] = F(b.in[0][i], b.in[1][i], b.in[2][i], p);
}
template <auto F>
void test(const FloatBlock& b, int64_t* out) {
  for (int64_t i = 0; i < b.n; ++i) out[i] = F(b.in[0][i], b.in[1][i]);
}

// A NaN on either side wins; std::max does not promise that.
double larger(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : a > b ? a : b; }
double smaller(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : a < b ? a : b; }

double sign(double x) { return static_cast<double>((x > 0) - (x < 0)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double log_sigmoid(double x) { return smaller(x, 0) - std::log1p(std::exp(-std::fabs(x))); }
double gelu(double x) { return x * 0.5 * std::erfc(-x * M_SQRT1_2); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x))); }
double mish(double x) { return x * std::tanh(std::log1p(std::exp(x))); }
double six_step(double x) { return smaller(larger(x + 3, 0), 6); }
double elu(double x, const Numbers& p) { return x < 0 ? p[0] * p[1] * std::expm1(x * p[2]) : p[1] * x; }
double softplus(double x, const Numbers& p) { return x * p[0] > p[1] ? x : std::log1p(std::exp(x * p[0])) / p[0]; }
double hardshrink(double x, const Numbers& p) { return x >= -p[0] && x <= p[0] ? 0 : x; }
double softshrink(double x, const Numbers& p) { return x > p[0] ? x - p[0] : x < -p[0] ? x + p[0] : std::isnan(x) ? x : 0.0; }
double threshold(double x, const Numbers& p) { return x <= p[0] ? p[1] : x; }

double round_decimals(double x, const Numbers& p) {
  if (p[0] == 0) return std::nearbyint(x);
  const double scale = std::pow(10.0, std::fabs(p[0]));
  return p[0] > 0 ? std::nearbyint(x * scale) / scale : std::nearbyint(x / scale) * scale;
}

double nan_to_num(double x, const Numbers& p) {
  if (std::isnan(x)) return p[0];
  return std::isinf(x) ? (x > 0 ? p[1] : p[2]) : x;
}

double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  // The quotient of the exact remainder: floor(a / b) alone may round up to the next integer first.
  const double mod = std::fmod(a, b);
  double q = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(q);
  return q - down > 0.5 ? down + 1 : down;
}

double remainder(double a, double b) {
  const double mod = std::fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

double logaddexp(double a, double b) {
  if (std::isinf(a) && a == b) return a;
  return larger(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

double xlogy(double x, double y) { return std::isnan(y) ? y : x == 0 ? 0 : x * std::log(y); }

// From the nearer end, so that weight 1 gives `end` exactly.
double lerp(double x, double end, double w, const Numbers&) {
  return std::fabs(w) < 0.5 ? x + w * (end - x) : end - (end - x) * (1 - w);
}

double power(double x, double y) { return std::pow(x, y); }

struct FloatRow {
  std::string_view op, variant;
  FloatFunction function;
};

#define UNARY(name, expression) {name, "", unary<[](double x) -> double { return (expression); }>}
#define BINARY(name, expression) {name, "", binary<[](double x, double y) -> double { return (expression); }>}

const FloatRow kFloat[] = {
    UNARY("neg", -x), UNARY("abs", std::fabs(x)), UNARY("sign", sign(x)), UNARY("exp", std::exp(x)), UNARY("exp2", std::exp2(x)),
    UNARY("expm1", std::expm1(x)), UNARY("log", std::log(x)), UNARY("log2", std::log2(x)), UNARY("log10", std::log10(x)),
    UNARY("log1p", std::log1p(x)), UNARY("sqrt", std::sqrt(x)), UNARY("rsqrt", 1 / std::sqrt(x)), UNARY("reciprocal", 1 / x),
    UNARY("sin", std::sin(x)), UNARY("cos", std::cos(x)), UNARY("tan", std::tan(x)), UNARY("asin", std::asin(x)),
    UNARY("acos", std::acos(x)), UNARY("atan", std::atan(x)), UNARY("sinh", std::sinh(x)), UNARY("cosh", std::cosh(x)),
    UNARY("tanh", std::tanh(x)), UNARY("asinh", std::asinh(x)), UNARY("acosh", std::acosh(x)), UNARY("atanh", std::atanh(x)),
    UNARY("erf", std::erf(x)), UNARY("erfc", std::erfc(x)), UNARY("sigmoid", sigmoid(x)), UNARY("log_sigmoid", log_sigmoid(x)),
    UNARY("relu", larger(x, 0)), UNARY("silu", x / (1 + std::exp(-x))), UNARY("mish", mish(x)), UNARY("hardswish", x * six_step(x) / 6),
    UNARY("hardsigmoid", six_step(x) / 6), UNARY("floor", std::floor(x)), UNARY("ceil", std::ceil(x)), UNARY("trunc", std::trunc(x)),
    UNARY("frac", x - std::trunc(x)), {"gelu", "none", unary<gelu>}, {"gelu", "tanh", unary<gelu_tanh>}, {"elu", "", unary_p<elu>},
    {"leaky_relu", "", unary_p<[](double x, const Numbers& p) { return (x > 0 ? x : x * p[0]); }>}, {"softplus", "", unary_p<softplus>},
    {"hardshrink", "", unary_p<hardshrink>}, {"softshrink", "", unary_p<softshrink>}, {"threshold", "", unary_p<threshold>},
    {"round", "", unary_p<round_decimals>}, {"nan_to_num", "", unary_p<nan_to_num>},
    {"add", "", binary_p<[](double x, double y, const Numbers& p) { return x + p[0] * y; }>},
    {"sub", "", binary_p<[](double x, double y, const Numbers& p) { return x - p[0] * y; }>},
    BINARY("mul", x * y), BINARY("div", x / y), {"div", "floor", binary<floor_divide>},
    {"div", "trunc", binary<[](double x, double y) { return std::trunc(x / y); }>}, {"pow", "", binary<power>},
    // A number as exponent: PyTorch takes roots, which differ from pow at -inf and -0.
    {"pow", "root", unary<[](double x) { return std::sqrt(x); }>}, {"pow", "inverse_root", unary<[](double x) { return 1 / std::sqrt(x); }>},
    BINARY("maximum", larger(x, y)), BINARY("minimum", smaller(x, y)), BINARY("fmod", std::fmod(x, y)), BINARY("remainder", remainder(x, y)),
    BINARY("atan2", std::atan2(x, y)), BINARY("hypot", std::hypot(x, y)), BINARY("logaddexp", logaddexp(x, y)), BINARY("xlogy", xlogy(x, y)),
    {"clamp", "", ternary_p<[](double x, double lo, double hi, const Numbers&) { return smaller(larger(x, lo), hi); }>},
    {"lerp", "", ternary_p<lerp>},
    {"addcmul", "", ternary_p<[](double x, double a, double b, const Numbers& p) { return x + p[0] * a * b; }>},
    {"addcdiv", "", ternary_p<[](double x, double a, double b, const Numbers& p) { return x + p[0] * a / b; }>},
};

struct TestRow {
  std::string_view op;
  TestFunction function;
};
#define TEST(name, expression) {name, test<[](double x, [[maybe_unused]] double y) -> int64_t { return (expression); }>}

const TestRow kTests[] = {
    TEST("eq", x == y), TEST("ne", x != y), TEST("lt", x < y), TEST("le", x <= y), TEST("gt", x > y), TEST("ge", x >= y),
    TEST("logical_not", x == 0), TEST("logical_and", x != 0 && y != 0), TEST("logical_or", x != 0 || y != 0),
    TEST("logical_xor", (x != 0) != (y != 0)), TEST("isnan", std::isnan(x)), TEST("isinf", std::isinf(x)),
};

}  // namespace

FloatFunction find_float_function(std::string_view op, std::string_view variant) {
  for (const FloatRow& r : kFloat)
    if (r.op == op && r.variant == variant) return r.function;
  return nullptr;
}

TestFunction find_test_function(std::string_view op) {
  for (const TestRow& r : kTests)
    if (r.op == op) return r.function;
  return nullptr;
}

}  // namespace stitch::interp
