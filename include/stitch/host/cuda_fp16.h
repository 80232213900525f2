#pragma once
// Stand-in for CUDA's header of the same name on the host target: __half with round-to-nearest-even conversions, arithmetic
// in float rounded after every operation (fused multiply-add: rounded once).

#include "cuda_runtime.h"

struct alignas(2) __half_raw { unsigned short x; };

struct alignas(2) __half {
  unsigned short __x;

  __half() = default;
  constexpr __half(const __half_raw& r) : __x(r.x) {}
  __half(float f);
  __half(double d);
  __half(int v) : __half(static_cast<float>(v)) {}
  __half(unsigned v) : __half(static_cast<float>(v)) {}
  __half(short v) : __half(static_cast<float>(v)) {}
  __half(unsigned short v) : __half(static_cast<float>(v)) {}
  __half(long v) : __half(static_cast<float>(v)) {}
  __half(unsigned long v) : __half(static_cast<float>(v)) {}
  __half(long long v) : __half(static_cast<float>(v)) {}
  __half(unsigned long long v) : __half(static_cast<float>(v)) {}
  operator float() const;
  operator __half_raw() const { return {__x}; }
  explicit operator bool() const { return (__x & 0x7fff) != 0; }
  explicit operator int() const { return static_cast<int>(static_cast<float>(*this)); }
  explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
  __half& operator=(float f) { return *this = __half(f); }
  __half& operator=(double d) { return *this = __half(d); }
  __half& operator=(int v) { return *this = __half(v); }
  __half& operator=(const __half&) = default;
  __half(const __half&) = default;
};
struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  __half2(const __half& a, const __half& b) : x(a), y(b) {}
};
typedef __half half;
typedef __half2 half2;
typedef __half __nv_half;
typedef __half2 __nv_half2;

namespace stitch_emu {
#if defined(__FLT16_MAX__)
inline unsigned short half_bits(_Float16 h) {
  unsigned short bits;
  __builtin_memcpy(&bits, &h, 2);
  return bits;
}
inline unsigned short half_bits(float f) { return half_bits(static_cast<_Float16>(f)); }
inline unsigned short half_bits(double d) { return half_bits(static_cast<_Float16>(d)); }
inline float half_value(unsigned short bits) {
  _Float16 h;
  __builtin_memcpy(&h, &bits, 2);
  return static_cast<float>(h);
}
#else
#error "the host target needs a compiler with _Float16 (g++ 12 or later on x86-64)"
#endif
}  // namespace stitch_emu

inline __half::__half(float f) { __x = stitch_emu::half_bits(f); }
inline __half::__half(double d) { __x = stitch_emu::half_bits(d); }
inline __half::operator float() const { return stitch_emu::half_value(__x); }

