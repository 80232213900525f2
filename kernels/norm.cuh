#pragma once
// Normalisation in two passes over memory, for statistics that no single block should gather alone: train-mode batch norm
// (a statistic per channel, strided in memory) and group or layer norms with few, very long rows.
//
// The statistics are gathered by merging Moments (reduce.cuh).

#include "reduce.cuh"
#include "stitch/runtime.h"

namespace stitch {

// Element e of x (row-major) belongs to statistic (e / stat_inner) % stats and to weight and bias entry
// (e / affine_inner) % affines. Batch norm of (N, C, S): stats = affines = C, inner = S. Rows of length L: stats = rows,
// stat_inner = L.
struct NormShape {
  int64_t elements, stats, stat_inner, affines, affine_inner;
  double eps, momentum;
  constexpr int64_t count() const { return elements / stats; }  // elements per statistic
  // Blocks per statistic: enough to fill the device, each with enough to do.
  constexpr int splits() const {
    const int64_t wanted = stats >= 264 ? 1 : ceil_div(528, stats), most = ceil_div(count(), 8192);
    return static_cast<int>(wanted < most ? wanted : most);
  }
  constexpr int width(int element_bytes) const { return stat_inner % (16 / element_bytes) == 0 && affine_inner % (16 / element_bytes) == 0 ? 16 / element_bytes : 1; }
  // Scratch: moments per split, then mean and 1/deviation per statistic.
  constexpr int64_t scratch_values() const { return stats * (3 * splits() + 2); }
};

namespace detail {

template <class Shape, class C>
STITCH_DEVICE void finish_statistic(Moments<C> m, int64_t stat, C* mean, C* inverse) {
  mean[stat] = m.mean;
  inverse[stat] = op::rsqrt(m.m2 / m.n + static_cast<C>(Shape::value.eps));
}

// Grid: stats * splits blocks. Writes the moments of its split, or the finished statistic when there is one split.
template <class Shape, int Width, class T>
__global__ void __launch_bounds__(256) moments_kernel(const T* __restrict__ x, Moments<Compute<T>>* __restrict__ moments,
                                                      Compute<T>* __restrict__ mean, Compute<T>* __restrict__ inverse) {
  using C = Compute<T>;
  constexpr NormShape S = Shape::value;
  constexpr int kUnroll = Width >= 8 ? 1 : 8 / Width;  // 8 values per step
  constexpr int64_t kChunk = ceil_div(ceil_div(S.count(), S.splits()), 256 * Width * kUnroll) * (256 * Width * kUnroll);
  const int64_t stat = blockIdx.x / S.splits(), first = static_cast<int64_t>(blockIdx.x % S.splits()) * kChunk;
  const int64_t end = first + kChunk < S.count() ? first + kChunk : S.count();
  const T* const base = x + stat * S.stat_inner;
  Moments<C> total = Moments<C>::identity();
  for (int64_t at = first; at < end; at += 256 * Width * kUnroll) {
    C value[kUnroll * Width], sum = 0, count = 0;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t e = at + (static_cast<int64_t>(u) * 256 + threadIdx.x) * Width;  // of this statistic's elements
      const bool inside = e < end;
      Vec<T, Width> v{};
      if (inside) v = load_vec<Width>(base + e / S.stat_inner * (S.stats * S.stat_inner) + e % S.stat_inner);
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        value[u * Width + i] = inside ? static_cast<C>(widen(v[i])) : C(0);
        sum += inside ? value[u * Width + i] - value[0] : C(0);  // relative to one value, so that equal ones have exactly their mean
      }
      count += inside ? Width : 0;
    }
    if (count == 0) continue;
    Moments<C> part{count, value[0] + sum / count, C(0)};
#pragma unroll
    for (int i = 0; i < kUnroll * Width; ++i) {
      const C d = value[i] - part.mean;
      // Places beyond the end were left 0; they are not counted.
      part.m2 += at + (static_cast<int64_t>(i / Width) * 256 + threadIdx.x) * Width < end ? d * d : C(0);
    }
    total = Moments<C>::combine(total, part);
  }
  __shared__ Moments<C> shared[32];
  total = block_reduce<Moments<C>>(total, shared);
  if (threadIdx.x != 0) return;
  if (S.splits() == 1) finish_statistic<Shape>(total, stat, mean, inverse);
  moments[blockIdx.x] = total;
}

template <class Shape, class C>
__global__ void __launch_bounds__(256) merge_moments_kernel(Moments<C>* __restrict__ moments, C* __restrict__ mean, C* __restrict__ inverse) {
  constexpr NormShape S = Shape::value;
  const int64_t stat = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (stat >= S.stats) return;  // whole warps
  Moments<C> total = Moments<C>::identity();
  for (int i = lane; i < S.splits(); i += 32) total = Moments<C>::combine(total, moments[stat * S.splits() + i]);
  total = warp_reduce<Moments<C>>(total);
  if (lane != 0) return;
  finish_statistic<Shape>(total, stat, mean, inverse);
  moments[stat * S.splits()] = total;
}

