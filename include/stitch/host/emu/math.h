#pragma once
// Device math functions and bit intrinsics that <math.h> does not have. The fast __xxxf forms are computed exactly: the
// emulator checks logic, and the device's few-ulp error is within any tolerance that allows them.

#include <math.h>
#include <stdlib.h>

#include "core.h"

#define STITCH_EMU_F1(name, T, e) inline T name(T x) { return e; }
#define STITCH_EMU_F2(name, T, e) inline T name(T x, T y) { return e; }

STITCH_EMU_F1(rsqrtf, float, 1.0f / sqrtf(x))
STITCH_EMU_F1(rsqrt, double, 1.0 / sqrt(x))
STITCH_EMU_F1(rsqrt, float, 1.0f / sqrtf(x))
STITCH_EMU_F1(rcbrtf, float, 1.0f / cbrtf(x))
STITCH_EMU_F1(rcbrt, double, 1.0 / cbrt(x))
STITCH_EMU_F1(sinpi, double, sin(M_PI * x))
STITCH_EMU_F1(cospi, double, cos(M_PI * x))
STITCH_EMU_F1(sinpif, float, static_cast<float>(sin(M_PI * static_cast<double>(x))))
STITCH_EMU_F1(cospif, float, static_cast<float>(cos(M_PI * static_cast<double>(x))))
STITCH_EMU_F1(normcdf, double, 0.5 * erfc(-x * M_SQRT1_2))
STITCH_EMU_F1(normcdff, float, static_cast<float>(normcdf(static_cast<double>(x))))
STITCH_EMU_F1(__expf, float, expf(x))
STITCH_EMU_F1(__logf, float, logf(x))
STITCH_EMU_F1(__log2f, float, log2f(x))
STITCH_EMU_F1(__log10f, float, log10f(x))
STITCH_EMU_F1(__sinf, float, sinf(x))
STITCH_EMU_F1(__cosf, float, cosf(x))
STITCH_EMU_F1(__tanf, float, tanf(x))
STITCH_EMU_F1(__tanhf, float, tanhf(x))
STITCH_EMU_F1(__saturatef, float, x >= 0.0f ? (x <= 1.0f ? x : 1.0f) : 0.0f)
STITCH_EMU_F1(__frsqrt_rn, float, static_cast<float>(1.0 / sqrt(static_cast<double>(x))))
STITCH_EMU_F2(__powf, float, powf(x, y))
STITCH_EMU_F2(__fdividef, float, x / y)
STITCH_EMU_F2(fdividef, float, x / y)
inline float __exp10f(float x) { return static_cast<float>(pow(10.0, static_cast<double>(x))); }
#define exp10f __exp10f
inline void __sincosf(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x); *c = cospif(x); }
inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
inline float norm4df(float a, float b, float c, float d) { return sqrtf(a * a + b * b + c * c + d * d); }
inline float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }
inline float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }
double erfcinv(double x);
double erfinv(double x);
inline float erfinvf(float x) { return static_cast<float>(erfinv(static_cast<double>(x))); }
inline float erfcinvf(float x) { return static_cast<float>(erfcinv(static_cast<double>(x))); }
inline double normcdfinv(double x) { return -M_SQRT2 * erfcinv(2.0 * x); }
inline float normcdfinvf(float x) { return static_cast<float>(normcdfinv(static_cast<double>(x))); }
inline double erfcx(double x) { return exp(x * x) * erfc(x); }
inline float erfcxf(float x) { return static_cast<float>(erfcx(static_cast<double>(x))); }
// Newton's method on erf from Winitzki's starting value: three steps reach double precision.
inline double erfinv(double x) {
  if (!(x > -1.0 && x < 1.0)) return x == 1.0 ? HUGE_VAL : x == -1.0 ? -HUGE_VAL : NAN;
  const double l = log1p(-x * x), t = 4.546884979448 + 0.5 * l;
  double y = copysign(sqrt(sqrt(t * t - l / 0.147) - t), x);
  for (int i = 0; i < 4; ++i) y -= (erf(y) - x) / (M_2_SQRTPI * exp(-y * y));
  return y;
}
inline double erfcinv(double x) { return erfinv(1.0 - x); }

