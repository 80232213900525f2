// upsample_linear and upsample_bicubic: separable, one dim after the other.
#include "interp/resample.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/parallel.h"
#include "interp/strided.h"

namespace stitch::interp {

std::vector<double> scales_of(const Call& c) {
  std::vector<double> out;
  if (!c.node.has_arg("scales")) return out;
  const char* at = c.node.text("scales").c_str();
  for (char* end = nullptr; *at; at = *end ? end + 1 : end) out.push_back(std::strtod(at, &end));
  return out;
}

int64_t nearest_source(int64_t i, int64_t in, int64_t out, double scale, size_t spatial) {
  // PyTorch's 2d kernels (and only those) take these ratios by the extents even where the user's factor says otherwise.
  if (spatial == 2 && out == in) return i;
  if (spatial == 2 && out == 2 * in) return i / 2;
  // In single precision, as PyTorch for an f32 tensor: the rounding decides which element is taken.
  const float ratio = scale > 0 ? static_cast<float>(1 / scale) : static_cast<float>(in) / static_cast<float>(out);
  return std::min(static_cast<int64_t>(std::floor(static_cast<float>(i) * ratio)), in - 1);
}

namespace {

// One result element along one dim: a weighted sum of up to four elements.
struct Taps {
  int64_t at[4];
  double weight[4];
};

double source_position(int64_t i, int64_t in, int64_t out, bool align_corners, double scale) {
  if (align_corners) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) * static_cast<double>(i) : 0;
  const double ratio = scale > 0 ? 1 / scale : static_cast<double>(in) / static_cast<double>(out);
  return ratio * (static_cast<double>(i) + 0.5) - 0.5;
}

Taps linear_taps(double position, int64_t in) {
  position = std::max(position, 0.0);
  const int64_t low = std::min(static_cast<int64_t>(std::floor(position)), in - 1);
  const double t = std::clamp(position - static_cast<double>(low), 0.0, 1.0);
  return {{low, std::min(low + 1, in - 1), low, low}, {1 - t, t, 0, 0}};
}

// Cubic convolution kernel (Keys 1981) with a = -0.75.
double keys(double x) {
  constexpr double a = -0.75;
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
}

Taps cubic_taps(double position, int64_t in) {
  const auto low = static_cast<int64_t>(std::floor(position));
  Taps taps;
  for (int64_t k = 0; k < 4; ++k) {
    taps.at[k] = std::clamp<int64_t>(low - 1 + k, 0, in - 1);
    taps.weight[k] = keys(position - static_cast<double>(low - 1 + k));
  }
  return taps;
}

// x seen as (outer, in, inner) becomes (outer, taps.size(), inner).
std::vector<double> along_dim(const std::vector<double>& x, int64_t outer, int64_t in, int64_t inner, const std::vector<Taps>& taps, int count) {
  const auto n = static_cast<int64_t>(taps.size());
  std::vector<double> out(static_cast<size_t>(outer * n * inner));
  parallel_for(outer * n, grain_for(inner * count), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Taps& t = taps[static_cast<size_t>(row % n)];
      double* to = out.data() + row * inner;
      for (int k = 0; k < count; ++k) {
        const double* from = x.data() + (row / n * in + t.at[k]) * inner;
        if (k == 0) for (int64_t i = 0; i < inner; ++i) to[i] = t.weight[k] * from[i];
        else for (int64_t i = 0; i < inner; ++i) to[i] += t.weight[k] * from[i];
      }
    }
  });
  return out;
}

Result<Values> upsample(const Call& c) {
  const bool cubic = c.is("upsample_bicubic"), align = c.node.boolean("align_corners");
  const auto scales = scales_of(c);
  const auto& to = c.node.type().shape;
  ir::Shape shape = c.in("x").type.shape;
  Value out{c.node.type(), c.in("x").f, {}};
  for (size_t d = 2; d < to.size(); ++d) {
    if (!cubic && shape[d] == to[d]) continue;  // PyTorch copies here, whatever the scale factor says
    std::vector<Taps> taps;
    for (int64_t i = 0; i < to[d]; ++i) {
      const double position = source_position(i, shape[d], to[d], align, scales.empty() ? 0 : scales[d - 2]);
      taps.push_back(cubic ? cubic_taps(position, shape[d]) : linear_taps(position, shape[d]));
    }
    int64_t outer = 1, inner = 1;
    for (size_t k = 0; k < shape.size(); ++k) (k < d ? outer : inner) *= k == d ? 1 : shape[k];
    out.f = along_dim(out.f, outer, shape[d], inner, taps, cubic ? 4 : 2);
    shape[d] = to[d];
  }
  return one(std::move(out));
}

constexpr Entry kRules[] = {{"upsample_linear", upsample}, {"upsample_bicubic", upsample}};

}  // namespace

std::span<const Entry> families::resample() { return kRules; }

}  // namespace stitch::interp
