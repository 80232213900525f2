#pragma once
// Stand-in for CUDA's header of the same name on the host target: __nv_bfloat16 with round-to-nearest-even conversions, arithmetic
// in float rounded after every operation (fused multiply-add: rounded once).

#include "cuda_runtime.h"

struct alignas(2) __nv_bfloat16_raw { unsigned short x; };

struct alignas(2) __nv_bfloat16 {
  unsigned short __x;

  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(const __nv_bfloat16_raw& r) : __x(r.x) {}
  __nv_bfloat16(float f);
  __nv_bfloat16(double d);
  __nv_bfloat16(int v) : __nv_bfloat16(static_cast<float>(v)) {}
  __nv_bfloat16(unsigned v) : __nv_bfloat16(static_cast<float>(v)) {}
  __nv_bfloat16(short v) : __nv_bfloat16(static_cast<float>(v)) {}
  __nv_bfloat16(unsigned short v) : __nv_bfloat16(static_cast<float>(v)) {}
  __nv_bfloat16(long v) : __nv_bfloat16(static_cast<float>(v)) {}
  __nv_bfloat16(unsigned long v) : __nv_bfloat16(static_cast<float>(v)) {}
  __nv_bfloat16(long long v) : __nv_bfloat16(static_cast<float>(v)) {}
  __nv_bfloat16(unsigned long long v) : __nv_bfloat16(static_cast<float>(v)) {}
  operator float() const;
  operator __nv_bfloat16_raw() const { return {__x}; }
  explicit operator bool() const { return (__x & 0x7fff) != 0; }
  explicit operator int() const { return static_cast<int>(static_cast<float>(*this)); }
  explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
  __nv_bfloat16& operator=(float f) { return *this = __nv_bfloat16(f); }
  __nv_bfloat16& operator=(double d) { return *this = __nv_bfloat16(d); }
  __nv_bfloat16& operator=(int v) { return *this = __nv_bfloat16(v); }
  __nv_bfloat16& operator=(const __nv_bfloat16&) = default;
  __nv_bfloat16(const __nv_bfloat16&) = default;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __nv_bfloat162(const __nv_bfloat16& a, const __nv_bfloat16& b) : x(a), y(b) {}
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

namespace stitch_emu {
inline unsigned short bfloat16_bits(float f) {
  unsigned u;
  __builtin_memcpy(&u, &f, 4);
  if (f != f) return 0x7fff;
  return static_cast<unsigned short>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
// Rounding to float first would round twice: make the float step odd, so that it cannot create a tie.
inline unsigned short bfloat16_bits(double d) {
  float f = static_cast<float>(d);
  if (static_cast<double>(f) != d && f == f) {
    unsigned u;
    __builtin_memcpy(&u, &f, 4);
    if (!(u & 1)) u = fabs(static_cast<double>(f)) < fabs(d) ? u + 1 : u - 1;
    if (fabs(d) <= 3.4028234663852886e38) __builtin_memcpy(&f, &u, 4);
  }
  return bfloat16_bits(f);
}
inline float bfloat16_value(unsigned short bits) {
  const unsigned u = static_cast<unsigned>(bits) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
}  // namespace stitch_emu

inline __nv_bfloat16::__nv_bfloat16(float f) { __x = stitch_emu::bfloat16_bits(f); }
inline __nv_bfloat16::__nv_bfloat16(double d) { __x = stitch_emu::bfloat16_bits(d); }
inline __nv_bfloat16::operator float() const { return stitch_emu::bfloat16_value(__x); }

inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __double2bfloat16(double d) { return __nv_bfloat16(d); }
inline __nv_bfloat16 __int2bfloat16_rn(int v) { return __nv_bfloat16(static_cast<double>(v)); }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned v) { return __nv_bfloat16(static_cast<double>(v)); }
inline float __bfloat162float(__nv_bfloat16 h) { return static_cast<float>(h); }
inline int __bfloat162int_rn(__nv_bfloat16 h) { return __float2int_rn(h); }
inline int __bfloat162int_rz(__nv_bfloat16 h) { return __float2int_rz(h); }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 h) { return {h, h}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
inline __nv_bfloat162 __float2bfloat162_rn(float v) { return {__nv_bfloat16(v), __nv_bfloat16(v)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {static_cast<float>(v.x), static_cast<float>(v.y)}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline float __low2float(__nv_bfloat162 v) { return v.x; }
inline float __high2float(__nv_bfloat162 v) { return v.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 v) { return {v.y, v.x}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.__x; }
inline short __bfloat16_as_short(__nv_bfloat16 h) { return static_cast<short>(h.__x); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v) { return __nv_bfloat16(__nv_bfloat16_raw{v}); }
inline __nv_bfloat16 __short_as_bfloat16(short v) { return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(v)}); }

#define STITCH_EMU_H2(name, op)                                                                                  \
  inline __nv_bfloat16 __h##name(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(static_cast<float>(a) op static_cast<float>(b)); }          \
  inline __nv_bfloat16 __h##name##_rn(__nv_bfloat16 a, __nv_bfloat16 b) { return __h##name(a, b); }                                     \
  inline __nv_bfloat162 __h##name##2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__h##name(a.x, b.x), __h##name(a.y, b.y)}; }           \
  inline __nv_bfloat162 __h##name##2_rn(__nv_bfloat162 a, __nv_bfloat162 b) { return __h##name##2(a, b); }                                \
  inline __nv_bfloat16 operator op(const __nv_bfloat16& a, const __nv_bfloat16& b) { return __h##name(a, b); }                            \
  inline __nv_bfloat162 operator op(const __nv_bfloat162& a, const __nv_bfloat162& b) { return __h##name##2(a, b); }                      \
  inline __nv_bfloat16& operator op##=(__nv_bfloat16& a, const __nv_bfloat16& b) { return a = __h##name(a, b); }                          \
  inline __nv_bfloat162& operator op##=(__nv_bfloat162& a, const __nv_bfloat162& b) { return a = __h##name##2(a, b); }
STITCH_EMU_H2(add, +)
STITCH_EMU_H2(sub, -)
STITCH_EMU_H2(mul, *)
STITCH_EMU_H2(div, /)
#undef STITCH_EMU_H2
inline __nv_bfloat162 __h2div(__nv_bfloat162 a, __nv_bfloat162 b) { return __hdiv2(a, b); }

// The product of two significands of at most 11 bits is exact in double, so one rounding remains.
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __nv_bfloat16(fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __nv_bfloat16 __hneg(__nv_bfloat16 a) { return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(a.__x ^ 0x8000)}); }
inline __nv_bfloat162 __hneg2(__nv_bfloat162 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline __nv_bfloat16 __habs(__nv_bfloat16 a) { return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(a.__x & 0x7fff)}); }
inline __nv_bfloat162 __habs2(__nv_bfloat162 a) { return {__habs(a.x), __habs(a.y)}; }
inline __nv_bfloat16 operator-(const __nv_bfloat16& a) { return __hneg(a); }
inline __nv_bfloat162 operator-(const __nv_bfloat162& a) { return __hneg2(a); }
inline __nv_bfloat16 operator+(const __nv_bfloat16& a) { return a; }
inline __nv_bfloat16& operator++(__nv_bfloat16& a) { return a = a + __nv_bfloat16(1.0f); }
inline __nv_bfloat16& operator--(__nv_bfloat16& a) { return a = a - __nv_bfloat16(1.0f); }
inline __nv_bfloat16 __hadd_sat(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(__saturatef(static_cast<float>(a) + static_cast<float>(b))); }
inline __nv_bfloat16 __hmul_sat(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(__saturatef(static_cast<float>(a) * static_cast<float>(b))); }
inline __nv_bfloat16 __hfma_relu(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return __nv_bfloat16(fmaxf(0.0f, __hfma(a, b, c))); }

#define STITCH_EMU_COMPARE(name, op)                                                                                       \
  inline bool __h##name(__nv_bfloat16 a, __nv_bfloat16 b) { return static_cast<float>(a) op static_cast<float>(b); }                   \
  inline __nv_bfloat162 __h##name##2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__nv_bfloat16(__h##name(a.x, b.x) ? 1.0f : 0.0f), __nv_bfloat16(__h##name(a.y, b.y) ? 1.0f : 0.0f)}; } \
  inline bool __hb##name##2(__nv_bfloat162 a, __nv_bfloat162 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }                   \
  inline bool operator op(const __nv_bfloat16& a, const __nv_bfloat16& b) { return __h##name(a, b); }
STITCH_EMU_COMPARE(eq, ==)
STITCH_EMU_COMPARE(ne, !=)
STITCH_EMU_COMPARE(lt, <)
STITCH_EMU_COMPARE(le, <=)
STITCH_EMU_COMPARE(gt, >)
STITCH_EMU_COMPARE(ge, >=)
#undef STITCH_EMU_COMPARE
inline bool __hisnan(__nv_bfloat16 a) { return isnan(static_cast<float>(a)); }
inline int __hisinf(__nv_bfloat16 a) { return isinf(static_cast<float>(a)) ? (a.__x & 0x8000 ? -1 : 1) : 0; }
inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(fmaxf(a, b)); }
inline __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(fminf(a, b)); }
inline __nv_bfloat16 __hmax_nan(__nv_bfloat16 a, __nv_bfloat16 b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmax(a, b); }
inline __nv_bfloat16 __hmin_nan(__nv_bfloat16 a, __nv_bfloat16 b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmin(a, b); }
inline __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline __nv_bfloat162 __hmin2(__nv_bfloat162 a, __nv_bfloat162 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }

#define STITCH_EMU_HMATH(name, e)                                              \
  inline __nv_bfloat16 h##name(__nv_bfloat16 h) { const float x = h; return __nv_bfloat16(e); }        \
  inline __nv_bfloat162 h2##name(__nv_bfloat162 v) { return {h##name(v.x), h##name(v.y)}; }
STITCH_EMU_HMATH(exp, expf(x))
STITCH_EMU_HMATH(exp2, exp2f(x))
STITCH_EMU_HMATH(exp10, __exp10f(x))
STITCH_EMU_HMATH(log, logf(x))
STITCH_EMU_HMATH(log2, log2f(x))
STITCH_EMU_HMATH(log10, log10f(x))
STITCH_EMU_HMATH(sqrt, sqrtf(x))
STITCH_EMU_HMATH(rsqrt, rsqrtf(x))
STITCH_EMU_HMATH(rcp, 1.0f / x)
STITCH_EMU_HMATH(sin, sinf(x))
STITCH_EMU_HMATH(cos, cosf(x))
STITCH_EMU_HMATH(tanh, tanhf(x))
STITCH_EMU_HMATH(tanh_approx, tanhf(x))
STITCH_EMU_HMATH(floor, floorf(x))
STITCH_EMU_HMATH(ceil, ceilf(x))
STITCH_EMU_HMATH(trunc, truncf(x))
STITCH_EMU_HMATH(rint, rintf(x))
#undef STITCH_EMU_HMATH

inline __nv_bfloat16 atomicAdd(__nv_bfloat16* address, __nv_bfloat16 value) {
  return stitch_emu::atomic_change<__nv_bfloat16, unsigned short>(address, [&](__nv_bfloat16 old) { return __hadd(old, value); });
}
inline __nv_bfloat162 atomicAdd(__nv_bfloat162* address, __nv_bfloat162 value) {
  return stitch_emu::atomic_change<__nv_bfloat162, unsigned>(address, [&](__nv_bfloat162 old) { return __hadd2(old, value); });
}
