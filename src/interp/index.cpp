// Indexing and scattering. Every index is checked: out of range is the user's error and names the node.
#include "interp/rules.h"
#include "interp/strided.h"

namespace stitch::interp {
namespace {

struct Along {
  int64_t outer = 1, extent = 1, inner = 1;
};
Along along(const ir::Shape& s, size_t dim) {
  Along a;
  for (size_t d = 0; d < s.size(); ++d) (d < dim ? a.outer : d == dim ? a.extent : a.inner) *= s[d];
  return a;
}

// The first index outside [low, extent), as an error.
Status check(const Call& c, const Value& index, int64_t low, int64_t extent) {
  for (int64_t i : index.i)
    if (i < low || i >= extent) return c.bad("index {} is out of range for extent {}", i, extent);
  return {};
}

// Rows along `dim` of x, picked by a list of indices.
Result<Values> select_rows(const Call& c, const Value& x, size_t dim, const Value& index) {
  const Along a = along(x.type.shape, dim);
  STITCH_CHECK_OK(check(c, index, 0, a.extent));
  Value out = c.result();
  const auto n = static_cast<int64_t>(index.i.size());
  const auto pick = [&](const auto& from, auto& to) {
    parallel_for(a.outer * n, grain_for(a.inner), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = t / n * a.extent + index.i[static_cast<size_t>(t % n)];
        std::copy_n(from.data() + row * a.inner, a.inner, to.data() + t * a.inner);
      }
    });
  };
  if (out.floating()) pick(x.f, out.f);
  else pick(x.i, out.i);
  return one(std::move(out));
}

Result<Values> index_select(const Call& c) { return select_rows(c, c.in("x"), static_cast<size_t>(c.node.integer("dim")), c.in("index")); }
Result<Values> embedding(const Call& c) { return select_rows(c, c.in("weight"), 0, c.in("indices")); }

// For gather and scatter: offset in x of every element of `index`, where its own coordinate along dim is replaced by its value.
Result<std::vector<int64_t>> places_along(const Call& c, const Value& x, const Value& index, size_t dim) {
  Layout l = dense(x.type.shape);
  const int64_t extent = x.type.shape.empty() ? 1 : x.type.shape[dim];
  const int64_t stride = x.type.shape.empty() ? 1 : l.strides[dim];
  STITCH_CHECK_OK(check(c, index, 0, extent));
  l.shape = index.type.shape;
  if (!l.strides.empty()) l.strides[dim] = 0;
  std::vector<int64_t> places = offsets_of(l);
  for (size_t i = 0; i < places.size(); ++i) places[i] += index.i[i] * stride;
  return places;
}

Result<Values> gather_op(const Call& c) {
  const Value& x = c.in("x");
  STITCH_TRY(const auto places, places_along(c, x, c.in("index"), static_cast<size_t>(c.node.integer("dim"))));
  Value out = c.result();
  for (size_t i = 0; i < places.size(); ++i) {
    if (out.floating()) out.f[i] = x.f[static_cast<size_t>(places[i])];
    else out.i[i] = x.i[static_cast<size_t>(places[i])];
  }
  return one(std::move(out));
}

void put(Value& out, int64_t place, double f, int64_t i, bool add) {
  const auto at = static_cast<size_t>(place);
  if (out.floating()) out.f[at] = add ? out.f[at] + f : f;
  else out.i[at] = add ? static_cast<int64_t>(static_cast<uint64_t>(out.i[at]) + static_cast<uint64_t>(i)) : i;
}

