// Type rules of indexing, scattering and sorting.
#include <algorithm>

#include "ir/infer_rules.h"

namespace stitch::ir::rules {
namespace {

// Shape of x[indices] as NumPy: adjacent index dims are replaced in place, separated ones go to the front.
Result<Shape> indexed_shape(const Ctx& c) {
  const auto& list = std::get<ValueList>(c.n.arg("indices"));
  const Shape& x = c.shape("x");
  if (list.size() > x.size()) return c.bad("has {} indices for the {} dims of x", list.size(), x.size());
  Shape joint;
  std::vector<size_t> places;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].node < 0) continue;
    const TensorType& t = c.g.type_of(list[i]);
    if (!is_integral(t.dtype)) return c.bad("index tensors must be integers, not {}", name_of(t.dtype));
    const auto b = broadcast(joint, t.shape);
    if (!b) return c.bad("index shapes {} and {} do not broadcast", to_string(joint), to_string(t.shape));
    joint = *b;
    places.push_back(i);
  }
  if (places.empty()) return c.bad("needs an index tensor");
  const bool adjacent = places.back() - places.front() + 1 == places.size();
  Shape out;
  if (!adjacent) out = joint;
  for (size_t i = 0; i < x.size(); ++i) {
    if (adjacent && i == places.front()) out.insert(out.end(), joint.begin(), joint.end());
    if (std::find(places.begin(), places.end(), i) == places.end()) out.push_back(x[i]);
  }
  return out;
}

Result<Types> advanced_index(const Ctx& c) {
  STITCH_TRY(Shape out, indexed_shape(c));
  if (c.is("index")) return Types{{c.in("x").dtype, std::move(out)}};
  const auto b = broadcast(c.shape("values"), out);
  if (!b || *b != out) return c.bad("values {} do not broadcast to the indexed shape {}", to_string(c.shape("values")), to_string(out));
  STITCH_CHECK_OK(one_dtype(c, {"x", "values"}));
  return Types{c.in("x")};
}

Result<Types> embedding(const Ctx& c) {
  if (c.shape("weight").size() != 2) return c.bad("weight must have two dims");
  if (!is_integral(c.in("indices").dtype)) return c.bad("indices must be integers, not {}", name_of(c.in("indices").dtype));
  Shape out = c.shape("indices");
  out.push_back(c.shape("weight")[1]);
  return Types{{c.in("weight").dtype, std::move(out)}};
}

// gather, scatter, scatter_add: index has x's rank and fits x outside dim, and src everywhere.
Result<Types> along_dim(const Ctx& c, size_t d) {
  const TensorType& x = c.in("x");
  const Shape& i = c.shape("index");
  if (i.size() != x.shape.size()) return c.bad("index {} must have the rank of x {}", to_string(i), to_string(x.shape));
  for (size_t k = 0; k < i.size(); ++k)
    if (k != d && i[k] > x.shape[k]) return c.bad("index {} is larger than x {} outside dim {}", to_string(i), to_string(x.shape), d);
  if (c.is("gather")) return Types{{x.dtype, i}};
  if (std::holds_alternative<ValueRef>(c.n.arg("src"))) {
    const Shape& s = c.shape("src");
    bool fits = s.size() == i.size();
    for (size_t k = 0; fits && k < i.size(); ++k) fits = i[k] <= s[k];
    if (!fits) return c.bad("index {} is larger than src {}", to_string(i), to_string(s));
    STITCH_CHECK_OK(one_dtype(c, {"x", "src"}));
  }
  return Types{x};
}

}  // namespace

Result<Types> index(const Ctx& c) {
  if (c.is("index") || c.is("index_put")) return advanced_index(c);
  if (c.is("embedding")) return embedding(c);
  TensorType t = c.in("x");
  if (!is_integral(c.in("index").dtype)) return c.bad("index must be an integer tensor, not {}", name_of(c.in("index").dtype));
  STITCH_TRY(const size_t d, dim_in(c, c.n.integer("dim"), t.shape.size()));
  if (!c.is("index_select")) return along_dim(c, d);
  if (t.shape.empty() || c.shape("index").size() > 1) return c.bad("x must have dims, and index at most one");
  t.shape[d] = numel(c.shape("index"));
  return Types{t};
}

Result<Types> sort(const Ctx& c) {
  TensorType t = c.in("x");
  STITCH_TRY(const size_t d, dim_in(c, c.n.integer("dim"), t.shape.size()));
  if (c.is("topk")) {
    const int64_t k = c.n.integer("k"), extent = t.shape.empty() ? 1 : t.shape[d];
    if (k < 0 || k > extent) return c.bad("k = {} is out of range for extent {}", k, extent);
    if (!t.shape.empty()) t.shape[d] = k;
    else if (k == 0) return c.bad("k = 0 of a scalar has no shape");
  }
  return Types{t, {DType::i64, t.shape}};
}

}  // namespace stitch::ir::rules
