#pragma once
// Element access and matrix product of the host target's Vendor.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "stitch/vendor.h"

namespace stitch::vendor_host {

// 16-bit floats as bits, so that this header needs none of CUDA's.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

inline float from_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
inline uint32_t to_bits(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}

inline double load(double x) { return x; }
inline float load(float x) { return x; }
inline float load(Bfloat x) { return from_bits(static_cast<uint32_t>(x.bits) << 16); }
inline float load(Half x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16, exponent = x.bits >> 10 & 31u, mantissa = x.bits & 1023u;
  if (exponent == 31) return from_bits(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) return std::copysign(std::ldexp(static_cast<float>(mantissa), -24), from_bits(sign | 0x3f800000u));
  return from_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
}

inline void store(double& to, double x) { to = x; }
inline void store(float& to, float x) { to = x; }
inline void store(Bfloat& to, float x) {  // to nearest, ties to even
  const uint32_t bits = to_bits(x);
  to.bits = x != x ? uint16_t{0x7fff} : static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline void store(Half& to, float x) {
  const auto sign = static_cast<uint16_t>(to_bits(x) >> 16 & 0x8000u);
  const float magnitude = std::fabs(x);
  uint16_t bits;
  if (x != x) bits = 0x7fff;
  else if (magnitude >= 65520.0f) bits = 0x7c00;
  else if (magnitude < 6.103515625e-5f) bits = static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));  // subnormal: units of 2^-24
  else {
    const uint32_t m = to_bits(magnitude);
    bits = static_cast<uint16_t>((m - 0x38000000u + 0xfffu + (m >> 13 & 1u)) >> 13);
  }
  to.bits = sign | bits;
}

template <class T>
T activate(Activation activation, T x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::relu: return x < T(0) ? T(0) : x;
    case Activation::gelu_tanh: {
      const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
      return T(0.5) * x * (T(1) + std::tanh(inner));
    }
    case Activation::gelu_erf: return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440)));
  }
  return x;
}

// out[0..n) += weight * row[0..n); 8 lanes at a time so that the compiler needs no flags to use vector registers.
template <class Acc>
inline void add_scaled(Acc* __restrict out, const Acc* __restrict row, Acc weight, int64_t n) {
  typedef Acc Lanes __attribute__((vector_size(32)));
  constexpr int64_t kLanes = 32 / static_cast<int64_t>(sizeof(Acc));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes o, r;
    std::memcpy(&o, out + i, sizeof o);
    std::memcpy(&r, row + i, sizeof r);
    o += weight * r;
    std::memcpy(out + i, &o, sizeof o);
  }
  for (; i < n; ++i) out[i] += weight * row[i];
}

// One matrix of the batch. T is the element type, Acc what sums are kept in.
template <class T, class Acc>
void gemm_one(const Gemm& g, const T* a, const T* b, const T* c, const T* bias, T* d) {
  const int64_t lda = g.lda ? g.lda : (g.transpose_a ? g.m : g.k), ldb = g.ldb ? g.ldb : (g.transpose_b ? g.k : g.n);
  const int64_t ldc = g.ldc ? g.ldc : g.n, ldd = g.ldd ? g.ldd : g.n;
  constexpr int64_t kBlock = 64;  // products summed before they join the total: bounds the rounding error
  std::vector<Acc> panel(static_cast<size_t>(g.k * g.n)), total(static_cast<size_t>(g.n)), part(static_cast<size_t>(g.n));
  for (int64_t p = 0; p < g.k; ++p)
    for (int64_t j = 0; j < g.n; ++j) panel[static_cast<size_t>(p * g.n + j)] = load(g.transpose_b ? b[j * ldb + p] : b[p * ldb + j]);
  for (int64_t i = 0; i < g.m; ++i) {
    std::fill(total.begin(), total.end(), Acc(0));
    for (int64_t from = 0; from < g.k; from += kBlock) {
      std::fill(part.begin(), part.end(), Acc(0));
      const int64_t to = from + kBlock < g.k ? from + kBlock : g.k;
      for (int64_t p = from; p < to; ++p)
        add_scaled(part.data(), panel.data() + p * g.n, static_cast<Acc>(load(g.transpose_a ? a[p * lda + i] : a[i * lda + p])), g.n);
      add_scaled(total.data(), part.data(), Acc(1), g.n);
    }
    for (int64_t j = 0; j < g.n; ++j) {
      Acc x = static_cast<Acc>(g.alpha) * total[static_cast<size_t>(j)];
      if (g.beta != 0) x += static_cast<Acc>(g.beta) * static_cast<Acc>(load(c[i * ldc + j]));
      if (bias) x += static_cast<Acc>(load(bias[j]));
      store(d[i * ldd + j], activate(g.activation, x));
    }
  }
}

template <class T, class Acc>
void gemm_of(const Gemm& g, const void* a, const void* b, const void* c, const void* bias, void* d) {
  for (int64_t i = 0; i < g.batch; ++i)
    gemm_one<T, Acc>(g, static_cast<const T*>(a) + i * g.batch_stride_a, static_cast<const T*>(b) + i * g.batch_stride_b,
                     c ? static_cast<const T*>(c) + i * g.batch_stride_c : nullptr, static_cast<const T*>(bias),
                     static_cast<T*>(d) + i * g.batch_stride_d);
}

inline void gemm(const Gemm& g, const void* a, const void* b, const void* c, const void* bias, void* d) {
  switch (g.element) {
    case Element::f64: return gemm_of<double, double>(g, a, b, c, bias, d);
    case Element::f32: return gemm_of<float, float>(g, a, b, c, bias, d);
    case Element::f16: return gemm_of<Half, float>(g, a, b, c, bias, d);
    case Element::bf16: return gemm_of<Bfloat, float>(g, a, b, c, bias, d);
  }
}

}  // namespace stitch::vendor_host
