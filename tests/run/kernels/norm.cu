// Two-pass norms, softmax along columns and pooling against their definitions.
#include "check.h"
#include "columns.cuh"
#include "norm.cuh"
#include "pool.cuh"

namespace norm_test {

template <class S, class T>
void one(const std::string& what, double mean_shift, bool running) {
  constexpr stitch::NormShape s = S::value;
  const Doubles x = random_values<T>(s.elements, 1, mean_shift - 1, mean_shift + 1), w = random_values(s.affines, 2), b = random_values(s.affines, 3);
  const Doubles rm = random_values(s.stats, 4), rv = random_values(s.stats, 5, 0.5, 2);
  Doubles mean(s.stats), var(s.stats), y(s.elements), new_mean(s.stats), new_var(s.stats);
  const double n = static_cast<double>(s.count());
  for (int64_t e = 0; e < s.elements; ++e) mean[e / s.stat_inner % s.stats] += x[e] / n;
  for (int64_t e = 0; e < s.elements; ++e) var[e / s.stat_inner % s.stats] += std::pow(x[e] - mean[e / s.stat_inner % s.stats], 2) / n;
  for (int64_t e = 0; e < s.elements; ++e) {
    const int64_t c = e / s.stat_inner % s.stats, a = e / s.affine_inner % s.affines;
    y[e] = (x[e] - mean[c]) / std::sqrt(var[c] + s.eps) * w[a] + b[a];
  }
  for (int64_t c = 0; c < s.stats; ++c) {
    new_mean[c] = (1 - s.momentum) * rm[c] + s.momentum * mean[c];
    new_var[c] = (1 - s.momentum) * rv[c] + s.momentum * var[c] * n / (n - 1);
  }
  Buffer<T> dx(x), dy(s.elements);
  Buffer<float> dw(w), db(b), drm(rm), drv(rv), dnm(s.stats), dnv(s.stats);
  Buffer<stitch::Compute<T>> scratch(s.scratch_values());
  require(stitch::norm<S>(dx.get(), dw.get(), db.get(), running ? drm.get() : nullptr, running ? drv.get() : nullptr, running ? dnm.get() : nullptr,
                          running ? dnv.get() : nullptr, stitch::Store{dy.get()}, scratch, nullptr),
          what);
  expect_close("norm " + what, dy.read(), y, std::max(tolerance<T>(), 1e-6 * std::fabs(mean_shift)));
  if (!running) return;
  expect_close("running mean " + what, dnm.read(), new_mean, 1e-6);
  expect_close("running variance " + what, dnv.read(), new_var, 1e-5);
}
struct Batch { static constexpr stitch::NormShape value{3 * 5 * 36, 5, 36, 5, 36, 1e-5, 0.1}; };
struct Odd { static constexpr stitch::NormShape value{4 * 3 * 35, 3, 35, 3, 35, 1e-3, 0.3}; };
struct Split { static constexpr stitch::NormShape value{2 * 2 * 9000, 2, 9000, 2, 9000, 1e-5, 0.1}; };
struct Row { static constexpr stitch::NormShape value{2 * 20000, 2, 20000, 20000, 1, 1e-5, 0}; };
struct Group { static constexpr stitch::NormShape value{2 * 20480, 2, 20480, 4, 5120, 1e-5, 0}; };
struct Two { static constexpr stitch::NormShape value{64 * 7, 7, 1, 7, 1, 1e-5, 0.1}; };

template <class S, class T>
void softmax(const std::string& what, bool extremes) {
  constexpr stitch::ColumnShape s = S::value;
  Doubles x = random_values<T>(s.outer * s.extent * s.inner, 1, -5, 5), y(x.size());
  if (extremes)
    for (int64_t e = 0; e < s.extent; ++e) x[e * s.inner] = e == 2 ? 1 : -INFINITY;
  for (int64_t o = 0; o < s.outer; ++o)
    for (int64_t i = 0; i < s.inner; ++i) {
      const auto at = [&](int64_t e) { return (o * s.extent + e) * s.inner + i; };
      double top = -INFINITY, sum = 0;
      for (int64_t e = 0; e < s.extent; ++e) top = std::max(top, x[at(e)]);
      for (int64_t e = 0; e < s.extent; ++e) sum += std::exp(x[at(e)] - top);
      for (int64_t e = 0; e < s.extent; ++e) y[at(e)] = s.log ? x[at(e)] - top - std::log(sum) : std::exp(x[at(e)] - top) / sum;
    }
  Buffer<T> dx(x), dy(y.size());
  require(stitch::softmax_columns<S>(dx.get(), stitch::Store{dy.get()}, nullptr), what);
  expect_close("softmax columns " + what, dy.read(), y, tolerance<T>());
}
struct Channels { static constexpr stitch::ColumnShape value{3, 10, 50, false}; };
struct Long { static constexpr stitch::ColumnShape value{2, 100, 40, false}; };
struct Logs { static constexpr stitch::ColumnShape value{2, 70, 3, true}; };

template <class S, bool Max, class T>
void pool(const std::string& what, bool with_nan) {
  constexpr stitch::PoolShape s = S::value;
  Doubles x = random_values<T>(s.planes * s.in_plane(), 1), y, index;
  if (with_nan) x[5] = NAN;
  for (int64_t p = 0; p < s.planes; ++p)
    for (int oz = 0; oz < s.out[0]; ++oz)
      for (int oy = 0; oy < s.out[1]; ++oy)
        for (int ox = 0; ox < s.out[2]; ++ox) {
          const int o[3] = {oz, oy, ox};
          int from[3], to[3];
          double pool_size = 1;
          for (int d = 0; d < 3; ++d) {
            from[d] = s.adaptive ? o[d] * s.in[d] / s.out[d] : o[d] * s.stride[d] - s.padding[d];
            to[d] = s.adaptive ? ((o[d] + 1) * s.in[d] + s.out[d] - 1) / s.out[d] : std::min(from[d] + (s.kernel[d] - 1) * s.dilation[d] + 1, s.in[d] + s.padding[d]);
            pool_size *= to[d] - from[d];
          }
          double best = -INFINITY, sum = 0, count = 0;
          int64_t where = -1;
          const auto step = [&](int d) { return s.adaptive ? 1 : s.dilation[d]; };
          for (int z = from[0]; z < to[0]; z += step(0))
            for (int yy = from[1]; yy < to[1]; yy += step(1))
              for (int xx = from[2]; xx < to[2]; xx += step(2)) {
                if (z < 0 || yy < 0 || xx < 0 || z >= s.in[0] || yy >= s.in[1] || xx >= s.in[2]) continue;
                const int64_t at = (static_cast<int64_t>(z) * s.in[1] + yy) * s.in[2] + xx;
                const double v = x[p * s.in_plane() + at];
                if (where < 0 || v > best || std::isnan(v)) best = v, where = at;
                sum += v, ++count;
              }
          y.push_back(Max ? best : sum / (s.divisor ? s.divisor : s.count_padding ? pool_size : count));
          index.push_back(static_cast<double>(where));
        }
  Buffer<T> dx(x), dy(y.size());
  Buffer<int64_t> di(y.size());
  if constexpr (Max) {
    require(stitch::max_pool<S>(dx.get(), di.get(), stitch::Store{dy.get()}, nullptr), what);
    expect_close("indices of " + what, di.read(), index, 0);
  } else {
    require(stitch::avg_pool<S>(dx.get(), stitch::Store{dy.get()}, nullptr), what);
  }
  expect_close(what, dy.read(), y, tolerance<T>());
}
struct Plain { static constexpr stitch::PoolShape value{3, {1, 9, 11}, {1, 5, 6}, false, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}, true, 0}; };
struct Dilated { static constexpr stitch::PoolShape value{2, {1, 10, 12}, {1, 4, 7}, false, {1, 3, 3}, {1, 2, 1}, {0, 1, 0}, {1, 2, 3}, true, 0}; };
struct Ceil { static constexpr stitch::PoolShape value{2, {1, 1, 10}, {1, 1, 4}, false, {1, 1, 4}, {1, 1, 3}, {0, 0, 1}, {1, 1, 1}, false, 0}; };
struct CeilPad { static constexpr stitch::PoolShape value{2, {1, 1, 10}, {1, 1, 4}, false, {1, 1, 4}, {1, 1, 3}, {0, 0, 1}, {1, 1, 1}, true, 0}; };
struct Large { static constexpr stitch::PoolShape value{2, {4, 6, 6}, {1, 2, 2}, false, {4, 4, 4}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, true, 7}; };
struct Global { static constexpr stitch::PoolShape value{5, {1, 7, 7}, {1, 1, 1}, true, {}, {}, {}, {}, false, 0}; };
struct Adaptive { static constexpr stitch::PoolShape value{2, {1, 7, 10}, {1, 3, 4}, true, {}, {}, {}, {}, false, 0}; };

void run() {
  one<Batch, float>("batch", 0, true);
  one<Odd, float>("batch, odd sizes", 3, true);
  one<Split, float>("batch in splits, large mean", 100, true);
  one<Row, float>("long rows", 1, false);
  one<Group, __half>("long groups f16", 0, false);
  one<Two, double>("batch of vectors f64", 0, true);
  softmax<Channels, float>("channels", true);
  softmax<Long, float>("long columns", true);
  softmax<Logs, __half>("log, f16", false);
  pool<Plain, true, float>("max pool", true);
  pool<Dilated, true, float>("max pool, dilated", false);
  pool<Global, true, float>("global max pool", true);
  pool<Plain, false, float>("avg pool", false);
  pool<Ceil, false, float>("avg pool, ceil mode, padding not counted", false);
  pool<CeilPad, false, double>("avg pool, ceil mode, padding counted", false);
  pool<Large, false, float>("avg pool 3d, divisor", false);
  pool<Large, true, float>("max pool 3d", false);
  pool<Global, false, __half>("global avg pool", false);
  pool<Adaptive, false, float>("adaptive avg pool", false);
  pool<Adaptive, true, float>("adaptive max pool", false);
}

}  // namespace norm_test
