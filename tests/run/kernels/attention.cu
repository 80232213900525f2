// Attention against softmax(q k' * scale + mask) v in double.
#include "attention.cuh"
#include "check.h"

namespace attention_test {

template <class S>
Doubles reference(const Doubles& q, const Doubles& k, const Doubles& v, const Doubles& mask, bool additive, double scale) {
  constexpr stitch::AttentionShape s = S::value;
  Doubles out;
  for (int b = 0; b < s.batch_outer * s.batch_inner; ++b)
    for (int h = 0; h < s.heads; ++h)
      for (int i = 0; i < s.rows; ++i) {
        const int kv = h / (s.heads / s.kv_heads);
        const int64_t q_at = s.q_at().at(b, h, i);
        Doubles score(s.keys);
        double top = -INFINITY, sum = 0;
        for (int j = 0; j < s.keys; ++j) {
          for (int e = 0; e < s.width; ++e) score[j] += q[q_at + e] * k[s.k_at().at(b, kv, j) + e];
          score[j] *= scale;
          if (!mask.empty()) {
            const double m = mask[b / s.batch_inner * s.mask_outer + b % s.batch_inner * s.mask_inner + h * s.mask_head + i * s.mask_row + j * s.mask_key];
            score[j] += additive ? m : (m != 0 ? 0 : -INFINITY);
          }
          if (s.causal && j > i) score[j] = -INFINITY;
          top = std::max(top, score[j]);
        }
        for (double& x : score) sum += x = top == -INFINITY ? 0 : std::exp(x - top);
        for (int c = 0; c < s.value_width; ++c) {
          double acc = 0;
          for (int j = 0; j < s.keys; ++j) acc += score[j] * v[s.v_at().at(b, kv, j) + c];
          out.push_back(sum == 0 ? 0 : acc / sum);
        }
      }
  return out;
}

// The result as (batch, heads, rows, value_width), wherever the kernel wrote it.
template <class S>
Doubles in_order(const Doubles& out) {
  constexpr stitch::AttentionShape s = S::value;
  Doubles ordered;
  for (int b = 0; b < s.batch_outer * s.batch_inner; ++b)
    for (int h = 0; h < s.heads; ++h)
      for (int i = 0; i < s.rows; ++i)
        for (int c = 0; c < s.value_width; ++c) ordered.push_back(out[s.out_at().at(b, h, i) + c]);
  return ordered;
}

template <class S, class T, class M>
void one(const std::string& what, const Doubles& mask) {
  constexpr stitch::AttentionShape s = S::value;
  const int batch = s.batch_outer * s.batch_inner;
  const Doubles q = random_values<T>(batch * s.heads * s.rows * s.width, 1, -2, 2), k = random_values<T>(batch * s.kv_heads * s.keys * s.width, 2, -2, 2);
  const Doubles v = random_values<T>(batch * s.kv_heads * s.keys * s.value_width, 3);
  Buffer<T> dq(q), dk(k), dv(v), out(batch * s.heads * s.rows * s.value_width);
  Buffer<std::conditional_t<std::is_same_v<M, stitch::NoMask>, char, M>> dmask(mask);
  const M* const mask_at = mask.empty() ? nullptr : reinterpret_cast<const M*>(dmask.get());
  require(stitch::attention<S>(dq.get(), dk.get(), dv.get(), mask_at, 0.3f, stitch::Store{out.get()}, nullptr), what);
  expect_close("attention " + what, in_order<S>(out.read()), reference<S>(q, k, v, mask, !std::is_same_v<M, bool>, 0.3), tolerance<T>());
}

struct Plain { static constexpr stitch::AttentionShape value{1, 1, 2, 2, 70, 90, 32, 48, false, 0, 0, 0, 0, 0}; };
struct Causal { static constexpr stitch::AttentionShape value{1, 1, 2, 1, 70, 70, 20, 64, true, 0, 0, 0, 0, 0}; };
struct Few { static constexpr stitch::AttentionShape value{1, 2, 4, 2, 5, 33, 7, 100, false, 0, 33, 0, 0, 1}; };
// Rows of all heads side by side, as a product leaves them, read and written in place.
struct Merged { static constexpr stitch::AttentionShape value{1, 2, 4, 2, 40, 33, 16, 8, true, 0, 0, 0, 0, 0, {40 * 64, 16, 64}, {33 * 32, 16, 32}, {33 * 16, 8, 16}, {40 * 32, 8, 32}}; };
struct Additive { static constexpr stitch::AttentionShape value{2, 1, 1, 1, 33, 40, 64, 16, false, 0, 0, 0, 40, 1}; };

void run() {
  one<Plain, float, stitch::NoMask>("plain", {});
  one<Causal, float, stitch::NoMask>("causal, grouped heads", {});
  Doubles keep(2 * 33, 1.0);
  for (size_t i = 0; i < keep.size(); ++i) keep[i] = i >= 33 ? 0 : i % 3 != 0;  // the second batch entry sees nothing
  one<Few, float, bool>("bool mask, odd widths", keep);
  one<Merged, float, stitch::NoMask>("merged heads", {});
  one<Additive, __half, float>("additive mask, f16", random_values(33 * 40, 9, -3, 3));
}

}  // namespace attention_test
