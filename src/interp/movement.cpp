// Ops that only move elements. Most are a strided view written densely; pad, roll and upsample_nearest map every
// dim's index on its own.
#include <cmath>

#include "interp/resample.h"
#include "interp/rules.h"
#include "interp/strided.h"

namespace stitch::interp {
namespace {

Result<Values> from_layout(const Call& c, const Layout& l) {
  const Value& x = c.in("x");
  Value out = c.result();
  if (out.floating()) copy_dense(l, x.f.data(), out.f.data());
  else copy_dense(l, x.i.data(), out.i.data());
  return one(std::move(out));
}

size_t dim_of(const Call& c, std::string_view parameter = "dim") { return static_cast<size_t>(c.node.integer(parameter)); }

Result<Values> view(const Call& c) { return from_layout(c, dense(c.in("x").type.shape)); }
Result<Values> expand(const Call& c) { return from_layout(c, broadcast_to(c.in("x").type.shape, c.node.type().shape)); }

Result<Values> permute(const Call& c) {
  const auto strides = ir::contiguous_strides(c.in("x").type.shape);
  Layout l{c.node.type().shape, {}, 0};
  for (int64_t d : c.node.integers("dims")) l.strides.push_back(strides[static_cast<size_t>(d)]);
  return from_layout(c, l);
}

// The part of x that slice and slice_scatter name.
Layout slice_layout(const Call& c) {
  Layout l = dense(c.in("x").type.shape);
  const size_t d = dim_of(c);
  const int64_t start = c.node.integer("start"), end = c.node.integer("end"), step = c.node.integer("step");
  l.shape[d] = (end - start + step - 1) / step;
  l.offset = start * l.strides[d];
  l.strides[d] *= step;
  return l;
}
Layout select_layout(const Call& c) {
  Layout l = dense(c.in("x").type.shape);
  const auto d = static_cast<int64_t>(dim_of(c));
  l.offset = c.node.integer("index") * l.strides[static_cast<size_t>(d)];
  l.shape.erase(l.shape.begin() + d);
  l.strides.erase(l.strides.begin() + d);
  return l;
}

Result<Values> slice(const Call& c) { return from_layout(c, slice_layout(c)); }
Result<Values> select(const Call& c) { return from_layout(c, select_layout(c)); }

Result<Values> scatter_into(const Call& c, const Layout& part) {
  Value out = c.in("x");
  const Value& src = c.in("src");
  const auto places = offsets_of(part);
  for (size_t k = 0; k < places.size(); ++k) {
    if (out.floating()) out.f[static_cast<size_t>(places[k])] = src.f[k];
    else out.i[static_cast<size_t>(places[k])] = src.i[k];
  }
  return one(std::move(out));
}
Result<Values> slice_scatter(const Call& c) { return scatter_into(c, slice_layout(c)); }
Result<Values> select_scatter(const Call& c) { return scatter_into(c, select_layout(c)); }

template <class T>
void cat_into(const std::vector<const Value*>& parts, size_t dim, Value& out) {
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < out.type.shape.size(); ++d) (d < dim ? outer : inner) *= d == dim ? 1 : out.type.shape[d];
  const int64_t row = inner * out.type.shape[dim];
  int64_t at = 0;
  for (const Value* p : parts) {
    const int64_t length = inner * p->type.shape[dim];
    for (int64_t o = 0; o < outer; ++o) std::copy_n(data_of<T>(*p).data() + o * length, length, data_of<T>(out).data() + o * row + at);
    at += length;
  }
}

Result<Values> cat(const Call& c) {
  Value out = c.result();
  if (out.floating()) cat_into<double>(c.list("tensors"), dim_of(c), out);
  else cat_into<int64_t>(c.list("tensors"), dim_of(c), out);
  return one(std::move(out));
}

Result<Values> flip(const Call& c) {
  Layout l = dense(c.in("x").type.shape);
  for (int64_t dim : c.node.integers("dims")) {
    const auto d = static_cast<size_t>(dim);
    if (l.shape.empty()) continue;
    l.offset += (l.shape[d] - 1) * l.strides[d];
    l.strides[d] = -l.strides[d];
  }
  if (ir::numel(l.shape) == 0) l.offset = 0;
  return from_layout(c, l);
}

Result<Values> repeat(const Call& c) {
  const auto& repeats = c.node.integers("repeats");
  ir::Shape from = c.in("x").type.shape;
  from.insert(from.begin(), repeats.size() - from.size(), 1);
  const auto strides = ir::contiguous_strides(from);
  Layout l;
  for (size_t d = 0; d < from.size(); ++d) {
    l.shape.insert(l.shape.end(), {repeats[d], from[d]});
    l.strides.insert(l.strides.end(), {0, strides[d]});
  }
  return from_layout(c, l);
}

Result<Values> unfold(const Call& c) {
  Layout l = dense(c.in("x").type.shape);
  const size_t d = dim_of(c);
  const int64_t stride = l.strides[d];
  l.shape = c.node.type().shape;
  l.strides[d] = stride * c.node.integer("step");
  l.strides.push_back(stride);
  return from_layout(c, l);
}

Result<Values> diagonal(const Call& c) {
  Layout l = dense(c.in("x").type.shape);
  const size_t d1 = dim_of(c, "dim1"), d2 = dim_of(c, "dim2");
  const int64_t offset = c.node.integer("offset"), step = l.strides[d1] + l.strides[d2];
  l.offset = offset >= 0 ? offset * l.strides[d2] : -offset * l.strides[d1];
  for (const size_t d : {std::max(d1, d2), std::min(d1, d2)}) l.strides.erase(l.strides.begin() + static_cast<int64_t>(d));
  l.strides.push_back(step);
  l.shape = c.node.type().shape;
  if (ir::numel(l.shape) == 0) l.offset = 0;
  return from_layout(c, l);
}

Result<Values> triangle(const Call& c) {
  Value out = c.in("x");
  const auto& s = out.type.shape;
  const int64_t rows = s[s.size() - 2], cols = s.back(), diagonal = c.node.integer("diagonal");
  const bool lower = c.is("tril");
  for (int64_t k = 0; k < ir::numel(s); ++k) {
    const int64_t row = k / cols % rows, col = k % cols;
    if (lower ? col - row <= diagonal : col - row >= diagonal) continue;
    if (out.floating()) out.f[static_cast<size_t>(k)] = 0;
    else out.i[static_cast<size_t>(k)] = 0;
  }
  return one(std::move(out));
}

// out[i0, i1, ...] = x[maps[0][i0], maps[1][i1], ...], or `fill` where a map says -1.
using Maps = std::vector<std::vector<int64_t>>;

template <class T>
void mapped(const Maps& maps, const ir::Shape& from, const T* x, T fill, T* out) {
  const auto strides = ir::contiguous_strides(from);
  const size_t last = maps.size() - 1;
  const auto inner = static_cast<int64_t>(maps[last].size());
  int64_t rows = 1;
  for (size_t d = 0; d < last; ++d) rows *= static_cast<int64_t>(maps[d].size());
  if (inner == 0) return;
  parallel_for(rows, grain_for(inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t offset = 0, rest = row;
      bool outside = false;
      for (size_t d = last; d-- > 0;) {
        const auto extent = static_cast<int64_t>(maps[d].size());
        const int64_t i = maps[d][static_cast<size_t>(rest % extent)];
        outside = outside || i < 0;
        offset += i * strides[d];
        rest /= extent;
      }
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t at = maps[last][static_cast<size_t>(i)];
        out[row * inner + i] = outside || at < 0 ? fill : x[offset + at];
      }
    }
  });
}

