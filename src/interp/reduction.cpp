// Reductions, argmax and argmin, softmax: all of them over rows (rows.h).
#include <cmath>
#include <limits>

#include "interp/rows.h"
#include "interp/rules.h"

namespace stitch::interp {

Rows rows_over(const ir::Shape& shape, const std::vector<int64_t>& dims) {
  const auto strides = ir::contiguous_strides(shape);
  std::vector<bool> inside(shape.size(), dims.empty());
  for (int64_t d : dims)
    if (!shape.empty()) inside[static_cast<size_t>(d)] = true;
  Layout outer, inner;
  for (size_t d = 0; d < shape.size(); ++d) {
    Layout& l = inside[d] ? inner : outer;
    l.shape.push_back(shape[d]);
    l.strides.push_back(strides[d]);
  }
  Rows rows{offsets_of(outer), offsets_of(inner)};
  const Layout c = collapse(inner);
  rows.dense = c.shape.size() == 1 && (c.strides[0] == 1 || c.shape[0] == 1);
  return rows;
}

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// out[row] = f(get, length), where get(i) is the row's element i; rows in parallel. Rows whose elements are scattered are copied
// first, eight neighbours at a time: they share cache lines.
template <class T, class U, class F>
void each_row(const Rows& rows, const std::vector<T>& x, std::vector<U>& out, const F& f) {
  constexpr int64_t kGroup = 8;
  const int64_t n = rows.length();
  parallel_for(rows.count(), grain_for(n), [&](int64_t begin, int64_t end) {
    std::vector<T> copies(rows.dense ? 0 : static_cast<size_t>(kGroup * n));
    for (int64_t r = begin; r < end; r += kGroup) {
      const int64_t group = std::min(kGroup, end - r);
      const int64_t* starts = rows.starts.data() + r;
      if (!rows.dense)
        for (int64_t i = 0; i < n; ++i)
          for (int64_t k = 0; k < group; ++k) copies[static_cast<size_t>(k * n + i)] = x[static_cast<size_t>(starts[k] + rows.members[static_cast<size_t>(i)])];
      for (int64_t k = 0; k < group; ++k) {
        const T* p = rows.dense ? x.data() + starts[k] : copies.data() + k * n;
        out[static_cast<size_t>(r + k)] = f([p](int64_t i) { return p[i]; }, n);
      }
    }
  });
}

// The largest (or smallest, with `less` turned around) element's index: the first among equals, the first NaN before all.
template <class Get>
int64_t best_index(const Get& get, int64_t n, bool largest) {
  int64_t best = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto v = get(i), b = get(best);
    if (v != v) return i;
    if (largest ? v > b : v < b) best = i;
  }
  return best;
}

template <class Get>
double mean_of(const Get& get, int64_t n) {
  return pairwise_sum(0, n, get) / static_cast<double>(n);
}

template <class Get>
double variance_of(const Get& get, int64_t n, double correction) {
  const double mean = mean_of(get, n);
  const double squares = pairwise_sum(0, n, [&](int64_t i) { return (get(i) - mean) * (get(i) - mean); });
  return squares / std::max(0.0, static_cast<double>(n) - correction);
}

// Infinity is taken out only where it is no element's value: exp(inf - inf) would be NaN.
template <class Get>
double logsumexp_of(const Get& get, int64_t n) {
  double top = n > 0 ? get(best_index(get, n, true)) : -kInf;
  if (std::isinf(top)) top = 0;
  return top + std::log(pairwise_sum(0, n, [&](int64_t i) { return std::exp(get(i) - top); }));
}

template <class Get>
double norm_of(const Get& get, int64_t n, double ord) {
  const auto size = [&](int64_t i) { return std::fabs(get(i)); };
  if (std::isinf(ord)) return n > 0 ? size(best_index(size, n, ord > 0)) : 0;
  if (ord == 0) return pairwise_sum(0, n, [&](int64_t i) { return get(i) == 0 ? 0.0 : 1.0; });
  if (ord == 1) return pairwise_sum(0, n, size);
  if (ord == 2) return std::sqrt(pairwise_sum(0, n, [&](int64_t i) { return get(i) * get(i); }));
  return std::pow(pairwise_sum(0, n, [&](int64_t i) { return std::pow(size(i), ord); }), 1 / ord);
}

Rows rows_of(const Call& c) { return rows_over(c.in("x").type.shape, c.node.integers("dims")); }

template <class F>
Result<Values> reduce_floats(const Call& c, const F& f) {
  Value out = c.result();
  each_row(rows_of(c), c.in("x").f, out.f, f);
  return one(std::move(out));
}

Result<Values> sum(const Call& c) {
  if (c.in("x").floating()) return reduce_floats(c, [](const auto& get, int64_t n) { return pairwise_sum(0, n, get); });
  Value out = c.result();
  each_row(rows_of(c), c.in("x").i, out.i, [](const auto& get, int64_t n) {
    uint64_t s = 0;  // wraps
    for (int64_t i = 0; i < n; ++i) s += static_cast<uint64_t>(get(i));
    return static_cast<int64_t>(s);
  });
  return one(std::move(out));
}

Result<Values> prod(const Call& c) {
  if (c.in("x").floating())
    return reduce_floats(c, [](const auto& get, int64_t n) {
      double p = 1;
      for (int64_t i = 0; i < n; ++i) p *= get(i);
      return p;
    });
  Value out = c.result();
  each_row(rows_of(c), c.in("x").i, out.i, [](const auto& get, int64_t n) {
    uint64_t p = 1;
    for (int64_t i = 0; i < n; ++i) p *= static_cast<uint64_t>(get(i));
    return static_cast<int64_t>(p);
  });
  return one(std::move(out));
}