#define STITCH_EMU_ROUNDED(suffix)                                     \
  STITCH_EMU_F2(__fadd_##suffix, float, x + y)                         \
  STITCH_EMU_F2(__fsub_##suffix, float, x - y)                         \
  STITCH_EMU_F2(__fmul_##suffix, float, x * y)                         \
  STITCH_EMU_F2(__fdiv_##suffix, float, x / y)                         \
  STITCH_EMU_F1(__fsqrt_##suffix, float, sqrtf(x))                     \
  STITCH_EMU_F1(__frcp_##suffix, float, 1.0f / x)                      \
  STITCH_EMU_F2(__dadd_##suffix, double, x + y)                        \
  STITCH_EMU_F2(__dsub_##suffix, double, x - y)                        \
  STITCH_EMU_F2(__dmul_##suffix, double, x * y)                        \
  STITCH_EMU_F2(__ddiv_##suffix, double, x / y)                        \
  STITCH_EMU_F1(__dsqrt_##suffix, double, sqrt(x))                     \
  STITCH_EMU_F1(__drcp_##suffix, double, 1.0 / x)                      \
  inline float __fmaf_##suffix(float a, float b, float c) { return fmaf(a, b, c); } \
  inline double __fma_##suffix(double a, double b, double c) { return fma(a, b, c); }
STITCH_EMU_ROUNDED(rn)

#define STITCH_EMU_BITCAST(name, From, To) \
  inline To name(From x) { To y; static_assert(sizeof(x) == sizeof(y)); __builtin_memcpy(&y, &x, sizeof y); return y; }
STITCH_EMU_BITCAST(__float_as_int, float, int)
STITCH_EMU_BITCAST(__int_as_float, int, float)
STITCH_EMU_BITCAST(__float_as_uint, float, unsigned)
STITCH_EMU_BITCAST(__uint_as_float, unsigned, float)
STITCH_EMU_BITCAST(__double_as_longlong, double, long long)
STITCH_EMU_BITCAST(__longlong_as_double, long long, double)

// Float to integer saturates on the device and gives 0 for NaN.
template <class To>
inline To stitch_emu_to_int(double x) {
  constexpr bool is_signed = static_cast<To>(-1) < 0;
  constexpr double high = sizeof(To) == 4 ? (is_signed ? 2147483648.0 : 4294967296.0)
                                          : (is_signed ? 9223372036854775808.0 : 18446744073709551616.0);
  constexpr To max = static_cast<To>(is_signed ? (static_cast<unsigned long long>(-1) >> (65 - 8 * sizeof(To)))
                                               : (static_cast<unsigned long long>(-1) >> (64 - 8 * sizeof(To))));
  if (!(x == x)) return 0;
  if (x >= high) return max;
  if (x < (is_signed ? -high : 0.0)) return is_signed ? static_cast<To>(-max - 1) : static_cast<To>(0);
  return static_cast<To>(x);
}
#define STITCH_EMU_CONVERT(prefix, From, to, To)                                              \
  inline To __##prefix##2##to##_rn(From x) { return stitch_emu_to_int<To>(nearbyint(x)); }    \
  inline To __##prefix##2##to##_rz(From x) { return stitch_emu_to_int<To>(trunc(x)); }        \
  inline To __##prefix##2##to##_ru(From x) { return stitch_emu_to_int<To>(ceil(x)); }         \
  inline To __##prefix##2##to##_rd(From x) { return stitch_emu_to_int<To>(floor(x)); }
STITCH_EMU_CONVERT(float, float, int, int)
STITCH_EMU_CONVERT(float, float, uint, unsigned)
STITCH_EMU_CONVERT(float, float, ll, long long)
STITCH_EMU_CONVERT(double, double, int, int)
STITCH_EMU_CONVERT(double, double, uint, unsigned)
STITCH_EMU_CONVERT(double, double, ll, long long)
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
  return y;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long both = static_cast<unsigned long long>(b) << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (4 * i);
    unsigned byte = static_cast<unsigned>(both >> (8 * (s & 7))) & 255u;
    if (s & 8) byte = byte & 128 ? 255 : 0;
    out |= byte << (8 * i);
  }
  return out;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (n & 31));
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<signed char>(a >> (8 * i)) * static_cast<signed char>(b >> (8 * i));
  return c;
}

// CUDA's max and min accept mixed arithmetic types at global scope.
#define STITCH_EMU_MAXMIN(R, A, B)                                                             \
  inline R max(A a, B b) { const R x = static_cast<R>(a), y = static_cast<R>(b); return x < y ? y : x; } \
  inline R min(A a, B b) { const R x = static_cast<R>(a), y = static_cast<R>(b); return y < x ? y : x; }
STITCH_EMU_MAXMIN(int, int, int)
STITCH_EMU_MAXMIN(unsigned, unsigned, unsigned)
STITCH_EMU_MAXMIN(unsigned, int, unsigned)
STITCH_EMU_MAXMIN(unsigned, unsigned, int)
STITCH_EMU_MAXMIN(long, long, long)
STITCH_EMU_MAXMIN(unsigned long, unsigned long, unsigned long)
STITCH_EMU_MAXMIN(unsigned long, long, unsigned long)
STITCH_EMU_MAXMIN(unsigned long, unsigned long, long)
STITCH_EMU_MAXMIN(long long, long long, long long)
STITCH_EMU_MAXMIN(unsigned long long, unsigned long long, unsigned long long)
STITCH_EMU_MAXMIN(unsigned long long, long long, unsigned long long)
STITCH_EMU_MAXMIN(unsigned long long, unsigned long long, long long)
// A NaN operand is dropped, as fmaxf and fminf do.
#define STITCH_EMU_FMAXMIN(R, A, B, f)                                \
  inline R max(A a, B b) { return fmax##f(static_cast<R>(a), static_cast<R>(b)); } \
  inline R min(A a, B b) { return fmin##f(static_cast<R>(a), static_cast<R>(b)); }
STITCH_EMU_FMAXMIN(float, float, float, f)
STITCH_EMU_FMAXMIN(double, double, double, )
STITCH_EMU_FMAXMIN(double, float, double, )
STITCH_EMU_FMAXMIN(double, double, float, )
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }

// Cache-hinted loads and stores are plain ones.
#define STITCH_EMU_LOAD(name) template <class T> STITCH_EMU_INLINE T name(const T* p) { return *p; }
#define STITCH_EMU_STORE(name) template <class T> STITCH_EMU_INLINE void name(T* p, T value) { *p = value; }
STITCH_EMU_LOAD(__ldg)
STITCH_EMU_LOAD(__ldcs)
STITCH_EMU_LOAD(__ldcg)
STITCH_EMU_LOAD(__ldca)
STITCH_EMU_LOAD(__ldlu)
STITCH_EMU_LOAD(__ldcv)
STITCH_EMU_STORE(__stcs)
STITCH_EMU_STORE(__stcg)
STITCH_EMU_STORE(__stwb)
STITCH_EMU_STORE(__stwt)

inline long long clock64() {
#if defined(__x86_64__)
  return static_cast<long long>(__builtin_ia32_rdtsc());
#else
  return 0;
#endif
}
inline void __trap(STITCH_EMU_SITE) { stitch_emu::fatal("trap", "__trap() was reached", {file, line}); }
inline unsigned __cvta_generic_to_shared(const void* p) { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(p)); }
