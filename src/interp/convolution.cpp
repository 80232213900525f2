// convolution, 1 to 3 spatial dims. Forward: columns of input patches times the weight. Transposed: the weight times the
// input, added into the places the patches would have come from.
#include "interp/gemm.h"
#include "interp/rules.h"
#include "interp/strided.h"
#include "interp/window.h"

namespace stitch::interp {
namespace {

struct Problem {
  const double *x, *w, *bias;
  int64_t batch, groups, in_per_group, out_per_group;
  Spatial in, out, kernel, stride, padding, dilation;
  int64_t in_volume() const { return volume(in); }
  int64_t out_volume() const { return volume(out); }
  int64_t taps() const { return volume(kernel); }
};

Problem problem_of(const Call& c) {
  const Value &x = c.in("x"), &w = c.in("weight");
  const Value* bias = c.maybe("bias");
  const int64_t groups = c.node.integer("groups");
  Problem p{x.f.data(), w.f.data(), bias ? bias->f.data() : nullptr, x.type.shape[0], groups, x.type.shape[1] / groups, c.node.type().shape[1] / groups};
  p.in = spatial_of(x.type.shape);
  p.out = spatial_of(c.node.type().shape);
  p.kernel = spatial_of(w.type.shape);
  p.stride = spatial_argument(c.node.integers("stride"), 1);
  p.padding = spatial_argument(c.node.integers("padding"), 0);
  p.dilation = spatial_argument(c.node.integers("dilation"), 1);
  return p;
}

// Column j of `columns` (rows x width) is the patch of result position first + j; row = (channel, tap).
void fill_columns(const Problem& p, const double* x, int64_t first, int64_t width, double* columns) {
  for (int64_t tap = 0; tap < p.taps(); ++tap) {
    const Spatial k{tap / (p.kernel[1] * p.kernel[2]), tap / p.kernel[2] % p.kernel[1], tap % p.kernel[2]};
    for (int64_t j = 0; j < width; ++j) {
      const int64_t o = first + j;
      const Spatial at{o / (p.out[1] * p.out[2]), o / p.out[2] % p.out[1], o % p.out[2]};
      int64_t offset = 0;
      bool inside = true;
      for (size_t d = 0; d < 3; ++d) {
        const int64_t i = at[d] * p.stride[d] - p.padding[d] + k[d] * p.dilation[d];
        inside = inside && i >= 0 && i < p.in[d];
        offset = offset * p.in[d] + i;
      }
      for (int64_t ch = 0; ch < p.in_per_group; ++ch)
        columns[(ch * p.taps() + tap) * width + j] = inside ? x[ch * p.in_volume() + offset] : 0;
    }
  }
}

void forward(const Problem& p, double* y) {
  const int64_t rows = p.in_per_group * p.taps(), n = p.out_volume();
  const int64_t width = std::clamp<int64_t>((1 << 18) / std::max<int64_t>(1, rows), 16, 512), blocks = (n + width - 1) / width;
  parallel_for(p.batch * p.groups * blocks, grain_for(rows * std::min(width, n) * (p.out_per_group + 1)), [&](int64_t begin, int64_t end) {
    std::vector<double> columns(static_cast<size_t>(rows * std::min(width, n)));
    for (int64_t t = begin; t < end; ++t) {
      const int64_t image = t / blocks, group = image % p.groups, first = t % blocks * width, have = std::min(width, n - first);
      fill_columns(p, p.x + image * p.in_per_group * p.in_volume(), first, have, columns.data());
      double* to = y + image * p.out_per_group * n + first;
      gemm(p.out_per_group, have, rows, {p.w + group * p.out_per_group * rows, rows, 1}, {columns.data(), have, 1}, to, n);
    }
  });
}

// Where tap `k` of input position `i` lands in a transposed convolution's result; -1 if outside.
int64_t landing(const Problem& p, int64_t i, const Spatial& k) {
  const Spatial at{i / (p.in[1] * p.in[2]), i / p.in[2] % p.in[1], i % p.in[2]};
  int64_t offset = 0;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t o = at[d] * p.stride[d] - p.padding[d] + k[d] * p.dilation[d];
    if (o < 0 || o >= p.out[d]) return -1;
    offset = offset * p.out[d] + o;
  }
  return offset;
}

void transposed(const Problem& p, double* y) {
  const int64_t n = p.in_volume(), taps = p.taps();
  std::vector<int64_t> lands(static_cast<size_t>(taps * n));
  for (int64_t tap = 0; tap < taps; ++tap)
    for (int64_t i = 0; i < n; ++i)
      lands[static_cast<size_t>(tap * n + i)] = landing(p, i, {tap / (p.kernel[1] * p.kernel[2]), tap / p.kernel[2] % p.kernel[1], tap % p.kernel[2]});
  const int64_t channels = p.groups * p.out_per_group;
  parallel_for(p.batch * channels, grain_for(taps * n * (p.in_per_group + 1)), [&](int64_t begin, int64_t end) {
    std::vector<double> parts(static_cast<size_t>(taps * n));
    for (int64_t t = begin; t < end; ++t) {
      const int64_t image = t / channels, ch = t % channels, group = ch / p.out_per_group, within = ch % p.out_per_group;
      const int64_t input = image * p.groups + group;
      // Weight is (C, O/groups, taps): for one result channel a (taps x C/groups) matrix.
      gemm(taps, n, p.in_per_group, {p.w + (group * p.in_per_group * p.out_per_group + within) * taps, 1, p.out_per_group * taps},
           {p.x + input * p.in_per_group * n, n, 1}, parts.data(), n);
      double* to = y + t * p.out_volume();
      for (size_t i = 0; i < parts.size(); ++i)
        if (lands[i] >= 0) to[lands[i]] += parts[i];
    }
  });
}

Result<Values> convolution(const Call& c) {
  const Problem p = problem_of(c);
  Value out = c.result();
  if (c.node.boolean("transposed")) transposed(p, out.f.data());
  else forward(p, out.f.data());
  if (p.bias)
    for (size_t i = 0; i < out.f.size(); ++i) out.f[i] += p.bias[static_cast<int64_t>(i) / p.out_volume() % (p.groups * p.out_per_group)];
  return one(std::move(out));
}

constexpr Entry kRules[] = {{"convolution", convolution}};

}  // namespace

std::span<const Entry> families::convolution() { return kRules; }

}  // namespace stitch::interp
