#pragma once
// Convolution of the host target's Vendor: one output plane (batch entry and channel) at a time, one filter tap after the
// other, with the row of taps' contributions as the inner loop.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "stitch/vendor.h"
#include "stitch/vendor_host_gemm.h"

namespace stitch::vendor_host {

// Extents with leading ones up to three dims, so that one loop nest serves 1 to 3 dims.
struct Planes {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0},
          dilation[3] = {1, 1, 1};
  explicit Planes(const Convolution& c) {
    for (int i = 0; i < c.spatial_dims; ++i) {
      const int at = 3 - c.spatial_dims + i;
      in[at] = c.in_size[i];
      out[at] = c.out_size[i];
      kernel[at] = c.kernel[i];
      stride[at] = c.stride[i];
      padding[at] = c.padding[i];
      dilation[at] = c.dilation[i];
    }
  }
  int64_t in_plane() const { return in[0] * in[1] * in[2]; }
  int64_t out_plane() const { return out[0] * out[1] * out[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

// plane += filter * x for one input channel. Transposed: every input element is spread over the output; otherwise every
// output element gathers. Both are the same loops with the roles of the two planes exchanged.
template <class Acc>
void add_channel(const Planes& p, bool transposed, const Acc* x, const Acc* filter, Acc* plane) {
  const int64_t* gathered = transposed ? p.out : p.in;   // the plane that is addressed through stride and tap
  const int64_t* counted = transposed ? p.in : p.out;    // the plane that is walked element by element
  for (int64_t tap = 0; tap < p.taps(); ++tap) {
    const int64_t k[3] = {tap / (p.kernel[1] * p.kernel[2]), tap / p.kernel[2] % p.kernel[1], tap % p.kernel[2]};
    const int64_t shift = k[2] * p.dilation[2] - p.padding[2], step = p.stride[2];
    // Columns whose partner shift + column * step lies inside the gathered plane.
    const int64_t first = shift < 0 ? (-shift + step - 1) / step : 0;
    const int64_t last = std::min(counted[2], gathered[2] > shift ? (gathered[2] - 1 - shift) / step + 1 : 0);
    for (int64_t z = 0; z < counted[0]; ++z) {
      const int64_t gz = z * p.stride[0] + k[0] * p.dilation[0] - p.padding[0];
      if (gz < 0 || gz >= gathered[0]) continue;
      for (int64_t y = 0; y < counted[1]; ++y) {
        const int64_t gy = y * p.stride[1] + k[1] * p.dilation[1] - p.padding[1];
        if (gy < 0 || gy >= gathered[1]) continue;
        const int64_t near = (z * counted[1] + y) * counted[2], far = (gz * gathered[1] + gy) * gathered[2] + shift;
        if (step == 1 && last > first) {
          Acc* to = plane + (transposed ? far : near) + first;
          const Acc* from = x + (transposed ? near : far) + first;
          add_scaled(to, from, filter[tap], last - first);
        } else if (transposed) {
          for (int64_t i = first; i < last; ++i) plane[far + i * step] += filter[tap] * x[near + i];
        } else {
          for (int64_t i = first; i < last; ++i) plane[near + i] += filter[tap] * x[far + i * step];
        }
      }
    }
  }
}

template <class T, class Acc>
void convolution_of(const Convolution& c, const T* x, const T* w, const T* bias, T* y) {
  const Planes p(c);
  const auto widened = [](const T* from, int64_t n) {
    std::vector<Acc> out(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = load(from[i]);
    return out;
  };
  const int64_t in_group = c.in_channels / c.groups, out_group = c.out_channels / c.groups, taps = p.taps();
  const std::vector<Acc> filters = widened(w, (c.transposed ? c.in_channels * out_group : c.out_channels * in_group) * taps);
  std::vector<Acc> plane(static_cast<size_t>(p.out_plane()));
  for (int64_t n = 0; n < c.batch; ++n) {
    const std::vector<Acc> image = widened(x + n * c.in_channels * p.in_plane(), c.in_channels * p.in_plane());
    for (int64_t o = 0; o < c.out_channels; ++o) {
      std::fill(plane.begin(), plane.end(), Acc(0));
      const int64_t group = o / out_group;
      for (int64_t i = 0; i < in_group; ++i) {
        const int64_t channel = group * in_group + i;
        const int64_t filter = c.transposed ? channel * out_group + o % out_group : o * in_group + i;
        add_channel(p, c.transposed, image.data() + channel * p.in_plane(), filters.data() + filter * taps, plane.data());
      }
      T* to = y + (n * c.out_channels + o) * p.out_plane();
      const Acc shift = bias ? static_cast<Acc>(load(bias[o])) : Acc(0);
      for (int64_t i = 0; i < p.out_plane(); ++i) store(to[i], plane[static_cast<size_t>(i)] + shift);
    }
  }
}

inline void convolution(const Convolution& c, const void* x, const void* w, const void* bias, void* y) {
  const auto run = [&]<class T, class Acc>(T, Acc) {
    convolution_of<T, Acc>(c, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias), static_cast<T*>(y));
  };
  switch (c.element) {
    case Element::f64: return run(double{}, double{});
    case Element::f32: return run(float{}, float{});
    case Element::f16: return run(Half{}, float{});
    case Element::bf16: return run(Bfloat{}, float{});
  }
}

}  // namespace stitch::vendor_host
