#pragma once
// Direct convolution in 1 to 3 spatial dims, with groups, dilation and the transposed form: for depthwise layers, where
// it is as fast as memory allows, and for requests that the vendor library refuses.
//
// Shapes are template arguments, so that loops over taps unroll and divisions are by constants. They come as a type
//   struct t03_shape { static constexpr stitch::ConvolutionShape value{...}; };
// because nvcc 13.0 cannot launch a kernel that has a struct as a template argument.

#include "block.cuh"
#include "stitch/runtime.h"

namespace stitch {

// x (batch, in_channels, in...), w (out_channels, in_channels / groups, kernel...) or, transposed, (in_channels,
// out_channels / groups, kernel...), out (batch, out_channels, out...). Fewer than three dims: leading extents of 1.
struct ConvolutionShape {
  int batch, in_channels, out_channels, groups;
  int in[3], kernel[3], out[3], stride[3], padding[3], dilation[3];
  bool transposed;

  constexpr int in_group() const { return in_channels / groups; }
  constexpr int out_group() const { return out_channels / groups; }
  constexpr int64_t in_plane() const { return int64_t{in[0]} * in[1] * in[2]; }
  constexpr int64_t out_plane() const { return int64_t{out[0]} * out[1] * out[2]; }
  constexpr int taps() const { return kernel[0] * kernel[1] * kernel[2]; }