// Where an element is written twice the last one wins (PyTorch promises nothing there).
Result<Values> scatter(const Call& c) {
  const Value &x = c.in("x"), &index = c.in("index");
  STITCH_TRY(const auto places, places_along(c, x, index, static_cast<size_t>(c.node.integer("dim"))));
  Value out = x;
  const Value* src = c.maybe("src");
  std::vector<int64_t> reads;
  if (src) {
    Layout part = dense(src->type.shape);
    part.shape = index.type.shape;  // only this part of src is read
    reads = offsets_of(part);
  }
  const double number = src ? 0 : c.node.number("src");
  const auto integer = src ? 0 : float_to_integer(number, ir::DType::i64);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto from = src ? static_cast<size_t>(reads[i]) : 0;
    put(out, places[i], src && out.floating() ? src->f[from] : number, src && !out.floating() ? src->i[from] : integer, c.is("scatter_add"));
  }
  return one(std::move(out));
}

// Advanced indexing: offsets in x of every element of x[indices], with its shape.
struct Indexed {
  ir::Shape shape;
  std::vector<int64_t> places;
};

Result<Indexed> indexed(const Call& c, const Value& x, const std::vector<const Value*>& indices) {
  const auto& s = x.type.shape;
  const auto strides = ir::contiguous_strides(s);
  ir::Shape joint;
  size_t first = s.size(), last = 0, given = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    STITCH_CHECK_OK(check(c, *indices[d], -s[d], s[d]));
    joint = *ir::broadcast(joint, indices[d]->type.shape);
    first = std::min(first, d);
    last = d;
    ++given;
  }
  std::vector<int64_t> jumps(static_cast<size_t>(ir::numel(joint)), 0);
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    const auto from = offsets_of(broadcast_to(indices[d]->type.shape, joint));
    for (size_t j = 0; j < jumps.size(); ++j) {
      const int64_t i = indices[d]->i[static_cast<size_t>(from[j])];
      jumps[j] += (i < 0 ? i + s[d] : i) * strides[d];
    }
  }
  // Index dims stay in place when they are adjacent and go to the front otherwise.
  const size_t split = last - first + 1 == given ? first : 0;
  Layout before, after;
  for (size_t d = 0; d < s.size(); ++d) {
    if (d < indices.size() && indices[d]) continue;
    Layout& l = d < split ? before : after;
    l.shape.push_back(s[d]);
    l.strides.push_back(strides[d]);
  }
  Indexed out{before.shape, {}};
  out.shape.insert(out.shape.end(), joint.begin(), joint.end());
  out.shape.insert(out.shape.end(), after.shape.begin(), after.shape.end());
  const auto inner = offsets_of(after);
  for (int64_t a : offsets_of(before))
    for (int64_t j : jumps)
      for (int64_t b : inner) out.places.push_back(a + j + b);
  return out;
}

Result<Values> index(const Call& c) {
  const Value& x = c.in("x");
  STITCH_TRY(const Indexed at, indexed(c, x, c.list("indices")));
  Value out = c.result();
  for (size_t i = 0; i < at.places.size(); ++i) {
    if (out.floating()) out.f[i] = x.f[static_cast<size_t>(at.places[i])];
    else out.i[i] = x.i[static_cast<size_t>(at.places[i])];
  }
  return one(std::move(out));
}

Result<Values> index_put(const Call& c) {
  const Value &x = c.in("x"), &values = c.in("values");
  STITCH_TRY(const Indexed at, indexed(c, x, c.list("indices")));
  const auto from = offsets_of(broadcast_to(values.type.shape, at.shape));
  Value out = x;
  for (size_t i = 0; i < at.places.size(); ++i) {
    const auto k = static_cast<size_t>(from[i]);
    put(out, at.places[i], out.floating() ? values.f[k] : 0, out.floating() ? 0 : values.i[k], c.node.boolean("accumulate"));
  }
  return one(std::move(out));
}

constexpr Entry kRules[] = {{"gather", gather_op},  {"index_select", index_select}, {"embedding", embedding}, {"index", index},
                            {"scatter", scatter},   {"scatter_add", scatter},       {"index_put", index_put}};

}  // namespace

std::span<const Entry> families::index() { return kRules; }

}  // namespace stitch::interp
