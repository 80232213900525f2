#pragma once
// Scalar device functions behind the pointwise ops of the IR, and vector access. Semantics are PyTorch's: NaN propagates
// through maximum, minimum, clamp and relu; integers wrap; integer division rounds as asked and never traps. The
// float versions are the accurate library functions; nothing here needs or assumes -use_fast_math.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>  // float overloads of exp, log ... in the global namespace

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#define STITCH_DEVICE __device__ __forceinline__

namespace stitch {

// ---------------------------------------------------------------------------------------------------------------------
// Element types. Reduced-precision floats are computed with in float: widen after a load, narrow before a store.

STITCH_DEVICE float widen(__half x) { return __half2float(x); }
STITCH_DEVICE float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
STITCH_DEVICE T widen(T x) { return x; }

template <class T, class C>
STITCH_DEVICE T narrow(C x) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// N neighbouring elements moved by one instruction (at most 16 bytes).
template <class T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vec {
  T at[N];
  STITCH_DEVICE T& operator[](int i) { return at[i]; }
  STITCH_DEVICE const T& operator[](int i) const { return at[i]; }
};

// p must be aligned to the vector's size.
template <int N, class T>
STITCH_DEVICE Vec<T, N> load_vec(const T* p) { return *reinterpret_cast<const Vec<T, N>*>(p); }
template <class T, int N>
STITCH_DEVICE void store_vec(T* p, const Vec<T, N>& v) { *reinterpret_cast<Vec<T, N>*>(p) = v; }

// ---------------------------------------------------------------------------------------------------------------------
// Indices

// Quotient and remainder rounded down, b > 0.
template <class I>
STITCH_DEVICE I floor_div(I a, I b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
template <class I>
STITCH_DEVICE I floor_mod(I a, I b) { const I r = a % b; return r < 0 ? r + b : r; }
// Padding modes: position i of the padded row, counted from the row's first element, in a row of n elements.
template <class I>
STITCH_DEVICE I reflect_index(I i, I n) { i = i < 0 ? -i : i; return i < n ? i : 2 * (n - 1) - i; }
template <class I>
STITCH_DEVICE I clamp_index(I i, I n) { return i < 0 ? 0 : (i < n ? i : n - 1); }
// A loaded index of a tensor of n rows; negative ones count from the end.
template <class I>
STITCH_DEVICE I wrap_index(int64_t i, I n) { return static_cast<I>(i < 0 ? i + n : i); }

namespace op {

template <class T>
using Unsigned = std::make_unsigned_t<std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, T, int>>;

template <class T>
STITCH_DEVICE bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x != x;
  } else {
    return false;
  }
}
template <class T>
STITCH_DEVICE bool is_inf(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x == T(INFINITY) || x == -T(INFINITY);
  } else {
    return false;
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Arithmetic. Generated code writes + - * / for floats; these are for integers (wrapping) and bool (or, and).

template <class T>
STITCH_DEVICE T add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a || b;
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  else return a + b;
}
template <class T>
STITCH_DEVICE T sub(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a != b;
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  else return a - b;
}
template <class T>
STITCH_DEVICE T mul(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a && b;
  // through 64 bits: a product of two promoted 16-bit operands could overflow int
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else return a * b;
}
template <class T>
STITCH_DEVICE T neg(T a) {
  if constexpr (std::is_integral_v<T>) return sub<T>(T(0), a);
  else return -a;
}
template <class T>
STITCH_DEVICE T div_trunc(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return neg(a);  // the smallest integer by -1 would trap
    return static_cast<T>(a / b);
  } else {
    return trunc(a / b);
  }
}
template <class T>
STITCH_DEVICE T div_floor(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const T q = div_trunc(a, b);
    if (b != 0 && static_cast<T>(sub(a, mul(q, b))) != 0 && ((a < 0) != (b < 0))) return sub<T>(q, T(1));
    return q;
  } else {
    // As Python: from the exact remainder, so that 1 // 0.1 is 9.
    if (b == 0) return a / b;
    const T mod = fmod(a, b);
    T div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    if (div == 0) return copysign(T(0), a / b);
    T down = floor(div);
    if (div - down > T(0.5)) down += 1;
    return down;
  }
}
template <class T>
STITCH_DEVICE T fmod(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return 0;
    return static_cast<T>(a % b);
  } else {
    return ::fmod(a, b);
  }
}
// Sign of the divisor.
template <class T>
STITCH_DEVICE T remainder(T a, T b) {
  T r = op::fmod(a, b);
  if (r != 0 && (b < 0) != (r < 0)) r = add(r, b);
  return r;
}
template <class T>
STITCH_DEVICE T abs(T x) {
  if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>) return x;
  else if constexpr (std::is_integral_v<T>) return x < 0 ? neg(x) : x;
  else return fabs(x);
}
template <class T>
STITCH_DEVICE T sign(T x) { return static_cast<T>((T(0) < x) - (x < T(0))); }
template <class T>
STITCH_DEVICE T maximum(T a, T b) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float>) {  // one instruction, where fmaxf would drop the NaN
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
#endif
  return is_nan(a) || a > b ? a : b;  // a NaN b is returned because a > b is false
}
template <class T>
STITCH_DEVICE T minimum(T a, T b) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, float>) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
#endif
  return is_nan(a) || a < b ? a : b;
}
template <class T>
STITCH_DEVICE T clamp(T x, T low, T high) { return minimum(maximum(x, low), high); }
template <class T>
STITCH_DEVICE T pow(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>)
      if (b < 0) return a == 1 ? T(1) : (a == T(-1) ? (b % 2 == 0 ? T(1) : T(-1)) : T(0));
    T result = 1;
    for (T e = b; e > 0; e = static_cast<T>(e / 2)) {
      if (e % 2 != 0) result = mul(result, a);
      a = mul(a, a);
    }
    return result;
  } else {
    return ::pow(a, b);
  }
}
template <class T>
STITCH_DEVICE T shift_left(T a, T b) {
  constexpr int bits = sizeof(T) * 8;
  return b < 0 || b >= T(bits) ? T(0) : static_cast<T>(static_cast<Unsigned<T>>(a) << b);
}
template <class T>
STITCH_DEVICE T shift_right(T a, T b) {
  constexpr int bits = sizeof(T) * 8 - std::is_signed_v<T>;
  return b < 0 || b >= T(bits) ? (a < 0 ? T(-1) : T(0)) : static_cast<T>(a >> b);
}