  // What one thread computes: `tile_channels` output channels of one group at `tile_columns` neighbouring columns.
  constexpr int tile_channels() const { return out_group() % 4 == 0 ? 4 : (out_group() % 2 == 0 ? 2 : 1); }
  constexpr int tile_columns() const { return !transposed && tile_channels() == 1 && out[2] >= 4 && span(4) <= 24 ? 4 : 1; }
  // Input columns that `columns` output columns read.
  constexpr int span(int columns) const { return (columns - 1) * stride[2] + (kernel[2] - 1) * dilation[2] + 1; }
  constexpr int column_tiles() const { return static_cast<int>(ceil_div(out[2], tile_columns())); }
  constexpr int64_t threads() const {
    return int64_t{batch} * (out_channels / tile_channels()) * out[0] * out[1] * column_tiles();
  }
};

namespace detail {

// Products of one input row with one row of taps, for all channels and columns of the tile.
template <class Shape, class T, class C>
STITCH_DEVICE void convolve_row(const T* __restrict__ row, const T* __restrict__ w, int first_column,
                                C (&acc)[Shape::value.tile_channels()][Shape::value.tile_columns()]) {
  constexpr ConvolutionShape S = Shape::value;
  constexpr int kSpan = S.span(S.tile_columns()), kFilter = S.in_group() * S.taps();
  if constexpr (kSpan <= 24) {
    C segment[kSpan];
#pragma unroll
    for (int i = 0; i < kSpan; ++i) {
      const int column = first_column + i;
      segment[i] = column >= 0 && column < S.in[2] ? static_cast<C>(widen(row[column])) : C(0);
    }
#pragma unroll
    for (int o = 0; o < S.tile_channels(); ++o)
#pragma unroll
      for (int k = 0; k < S.kernel[2]; ++k) {
        const C weight = static_cast<C>(widen(w[o * kFilter + k]));
#pragma unroll
        for (int c = 0; c < S.tile_columns(); ++c) acc[o][c] += weight * segment[c * S.stride[2] + k * S.dilation[2]];
      }
  } else {  // wide filters: one column per thread, no registers for the segment
    for (int k = 0; k < S.kernel[2]; ++k) {
      const int column = first_column + k * S.dilation[2];
      if (column < 0 || column >= S.in[2]) continue;
      const C value = static_cast<C>(widen(row[column]));
#pragma unroll
      for (int o = 0; o < S.tile_channels(); ++o) acc[o][0] += static_cast<C>(widen(w[o * kFilter + k])) * value;
    }
  }
}

// x and w point to the first input channel of the group.
template <class Shape, class T, class C>
STITCH_DEVICE void gather_direct(const T* __restrict__ x, const T* __restrict__ w, int z, int y, int column,
                                 C (&acc)[Shape::value.tile_channels()][Shape::value.tile_columns()]) {
  constexpr ConvolutionShape S = Shape::value;
  for (int i = 0; i < S.in_group(); ++i)
    for (int kz = 0; kz < S.kernel[0]; ++kz) {
      const int iz = z * S.stride[0] + kz * S.dilation[0] - S.padding[0];
      if (iz < 0 || iz >= S.in[0]) continue;
      for (int ky = 0; ky < S.kernel[1]; ++ky) {
        const int iy = y * S.stride[1] + ky * S.dilation[1] - S.padding[1];
        if (iy < 0 || iy >= S.in[1]) continue;
        convolve_row<Shape>(x + i * S.in_plane() + (int64_t{iz} * S.in[1] + iy) * S.in[2],
                        w + i * S.taps() + (kz * S.kernel[1] + ky) * S.kernel[2], column * S.stride[2] - S.padding[2], acc);
      }
    }
}

// The input position that tap k spreads onto output position `out` in one dim, or -1.
template <class Shape, int Dim>
STITCH_DEVICE int transposed_source(int out, int k) {
  constexpr ConvolutionShape S = Shape::value;
  const int at = out + S.padding[Dim] - k * S.dilation[Dim];
  if (at < 0 || at % S.stride[Dim] != 0) return -1;
  const int source = at / S.stride[Dim];
  return source < S.in[Dim] ? source : -1;
}

template <class Shape, class T, class C>
STITCH_DEVICE void gather_transposed(const T* __restrict__ x, const T* __restrict__ w, int z, int y, int column,
                                     C (&acc)[Shape::value.tile_channels()][Shape::value.tile_columns()]) {
  constexpr ConvolutionShape S = Shape::value;
  for (int kz = 0; kz < S.kernel[0]; ++kz) {
    const int iz = transposed_source<Shape, 0>(z, kz);
    if (iz < 0) continue;
    for (int ky = 0; ky < S.kernel[1]; ++ky) {
      const int iy = transposed_source<Shape, 1>(y, ky);
      if (iy < 0) continue;
      for (int kx = 0; kx < S.kernel[2]; ++kx) {
        const int ix = transposed_source<Shape, 2>(column, kx);
        if (ix < 0) continue;
        const int64_t at = (int64_t{iz} * S.in[1] + iy) * S.in[2] + ix;
        const int tap = (kz * S.kernel[1] + ky) * S.kernel[2] + kx;
        for (int i = 0; i < S.in_group(); ++i) {
          const C value = static_cast<C>(widen(x[i * S.in_plane() + at]));
#pragma unroll
          for (int o = 0; o < S.tile_channels(); ++o)
            acc[o][0] += static_cast<C>(widen(w[int64_t{i} * S.out_group() * S.taps() + o * S.taps() + tap])) * value;
        }
      }
    }
  }
}

template <class Shape, class T, class Ending>
__global__ void __launch_bounds__(256) convolution_kernel(const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ bias,
                                                          Ending ending) {
  using C = Compute<T>;
  constexpr ConvolutionShape S = Shape::value;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (t >= S.threads()) return;
  // Columns fastest: neighbouring threads read and write neighbouring elements.
  const int tile = static_cast<int>(t % S.column_tiles());
  const int64_t rest = t / S.column_tiles();
  const int y = static_cast<int>(rest % S.out[1]), z = static_cast<int>(rest / S.out[1] % S.out[0]);
  const int64_t image = rest / (S.out[1] * S.out[0]);
  constexpr int kChannelTiles = S.out_channels / S.tile_channels();
  const int channel = static_cast<int>(image % kChannelTiles) * S.tile_channels(), n = static_cast<int>(image / kChannelTiles);
  const int group = channel / S.out_group(), column = tile * S.tile_columns();

  C acc[S.tile_channels()][S.tile_columns()] = {};
  const T* group_x = x + (int64_t{n} * S.in_channels + group * S.in_group()) * S.in_plane();
  if constexpr (S.transposed) {
    const T* group_w = w + (int64_t{group} * S.in_group() * S.out_group() + channel % S.out_group()) * S.taps();
    gather_transposed<Shape>(group_x, group_w, z, y, column, acc);
  } else {
    gather_direct<Shape>(group_x, w + int64_t{channel} * S.in_group() * S.taps(), z, y, column, acc);
  }
#pragma unroll
  for (int o = 0; o < S.tile_channels(); ++o) {
    const C shift = bias ? static_cast<C>(widen(bias[channel + o])) : C(0);
    const int64_t row = ((int64_t{n} * S.out_channels + channel + o) * S.out[0] + z) * S.out[1] + y;
#pragma unroll
    for (int c = 0; c < S.tile_columns(); ++c)
      if (S.tile_columns() == 1 || column + c < S.out[2]) ending(row * S.out[2] + column + c, acc[o][c] + shift);
  }
}

}  // namespace detail

// bias: out_channels elements, may be null.
template <class Shape, class T, class Ending>
Failure convolution_direct(const T* x, const T* w, const T* bias, Ending ending, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(ceil_div(Shape::value.threads(), 256));
  detail::convolution_kernel<Shape, T, Ending><<<blocks, 256, 0, stream>>>(x, w, bias, ending);
  STITCH_CHECK_LAUNCH();
  return nullptr;
}

}  // namespace stitch
