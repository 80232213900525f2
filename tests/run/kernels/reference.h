#pragma once
// Convolution from its definition, in double, and the cases that are tried with it.

#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "stitch/vendor.h"

struct ConvolutionCase {
  stitch::Convolution c;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  size_t x_size, w_size, y_size;

  explicit ConvolutionCase(const stitch::Convolution& shape) : c(shape) {
    for (int i = 0; i < c.spatial_dims; ++i) {
      const int d = 3 - c.spatial_dims + i;
      in[d] = c.in_size[i], out[d] = c.out_size[i], kernel[d] = c.kernel[i];
      stride[d] = c.stride[i], padding[d] = c.padding[i], dilation[d] = c.dilation[i];
    }
    const int64_t taps = kernel[0] * kernel[1] * kernel[2];
    x_size = c.batch * c.in_channels * in[0] * in[1] * in[2];
    y_size = c.batch * c.out_channels * out[0] * out[1] * out[2];
    w_size = c.in_channels * c.out_channels / c.groups * taps;
  }

  Doubles run(const Doubles& x, const Doubles& w, const Doubles& bias) const {
    Doubles y(y_size);
    const int64_t in_group = c.in_channels / c.groups, out_group = c.out_channels / c.groups;
    const auto at = [](const int64_t* e, int64_t z, int64_t yy, int64_t xx) { return (z * e[1] + yy) * e[2] + xx; };
    const int64_t in_plane = in[0] * in[1] * in[2], out_plane = out[0] * out[1] * out[2];
    // Every (counted position, tap) pair links one input and one output element.
    const int64_t* counted = c.transposed ? in : out;
    const int64_t* linked = c.transposed ? out : in;
    for (int64_t n = 0; n < c.batch; ++n)
      for (int64_t o = 0; o < c.out_channels; ++o) {
        double* plane = y.data() + (n * c.out_channels + o) * out_plane;
        for (int64_t i = 0; i < out_plane; ++i) plane[i] = bias.empty() ? 0 : bias[o];
        for (int64_t i = 0; i < in_group; ++i) {
          const int64_t channel = o / out_group * in_group + i;
          const double* image = x.data() + (n * c.in_channels + channel) * in_plane;
          const int64_t filter = c.transposed ? channel * out_group + o % out_group : o * in_group + i;
          for (int64_t p = 0; p < counted[0] * counted[1] * counted[2]; ++p)
            for (int64_t k = 0; k < kernel[0] * kernel[1] * kernel[2]; ++k) {
              const int64_t place[3] = {p / (counted[1] * counted[2]), p / counted[2] % counted[1], p % counted[2]};
              const int64_t tap[3] = {k / (kernel[1] * kernel[2]), k / kernel[2] % kernel[1], k % kernel[2]};
              int64_t other[3];
              bool inside = true;
              for (int d = 0; d < 3; ++d) {
                other[d] = place[d] * stride[d] + tap[d] * dilation[d] - padding[d];
                inside = inside && other[d] >= 0 && other[d] < linked[d];
              }
              if (!inside) continue;
              const int64_t q = at(linked, other[0], other[1], other[2]);
              const double weight = w[filter * kernel[0] * kernel[1] * kernel[2] + k];
              if (c.transposed) plane[q] += weight * image[p];
              else plane[p] += weight * image[q];
            }
        }
      }
    return y;
  }
};

inline std::vector<std::pair<std::string, stitch::Convolution>> convolution_cases() {
  return {
      {"2d 3x3", {.spatial_dims = 2, .batch = 2, .in_channels = 3, .out_channels = 4, .in_size = {7, 9}, .kernel = {3, 3}, .out_size = {7, 9}, .padding = {1, 1}}},
      {"2d stride, dilation, groups",
       {.spatial_dims = 2, .batch = 1, .in_channels = 4, .out_channels = 6, .groups = 2, .in_size = {11, 13}, .kernel = {3, 2}, .out_size = {5, 11}, .stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}}},
      {"depthwise", {.spatial_dims = 2, .batch = 1, .in_channels = 4, .out_channels = 4, .groups = 4, .in_size = {8, 10}, .kernel = {3, 3}, .out_size = {8, 10}, .padding = {1, 1}}},
      {"depthwise stride 2", {.spatial_dims = 2, .batch = 1, .in_channels = 3, .out_channels = 3, .groups = 3, .in_size = {8, 11}, .kernel = {3, 3}, .out_size = {4, 6}, .stride = {2, 2}, .padding = {1, 1}}},
      {"1d", {.spatial_dims = 1, .batch = 2, .in_channels = 3, .out_channels = 2, .in_size = {20}, .kernel = {5}, .out_size = {9}, .stride = {2}, .padding = {1}}},
      {"3d", {.spatial_dims = 3, .batch = 1, .in_channels = 2, .out_channels = 2, .in_size = {4, 5, 6}, .kernel = {3, 2, 3}, .out_size = {4, 4, 6}, .padding = {1, 0, 1}}},
      {"transposed, stride 2, output padding",
       {.spatial_dims = 2, .batch = 1, .in_channels = 3, .out_channels = 4, .in_size = {5, 4}, .kernel = {3, 3}, .out_size = {10, 8}, .stride = {2, 2}, .padding = {1, 1}, .transposed = true}},
      {"transposed, groups, dilation",
       {.spatial_dims = 2, .batch = 1, .in_channels = 4, .out_channels = 6, .groups = 2, .in_size = {5, 4}, .kernel = {2, 3}, .out_size = {7, 8}, .dilation = {2, 2}, .transposed = true}},
  };
}
