// matmul, linear, addmm, baddbmm, einsum.
#include <array>

#include "interp/gemm.h"
#include "interp/rows.h"
#include "interp/rules.h"
#include "interp/strided.h"

namespace stitch::interp {
namespace {

// batch x (m, k) times (k, n), operands as layouts of rank batch + 2; the result is dense.
template <class T>
std::vector<T> batched_product(const ir::Shape& batch, const Layout& a, const T* a_data, const Layout& b, const T* b_data) {
  const size_t r = batch.size();
  const int64_t m = a.shape[r], k = a.shape[r + 1], n = b.shape[r + 1];
  const auto offsets = [&](const Layout& l) { return offsets_of({batch, {l.strides.begin(), l.strides.begin() + static_cast<int64_t>(r)}, l.offset}); };
  const auto a_offsets = offsets(a), b_offsets = offsets(b);
  const auto count = static_cast<int64_t>(a_offsets.size());
  std::vector<T> out(static_cast<size_t>(count * m * n));
  if constexpr (std::is_same_v<T, double>) {
    gemm_batched(count, m, n, k, {a_data, a.strides[r], a.strides[r + 1]}, {b_data, b.strides[r], b.strides[r + 1]},
                 {a_offsets.data(), b_offsets.data()}, out.data());
  } else {
    parallel_for(count * m, grain_for(n * k), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t j = 0; j < n; ++j) {
          uint64_t sum = 0;  // wraps
          const T* pa = a_data + a_offsets[static_cast<size_t>(row / m)] + row % m * a.strides[r];
          const T* pb = b_data + b_offsets[static_cast<size_t>(row / m)] + j * b.strides[r + 1];
          for (int64_t p = 0; p < k; ++p) sum += static_cast<uint64_t>(pa[p * a.strides[r + 1]]) * static_cast<uint64_t>(pb[p * b.strides[r]]);
          out[static_cast<size_t>(row * n + j)] = static_cast<T>(sum);
        }
    });
  }
  return out;
}

// The operand's layout with its batch dims broadcast to `batch`.
Layout with_batch(const Layout& l, const ir::Shape& batch) {
  const auto rank = static_cast<int64_t>(l.shape.size());
  Layout out{batch, std::vector<int64_t>(batch.size(), 0), l.offset};
  for (int64_t d = 0; d < rank - 2; ++d) {
    const size_t to = batch.size() - static_cast<size_t>(rank - 2 - d);
    out.strides[to] = l.shape[static_cast<size_t>(d)] == 1 ? 0 : l.strides[static_cast<size_t>(d)];
  }
  out.shape.insert(out.shape.end(), l.shape.end() - 2, l.shape.end());
  out.strides.insert(out.strides.end(), l.strides.end() - 2, l.strides.end());
  return out;
}

template <class T>
std::vector<T> product(const Value& a, const Value& b) {
  Layout la = dense(a.type.shape), lb = dense(b.type.shape);
  if (la.shape.size() == 1) {
    la.shape.insert(la.shape.begin(), 1);
    la.strides.insert(la.strides.begin(), 0);
  }
  if (lb.shape.size() == 1) {
    lb.shape.push_back(1);
    lb.strides.push_back(0);
  }
  const auto batch = ir::broadcast({la.shape.begin(), la.shape.end() - 2}, {lb.shape.begin(), lb.shape.end() - 2});
  return batched_product<T>(*batch, with_batch(la, *batch), data_of<T>(a).data(), with_batch(lb, *batch), data_of<T>(b).data());
}

// out = beta * c + alpha * out, where c broadcasts. With beta 0 even a NaN in c does not count.
void add_scaled(Value& out, const Value& c, double beta, double alpha) {
  const Layout l = collapse(broadcast_to(c.type.shape, out.type.shape));
  const int64_t n = ir::numel(out.type.shape);
  int64_t at = 0;
  for_each_run(l, 0, n, [&](int64_t offset, int64_t stride, int64_t length) {
    for (int64_t i = 0; i < length; ++i, ++at) {
      const auto to = static_cast<size_t>(at), from = static_cast<size_t>(offset + i * stride);
      if (out.floating()) out.f[to] = alpha * out.f[to] + (beta == 0 ? 0.0 : beta * c.f[from]);
      else out.i[to] = static_cast<int64_t>(static_cast<uint64_t>(out.i[to]) * static_cast<uint64_t>(static_cast<int64_t>(alpha)) +
                                            static_cast<uint64_t>(c.i[from]) * static_cast<uint64_t>(static_cast<int64_t>(beta)));
    }
  });
}

Result<Values> matmul(const Call& c) {
  Value out{c.node.type(), {}, {}};
  const Value &a = c.in("a"), &b = c.in("b");
  if (out.floating()) out.f = product<double>(a, b);
  else out.i = product<int64_t>(a, b);
  if (!c.is("matmul")) add_scaled(out, c.in("c"), c.node.number("beta"), c.node.number("alpha"));
  return one(std::move(out));
}

Result<Values> linear(const Call& c) {
  const Value &x = c.in("x"), &w = c.in("weight");
  const Value* bias = c.maybe("bias");
  Value out{c.node.type(), {}, {}};
  const int64_t in = w.type.shape[1], features = w.type.shape[0];
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < x.type.shape.size(); ++d) rows *= x.type.shape[d];
  const Layout a{{rows, in}, {in, 1}, 0}, b{{in, features}, {1, in}, 0};
  if (out.floating()) out.f = batched_product<double>({}, a, x.f.data(), b, w.f.data());
  else out.i = batched_product<int64_t>({}, a, x.i.data(), b, w.i.data());
  if (bias) add_scaled(out, *bias, 1, 1);
  return one(std::move(out));
}

