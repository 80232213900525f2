#pragma once
// Elementwise functions on blocks of contiguous operands. pointwise.cpp brings the operands into this form (broadcasting,
// conversion to the dtype the op computes in); the tables of functions are in pointwise_float.cpp and pointwise_int.cpp.

#include <array>
#include <cstdint>
#include <string_view>

#include "ir/types.h"

namespace stitch::interp {

// Numbers from the node's arguments that the function needs (alpha, slope ...), in the order of the op's table row.
using Numbers = std::array<double, 4>;

struct FloatBlock {
  std::array<const double*, 3> in;
  int64_t n;
  const Numbers& p;
};
struct IntBlock {
  std::array<const int64_t*, 3> in;
  int64_t n;
  const Numbers& p;
  ir::DType dtype;  // the dtype computed in
};

// Float in, float out; float in, int out (comparisons); int in, int out. An integer function gives false on division by zero.
using FloatFunction = void (*)(const FloatBlock&, double* out);
using TestFunction = void (*)(const FloatBlock&, int64_t* out);
using IntFunction = bool (*)(const IntBlock&, int64_t* out);

FloatFunction find_float_function(std::string_view op, std::string_view variant);
TestFunction find_test_function(std::string_view op);
IntFunction find_int_function(std::string_view op, std::string_view variant);

}  // namespace stitch::interp
