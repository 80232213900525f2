// Max and average pooling, plain and adaptive: one window per result element.
#include <limits>

#include "base/parallel.h"
#include "interp/rules.h"
#include "interp/window.h"

namespace stitch::interp {
namespace {

// A window along one dim: elements begin, begin + step, ... below end. `padded` counts what it spans with the padding.
struct Span {
  int64_t begin, end, step, padded;
};

struct Geometry {
  Spatial in, out, kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  bool adaptive = false;

  Span span(size_t d, int64_t o) const {
    if (adaptive) return {o * in[d] / out[d], ((o + 1) * in[d] + out[d] - 1) / out[d], 1, 0};
    const int64_t start = o * stride[d] - padding[d];
    // In ceil mode the last window may reach beyond the padding; what is beyond does not count.
    const int64_t padded = std::min(start + kernel[d], in[d] + padding[d]) - start;
    const int64_t skipped = start < 0 ? (-start + dilation[d] - 1) / dilation[d] * dilation[d] : 0;
    return {start + skipped, std::min(start + (kernel[d] - 1) * dilation[d] + 1, in[d]), dilation[d], padded};
  }
};

Geometry geometry_of(const Call& c) {
  Geometry g;
  g.in = spatial_of(c.in("x").type.shape);
  g.out = spatial_of(c.node.type().shape);
  g.adaptive = c.is("adaptive_avg_pool") || c.is("adaptive_max_pool");
  if (g.adaptive) return g;
  g.kernel = spatial_argument(c.node.integers("kernel"), 1);
  g.stride = spatial_argument(c.node.integers("stride"), 1);
  g.padding = spatial_argument(c.node.integers("padding"), 0);
  if (c.is("max_pool")) g.dilation = spatial_argument(c.node.integers("dilation"), 1);
  return g;
}

// body(result index, first element of the image, the three spans) for every result element.
template <class Body>
void each_window(const Geometry& g, int64_t images, const Body& body) {
  const int64_t per_image = volume(g.out);
  parallel_for(images * per_image, grain_for(volume(g.kernel)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t o = t % per_image;
      const Span spans[3] = {g.span(0, o / (g.out[1] * g.out[2])), g.span(1, o / g.out[2] % g.out[1]), g.span(2, o % g.out[2])};
      body(t, t / per_image * volume(g.in), spans);
    }
  });
}

template <class Body>
void each_element(const Geometry& g, const Span* s, const Body& body) {
  for (int64_t i = s[0].begin; i < s[0].end; i += s[0].step)
    for (int64_t j = s[1].begin; j < s[1].end; j += s[1].step)
      for (int64_t k = s[2].begin; k < s[2].end; k += s[2].step) body((i * g.in[1] + j) * g.in[2] + k);
}

int64_t images_of(const Call& c) { return c.in("x").type.shape[0] * c.in("x").type.shape[1]; }

// The first of equal maxima; a NaN wins, the last of several.
template <class T>
void max_windows(const Call& c, const Geometry& g, const std::vector<T>& x, std::vector<T>& values, std::vector<int64_t>* indices) {
  each_window(g, images_of(c), [&](int64_t t, int64_t image, const Span* spans) {
    // A window may hold padding only.
    int64_t best = (spans[0].begin * g.in[1] + spans[1].begin) * g.in[2] + spans[2].begin;
    T top = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::min();
    each_element(g, spans, [&](int64_t at) {
      const T v = x[static_cast<size_t>(image + at)];
      if (!(v > top) && v == v) return;
      best = at;
      top = v;
    });
    values[static_cast<size_t>(t)] = top;
    if (indices) (*indices)[static_cast<size_t>(t)] = best;
  });
}

Result<Values> max_pool(const Call& c) {
  const Value& x = c.in("x");
  Values out;
  for (size_t k = 0; k < c.node.types.size(); ++k) out.push_back(c.result(k));
  std::vector<int64_t>* indices = out.size() > 1 ? &out[1].i : nullptr;
  if (x.floating()) max_windows(c, geometry_of(c), x.f, out[0].f, indices);
  else max_windows(c, geometry_of(c), x.i, out[0].i, indices);
  return out;
}

Result<Values> avg_pool(const Call& c) {
  const Value& x = c.in("x");
  const Geometry g = geometry_of(c);
  const bool with_padding = !g.adaptive && c.node.boolean("count_include_pad");
  const int64_t divisor = !g.adaptive && c.node.has_arg("divisor_override") ? c.node.integer("divisor_override") : 0;
  Value out = c.result();
  each_window(g, images_of(c), [&](int64_t t, int64_t image, const Span* s) {
    double sum = 0;
    int64_t count = 0;
    each_element(g, s, [&](int64_t at) {
      sum += x.f[static_cast<size_t>(image + at)];
      ++count;
    });
    if (with_padding) count = s[0].padded * s[1].padded * s[2].padded;
    if (divisor) count = divisor;
    out.f[static_cast<size_t>(t)] = sum == 0 && count == 0 ? 0 : sum / static_cast<double>(count);
  });
  return one(std::move(out));
}

constexpr Entry kRules[] = {{"max_pool", max_pool}, {"avg_pool", avg_pool}, {"adaptive_avg_pool", avg_pool}, {"adaptive_max_pool", max_pool}};

}  // namespace

std::span<const Entry> families::pool() { return kRules; }

}  // namespace stitch::interp