// einsum ---------------------------------------------------------------------------------------------------------------
// A tensor whose dims are letters; a letter that is absent has extent 1.
template <class T>
struct Term {
  std::string letters;
  Layout layout;
  std::vector<T> owned;  // intermediate results
  const T* data = nullptr;

  int64_t extent(char l) const {
    const size_t at = letters.find(l);
    return at == letters.npos ? 1 : layout.shape[at];
  }
  int64_t stride(char l) const {
    const size_t at = letters.find(l);
    return at == letters.npos || layout.shape[at] == 1 ? 0 : layout.strides[at];
  }
};

template <class T>
Term<T> term_of(const Value& v, std::string_view letters) {
  Term<T> t;
  const auto strides = ir::contiguous_strides(v.type.shape);
  for (size_t d = 0; d < letters.size(); ++d) {
    const size_t at = t.letters.find(letters[d]);
    if (at == t.letters.npos) {
      t.letters += letters[d];
      t.layout.shape.push_back(v.type.shape[d]);
      t.layout.strides.push_back(strides[d]);
    } else {  // a letter twice in one operand is its diagonal
      if (v.type.shape[d] != 1) t.layout.strides[at] = (t.layout.shape[at] == 1 ? 0 : t.layout.strides[at]) + strides[d];
      t.layout.shape[at] = std::max(t.layout.shape[at], v.type.shape[d]);
    }
  }
  t.data = data_of<T>(v).data();
  return t;
}

// Contracts two terms, keeping the letters of `keep`. Letters fall into batch (in both, kept), rows (only in a, kept), columns
// (only in b, kept) and summed ones; with each group as one index this is a batched matrix product.
template <class T>
Term<T> contract(const Term<T>& a, const Term<T>& b, const std::string& keep) {
  std::string batch, rows, cols, summed;
  const std::string both = a.letters + b.letters;
  for (size_t i = 0; i < both.size(); ++i) {
    const char l = both[i];
    if (both.find(l) != i) continue;
    const bool in_a = a.letters.find(l) != std::string::npos, in_b = b.letters.find(l) != std::string::npos;
    std::string& group = keep.find(l) == keep.npos ? summed : in_a && in_b ? batch : in_a ? rows : cols;
    group += l;
  }
  const auto arranged = [&](const Term<T>& t, const std::string& order) {
    Layout l{{}, {}, t.layout.offset};
    for (char x : order) {
      l.shape.push_back(std::max(a.extent(x), b.extent(x)) * (a.extent(x) && b.extent(x)));
      l.strides.push_back(t.stride(x));
    }
    std::vector<T> out(static_cast<size_t>(ir::numel(l.shape)));
    copy_dense(l, t.data, out.data());
    return out;
  };
  const auto size = [&](const std::string& group) {
    int64_t n = 1;
    for (char x : group) n *= std::max(a.extent(x), b.extent(x)) * (a.extent(x) && b.extent(x));
    return n;
  };
  const std::vector<T> left = arranged(a, batch + rows + summed), right = arranged(b, batch + summed + cols);
  Term<T> out;
  out.letters = batch + rows + cols;
  for (char x : out.letters) out.layout.shape.push_back(size(std::string(1, x)));
  out.layout.strides = ir::contiguous_strides(out.layout.shape);
  const ir::Shape count{size(batch)};
  out.owned = batched_product<T>(count, dense({size(batch), size(rows), size(summed)}), left.data(), dense({size(batch), size(summed), size(cols)}), right.data());
  out.data = out.owned.data();
  return out;
}

template <class T>
std::vector<T> einsum_of(const std::vector<const Value*>& tensors, const std::string& equation) {
  const size_t arrow = equation.find("->");
  const std::string result = equation.substr(arrow + 2);
  std::vector<Term<T>> terms;
  size_t at = 0;
  for (const Value* v : tensors) {
    terms.push_back(term_of<T>(*v, std::string_view(equation).substr(at, v->type.shape.size())));
    at += v->type.shape.size() + 1;
  }
  static const std::vector<T> unit{1};
  Term<T> sum;
  sum.data = unit.data();
  for (size_t k = 0; k < terms.size(); ++k) {
    std::string keep = result;
    for (size_t later = k + 1; later < terms.size(); ++later) keep += terms[later].letters;
    sum = contract(sum, terms[k], keep);
  }
  Layout l{{}, {}, 0};
  for (char x : result) {
    l.shape.push_back(sum.extent(x));
    l.strides.push_back(sum.stride(x));
  }
  std::vector<T> out(static_cast<size_t>(ir::numel(l.shape)));
  copy_dense(l, sum.data, out.data());
  return out;
}

Result<Values> einsum(const Call& c) {
  Value out{c.node.type(), {}, {}};
  if (out.floating()) out.f = einsum_of<double>(c.list("tensors"), c.node.text("equation"));
  else out.i = einsum_of<int64_t>(c.list("tensors"), c.node.text("equation"));
  return one(std::move(out));
}

constexpr Entry kRules[] = {{"matmul", matmul}, {"linear", linear}, {"addmm", matmul}, {"baddbmm", matmul}, {"einsum", einsum}};

}  // namespace

std::span<const Entry> families::contraction() { return kRules; }

}  // namespace stitch::interp
