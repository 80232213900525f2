// layer_norm, rms_norm, group_norm, batch_norm. Statistics in two passes, variance biased.
#include <cmath>

#include "interp/rows.h"
#include "interp/rules.h"

namespace stitch::interp {
namespace {

struct Statistics {
  double mean = 0, variance = 0;  // biased
};

template <class Get>
Statistics statistics_of(int64_t n, const Get& get) {
  const double mean = pairwise_sum(0, n, get) / static_cast<double>(n);
  const double squares = pairwise_sum(0, n, [&](int64_t i) { return (get(i) - mean) * (get(i) - mean); });
  return {mean, squares / static_cast<double>(n)};
}

Result<Values> last_dims(const Call& c) {
  const Value& x = c.in("x");
  const bool rms = c.is("rms_norm");
  const Value *weight = c.maybe("weight"), *bias = rms ? nullptr : c.maybe("bias");
  const double eps = c.node.number("eps");
  const int64_t n = ir::numel(c.node.integers("normalized_shape"));
  Value out = c.result();
  if (out.f.empty()) return one(std::move(out));
  parallel_for(static_cast<int64_t>(x.f.size()) / n, grain_for(4 * n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const double* p = x.f.data() + row * n;
      double* q = out.f.data() + row * n;
      Statistics s;
      if (rms) s.variance = pairwise_sum(0, n, [p](int64_t i) { return p[i] * p[i]; }) / static_cast<double>(n);
      else s = statistics_of(n, [p](int64_t i) { return p[i]; });
      const double scale = 1 / std::sqrt(s.variance + eps);
      for (int64_t i = 0; i < n; ++i) {
        q[i] = (p[i] - s.mean) * scale;
        if (weight) q[i] *= weight->f[static_cast<size_t>(i)];
        if (bias) q[i] += bias->f[static_cast<size_t>(i)];
      }
    }
  });
  return one(std::move(out));
}

// x is (N, C, spatial): the affine parameters belong to channels.
struct Channels {
  int64_t batch, channels, spatial;
};
Channels channels_of(const ir::Shape& s) {
  Channels c{s[0], s[1], 1};
  for (size_t d = 2; d < s.size(); ++d) c.spatial *= s[d];
  return c;
}

void write_channel(const double* x, double* y, int64_t n, double mean, double scale, const Value* weight, const Value* bias, int64_t channel) {
  const double w = weight ? weight->f[static_cast<size_t>(channel)] : 1, b = bias ? bias->f[static_cast<size_t>(channel)] : 0;
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * w + b;
}

Result<Values> group_norm(const Call& c) {
  const Value& x = c.in("x");
  const Channels d = channels_of(x.type.shape);
  const int64_t groups = c.node.integer("num_groups"), per_group = d.channels / groups, n = per_group * d.spatial;
  const double eps = c.node.number("eps");
  Value out = c.result();
  parallel_for(d.batch * groups, grain_for(4 * n), [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      const double* p = x.f.data() + g * n;
      const Statistics s = statistics_of(n, [p](int64_t i) { return p[i]; });
      for (int64_t k = 0; k < per_group; ++k)
        write_channel(p + k * d.spatial, out.f.data() + g * n + k * d.spatial, d.spatial, s.mean, 1 / std::sqrt(s.variance + eps), c.maybe("weight"),
                      c.maybe("bias"), g % groups * per_group + k);
    }
  });
  return one(std::move(out));
}

Result<Values> batch_norm(const Call& c) {
  const Value& x = c.in("x");
  const Channels d = channels_of(x.type.shape);
  const Value *mean = c.maybe("running_mean"), *variance = c.maybe("running_var");
  const double eps = c.node.number("eps"), momentum = c.node.number("momentum");
  const bool training = c.node.boolean("training");
  const int64_t n = d.batch * d.spatial;
  Values out = one(c.result());
  for (size_t k = 1; k < c.node.types.size(); ++k) out.push_back(*(k == 1 ? mean : variance));
  parallel_for(d.channels, grain_for(4 * n), [&](int64_t begin, int64_t end) {
    for (int64_t ch = begin; ch < end; ++ch) {
      const auto at = static_cast<size_t>(ch);
      const auto get = [&](int64_t i) { return x.f[static_cast<size_t>((i / d.spatial * d.channels + ch) * d.spatial + i % d.spatial)]; };
      const Statistics s = training ? statistics_of(n, get) : Statistics{mean->f[at], variance->f[at]};
      for (int64_t b = 0; b < d.batch; ++b) {
        const int64_t start = (b * d.channels + ch) * d.spatial;
        write_channel(x.f.data() + start, out[0].f.data() + start, d.spatial, s.mean, 1 / std::sqrt(s.variance + eps), c.maybe("weight"), c.maybe("bias"), ch);
      }
      if (out.size() < 3) continue;
      // The running variance takes the unbiased estimate.
      const double unbiased = s.variance * static_cast<double>(n) / static_cast<double>(n - 1);
      out[1].f[at] = momentum * s.mean + (1 - momentum) * mean->f[at];
      out[2].f[at] = momentum * unbiased + (1 - momentum) * variance->f[at];
    }
  });
  return out;
}

constexpr Entry kRules[] = {{"layer_norm", last_dims}, {"rms_norm", last_dims}, {"group_norm", group_norm}, {"batch_norm", batch_norm}};

}  // namespace

std::span<const Entry> families::norm() { return kRules; }

}  // namespace stitch::interp
