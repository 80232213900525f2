// cumsum, cumprod, logcumsumexp, cummax, cummin: along one dim, rows in parallel.
#include <cmath>
#include <limits>

#include "interp/rows.h"
#include "interp/rules.h"

namespace stitch::interp {
namespace {

// body(offset of the row's first element, step between elements, length) for every row along `dim`.
template <class Body>
void along_rows(const Call& c, const Body& body) {
  const auto& shape = c.in("x").type.shape;
  const auto dim = static_cast<size_t>(c.node.integer("dim"));
  const Rows rows = rows_over(shape, {c.node.integer("dim")});
  const int64_t step = shape.empty() ? 1 : ir::contiguous_strides(shape)[dim];
  parallel_for(rows.count(), grain_for(rows.length()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(rows.starts[static_cast<size_t>(r)], step, rows.length());
  });
}

template <class T, class F>
void running(const Call& c, const std::vector<T>& x, std::vector<T>& out, T start_value, const F& join) {
  along_rows(c, [&](int64_t start, int64_t step, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(start + i * step);
      out[at] = join(i == 0 ? start_value : out[at - static_cast<size_t>(step)], x[at]);
    }
  });
}

int64_t wrapping_add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
int64_t wrapping_mul(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

Result<Values> cumsum(const Call& c) {
  Value out = c.result();
  if (out.floating()) running(c, c.in("x").f, out.f, 0.0, [](double a, double b) { return a + b; });
  else running(c, c.in("x").i, out.i, int64_t{0}, wrapping_add);
  return one(std::move(out));
}

Result<Values> cumprod(const Call& c) {
  Value out = c.result();
  if (out.floating()) running(c, c.in("x").f, out.f, 1.0, [](double a, double b) { return a * b; });
  else running(c, c.in("x").i, out.i, int64_t{1}, wrapping_mul);
  return one(std::move(out));
}

double logaddexp(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  const double low = std::min(a, b), high = std::max(a, b);
  return low == high && std::isinf(low) ? high : high + std::log1p(std::exp(low - high));
}

Result<Values> logcumsumexp(const Call& c) {
  Value out = c.result();
  running(c, c.in("x").f, out.f, -std::numeric_limits<double>::infinity(), logaddexp);
  return one(std::move(out));
}

// Among equals the last index; a NaN stays until the next NaN.
template <class T>
void running_best(const Call& c, const std::vector<T>& x, std::vector<T>& values, std::vector<int64_t>& indices, bool largest) {
  along_rows(c, [&](int64_t start, int64_t step, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(start + i * step);
      const T v = x[at], b = x[static_cast<size_t>(start + best * step)];
      if (v != v || (b == b && (largest ? v >= b : v <= b))) best = i;
      values[at] = x[static_cast<size_t>(start + best * step)];
      indices[at] = best;
    }
  });
}

Result<Values> cum_best(const Call& c) {
  const Value& x = c.in("x");
  Value values = c.result(0), indices = c.result(1);
  if (x.floating()) running_best(c, x.f, values.f, indices.i, c.is("cummax"));
  else running_best(c, x.i, values.i, indices.i, c.is("cummax"));
  Values out = one(std::move(values));
  out.push_back(std::move(indices));
  return out;
}

constexpr Entry kRules[] = {{"cumsum", cumsum}, {"cumprod", cumprod}, {"logcumsumexp", logcumsumexp}, {"cummax", cum_best}, {"cummin", cum_best}};

}  // namespace

std::span<const Entry> families::scan() { return kRules; }

}  // namespace stitch::interp
