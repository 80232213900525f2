// scaled_dot_product_attention, row block by row block; scores are never stored as a whole.
#include <cmath>
#include <limits>

#include "interp/gemm.h"
#include "interp/rows.h"
#include "interp/rules.h"

namespace stitch::interp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kBlock = 64;

// A row in which everything is masked gives zeros, as PyTorch.
void softmax_row(double* s, int64_t n) {
  double top = -kInf;
  for (int64_t i = 0; i < n; ++i) top = std::isnan(s[i]) || s[i] > top ? s[i] : top;
  if (top == -kInf) {
    std::fill_n(s, n, 0.0);
    return;
  }
  for (int64_t i = 0; i < n; ++i) s[i] = std::exp(s[i] - top);
  const double total = pairwise_sum(0, n, [s](int64_t i) { return s[i]; });
  for (int64_t i = 0; i < n; ++i) s[i] /= total;
}

Result<Values> attention(const Call& c) {
  const Value &q = c.in("q"), &k = c.in("k"), &v = c.in("v");
  const Value* mask = c.maybe("mask");
  const auto &qs = q.type.shape, &ks = k.type.shape;
  const size_t r = qs.size();
  const int64_t l = qs[r - 2], e = qs[r - 1], s = ks[r - 2], ev = v.type.shape[r - 1];
  const double scale = c.node.has_arg("scale") ? c.node.number("scale") : 1 / std::sqrt(static_cast<double>(e));
  const bool causal = c.node.boolean("is_causal"), grouped = c.node.boolean("enable_gqa");
  const int64_t heads = grouped ? qs[r - 3] : 1, key_heads = grouped ? ks[r - 3] : 1;
  int64_t count = 1;
  for (size_t d = 0; d + 2 < r; ++d) count *= qs[d];
  const int64_t blocks = (l + kBlock - 1) / kBlock;
  Layout mask_layout;
  if (mask) {
    ir::Shape scores(qs.begin(), qs.end() - 1);
    scores.push_back(s);
    mask_layout = collapse(broadcast_to(mask->type.shape, scores));
  }
  Value out = c.result();
  parallel_for(count * blocks, grain_for(std::min(l, kBlock) * s * (e + ev)), [&](int64_t begin, int64_t end) {
    std::vector<double> scores(static_cast<size_t>(std::min(l, kBlock) * s)), extra(static_cast<size_t>(s));
    for (int64_t t = begin; t < end; ++t) {
      const int64_t head = t / blocks, first = t % blocks * kBlock, rows = std::min(kBlock, l - first);
      const int64_t key = head / heads * key_heads + head % heads / (heads / key_heads);
      gemm(rows, s, e, {q.f.data() + (head * l + first) * e, e, 1}, {k.f.data() + key * s * e, 1, e}, scores.data(), s);
      for (int64_t i = 0; i < rows; ++i) {
        double* row = scores.data() + i * s;
        for (int64_t j = 0; j < s; ++j) row[j] *= scale;
        if (mask) {
          const int64_t start = (head * l + first + i) * s;
          if (mask->floating()) gather(mask_layout, mask->f.data(), start, s, extra.data(), [](double m) { return m; });
          else gather(mask_layout, mask->i.data(), start, s, extra.data(), [](int64_t m) { return m ? 0.0 : -kInf; });
          for (int64_t j = 0; j < s; ++j) row[j] += extra[static_cast<size_t>(j)];
        }
        if (causal)
          for (int64_t j = first + i + 1; j < s; ++j) row[j] = -kInf;
        softmax_row(row, s);
      }
      gemm(rows, ev, s, {scores.data(), s, 1}, {v.f.data() + key * s * ev, ev, 1}, out.f.data() + (head * l + first) * ev, ev);
    }
  });
  return one(std::move(out));
}

constexpr Entry kRules[] = {{"scaled_dot_product_attention", attention}};

}  // namespace

std::span<const Entry> families::attention() { return kRules; }

}  // namespace stitch::interp
