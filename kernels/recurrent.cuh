#pragma once
// LSTM, GRU and plain RNN layers. The products of all time steps with the input weights are one matrix product per layer
// and direction (vendor library); then one kernel per time step, both directions of a layer together, multiplies the state
// with the recurrent weights and updates it.

#include "block.cuh"
#include "stitch/vendor.h"

namespace stitch {

enum class Cell { lstm, gru, tanh, relu };

// As torch.nn.LSTM/GRU/RNN: x (steps, batch, input), or batch first; gates in PyTorch's order (i f g o, r z n).
struct RecurrentShape {
  Cell cell;
  int64_t steps, batch, input, hidden;
  int directions, layers;
  bool batch_first, biases;

  constexpr int gates() const { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }
  constexpr int slots() const { return gates() == 1 ? 1 : 4; }  // gates in a power of two
  constexpr int tile_batch() const { return batch >= 8 ? 8 : batch > 2 ? 4 : batch == 2 ? 2 : 1; }
  constexpr int64_t rows() const { return steps * batch; }
  constexpr int64_t state() const { return directions * batch * hidden; }  // values of one layer's state
  // Scratch in elements of T: input products of one layer, outputs of two layers; then in values of Compute<T>: two copies
  // of h and one of c.
  constexpr int64_t product_elements() const { return directions * rows() * gates() * hidden; }
  constexpr int64_t output_elements() const { return layers > 1 ? rows() * directions * hidden : 0; }
  constexpr int64_t round(int64_t bytes) const { return (bytes + 255) / 256 * 256; }
  constexpr int64_t scratch_bytes(int64_t element, int64_t compute) const {
    return round(product_elements() * element) + 2 * round(output_elements() * element) + round(3 * state() * compute);
  }
};

namespace detail {

// Sums N values (a power of two, at most 32) over the warp with N - 1 + log2(32 / N) shuffles: lane l gets the total of
// value l % N.
template <int N, class C>
STITCH_DEVICE C warp_sum_many(C (&v)[N]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2) {
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const C send = upper ? v[i] : v[i + half], keep = upper ? v[i + half] : v[i];
      v[i] = keep + __shfl_xor_sync(0xffffffffu, send, half);
    }
  }
#pragma unroll
  for (int mask = N; mask < 32; mask *= 2) v[0] += __shfl_xor_sync(0xffffffffu, v[0], mask);
  return v[0];
}

// What a step of one layer works on; arrays have an entry per direction.
template <class T, class C>
struct StepArguments {
  const T* products;                // (directions, rows, gates * hidden)
  const T *weight[2], *bias[2];     // recurrent: (gates * hidden, hidden) and (gates * hidden), bias may be null
  const T* input_bias[2];           // null where `products` includes it
  const C* h;                       // (directions, batch, hidden)
  C *h_next, *c;
  T *y, *h_last, *c_last;           // the last two may be null
  int64_t step;
};

// Grid: (hidden / 8, batch tiles, directions); a warp owns one hidden unit of tile_batch() batch entries.
template <class Shape, int Width, class T>
__global__ void __launch_bounds__(256) recurrent_step_kernel(StepArguments<T, Compute<T>> a) {
  using C = Compute<T>;
  constexpr RecurrentShape S = Shape::value;
  constexpr int kBatch = S.tile_batch(), kSlots = S.slots(), kGates = S.gates();
  const int lane = static_cast<int>(threadIdx.x) % 32, direction = static_cast<int>(blockIdx.z);
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32, first = static_cast<int64_t>(blockIdx.y) * kBatch;
  if (unit >= S.hidden) return;  // whole warps
  const T* const weight = a.weight[direction] + unit * S.hidden;
  const C* const h = a.h + direction * S.batch * S.hidden;

  C acc[kBatch * kSlots] = {};
  for (int64_t k = int64_t{lane} * Width; k < S.hidden; k += 32 * Width) {
    Vec<T, Width> w[kGates];
#pragma unroll
    for (int g = 0; g < kGates; ++g) w[g] = load_vec<Width>(weight + g * S.hidden * S.hidden + k);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t row = first + b < S.batch ? first + b : S.batch - 1;  // a spare row repeats the last one
      const Vec<C, Width> state = load_vec<Width>(h + row * S.hidden + k);
#pragma unroll
      for (int g = 0; g < kGates; ++g)
#pragma unroll
        for (int i = 0; i < Width; ++i) acc[b * kSlots + g] += static_cast<C>(widen(w[g][i])) * state[i];
    }
  }
  const C total = warp_sum_many<kBatch * kSlots>(acc);
  C recurrent[kGates];
#pragma unroll
  for (int g = 0; g < kGates; ++g) recurrent[g] = __shfl_sync(0xffffffffu, total, lane % kBatch * kSlots + g);
  const int64_t b = first + lane;
  if (lane >= kBatch || b >= S.batch) return;

  const int64_t time = direction == 0 ? a.step : S.steps - 1 - a.step;
  const int64_t row = S.batch_first ? b * S.steps + time : time * S.batch + b;
  const T* const products = a.products + (direction * S.rows() + row) * kGates * S.hidden + unit;
  C input[kGates];
