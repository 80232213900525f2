#include "verify/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace stitch::verify {
namespace {

using ir::DType;

// A block is the smallest group of trailing dimensions with at least this many elements: errors are judged against the
// magnitude of their neighbourhood, so that one huge row does not excuse wrong values in the others.
constexpr int64_t kBlock = 256;
// How far an honest result may lie from the oracle, in units of the reference's own observed error.
constexpr double kReferenceFactor = 2;
constexpr double kBlockErrorFactor = 4;

int64_t block_size(const ir::Shape& shape) {
  int64_t block = 1;
  for (size_t d = shape.size(); d-- > 0 && block < kBlock;) block *= shape[d];
  return std::max<int64_t>(1, block);
}

std::vector<double> doubles(const ir::Tensor& t) {
  const auto n = static_cast<size_t>(ir::numel(t.type.shape));
  std::vector<double> out(n);
  switch (t.type.dtype) {
    case DType::f64: { auto s = t.as<double>(); std::copy_n(s.begin(), n, out.begin()); break; }
    case DType::f32: { auto s = t.as<float>(); std::copy_n(s.begin(), n, out.begin()); break; }
    case DType::f16: { auto s = t.as<uint16_t>(); for (size_t i = 0; i < n; ++i) out[i] = ir::half_to_float(s[i]); break; }
    case DType::bf16: { auto s = t.as<uint16_t>(); for (size_t i = 0; i < n; ++i) out[i] = ir::bfloat16_to_float(s[i]); break; }
    default: for (size_t i = 0; i < n; ++i) out[i] = ir::get(t, static_cast<int64_t>(i));
  }
  return out;
}

template <class T>
void widen(const ir::Tensor& t, std::vector<int64_t>& out) {
  auto s = t.as<T>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int64_t>(s[i]);
}

std::vector<int64_t> integers(const ir::Tensor& t) {
  std::vector<int64_t> out(static_cast<size_t>(ir::numel(t.type.shape)));
  switch (t.type.dtype) {
    case DType::i64: widen<int64_t>(t, out); break;
    case DType::i32: widen<int32_t>(t, out); break;
    case DType::i16: widen<int16_t>(t, out); break;
    case DType::i8: widen<int8_t>(t, out); break;
    case DType::u8: case DType::b8: widen<uint8_t>(t, out); break;
    default: for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int64_t>(ir::get(t, static_cast<int64_t>(i)));
  }
  return out;
}

// The largest finite value: beyond it (plus half a unit in the last place) a result of this dtype is infinite.
double overflow_threshold(DType t) {
  switch (t) {
    case DType::f16: return 65520.0;
    case DType::bf16: return 3.3961775292304957e38;
    case DType::f32: return 3.4028235677973366e38;
    default: return std::numeric_limits<double>::infinity();
  }
}

// Differences no program has to resolve: a flushed denormal, or the spacing of f16's subnormals.
double smallest_step(DType t) {
  switch (t) {
    case DType::f64: return std::numeric_limits<double>::min();
    case DType::f16: return 5.960464477539063e-08;
    default: return 1.1754943508222875e-38;
  }
}

// One unit in the last place, relative, of storing a result in this dtype.
double storage_error(DType t) {
  switch (t) {
    case DType::f16: return 1.0 / 1024;
    case DType::bf16: return 1.0 / 128;
    default: return 0;
  }
}

enum class Kind { finite, positive, negative, nan };
Kind kind_of(double v) {
  if (std::isnan(v)) return Kind::nan;
  if (std::isinf(v)) return v > 0 ? Kind::positive : Kind::negative;
  return Kind::finite;
}

bool still_poisoned(const ir::Tensor& got, int64_t i, uint16_t poison) {
  const auto size = ir::size_of(got.type.dtype);
  for (int64_t b = i * size; b < (i + 1) * size; ++b) {
    const auto want = static_cast<unsigned char>(b % 2 ? poison >> 8 : poison & 0xff);
    if (static_cast<unsigned char>(got.data[static_cast<size_t>(b)]) != want) return false;
  }
  return true;
}

void record_wrong(Comparison& c, const ir::Tensor& got, int64_t i, double expected, double value, uint16_t poison) {
  c.ok = false;
  ++c.wrong;
  const bool unwritten = still_poisoned(got, i, poison);
  c.unwritten += unwritten;
  if (kind_of(expected) != kind_of(value)) ++c.nonfinite_wrong;
  if (!c.first) c.first = WrongElement{unravel(i, got.type.shape), expected, value, unwritten};
}

void compare_integers(Comparison& c, const ir::Tensor& got, const ir::Tensor& exact,
                      std::span<const ir::Tensor> references, uint16_t poison) {
  const auto g = integers(got), r = integers(exact);
  std::vector<std::vector<int64_t>> draws;
  for (const auto& t : references) draws.push_back(integers(t));
  const bool boolean = ir::is_bool(got.type.dtype);
  for (size_t i = 0; i < g.size(); ++i) {
    if (g[i] == r[i]) continue;
    // Where rounding decides (a tie of argmax, a comparison at its threshold), the reference flips too.
    bool tie = false;
    for (const auto& d : draws) tie = tie || d[i] == g[i];
    if (tie && !(boolean && g[i] > 1)) {
      ++c.forgiven;
      continue;
    }
    record_wrong(c, got, static_cast<int64_t>(i), static_cast<double>(r[i]), static_cast<double>(g[i]), poison);
    c.max_abs_error = std::max(c.max_abs_error, std::abs(static_cast<double>(g[i]) - static_cast<double>(r[i])));
  }
}

struct Block {
  double scale = 0;            // rms of the exact values
  double reference_error = 0;  // rms of the references' errors, the worst draw
};

// Exact values as this dtype could hold them: what overflows is infinite.
void saturate(std::vector<double>& values, DType t) {
  const double limit = overflow_threshold(t);
  for (auto& v : values)
    if (std::abs(v) >= limit && std::isfinite(v)) v = std::copysign(std::numeric_limits<double>::infinity(), v);
}

Block measure_block(const std::vector<double>& r, const std::vector<std::vector<double>>& draws, size_t begin, size_t end) {
  Block b;
  double sum = 0;
  size_t n = 0;
  for (size_t i = begin; i < end; ++i)
    if (std::isfinite(r[i])) sum += r[i] * r[i], ++n;
  if (n) b.scale = std::sqrt(sum / static_cast<double>(n));
  for (const auto& d : draws) {
    double error = 0;
    for (size_t i = begin; i < end; ++i)
      if (std::isfinite(r[i]) && std::isfinite(d[i])) error += (d[i] - r[i]) * (d[i] - r[i]);
    if (n) b.reference_error = std::max(b.reference_error, std::sqrt(error / static_cast<double>(n)));
  }
  return b;
}

struct Norms {
  double exact = 0, got = 0;
  std::vector<double> draws;
};

void compare_floats(Comparison& c, const ir::Tensor& got, const ir::Tensor& exact,
                    std::span<const ir::Tensor> references, Tolerance tolerance, uint16_t poison) {
  const DType dtype = got.type.dtype;
  const auto g = doubles(got);
  auto r = doubles(exact);
  saturate(r, dtype);
  std::vector<std::vector<double>> draws;
  for (const auto& t : references) {
    draws.push_back(doubles(t));
    saturate(draws.back(), dtype);
  }
  c.has_reference = !draws.empty();
  const double bound = tolerance.max + storage_error(dtype), step = smallest_step(dtype);
  const auto block = static_cast<size_t>(block_size(got.type.shape));
  Norms norms;
  norms.draws.assign(draws.size(), 0);
  for (size_t begin = 0; begin < g.size(); begin += block) {
    const size_t end = std::min(g.size(), begin + block);
    const Block b = measure_block(r, draws, begin, end);
    for (size_t i = begin; i < end; ++i) {
      const auto at = static_cast<int64_t>(i);
      if (kind_of(g[i]) != kind_of(r[i])) {
        // Overflow inside the program: the reference in its own precision may leave the finite numbers where the
        // oracle does not (or the reverse). Agreeing with either is right.
        bool agrees = false;
        for (const auto& d : draws)
          agrees = agrees || (kind_of(d[i]) == kind_of(g[i]) &&
                              (!std::isfinite(g[i]) || std::abs(g[i] - d[i]) <= bound * std::abs(d[i]) + step));
        if (agrees) ++c.forgiven;
        else record_wrong(c, got, at, r[i], g[i], poison);
        continue;
      }
      if (!std::isfinite(r[i])) continue;
      const double error = std::abs(g[i] - r[i]), scale = std::max(std::abs(r[i]), b.scale);
      norms.exact += r[i] * r[i];
      norms.got += error * error;
      c.max_abs_error = std::max(c.max_abs_error, error);
      double own = 0;
      for (size_t k = 0; k < draws.size(); ++k) {
        if (!std::isfinite(draws[k][i])) continue;
        const double e = std::abs(draws[k][i] - r[i]);
        norms.draws[k] += e * e;
        own = std::max(own, e);
      }
      if (error > step) c.max_error = std::max(c.max_error, scale > 0 ? error / scale : HUGE_VAL);
      if (own > step) c.reference_max_error = std::max(c.reference_max_error, scale > 0 ? own / scale : HUGE_VAL);
      if (error <= bound * scale + step) continue;
      if (error <= bound * scale + step + kReferenceFactor * own + kBlockErrorFactor * b.reference_error) ++c.forgiven;
      else record_wrong(c, got, at, r[i], g[i], poison);
    }
  }
  const double total = std::sqrt(norms.exact);
  auto relative = [&](double squares) { return total > 0 ? std::sqrt(squares) / total : (squares > 0 ? HUGE_VAL : 0.0); };
  c.norm_error = relative(norms.got);
  double own_norm = 0;
  for (double d : norms.draws) own_norm = std::max(own_norm, std::sqrt(d));
  c.reference_norm_error = relative(own_norm * own_norm);
  // Many small deviations, each inside its bound: a lower precision shows here first. The storage dtype rounds every
  // element by up to half a unit, and a denormal may be flushed in each of them.
  const double allowed = (tolerance.norm + storage_error(dtype)) * total + kReferenceFactor * own_norm +
                         step * std::sqrt(static_cast<double>(std::max<size_t>(1, g.size())));
  c.norm_ok = std::sqrt(norms.got) <= allowed;
  c.ok = c.ok && c.norm_ok;
}

}  // namespace

