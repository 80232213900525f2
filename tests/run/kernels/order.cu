// Scans, sort and top-k against serial loops.
#include <algorithm>
#include <limits>
#include <numeric>

#include "check.h"
#include "scan.cuh"
#include "sort.cuh"

namespace order_test {

template <class S, class Op, class T, class R, class Step>
void scan(const std::string& what, Doubles x, double start, Step step, double tolerance) {
  constexpr stitch::ScanShape s = S::value;
  Doubles y(x.size());
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < s.inner; ++i) {
      double running = start;
      for (int64_t e = 0; e < s.extent; ++e) {
        const int64_t at = (o * s.extent + e) * s.inner + i;
        y[at] = running = step(running, x[at]);
      }
    }
  Buffer<T> dx(x);
  Buffer<R> dy(y.size());
  require((stitch::scan<S, Op>(dx.get(), dy.get(), nullptr, nullptr)), what);
  expect_close("scan " + what, dy.read(), y, tolerance);
}

template <class S, bool Max, class T>
void extremum(const std::string& what, Doubles x) {
  constexpr stitch::ScanShape s = S::value;
  Doubles y(x.size()), places(x.size());
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < s.inner; ++i) {
      double best = 0;
      int64_t where = -1;
      for (int64_t e = 0; e < s.extent; ++e) {
        const int64_t at = (o * s.extent + e) * s.inner + i;
        if (where < 0 || std::isnan(x[at]) || (!std::isnan(best) && (Max ? x[at] >= best : x[at] <= best))) best = x[at], where = e;
        y[at] = best;
        places[at] = static_cast<double>(where);
      }
    }
  Buffer<T> dx(x), dy(y.size());
  Buffer<int64_t> dp(y.size());
  require((stitch::scan<S, stitch::RunningExtremum<T, Max>>(dx.get(), dy.get(), dp.get(), nullptr)), what);
  expect_close(what, dy.read(), y, 0);
  expect_close("places of " + what, dp.read(), places, 0);
}
struct Rows { static constexpr stitch::ScanShape value{3, 2500, 1}; };
struct Columns { static constexpr stitch::ScanShape value{2, 30, 21}; };
struct Short { static constexpr stitch::ScanShape value{5, 3, 1}; };

template <class S, class T>
void sort(const std::string& what, Doubles x) {
  constexpr stitch::SortShape s = S::value;
  Doubles values(s.rows() * s.keep), indices(values.size());
  for (int64_t row = 0; row < s.rows(); ++row) {
    const auto in = [&](int64_t e) { return x[(row / s.inner * s.extent + e) * s.inner + row % s.inner]; };
    std::vector<int64_t> order(s.extent);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const auto key = [&](int64_t e) { return std::isnan(in(e)) ? std::numeric_limits<double>::infinity() : std::min(in(e), 1e300); };
      return s.descending ? key(a) > key(b) : key(a) < key(b);
    });
    for (int64_t e = 0; e < s.keep; ++e) {
      const int64_t at = (row / s.inner * s.keep + e) * s.inner + row % s.inner;
      values[at] = in(order[e]);
      indices[at] = static_cast<double>(order[e]);
    }
  }
  Buffer<T> dx(x), dv(values.size());
  Buffer<int64_t> di(values.size());
  Buffer<char> scratch(s.scratch_entries() * sizeof(stitch::Entry<T>) + 1);
  require(stitch::sort<S>(dx.get(), dv.get(), di.get(), scratch, nullptr), what);
  expect_close(what, dv.read(), values, 0);
  expect_close("indices of " + what, di.read(), indices, 0);
}
struct Small { static constexpr stitch::SortShape value{3, 50, 2, 50, false}; };
struct Descending { static constexpr stitch::SortShape value{2, 100, 1, 100, true}; };
struct One { static constexpr stitch::SortShape value{4, 1, 1, 1, true}; };
struct Merged { static constexpr stitch::SortShape value{1, 13000, 1, 13000, false}; };
struct TopFew { static constexpr stitch::SortShape value{3, 40, 2, 5, true}; };
struct TopLong { static constexpr stitch::SortShape value{2, 9000, 1, 900, true}; };
struct TopMany { static constexpr stitch::SortShape value{1, 5000, 1, 3000, true}; };

template <class T>
Doubles with_ties(size_t n, unsigned seed) {
  Doubles x = random_values<T>(n, seed, -20, 20);
  for (size_t i = 0; i < n; i += 3) x[i] = std::round(x[i]);
  return x;
}

void run() {
  const auto add = [](double a, double b) { return a + b; };
  scan<Rows, stitch::Sum<float>, float, float>("sum of rows", random_values(7500, 1), 0, add, 1e-5);
  scan<Columns, stitch::Sum<float>, __half, __half>("sum of columns f16", random_values<__half>(1260, 2), 0, add, 2e-3);
  scan<Rows, stitch::Sum<int64_t>, int32_t, int64_t>("sum of integers", with_ties<int32_t>(7500, 3), 0, add, 0);
  scan<Short, stitch::Product<double>, double, double>("product", random_values<double>(15, 4), 1, [](double a, double b) { return a * b; }, 1e-12);
  scan<Rows, stitch::LogAddExp<float>, float, float>("log of sums", random_values(7500, 5, -4, 4), -INFINITY,
                                                     [](double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b))); }, 1e-5);
  Doubles x = with_ties<float>(7500, 6);
  x[2000] = NAN;
  extremum<Rows, true, float>("running maximum", x);
  extremum<Columns, false, double>("running minimum", with_ties<double>(1260, 7));

  Doubles y = with_ties<float>(300, 8);
  y[7] = y[70] = NAN;
  sort<Small, float>("sort", y);
  sort<Descending, float>("sort, descending", with_ties<float>(200, 9));
  sort<One, double>("sort of one", with_ties<double>(4, 10));
  sort<Merged, float>("sort, long rows", with_ties<float>(13000, 11));
  sort<Small, int64_t>("sort of integers", with_ties<int64_t>(300, 12));
  sort<TopFew, __half>("top-k f16", with_ties<__half>(240, 13));
  sort<TopLong, float>("top-k, long rows", with_ties<float>(18000, 14));
  sort<TopMany, float>("top-k of many", with_ties<float>(5000, 15));
}

}  // namespace order_test
