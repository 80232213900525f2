// Type rules of the ops that only move elements.
#include <algorithm>

#include "ir/infer_rules.h"

namespace stitch::ir::rules {
namespace {

Result<Types> view(const Ctx& c) {
  const IntList& size = c.n.integers("size");
  if (!sane_extents(size) || numel(size) != numel(c.shape("x"))) return c.bad("{} cannot be viewed as {}", to_string(c.shape("x")), to_string(size));
  return Types{{c.in("x").dtype, size}};
}

Result<Types> expand(const Ctx& c) {
  const IntList& size = c.n.integers("size");
  const auto b = broadcast(c.shape("x"), size);
  if (!b || *b != size) return c.bad("{} does not expand to {}", to_string(c.shape("x")), to_string(size));
  return Types{{c.in("x").dtype, size}};
}

Result<Types> permute(const Ctx& c) {
  const IntList& dims = c.n.integers("dims");
  const TensorType& x = c.in("x");
  std::vector<bool> seen(x.shape.size(), false);
  Shape shape;
  for (int64_t d : dims) {
    if (d < 0 || d >= static_cast<int64_t>(seen.size()) || seen[static_cast<size_t>(d)]) break;
    seen[static_cast<size_t>(d)] = true;
    shape.push_back(x.shape[static_cast<size_t>(d)]);
  }
  if (shape.size() != x.shape.size() || dims.size() != x.shape.size())
    return c.bad("dims {} must name each of the {} dims once", to_string(dims), x.shape.size());
  return Types{{x.dtype, shape}};
}

Result<Types> slice(const Ctx& c) {
  TensorType t = c.in("x");
  STITCH_TRY(const size_t d, real_dim_in(c, c.n.integer("dim"), t.shape.size()));
  const int64_t start = c.n.integer("start"), end = c.n.integer("end"), step = c.n.integer("step");
  if (start < 0 || end < start || end > t.shape[d] || step < 1)
    return c.bad("slice {}:{}:{} does not fit extent {}", start, end, step, t.shape[d]);
  const int64_t extent = (end - start + step - 1) / step;
  if (!c.is("slice_scatter")) {
    t.shape[d] = extent;
    return Types{t};
  }
  Shape want = t.shape;
  want[d] = extent;
  STITCH_CHECK_OK(shape_is(c, "src", want));
  STITCH_CHECK_OK(one_dtype(c, {"x", "src"}));
  return Types{t};
}

Result<Types> select(const Ctx& c) {
  const TensorType& x = c.in("x");
  STITCH_TRY(const size_t d, real_dim_in(c, c.n.integer("dim"), x.shape.size()));
  const int64_t index = c.n.integer("index");
  if (index < 0 || index >= x.shape[d]) return c.bad("index {} is out of range for extent {}", index, x.shape[d]);
  Shape rest = x.shape;
  rest.erase(rest.begin() + static_cast<int64_t>(d));
  if (!c.is("select_scatter")) return Types{{x.dtype, rest}};
  STITCH_CHECK_OK(shape_is(c, "src", rest));
  STITCH_CHECK_OK(one_dtype(c, {"x", "src"}));
  return Types{x};
}

Result<Types> cat(const Ctx& c) {
  const auto& list = std::get<ValueList>(c.n.arg("tensors"));
  if (list.empty()) return c.bad("needs at least one tensor");
  if (std::any_of(list.begin(), list.end(), [](ValueRef v) { return v.node < 0; })) return c.bad("takes no none");
  TensorType t = c.g.type_of(list.front());
  STITCH_TRY(const size_t d, real_dim_in(c, c.n.integer("dim"), t.shape.size()));
  t.shape[d] = 0;
  for (const ValueRef& v : list) {
    const TensorType& u = c.g.type_of(v);
    if (u.dtype != t.dtype) return c.bad("joins {} and {}; cast them to one dtype", name_of(t.dtype), name_of(u.dtype));
    if (u.shape.size() != t.shape.size()) return c.bad("all tensors need one rank");
    for (size_t i = 0; i < u.shape.size(); ++i)
      if (i != d && u.shape[i] != t.shape[i]) return c.bad("all extents but that of dim {} must agree", d);
    t.shape[d] += u.shape[d];
    if (t.shape[d] > kMaxElements) return c.bad("the result is too large");
  }
  return Types{t};
}

Result<Types> pad(const Ctx& c) {
  TensorType t = c.in("x");
  const IntList& p = c.n.integers("pad");
  const std::string& mode = c.n.text("mode");
  if (p.size() % 2 || p.size() / 2 > t.shape.size()) return c.bad("pad needs a (before, after) pair per dim, from the last");
  const bool constant = mode == "constant", reflect = mode == "reflect", circular = mode == "circular";
  if (!constant && !reflect && !circular && mode != "replicate") return c.bad("mode \"{}\" is unknown", mode.substr(0, 40));
  for (size_t i = 0; i < p.size() / 2; ++i) {
    int64_t& e = t.shape[t.shape.size() - 1 - i];
    const int64_t before = p[2 * i], after = p[2 * i + 1];
    if (!constant && (before < 0 || after < 0)) return c.bad("only constant mode crops");
    const int64_t most = reflect ? e - 1 : circular ? e : kMaxElements;
    if (before > most || after > most) return c.bad("mode {} cannot pad extent {} by {} and {}", mode, e, before, after);
    if (mode == "replicate" && e == 0 && before + after > 0) return c.bad("there is nothing to replicate");
    // A crop on one side may not take elements that the other side's padding would have to bring back.
    if (e + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0) < 0) return c.bad("crops more than the {} elements there are", e);
    e += before + after;
  }
  return Types{t};
}

Result<Types> flip_or_roll(const Ctx& c) {
  const IntList& dims = c.n.integers("dims");
  const size_t rank = c.shape("x").size();
  std::vector<bool> seen(std::max<size_t>(rank, 1), false);
  for (int64_t d : dims) {
    STITCH_TRY(const size_t k, dim_in(c, d, rank));
    if (seen[k] && c.is("flip")) return c.bad("dim {} is named twice", k);
    seen[k] = true;
  }
  if (c.is("roll") && dims.size() != c.n.integers("shifts").size()) return c.bad("needs one shift per dim");
  return Types{c.in("x")};
}

Result<Types> repeat(const Ctx& c) {
  TensorType t = c.in("x");
  const IntList& r = c.n.integers("repeats");
  if (r.size() < t.shape.size()) return c.bad("needs a repeat for each of the {} dims", t.shape.size());
  t.shape.insert(t.shape.begin(), r.size() - t.shape.size(), 1);
  for (size_t i = 0; i < r.size(); ++i) {
    if (r[i] < 0) return c.bad("repeats must not be negative");
    if (r[i] > 0 && t.shape[i] > kMaxElements / r[i]) return c.bad("the result is too large");
    t.shape[i] *= r[i];
  }
  return Types{t};
}

Result<Types> unfold(const Ctx& c) {
  TensorType t = c.in("x");
  STITCH_TRY(const size_t d, real_dim_in(c, c.n.integer("dim"), t.shape.size()));
  const int64_t size = c.n.integer("size"), step = c.n.integer("step");
  if (size < 1 || step < 1 || size > t.shape[d]) return c.bad("a window of {} with step {} does not fit extent {}", size, step, t.shape[d]);
  t.shape[d] = (t.shape[d] - size) / step + 1;
  t.shape.push_back(size);
  return Types{t};
}

Result<Types> diagonal(const Ctx& c) {
  TensorType t = c.in("x");
  STITCH_TRY(const size_t d1, real_dim_in(c, c.n.integer("dim1"), t.shape.size()));
  STITCH_TRY(const size_t d2, real_dim_in(c, c.n.integer("dim2"), t.shape.size()));
  if (d1 == d2) return c.bad("needs two different dims");
  const int64_t offset = c.n.integer("offset");
  const int64_t rows = t.shape[d1] + std::min<int64_t>(offset, 0), cols = t.shape[d2] - std::max<int64_t>(offset, 0);
  t.shape.erase(t.shape.begin() + static_cast<int64_t>(std::max(d1, d2)));
  t.shape.erase(t.shape.begin() + static_cast<int64_t>(std::min(d1, d2)));
  t.shape.push_back(std::max<int64_t>(0, std::min(rows, cols)));
  return Types{t};
}

Result<Types> triangle(const Ctx& c) {
  if (c.shape("x").size() < 2) return c.bad("needs at least two dims");
  return Types{c.in("x")};
}

}  // namespace

Result<Types> movement(const Ctx& c) {
  struct Rule {
    std::string_view op;
    Result<Types> (*rule)(const Ctx&);
  };
  static constexpr Rule rules[] = {
      {"view", view},     {"expand", expand},          {"permute", permute},         {"slice", slice},
      {"cat", cat},       {"slice_scatter", slice},    {"select", select},           {"select_scatter", select},
      {"pad", pad},       {"flip", flip_or_roll},      {"roll", flip_or_roll},       {"repeat", repeat},
      {"unfold", unfold}, {"diagonal", diagonal},      {"tril", triangle},           {"triu", triangle},
  };
  for (const Rule& r : rules)
    if (c.is(r.op)) return r.rule(c);
  return fail(ErrorKind::internal, "{} has no type rule", c.n.op_name());
}

}  // namespace stitch::ir::rules
