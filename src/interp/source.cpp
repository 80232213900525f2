// full, arange, eye.
#include "interp/rules.h"

namespace stitch::interp {
namespace {

Result<Values> full(const Call& c) {
  Value out = c.result();
  const double value = c.node.number("value");
  std::fill(out.f.begin(), out.f.end(), value);
  std::fill(out.i.begin(), out.i.end(), float_to_integer(value, out.type.dtype));
  return one(std::move(out));
}

Result<Values> arange(const Call& c) {
  Value out = c.result();
  const double start = c.node.number("start"), step = c.node.number("step");
  for (size_t k = 0; k < out.f.size(); ++k) out.f[k] = start + static_cast<double>(k) * step;
  // In integers PyTorch truncates start and step before it counts.
  const auto first = static_cast<int64_t>(start), by = static_cast<int64_t>(step);
  for (size_t k = 0; k < out.i.size(); ++k) out.i[k] = first + static_cast<int64_t>(k) * by;
  return one(std::move(out));
}

Result<Values> eye(const Call& c) {
  Value out = c.result();
  const int64_t rows = c.node.integer("rows"), cols = c.node.integer("cols");
  for (int64_t k = 0; k < std::min(rows, cols); ++k) {
    const auto at = static_cast<size_t>(k * cols + k);
    if (out.floating()) out.f[at] = 1;
    else out.i[at] = 1;
  }
  return one(std::move(out));
}

constexpr Entry kRules[] = {{"full", full}, {"arange", arange}, {"eye", eye}};

}  // namespace

std::span<const Entry> families::source() { return kRules; }

}  // namespace stitch::interp
