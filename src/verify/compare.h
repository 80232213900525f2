#pragma once
// Comparison of a candidate's output with the fp64 oracle. The mathematics is described in docs/verification.md.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hw/device.h"
#include "ir/tensor.h"

namespace stitch::verify {

// Bounds on the two error measures of a float output, both dimensionless:
//   max_error  = max over elements of |out - ref| / max(|ref|, rms of ref over the element's block)
//   norm_error = ||out - ref||_2 / ||ref||_2 over the finite elements
struct Tolerance {
  double max = 0, norm = 0;
};

std::vector<int64_t> unravel(int64_t flat, const ir::Shape&);  // index of a row-major element

struct WrongElement {
  std::vector<int64_t> index;
  double expected = 0, got = 0;
  bool unwritten = false;  // still holds the poison
};

struct Comparison {
  std::string output;
  bool ok = true;
  bool norm_ok = true;       // the whole lies within its bound, whatever single elements do
  int64_t elements = 0;
  int64_t wrong = 0;         // elements outside every allowance
  int64_t unwritten = 0;     // of those, still poisoned
  int64_t nonfinite_wrong = 0;
  int64_t forgiven = 0;      // outside the tolerance but within the reference's own error there
  double max_error = 0, norm_error = 0, max_abs_error = 0;
  bool has_reference = false;
  double reference_max_error = 0, reference_norm_error = 0;  // the same measures of the references (the worst)
  std::optional<WrongElement> first;
  std::string sentence() const;  // one sentence: first wrong element and statistics; "" when ok
};

// `got` in the output's dtype; `exact` holds the oracle's result (f64, or i64 for integers and bools); `references`
// are the same program evaluated in the reference's own precision (several draws of rounding), each in any dtype.
// `poison`: the 16-bit pattern the output held before the call.
Comparison compare(const std::string& output, const ir::Tensor& got, const ir::Tensor& exact,
                   std::span<const ir::Tensor> references, Tolerance tolerance, uint16_t poison);

// KernelBench's rule: |out - ref| <= atol + rtol * |ref| for every element, NaN unequal to everything.
struct AllClose {
  bool ok = true;
  double max_abs_difference = 0;
};
AllClose all_close(const ir::Tensor& got, const ir::Tensor& expected, double tolerance);
double kernelbench_tolerance(hw::PrecisionClass);  // 1e-4 fp32 and default, 1e-2 tf32, bf16 and fp16

}  // namespace stitch::verify