// ---------------------------------------------------------------------------------------------------------------------
// Elementary functions of float and double

template <class T>
STITCH_DEVICE T square(T x) { return x * x; }
template <class T>
STITCH_DEVICE T reciprocal(T x) { return T(1) / x; }
STITCH_DEVICE double rsqrt(double x) { return 1.0 / ::sqrt(x); }
STITCH_DEVICE float rsqrt(float x) {
#ifdef __CUDA_ARCH__
  return ::rsqrtf(x);
#else
  return 1.0f / ::sqrtf(x);
#endif
}
template <class T>
STITCH_DEVICE T frac(T x) { return x - trunc(x); }
template <class T>
STITCH_DEVICE T round_even(T x) { return rint(x); }
// To `decimals` places; scale is 10^|decimals|.
template <class T>
STITCH_DEVICE T round_decimals(T x, T scale, bool negative) { return negative ? rint(x / scale) * scale : rint(x * scale) / scale; }
template <class T>
STITCH_DEVICE T logaddexp(T a, T b) {
  if (is_inf(a) && a == b) return a;
  const T m = maximum(a, b);
  return is_nan(m) ? m : m + log1p(exp(-fabs(a - b)));
}
template <class T>
STITCH_DEVICE T xlogy(T x, T y) { return is_nan(y) ? y : (x == 0 ? T(0) : x * log(y)); }
template <class T>
STITCH_DEVICE T nan_to_num(T x, T nan, T positive, T negative) {
  return is_nan(x) ? nan : (x == T(INFINITY) ? positive : (x == -T(INFINITY) ? negative : x));
}