Result<Values> mean(const Call& c) {
  return reduce_floats(c, [](const auto& get, int64_t n) { return mean_of(get, n); });
}

Result<Values> variance(const Call& c) {
  const double correction = c.node.number("correction");
  const bool root = c.is("std");
  return reduce_floats(c, [=](const auto& get, int64_t n) {
    const double v = n > 0 ? variance_of(get, n, correction) : kNaN;
    return root ? std::sqrt(v) : v;
  });
}

Result<Values> logsumexp(const Call& c) {
  return reduce_floats(c, [](const auto& get, int64_t n) { return logsumexp_of(get, n); });
}

Result<Values> vector_norm(const Call& c) {
  const double ord = c.node.number("ord");
  const Rows rows = rows_of(c);
  if (rows.length() == 0 && rows.count() > 0 && (ord < 0 || std::isinf(ord))) return c.bad("the norm of order {} of no elements does not exist", ord);
  return reduce_floats(c, [=](const auto& get, int64_t n) { return norm_of(get, n, ord); });
}

Result<Values> extreme(const Call& c) {
  const bool largest = c.is("amax");
  Value out = c.result();
  const Rows rows = rows_of(c);
  const auto f = [=](const auto& get, int64_t n) { return get(best_index(get, n, largest)); };
  if (out.floating()) each_row(rows, c.in("x").f, out.f, f);
  else each_row(rows, c.in("x").i, out.i, f);
  return one(std::move(out));
}

Result<Values> any_all(const Call& c) {
  const bool any = c.is("any");
  Value out = c.result();
  const Rows rows = rows_of(c);
  const auto f = [=](const auto& get, int64_t n) -> int64_t {
    for (int64_t i = 0; i < n; ++i)
      if ((get(i) != 0) == any) return any;
    return !any;
  };
  with_data(c.in("x"), [&](const auto& x) { each_row(rows, x, out.i, f); });
  return one(std::move(out));
}

std::vector<int64_t> arg_dims(const Call& c) {
  return c.node.has_arg("dim") ? std::vector<int64_t>{c.node.integer("dim")} : std::vector<int64_t>{};
}

Value best_indices(const Call& c, size_t result, bool largest) {
  Value out = c.result(result);
  const Rows rows = rows_over(c.in("x").type.shape, arg_dims(c));
  const auto f = [=](const auto& get, int64_t n) { return best_index(get, n, largest); };
  with_data(c.in("x"), [&](const auto& x) { each_row(rows, x, out.i, f); });
  return out;
}

Result<Values> arg_best(const Call& c) { return one(best_indices(c, 0, c.is("argmax"))); }

Result<Values> best_dim(const Call& c) {
  const Value& x = c.in("x");
  Value indices = best_indices(c, 1, c.is("max_dim")), values = c.result(0);
  const Rows rows = rows_over(x.type.shape, arg_dims(c));
  for (size_t r = 0; r < rows.starts.size(); ++r) {
    const auto at = static_cast<size_t>(rows.starts[r] + rows.members[static_cast<size_t>(indices.i[r])]);
    if (x.floating()) values.f[r] = x.f[at];
    else values.i[r] = x.i[at];
  }
  Values out = one(std::move(values));
  out.push_back(std::move(indices));
  return out;
}

// The maximum goes first, so that no exp overflows; a row of -inf alone gives NaN, as in PyTorch.
Result<Values> softmax(const Call& c) {
  const Value& x = c.in("x");
  const bool logarithm = c.is("log_softmax");
  Value out = c.result();
  const Rows rows = rows_over(x.type.shape, {c.node.integer("dim")});
  if (rows.length() == 0) return one(std::move(out));
  parallel_for(rows.count(), grain_for(rows.length() * 8), [&](int64_t begin, int64_t end) {
    std::vector<double> e(static_cast<size_t>(rows.length()));
    for (int64_t r = begin; r < end; ++r) {
      const int64_t start = rows.starts[static_cast<size_t>(r)];
      const auto at = [&](int64_t i) { return static_cast<size_t>(start + rows.members[static_cast<size_t>(i)]); };
      const auto get = [&](int64_t i) { return x.f[at(i)]; };
      const double top = get(best_index(get, rows.length(), true));
      for (int64_t i = 0; i < rows.length(); ++i) e[static_cast<size_t>(i)] = std::exp(get(i) - top);
      const double total = pairwise_sum(0, rows.length(), [&](int64_t i) { return e[static_cast<size_t>(i)]; });
      const double shift = std::log(total);
      for (int64_t i = 0; i < rows.length(); ++i) out.f[at(i)] = logarithm ? get(i) - top - shift : e[static_cast<size_t>(i)] / total;
    }
  });
  return one(std::move(out));
}

constexpr Entry kRules[] = {
    {"sum", sum},         {"mean", mean},       {"prod", prod},           {"amax", extreme},
    {"amin", extreme},    {"var", variance},    {"std", variance},        {"any", any_all},
    {"all", any_all},     {"logsumexp", logsumexp}, {"vector_norm", vector_norm}, {"argmax", arg_best},
    {"argmin", arg_best}, {"max_dim", best_dim}, {"min_dim", best_dim},   {"softmax", softmax},
    {"log_softmax", softmax},
};

}  // namespace

std::span<const Entry> families::reduction() { return kRules; }

}  // namespace stitch::interp