inline __half __float2half(float f) { return __half(f); }
inline __half __float2half_rn(float f) { return __half(f); }
inline __half __double2half(double d) { return __half(d); }
inline __half __int2half_rn(int v) { return __half(static_cast<double>(v)); }
inline __half __uint2half_rn(unsigned v) { return __half(static_cast<double>(v)); }
inline float __half2float(__half h) { return static_cast<float>(h); }
inline int __half2int_rn(__half h) { return __float2int_rn(h); }
inline int __half2int_rz(__half h) { return __float2int_rz(h); }
inline __half2 __half2half2(__half h) { return {h, h}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline __half2 __float2half2_rn(float v) { return {__half(v), __half(v)}; }
inline float2 __half22float2(__half2 v) { return {static_cast<float>(v.x), static_cast<float>(v.y)}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline float __low2float(__half2 v) { return v.x; }
inline float __high2float(__half2 v) { return v.y; }
inline __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
inline __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }
inline unsigned short __half_as_ushort(__half h) { return h.__x; }
inline short __half_as_short(__half h) { return static_cast<short>(h.__x); }
inline __half __ushort_as_half(unsigned short v) { return __half(__half_raw{v}); }
inline __half __short_as_half(short v) { return __half(__half_raw{static_cast<unsigned short>(v)}); }

#define STITCH_EMU_H2(name, op)                                                                                  \
  inline __half __h##name(__half a, __half b) { return __half(static_cast<float>(a) op static_cast<float>(b)); }          \
  inline __half __h##name##_rn(__half a, __half b) { return __h##name(a, b); }                                     \
  inline __half2 __h##name##2(__half2 a, __half2 b) { return {__h##name(a.x, b.x), __h##name(a.y, b.y)}; }           \
  inline __half2 __h##name##2_rn(__half2 a, __half2 b) { return __h##name##2(a, b); }                                \
  inline __half operator op(const __half& a, const __half& b) { return __h##name(a, b); }                            \
  inline __half2 operator op(const __half2& a, const __half2& b) { return __h##name##2(a, b); }                      \
  inline __half& operator op##=(__half& a, const __half& b) { return a = __h##name(a, b); }                          \
  inline __half2& operator op##=(__half2& a, const __half2& b) { return a = __h##name##2(a, b); }
STITCH_EMU_H2(add, +)
STITCH_EMU_H2(sub, -)
STITCH_EMU_H2(mul, *)
STITCH_EMU_H2(div, /)
#undef STITCH_EMU_H2
inline __half2 __h2div(__half2 a, __half2 b) { return __hdiv2(a, b); }

// The product of two significands of at most 11 bits is exact in double, so one rounding remains.
inline __half __hfma(__half a, __half b, __half c) {
  return __half(fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __half __hneg(__half a) { return __half(__half_raw{static_cast<unsigned short>(a.__x ^ 0x8000)}); }
inline __half2 __hneg2(__half2 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline __half __habs(__half a) { return __half(__half_raw{static_cast<unsigned short>(a.__x & 0x7fff)}); }
inline __half2 __habs2(__half2 a) { return {__habs(a.x), __habs(a.y)}; }
inline __half operator-(const __half& a) { return __hneg(a); }
inline __half2 operator-(const __half2& a) { return __hneg2(a); }
inline __half operator+(const __half& a) { return a; }
inline __half& operator++(__half& a) { return a = a + __half(1.0f); }
inline __half& operator--(__half& a) { return a = a - __half(1.0f); }
inline __half __hadd_sat(__half a, __half b) { return __half(__saturatef(static_cast<float>(a) + static_cast<float>(b))); }
inline __half __hmul_sat(__half a, __half b) { return __half(__saturatef(static_cast<float>(a) * static_cast<float>(b))); }
inline __half __hfma_relu(__half a, __half b, __half c) { return __half(fmaxf(0.0f, __hfma(a, b, c))); }

#define STITCH_EMU_COMPARE(name, op)                                                                                       \
  inline bool __h##name(__half a, __half b) { return static_cast<float>(a) op static_cast<float>(b); }                   \
  inline __half2 __h##name##2(__half2 a, __half2 b) { return {__half(__h##name(a.x, b.x) ? 1.0f : 0.0f), __half(__h##name(a.y, b.y) ? 1.0f : 0.0f)}; } \
  inline bool __hb##name##2(__half2 a, __half2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }                   \
  inline bool operator op(const __half& a, const __half& b) { return __h##name(a, b); }
STITCH_EMU_COMPARE(eq, ==)
STITCH_EMU_COMPARE(ne, !=)
STITCH_EMU_COMPARE(lt, <)
STITCH_EMU_COMPARE(le, <=)
STITCH_EMU_COMPARE(gt, >)
STITCH_EMU_COMPARE(ge, >=)
#undef STITCH_EMU_COMPARE
inline bool __hisnan(__half a) { return isnan(static_cast<float>(a)); }
inline int __hisinf(__half a) { return isinf(static_cast<float>(a)) ? (a.__x & 0x8000 ? -1 : 1) : 0; }
inline __half __hmax(__half a, __half b) { return __half(fmaxf(a, b)); }
inline __half __hmin(__half a, __half b) { return __half(fminf(a, b)); }
inline __half __hmax_nan(__half a, __half b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmax(a, b); }
inline __half __hmin_nan(__half a, __half b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmin(a, b); }
inline __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }

#define STITCH_EMU_HMATH(name, e)                                              \
  inline __half h##name(__half h) { const float x = h; return __half(e); }        \
  inline __half2 h2##name(__half2 v) { return {h##name(v.x), h##name(v.y)}; }
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

inline __half atomicAdd(__half* address, __half value) {
  return stitch_emu::atomic_change<__half, unsigned short>(address, [&](__half old) { return __hadd(old, value); });
}
inline __half2 atomicAdd(__half2* address, __half2 value) {
  return stitch_emu::atomic_change<__half2, unsigned>(address, [&](__half2 old) { return __hadd2(old, value); });
}
