// Values: conversion from and to tensors, and the number formats of the dtypes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/parallel.h"
#include "interp/rules.h"

namespace stitch::interp {
namespace {

template <class From, class To>
void copy_as(const ir::Tensor& t, std::vector<To>& out) {
  const auto from = t.as<From>();
  std::copy(from.begin(), from.end(), out.begin());
}

template <class To, class From>
void fill_as(ir::Tensor& t, const std::vector<From>& from) {
  const auto to = t.as<To>();
  for (size_t i = 0; i < from.size(); ++i) to[i] = static_cast<To>(from[i]);
}

}  // namespace

Values one(Value v) {
  Values out;
  out.push_back(std::move(v));
  return out;
}

Value make_value(ir::TensorType type) {
  Value v{std::move(type), {}, {}};
  const auto n = static_cast<size_t>(ir::numel(v.type.shape));
  if (v.floating()) v.f.resize(n);
  else v.i.resize(n);
  return v;
}

Value from_tensor(const ir::Tensor& t) {
  Value v = make_value(t.type);
  switch (t.type.dtype) {
    case ir::DType::f64: copy_as<double>(t, v.f); break;
    case ir::DType::f32: copy_as<float>(t, v.f); break;
    case ir::DType::f16: std::transform(t.as<uint16_t>().begin(), t.as<uint16_t>().end(), v.f.begin(), ir::half_to_float); break;
    case ir::DType::bf16: std::transform(t.as<uint16_t>().begin(), t.as<uint16_t>().end(), v.f.begin(), ir::bfloat16_to_float); break;
    case ir::DType::i64: copy_as<int64_t>(t, v.i); break;
    case ir::DType::i32: copy_as<int32_t>(t, v.i); break;
    case ir::DType::i16: copy_as<int16_t>(t, v.i); break;
    case ir::DType::i8: copy_as<int8_t>(t, v.i); break;
    case ir::DType::u8: copy_as<uint8_t>(t, v.i); break;
    case ir::DType::b8: std::transform(t.as<uint8_t>().begin(), t.as<uint8_t>().end(), v.i.begin(), [](uint8_t b) { return b != 0; }); break;
  }
  return v;
}

ir::Tensor to_tensor(const Value& v, std::string name) {
  ir::Tensor t = ir::make_tensor(std::move(name), v.type);
  switch (v.type.dtype) {
    case ir::DType::f64: fill_as<double>(t, v.f); break;
    case ir::DType::f32: fill_as<float>(t, v.f); break;
    case ir::DType::f16:
    case ir::DType::bf16:
      for (size_t i = 0; i < v.f.size(); ++i) ir::set(t, static_cast<int64_t>(i), v.f[i]);
      break;
    case ir::DType::i64: fill_as<int64_t>(t, v.i); break;
    case ir::DType::i32: fill_as<int32_t>(t, v.i); break;
    case ir::DType::i16: fill_as<int16_t>(t, v.i); break;
    case ir::DType::i8: fill_as<int8_t>(t, v.i); break;
    case ir::DType::u8: fill_as<uint8_t>(t, v.i); break;
    case ir::DType::b8: std::transform(v.i.begin(), v.i.end(), t.as<uint8_t>().begin(), [](int64_t b) -> uint8_t { return b != 0; }); break;
  }
  return t;
}

ir::Tensor to_f64_tensor(const Value& v, std::string name) {
  ir::Tensor t = ir::make_tensor(std::move(name), {v.floating() ? ir::DType::f64 : ir::DType::i64, v.type.shape});
  if (v.floating()) fill_as<double>(t, v.f);
  else fill_as<int64_t>(t, v.i);
  return t;
}

int64_t wrap(int64_t v, ir::DType dtype) {
  switch (dtype) {
    case ir::DType::i32: return static_cast<int32_t>(v);
    case ir::DType::i16: return static_cast<int16_t>(v);
    case ir::DType::i8: return static_cast<int8_t>(v);
    case ir::DType::u8: return static_cast<uint8_t>(v);
    case ir::DType::b8: return v != 0;
    default: return v;
  }
}

double largest(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f32: return std::numeric_limits<float>::max();
    case ir::DType::f16: return 65504.0;
    case ir::DType::bf16: return std::ldexp(255.0, 120);
    default: return std::numeric_limits<double>::max();
  }
}

double round_to(double v, ir::DType dtype) {
  if (dtype == ir::DType::f64) return v;
  if (dtype == ir::DType::f32) return static_cast<float>(v);
  if (v == 0 || !std::isfinite(v)) return v;
  // Multiples of the last place at v's binade (or at the smallest normal's); one rounding, to nearest even.
  const bool half = dtype == ir::DType::f16;
  const int precision = half ? 11 : 8, lowest = half ? -14 : -126;
  const int exponent = std::max(std::ilogb(v), lowest) - (precision - 1);
  const double r = std::ldexp(std::nearbyint(std::ldexp(v, -exponent)), exponent);
  return std::fabs(r) > largest(dtype) ? std::copysign(std::numeric_limits<double>::infinity(), v) : r;
}

double store_as(double v, ir::DType dtype) {
  return round_to(ir::size_of(dtype) == 2 ? round_to(v, ir::DType::f32) : v, dtype);
}

int64_t float_to_integer(double v, ir::DType dtype) {
  if (dtype == ir::DType::b8) return v != 0;
  const bool wide = dtype == ir::DType::i64;
  const double bound = wide ? 0x1p63 : 0x1p31;
  const bool fits = v < bound && v > (wide ? -0x1p63 : -0x1p31 - 1);  // false for NaN
  const int64_t whole = fits ? static_cast<int64_t>(v) : wide ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  return wrap(whole, dtype);
}

int64_t grain_for(int64_t work) { return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, work)); }

}  // namespace stitch::interp
