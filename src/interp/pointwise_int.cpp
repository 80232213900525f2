// Elementwise functions of integers and bools. Everything is computed modulo 2^64; the driver wraps to the result's dtype.
#include <algorithm>
#include <limits>

#include "interp/pointwise.h"
#include "interp/rules.h"

namespace stitch::interp {
namespace {

// Unsigned arithmetic: the same bits, and overflow is defined.
int64_t add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
int64_t sub(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b)); }
int64_t mul(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

template <auto F>
bool each(const IntBlock& b, int64_t* out) {
  for (int64_t i = 0; i < b.n; ++i) out[i] = F(b.in[0][i], b.in[1][i], b.in[2][i], b);
  return true;
}
// Division: false where a divisor is zero.
template <auto F>
bool divide(const IntBlock& b, int64_t* out) {
  for (int64_t i = 0; i < b.n; ++i) {
    if (b.in[1][i] == 0) return false;
    // The smallest integer over -1 overflows; negation wraps as PyTorch does.
    out[i] = b.in[1][i] == -1 ? F(0, -1, sub(0, b.in[0][i])) : F(b.in[0][i], b.in[1][i], b.in[0][i] / b.in[1][i]);
  }
  return true;
}

int64_t floored(int64_t a, int64_t d, int64_t q) { return a % d != 0 && (a < 0) != (d < 0) ? q - 1 : q; }
int64_t modulo(int64_t a, int64_t d, int64_t) {
  const int64_t r = a % d;
  return r != 0 && (r < 0) != (d < 0) ? r + d : r;
}

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  int64_t result = 1;
  for (; exponent; exponent >>= 1, base = mul(base, base))
    if (exponent & 1) result = mul(result, base);
  return result;
}

int64_t bits_of(ir::DType d) { return 8 * ir::size_of(d); }

int64_t shift_left(int64_t a, int64_t by, ir::DType d) {
  return by < 0 || by >= bits_of(d) ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << by);
}
// Beyond the width only copies of the sign bit are left.
int64_t shift_right(int64_t a, int64_t by, ir::DType d) {
  return a >> (by < 0 || by >= bits_of(d) ? std::min<int64_t>(63, bits_of(d)) : by);
}

struct IntRow {
  std::string_view op, variant;
  IntFunction function;
};

#define INT(name, expression)                                                                                                   \
  {name, "", each<[]([[maybe_unused]] int64_t x, [[maybe_unused]] int64_t y, [[maybe_unused]] int64_t z,                         \
                     [[maybe_unused]] const IntBlock& b) -> int64_t { return (expression); }>}
// Numbers such as alpha are integers where the op is one.
#define P(k) static_cast<int64_t>(b.p[k])

const IntRow kInt[] = {
    INT("neg", sub(0, x)), INT("abs", x < 0 ? sub(0, x) : x), INT("sign", (x > 0) - (x < 0)), INT("relu", std::max<int64_t>(x, 0)),
    INT("floor", x), INT("ceil", x), INT("trunc", x), INT("round", x), INT("nan_to_num", x),
    INT("threshold", static_cast<double>(x) <= b.p[0] ? P(1) : x), INT("add", add(x, mul(P(0), y))), INT("sub", sub(x, mul(P(0), y))),
    INT("mul", mul(x, y)), {"div", "floor", divide<floored>}, {"div", "trunc", divide<[](int64_t, int64_t, int64_t q) { return q; }>},
    {"fmod", "", divide<[](int64_t a, int64_t d, int64_t) { return a % d; }>}, {"remainder", "", divide<modulo>}, INT("pow", power(x, y)),
    INT("maximum", std::max(x, y)), INT("minimum", std::min(x, y)), INT("clamp", std::min(std::max(x, y), z)),
    INT("addcmul", add(x, mul(P(0), mul(y, z)))), INT("eq", x == y), INT("ne", x != y), INT("lt", x < y), INT("le", x <= y),
    INT("gt", x > y), INT("ge", x >= y), INT("logical_not", x == 0), INT("logical_and", x != 0 && y != 0),
    INT("logical_or", x != 0 || y != 0), INT("logical_xor", (x != 0) != (y != 0)), INT("isnan", 0), INT("isinf", 0),
    INT("bitwise_not", ir::is_bool(b.dtype) ? x == 0 : ~x), INT("bitwise_and", x & y), INT("bitwise_or", x | y), INT("bitwise_xor", x ^ y),
    INT("bitwise_left_shift", shift_left(x, y, b.dtype)), INT("bitwise_right_shift", shift_right(x, y, b.dtype)),
};

}  // namespace

IntFunction find_int_function(std::string_view op, std::string_view variant) {
  for (const IntRow& r : kInt)
    if (r.op == op && r.variant == variant) return r.function;
  return nullptr;
}

}  // namespace stitch::interp