// Running statistics of batch norm: the variance with the unbiased estimate.
template <class Shape, class R, class C>
__global__ void running_kernel(const Moments<C>* __restrict__ moments, const R* __restrict__ old_mean, const R* __restrict__ old_variance,
                               R* __restrict__ new_mean, R* __restrict__ new_variance) {
  constexpr NormShape S = Shape::value;
  const int64_t stat = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (stat >= S.stats) return;
  const Moments<C> m = moments[stat * S.splits()];
  const C share = static_cast<C>(S.momentum);
  new_mean[stat] = narrow<R>((C(1) - share) * static_cast<C>(widen(old_mean[stat])) + share * m.mean);
  new_variance[stat] = narrow<R>((C(1) - share) * static_cast<C>(widen(old_variance[stat])) + share * (m.m2 / (m.n - C(1))));
}

template <class Shape, int Width, class T, class W, class Ending>
__global__ void __launch_bounds__(256) normalise_kernel(const T* __restrict__ x, const Compute<T>* __restrict__ mean,
                                                        const Compute<T>* __restrict__ inverse, const W* __restrict__ weight,
                                                        const W* __restrict__ bias, Ending ending) {
  using C = Compute<T>;
  constexpr NormShape S = Shape::value;
  const int64_t e = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) * Width;
  if (e >= S.elements) return;
  const Vec<T, Width> v = load_vec<Width>(x + e);
  const int64_t stat = e / S.stat_inner % S.stats;
  const C m = mean[stat], scale = inverse[stat];
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    const int64_t affine = (e + (S.affine_inner == 1 ? i : 0)) / S.affine_inner % S.affines;
    C y = (static_cast<C>(widen(v[i])) - m) * scale;
    if (weight) y *= static_cast<C>(widen(weight[affine]));
    if (bias) y += static_cast<C>(widen(bias[affine]));
    ending(e + i, y);
  }
}

template <class Shape, int Width, class T, class W, class R, class Ending>
Failure norm_of_width(const T* x, const W* weight, const W* bias, const R* old_mean, const R* old_variance, R* new_mean, R* new_variance,
                      Ending ending, void* scratch, cudaStream_t stream) {
  using C = Compute<T>;
  constexpr NormShape S = Shape::value;
  auto* const moments = static_cast<Moments<C>*>(scratch);
  C* const mean = reinterpret_cast<C*>(moments + S.stats * S.splits());
  C* const inverse = mean + S.stats;
  moments_kernel<Shape, Width, T><<<static_cast<unsigned>(S.stats * S.splits()), 256, 0, stream>>>(x, moments, mean, inverse);
  STITCH_CHECK_LAUNCH();
  if (S.splits() > 1) {
    merge_moments_kernel<Shape, C><<<static_cast<unsigned>(ceil_div(S.stats, 8)), 256, 0, stream>>>(moments, mean, inverse);
    STITCH_CHECK_LAUNCH();
  }
  if (new_mean) {
    running_kernel<Shape, R, C><<<static_cast<unsigned>(ceil_div(S.stats, 256)), 256, 0, stream>>>(moments, old_mean, old_variance, new_mean, new_variance);
    STITCH_CHECK_LAUNCH();
  }
  const auto blocks = static_cast<unsigned>(ceil_div(S.elements, 256 * Width));
  normalise_kernel<Shape, Width, T, W, Ending><<<blocks, 256, 0, stream>>>(x, mean, inverse, weight, bias, ending);
  STITCH_CHECK_LAUNCH();
  return nullptr;
}

}  // namespace detail

// ending((x - mean) / sqrt(biased variance + eps) * weight + bias). weight and bias may be null; so may the running statistics,
// all four together. scratch: Shape::value.scratch_values() values of Compute<T>.
template <class Shape, class T, class W, class R, class Ending>
Failure norm(const T* x, const W* weight, const W* bias, const R* old_mean, const R* old_variance, R* new_mean, R* new_variance, Ending ending,
             void* scratch, cudaStream_t stream) {
  constexpr int kWidth = Shape::value.width(sizeof(T));
  if (reinterpret_cast<uintptr_t>(x) % 16 == 0)
    return detail::norm_of_width<Shape, kWidth>(x, weight, bias, old_mean, old_variance, new_mean, new_variance, ending, scratch, stream);
  return detail::norm_of_width<Shape, 1>(x, weight, bias, old_mean, old_variance, new_mean, new_variance, ending, scratch, stream);
}

}  // namespace stitch