std::vector<int64_t> unravel(int64_t flat, const ir::Shape& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

Comparison compare(const std::string& output, const ir::Tensor& got, const ir::Tensor& exact,
                   std::span<const ir::Tensor> references, Tolerance tolerance, uint16_t poison) {
  Comparison c;
  c.output = output;
  c.elements = ir::numel(got.type.shape);
  if (ir::is_floating(got.type.dtype)) compare_floats(c, got, exact, references, tolerance, poison);
  else compare_integers(c, got, exact, references, poison);
  return c;
}

std::string Comparison::sentence() const {
  if (ok) return "";
  if (!first)
    return fmt::format("Output \"{}\": no single element is far off, but the whole differs by {:.3g} of its norm.", output, norm_error);
  const std::string where = fmt::format("Output \"{}\" at [{}]", output, fmt::join(first->index, ","));
  const std::string count = wrong == 1 ? std::string("1 element") : fmt::format("{} elements", wrong);
  if (first->unwritten && unwritten == wrong)
    return fmt::format("{}: never written; {} of {} still hold the value from before the call.", where, count, elements);
  return fmt::format("{}: expected {:.9g}, got {:.9g}; {} of {} wrong, largest error {:.3g} (relative {:.3g}), norm error {:.3g}{}.", where,
                     first->expected, first->got, count, elements, max_abs_error, max_error, norm_error,
                     unwritten ? fmt::format(", {} never written", unwritten) : "");
}

AllClose all_close(const ir::Tensor& got, const ir::Tensor& expected, double tolerance) {
  AllClose result;
  const auto g = doubles(got), r = doubles(expected);
  for (size_t i = 0; i < g.size() && i < r.size(); ++i) {
    if (g[i] == r[i]) continue;  // equal infinities included
    const double difference = std::abs(g[i] - r[i]);
    if (std::isfinite(difference)) result.max_abs_difference = std::max(result.max_abs_difference, difference);
    if (!(difference <= tolerance + tolerance * std::abs(r[i]))) result.ok = false;
  }
  return result;
}

double kernelbench_tolerance(hw::PrecisionClass precision) {
  return precision == hw::PrecisionClass::fp32 || precision == hw::PrecisionClass::default_flags ? 1e-4 : 1e-2;
}

}  // namespace stitch::verify