Result<Values> from_maps(const Call& c, const Maps& maps, double fill = 0) {
  const Value& x = c.in("x");
  Value out = c.result();
  if (maps.empty()) return one(x);
  if (out.floating()) mapped(maps, x.type.shape, x.f.data(), fill, out.f.data());
  else mapped(maps, x.type.shape, x.i.data(), float_to_integer(fill, out.type.dtype), out.i.data());
  return one(std::move(out));
}

Maps identity_maps(const ir::Shape& shape) {
  Maps maps;
  for (int64_t e : shape) {
    maps.emplace_back(static_cast<size_t>(e));
    for (size_t i = 0; i < maps.back().size(); ++i) maps.back()[i] = static_cast<int64_t>(i);
  }
  return maps;
}

int64_t padded_source(int64_t i, int64_t extent, const std::string& mode) {
  if (i >= 0 && i < extent) return i;
  if (mode == "reflect") return i < 0 ? -i : 2 * (extent - 1) - i;
  if (mode == "replicate") return i < 0 ? 0 : extent - 1;
  if (mode == "circular") return i < 0 ? i + extent : i - extent;
  return -1;
}

Result<Values> pad(const Call& c) {
  const auto& amounts = c.node.integers("pad");
  const auto& from = c.in("x").type.shape;
  Maps maps = identity_maps(c.node.type().shape);
  for (size_t k = 0; k < amounts.size() / 2; ++k) {
    const size_t d = from.size() - 1 - k;
    for (int64_t& i : maps[d]) i = padded_source(i - amounts[2 * k], from[d], c.node.text("mode"));
  }
  return from_maps(c, maps, c.node.number("value"));
}

Result<Values> roll(const Call& c) {
  const auto& shape = c.in("x").type.shape;
  const auto &shifts = c.node.integers("shifts"), &dims = c.node.integers("dims");
  Maps maps = identity_maps(shape);
  for (size_t k = 0; k < dims.size() && !shape.empty(); ++k) {
    const auto d = static_cast<size_t>(dims[k]);
    const int64_t extent = shape[d];
    for (int64_t& i : maps[d]) i = ((i - shifts[k]) % extent + extent) % extent;
  }
  return from_maps(c, maps);
}

Result<Values> upsample_nearest(const Call& c) {
  const auto &from = c.in("x").type.shape, &to = c.node.type().shape;
  const auto scales = scales_of(c);
  Maps maps = identity_maps(to);
  for (size_t d = 2; d < to.size(); ++d)
    for (int64_t& i : maps[d]) i = nearest_source(i, from[d], to[d], scales.empty() ? 0 : scales[d - 2], to.size() - 2);
  return from_maps(c, maps);
}

constexpr Entry kRules[] = {
    {"view", view},       {"expand", expand},   {"permute", permute},   {"slice", slice},   {"select", select},
    {"cat", cat},         {"flip", flip},       {"repeat", repeat},     {"unfold", unfold}, {"diagonal", diagonal},
    {"tril", triangle},   {"triu", triangle},   {"pad", pad},           {"roll", roll},     {"slice_scatter", slice_scatter},
    {"select_scatter", select_scatter},         {"upsample_nearest", upsample_nearest},
};

}  // namespace

std::span<const Entry> families::movement() { return kRules; }

}  // namespace stitch::interp
