#pragma once
// Combining operations for block_reduce, beyond the sums and products of block.cuh. NaN wins every comparison, as in PyTorch.

#include "block.cuh"

namespace stitch {

template <class C>
STITCH_DEVICE bool is_nan(C x) { return x != x; }

template <class C>
STITCH_DEVICE constexpr C lowest_of() {
  if constexpr (std::numeric_limits<C>::has_infinity) return -std::numeric_limits<C>::infinity();
  else return std::numeric_limits<C>::lowest();
}
template <class C>
STITCH_DEVICE constexpr C highest_of() {
  if constexpr (std::numeric_limits<C>::has_infinity) return std::numeric_limits<C>::infinity();
  else return std::numeric_limits<C>::max();
}

template <class C>
struct Maximum {
  using Value = C;
  STITCH_DEVICE static C identity() { return lowest_of<C>(); }
  STITCH_DEVICE static C combine(C a, C b) { return op::maximum(a, b); }
};
template <class C>
struct Minimum {
  using Value = C;
  STITCH_DEVICE static C identity() { return highest_of<C>(); }
  STITCH_DEVICE static C combine(C a, C b) { return op::minimum(a, b); }
};

// A value and where it stands; the first of equals wins, whatever order threads combine in.
template <class C, class I = int64_t>
struct Placed {
  C value;
  I index;
};
template <class C, class I, bool Largest>
struct ArgExtreme {
  using Value = Placed<C, I>;
  STITCH_DEVICE static Value identity() { return {Largest ? lowest_of<C>() : highest_of<C>(), std::numeric_limits<I>::max()}; }
  STITCH_DEVICE static bool ahead(C a, C b) { return is_nan(a) ? !is_nan(b) : !is_nan(b) && (Largest ? a > b : a < b); }
  STITCH_DEVICE static Value combine(const Value& a, const Value& b) {
    if (ahead(a.value, b.value)) return a;
    if (ahead(b.value, a.value)) return b;
    return a.index <= b.index ? a : b;
  }
};

// Count, mean and sum of squared distances from the mean, merged by the rule of Chan, Golub and LeVeque (1979): accurate also
// where mean^2 is much larger than the variance, in one pass over memory.
template <class C>
struct Moments {
  using Value = Moments;
  C n, mean, m2;
  STITCH_DEVICE static Moments identity() { return {C(0), C(0), C(0)}; }
  STITCH_DEVICE static Moments combine(Moments a, Moments b) {
    if (b.n == 0) return a;
    if (a.n == 0) return b;
    const C n = a.n + b.n, delta = b.mean - a.mean, share = b.n / n;
    return {n, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.n * share};
  }
  // Several elements at once: their own moments first, so that there is one division for all of them.
  template <int N>
  STITCH_DEVICE void add(const C (&x)[N]) {
    // Relative to one of them: the mean of equal values is that value, so that a constant row has variance 0 and normalises to 0.
    Moments part{C(N), C(0), C(0)};
#pragma unroll
    for (int i = 1; i < N; ++i) part.mean += x[i] - x[0];
    part.mean = x[0] + part.mean / C(N);
#pragma unroll
    for (int i = 0; i < N; ++i) part.m2 += op::square(x[i] - part.mean);
    *this = combine(*this, part);
  }
};

// Sum and sum of squares of distances from a value near the mean.
template <class C>
struct Deviations {
  using Value = Deviations;
  C sum, squares;
  STITCH_DEVICE static Deviations identity() { return {C(0), C(0)}; }
  STITCH_DEVICE static Deviations combine(Deviations a, Deviations b) { return {a.sum + b.sum, a.squares + b.squares}; }
  STITCH_DEVICE void add(C d) { *this = combine(*this, {d, d * d}); }
  // Squared distances of n elements from their mean; rounding may not make it negative.
  STITCH_DEVICE C m2(C n) const { return op::maximum(squares - sum * (sum / n), C(0)); }
};

// log(sum(exp)) as the largest value and the sum relative to it.
template <class C>
struct LogSum {
  using Value = LogSum;
  C top, sum;
  STITCH_DEVICE static LogSum identity() { return {-C(INFINITY), C(0)}; }
  STITCH_DEVICE static LogSum combine(LogSum a, LogSum b) {
    const C top = op::maximum(a.top, b.top);
    const C base = top == -C(INFINITY) ? C(0) : top;
    return {top, a.sum * exp(a.top - base) + b.sum * exp(b.top - base)};
  }
  STITCH_DEVICE void add(C x) {
    if (x <= top) {  // one exp per element
      sum += top == -C(INFINITY) ? C(0) : exp(x - top);
    } else {
      sum = sum * (top == -C(INFINITY) ? C(0) : exp(top - x)) + C(1);
      top = x;
    }
  }
};

}  // namespace stitch