// ---------------------------------------------------------------------------------------------------------------------
// Activations

template <class T>
STITCH_DEVICE T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }
template <class T>
STITCH_DEVICE T log_sigmoid(T x) { return minimum(x, T(0)) - log1p(exp(-fabs(x))); }
template <class T>
STITCH_DEVICE T relu(T x) { return x < T(0) ? T(0) : x; }
template <class T>
STITCH_DEVICE T gelu(T x) { return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440))); }
template <class T>
STITCH_DEVICE T gelu_tanh(T x) {
  const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + tanh(inner));
}
template <class T>
STITCH_DEVICE T silu(T x) { return x / (T(1) + exp(-x)); }
template <class T>
STITCH_DEVICE T softplus(T x, T beta, T threshold) { return x * beta > threshold ? x : log1p(exp(x * beta)) / beta; }
template <class T>
STITCH_DEVICE T mish(T x) { return x * tanh(softplus(x, T(1), T(20))); }
template <class T>
STITCH_DEVICE T hardsigmoid(T x) { return clamp(x + T(3), T(0), T(6)) / T(6); }
template <class T>
STITCH_DEVICE T hardswish(T x) { return x * clamp(x + T(3), T(0), T(6)) / T(6); }
template <class T>
STITCH_DEVICE T elu(T x, T alpha, T scale, T input_scale) {
  return x > T(0) ? scale * x : (is_nan(x) ? x : scale * alpha * expm1(input_scale * x));
}
template <class T>
STITCH_DEVICE T leaky_relu(T x, T slope) { return x > T(0) ? x : x * slope; }
template <class T>
STITCH_DEVICE T hardshrink(T x, T lambda) { return x >= -lambda && x <= lambda ? T(0) : x; }
template <class T>
STITCH_DEVICE T softshrink(T x, T lambda) { return x > lambda ? x - lambda : (x < -lambda ? x + lambda : x * T(0)); }
template <class T>
STITCH_DEVICE T threshold(T x, T threshold, T value) { return x <= threshold ? value : x; }

// Cubic convolution of four neighbours at fraction t between the middle two, A = -0.75 as PyTorch's bicubic.
template <class T>
STITCH_DEVICE T cubic(T p0, T p1, T p2, T p3, T t) {
  constexpr T A = T(-0.75);
  const auto near = [](T x) { return ((A + 2) * x - (A + 3)) * x * x + 1; };
  const auto far = [](T x) { return ((A * x - 5 * A) * x + 8 * A) * x - 4 * A; };
  return p0 * far(t + 1) + p1 * near(t) + p2 * near(1 - t) + p3 * far(2 - t);
}

// ---------------------------------------------------------------------------------------------------------------------
// Steps of online sums of exponentials: (top, sum) stand for log(sum * exp(top)).

template <class T>
STITCH_DEVICE void log_sum_step(T& top, T& sum, T x) {
  const T m = maximum(top, x);
  if (m == -T(INFINITY)) return;  // exp(-inf - -inf) would be NaN
  if (m == T(INFINITY)) {
    top = m;
    sum = T(1);
    return;
  }
  sum = sum * exp(top - m) + exp(x - m);
  top = m;
}
template <class T>
STITCH_DEVICE T log_sum(T top, T sum) { return is_inf(top) ? top : top + log(sum); }
// acc / sum is the average of the values weighted by exp(score).
template <class T>
STITCH_DEVICE void softmax_step(T& top, T& sum, T& acc, T score, T value) {
  const T m = maximum(top, score);
  if (m == -T(INFINITY)) return;
  const T keep = exp(top - m), weight = exp(score - m);
  sum = sum * keep + weight;
  acc = acc * keep + weight * value;
  top = m;
}

}  // namespace op
}  // namespace stitch