#pragma unroll
  for (int g = 0; g < kGates; ++g) {
    input[g] = static_cast<C>(widen(products[g * S.hidden]));
    if (a.input_bias[direction]) input[g] += static_cast<C>(widen(a.input_bias[direction][g * S.hidden + unit]));
    if (a.bias[direction]) recurrent[g] += static_cast<C>(widen(a.bias[direction][g * S.hidden + unit]));
  }
  const int64_t at = (direction * S.batch + b) * S.hidden + unit;
  C next;
  if constexpr (S.cell == Cell::lstm) {
    const C in = op::sigmoid(input[0] + recurrent[0]), forget = op::sigmoid(input[1] + recurrent[1]);
    const C cell = tanh(input[2] + recurrent[2]), out = op::sigmoid(input[3] + recurrent[3]);
    const C c = forget * a.c[at] + in * cell;
    a.c[at] = c;
    if (a.c_last) a.c_last[at] = narrow<T>(c);
    next = out * tanh(c);
  } else if constexpr (S.cell == Cell::gru) {
    const C reset = op::sigmoid(input[0] + recurrent[0]), update = op::sigmoid(input[1] + recurrent[1]);
    const C fresh = tanh(input[2] + reset * recurrent[2]);
    next = (C(1) - update) * fresh + update * a.h[at];
  } else {
    next = input[0] + recurrent[0];
    next = S.cell == Cell::tanh ? tanh(next) : op::relu(next);
  }
  a.h_next[at] = next;
  if (a.h_last) a.h_last[at] = narrow<T>(next);
  a.y[(row * S.directions + direction) * S.hidden + unit] = narrow<T>(next);
}

template <class T, class C>
__global__ void widen_kernel(const T* __restrict__ from, C* __restrict__ to, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i < n) to[i] = static_cast<C>(widen(from[i]));
}

template <class Shape, class T>
Failure recurrent_layer(StepArguments<T, Compute<T>> a, Compute<T>* states, bool aligned, T* h_last, T* c_last, cudaStream_t stream) {
  constexpr RecurrentShape S = Shape::value;
  constexpr int kWidth = S.hidden % 4 == 0 ? 4 : 1;
  const dim3 grid(static_cast<unsigned>(ceil_div(S.hidden, 8)), static_cast<unsigned>(ceil_div(S.batch, S.tile_batch())), S.directions);
  for (a.step = 0; a.step < S.steps; ++a.step) {
    a.h = states + a.step % 2 * S.state();
    a.h_next = states + (a.step + 1) % 2 * S.state();
    const bool last = a.step == S.steps - 1;
    a.h_last = last ? h_last : nullptr;
    a.c_last = last ? c_last : nullptr;
    if (aligned) recurrent_step_kernel<Shape, kWidth, T><<<grid, 256, 0, stream>>>(a);
    else recurrent_step_kernel<Shape, 1, T><<<grid, 256, 0, stream>>>(a);
    STITCH_CHECK_LAUNCH();
  }
  return nullptr;
}

}  // namespace detail

// params: PyTorch's flat order (per layer, per direction: w_ih, w_hh and, with biases, b_ih, b_hh). c0 and c_n only for LSTM
// (else null). `element` is T for the vendor library. scratch: scratch_bytes(sizeof(T), sizeof(Compute<T>)).
template <class Shape, class T>
Failure recurrent(const T* x, const T* h0, const T* c0, const T* const* params, T* y, T* h_n, T* c_n, Element element, bool allow_tf32, void* scratch,
                  Vendor& vendor, cudaStream_t stream) {
  using C = Compute<T>;
  constexpr RecurrentShape S = Shape::value;
  char* memory = static_cast<char*>(scratch);
  const auto take = [&](int64_t bytes) {
    char* const p = memory;
    memory += S.round(bytes);
    return p;
  };
  T* const products = reinterpret_cast<T*>(take(S.product_elements() * static_cast<int64_t>(sizeof(T))));
  T* outputs[2];
  for (T*& o : outputs) o = reinterpret_cast<T*>(take(S.output_elements() * static_cast<int64_t>(sizeof(T))));
  C* const states = reinterpret_cast<C*>(take(3 * S.state() * static_cast<int64_t>(sizeof(C))));
  const int per_direction = S.biases ? 4 : 2;
  const auto blocks = static_cast<unsigned>(ceil_div(S.state(), 256));

  for (int layer = 0; layer < S.layers; ++layer) {
    const T* const from = layer == 0 ? x : outputs[(layer - 1) % 2];
    detail::StepArguments<T, C> a{};
    a.products = products;
    a.c = states + 2 * S.state();
    a.y = layer + 1 == S.layers ? y : outputs[layer % 2];
    bool aligned = true;
    for (int d = 0; d < S.directions; ++d) {
      const T* const* const p = params + (layer * S.directions + d) * per_direction;
      a.weight[d] = p[1];
      a.bias[d] = S.biases ? p[3] : nullptr;
      // The library adds no bias to f64 products.
      constexpr bool kLibraryBias = S.biases && !std::is_same_v<T, double>;
      a.input_bias[d] = S.biases && !kLibraryBias ? p[2] : nullptr;
      aligned = aligned && reinterpret_cast<uintptr_t>(p[1]) % 16 == 0;
      Gemm g;
      g.m = S.rows(), g.n = S.gates() * S.hidden, g.k = layer == 0 ? S.input : S.hidden * S.directions;
      g.transpose_b = true;
      g.element = element;
      g.allow_tf32 = allow_tf32;
      STITCH_TRY_FAILURE(vendor.gemm(g, from, p[0], nullptr, kLibraryBias ? p[2] : nullptr, products + d * S.rows() * g.n, nullptr, 0, stream));
    }
    detail::widen_kernel<<<blocks, 256, 0, stream>>>(h0 + layer * S.state(), states, S.state());
    STITCH_CHECK_LAUNCH();
    if (c0) {
      detail::widen_kernel<<<blocks, 256, 0, stream>>>(c0 + layer * S.state(), a.c, S.state());
      STITCH_CHECK_LAUNCH();
    }
    STITCH_TRY_FAILURE(detail::recurrent_layer<Shape>(a, states, aligned, h_n + layer * S.state(), c_n ? c_n + layer * S.state() : nullptr, stream));
  }
  return nullptr;
}

}  // namespace stitch
