#include "ir/tensor.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace stitch::ir {

Tensor make_tensor(std::string name, TensorType type) {
  Tensor t{std::move(name), std::move(type), {}};
  t.data.resize(static_cast<size_t>(bytes_of(t.type)));
  return t;
}

float bfloat16_to_float(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

uint16_t float_to_bfloat16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if (std::isnan(f)) return static_cast<uint16_t>((u >> 16) | 0x40);  // stays a NaN when the payload is cut
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 0x1f, mantissa = h & 0x3ff;
  if (exponent == 0) {
    const float m = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -m : m;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t float_to_half(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000);
  const float a = std::fabs(f);
  if (std::isnan(f)) return static_cast<uint16_t>(sign | 0x7e00);
  if (a >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);  // 65504 + half an ulp rounds up to infinity
  if (a < 6.103515625e-05f) {  // subnormal in half: multiples of 2^-24, nearest even by the default rounding mode
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(a, 24))));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(a);
  const uint32_t rounded = bits + 0xfff + ((bits >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

double get(const Tensor& t, int64_t i) {
  const auto n = static_cast<size_t>(i);
  switch (t.type.dtype) {
    case DType::f64: return t.as<double>()[n];
    case DType::f32: return t.as<float>()[n];
    case DType::f16: return half_to_float(t.as<uint16_t>()[n]);
    case DType::bf16: return bfloat16_to_float(t.as<uint16_t>()[n]);
    case DType::i64: return static_cast<double>(t.as<int64_t>()[n]);
    case DType::i32: return t.as<int32_t>()[n];
    case DType::i16: return t.as<int16_t>()[n];
    case DType::i8: return t.as<int8_t>()[n];
    case DType::u8: return t.as<uint8_t>()[n];
    case DType::b8: return t.as<uint8_t>()[n] != 0;
  }
  return 0;
}

namespace {
// double to half or bfloat16 through float would round twice; rounding to odd first keeps the result exact.
float to_float_odd(double v) {
  float f = static_cast<float>(v);
  if (std::isnan(v) || std::isinf(f) || static_cast<double>(f) == v) return f;
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if (u & 1) return f;
  const bool away = std::fabs(static_cast<double>(f)) > std::fabs(v);
  return std::bit_cast<float>(away ? u - 1 : u + 1);
}
}  // namespace

void set(Tensor& t, int64_t i, double v) {
  const auto n = static_cast<size_t>(i);
  switch (t.type.dtype) {
    case DType::f64: t.as<double>()[n] = v; break;
    case DType::f32: t.as<float>()[n] = static_cast<float>(v); break;
    case DType::f16: t.as<uint16_t>()[n] = float_to_half(to_float_odd(v)); break;
    case DType::bf16: t.as<uint16_t>()[n] = float_to_bfloat16(to_float_odd(v)); break;
    case DType::i64: t.as<int64_t>()[n] = static_cast<int64_t>(v); break;
    case DType::i32: t.as<int32_t>()[n] = static_cast<int32_t>(static_cast<int64_t>(v)); break;
    case DType::i16: t.as<int16_t>()[n] = static_cast<int16_t>(static_cast<int64_t>(v)); break;
    case DType::i8: t.as<int8_t>()[n] = static_cast<int8_t>(static_cast<int64_t>(v)); break;
    case DType::u8: t.as<uint8_t>()[n] = static_cast<uint8_t>(static_cast<int64_t>(v)); break;
    case DType::b8: t.as<uint8_t>()[n] = v != 0; break;
  }
}

}  // namespace stitch::ir
