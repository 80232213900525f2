// Movement, source and gather-like ops: where the element comes from.
#include <cmath>
#include <numeric>

#include "code/expr/emitter.h"
#include "code/skill.h"
#include "ir/ops.h"

namespace stitch::code {

using ir::DType;
using ir::IntList;
using ir::ValueRef;

namespace {

struct Movement {
  Emitter& e;
  const ir::Node& node;
  const Coords& c;
  int32_t id;

  IndexSpace& space() { return e.space(); }
  ValueRef x() const { return node.value("x"); }
  const ir::Shape& shape_of(ValueRef v) const { return e.graph().type_of(v).shape; }
  const ir::Shape& out_shape() const { return node.type().shape; }
  DType dtype() const { return node.type().dtype; }
  size_t dim() const { return static_cast<size_t>(node.integer("dim")); }
  std::string what() const { return label(e.graph(), id); }
  std::string stem() const { return fmt::format("v{}", id); }
  Val x_at(const Coords& coords) { return e.convert(e.value(x(), coords), dtype()); }

  // index, known to be in [0, extent) where this code runs, under a name of its own when its range does not say so.
  Index confined(const Index& index, int64_t extent) {
    const IndexRange r = space().range(index);
    if (r.min >= 0 && r.max < extent) return index;
    return e.opaque("j", e.text(index), e.depth(), extent);
  }

  Val view() { return x_at(space().unravel(space().ravel(c, out_shape()), shape_of(x()))); }

  Val permute() {
    const IntList& dims = node.integers("dims");
    Coords in(c.size());
    for (size_t d = 0; d < c.size(); ++d) in[static_cast<size_t>(dims[d])] = c[d];
    return x_at(in);
  }

  Val expand() {
    const ir::Shape& own = shape_of(x());
    const size_t skip = c.size() - own.size();
    Coords in(own.size());
    for (size_t d = 0; d < own.size(); ++d) in[d] = own[d] == 1 ? Index{} : c[d + skip];
    return x_at(in);
  }

  Val slice() {
    Coords in = c;
    in[dim()] = space().add(space().scale(c[dim()], node.integer("step")), node.integer("start"));
    return x_at(in);
  }

  Val select() {
    Coords in = c;
    in.insert(in.begin() + static_cast<std::ptrdiff_t>(dim()), IndexSpace::constant(node.integer("index")));
    return x_at(in);
  }

  // if (c < end of the first) { ... } else if ... : one branch per operand that the coordinate can reach.
  Val cat(size_t first, int64_t offset) {
    const auto& tensors = std::get<ir::ValueList>(node.arg("tensors"));
    const ValueRef t = tensors[first];
    const int64_t extent = shape_of(t).size() == c.size() ? shape_of(t)[dim()] : 0;  // legacy: a 1-d empty tensor is skipped
    const auto here = [&, this] {
      Coords in = c;
      in[dim()] = confined(space().add(c[dim()], -offset), extent);
      return e.convert(e.value(t, in), dtype());
    };
    if (first + 1 == tensors.size()) return here();
    const auto rest = [&, this] { return cat(first + 1, offset + extent); };
    if (extent == 0) return rest();
    const IndexRange r = space().range(c[dim()]);
    if (r.min >= offset + extent) return rest();
    const std::string condition = r.max < offset + extent ? "" : e.bounds(c[dim()], INT64_MIN / 4, offset + extent);
    return e.branch(stem(), dtype(), condition, here, rest, first == 0 ? what() : "");
  }

  Val pad() {
    const IntList& amounts = node.integers("pad");
    const std::string& mode = node.text("mode");
    const ir::Shape& in_shape = shape_of(x());
    Coords in = c;
    std::string condition;
    std::vector<size_t> guarded;
    for (size_t i = 0; i * 2 < amounts.size(); ++i) {
      const size_t d = c.size() - 1 - i;
      const int64_t n = in_shape[d];
      const Index moved = space().add(c[d], -amounts[2 * i]);
      const IndexRange r = space().range(moved);
      in[d] = moved;
      if (r.min >= 0 && r.max < n) continue;
      if (mode == "constant") {
        const std::string inside = e.bounds(moved, 0, n);
        if (inside == "false") return e.literal(node.number("value"), dtype());
        condition += (condition.empty() ? "" : " && ") + inside;
        guarded.push_back(d);
        continue;
      }
      const std::string text = e.text(moved);
      const std::string_view t = e.index_type();
      const std::string mapped = mode == "reflect"     ? fmt::format("reflect_index<{}>({}, {})", t, text, n)
                                 : mode == "replicate" ? fmt::format("clamp_index<{}>({}, {})", t, text, n)
                                                       : fmt::format("floor_mod<{}>({}, {})", t, text, n);
      in[d] = e.opaque("j", mapped, e.depth(moved), n);
    }
    return e.branch(
        stem(), dtype(), condition,
        [&] {
          for (const size_t d : guarded) in[d] = confined(in[d], in_shape[d]);
          return x_at(in);
        },
        [&] { return e.literal(node.number("value"), dtype()); }, what());
  }

  Val flip() {
    Coords in = c;
    for (const int64_t d : node.integers("dims")) {
      const auto i = static_cast<size_t>(d);
      in[i] = space().sub(IndexSpace::constant(out_shape()[i] - 1), c[i]);
    }
    return x_at(in);
  }

  Index rolled(const Index& i, int64_t shift, int64_t n) {
    if (n <= 1) return i;
    shift = ((shift % n) + n) % n;
    return shift == 0 ? i : space().mod(space().add(i, n - shift), n);
  }

  Val roll() {
    const IntList& shifts = node.integers("shifts");
    const IntList& dims = node.integers("dims");
    if (dims.empty()) {
      const Index flat = rolled(space().ravel(c, out_shape()), shifts.empty() ? 0 : shifts[0], ir::numel(out_shape()));
      return x_at(space().unravel(flat, out_shape()));
    }
    Coords in = c;
    for (size_t k = 0; k < dims.size(); ++k) {
      const auto d = static_cast<size_t>(dims[k]);
      in[d] = rolled(in[d], shifts[k], out_shape()[d]);
    }
    return x_at(in);
  }

  Val repeat() {
    const ir::Shape& own = shape_of(x());
    const size_t skip = c.size() - own.size();
    Coords in(own.size());
    for (size_t d = 0; d < own.size(); ++d) in[d] = space().mod(c[d + skip], std::max<int64_t>(own[d], 1));
    return x_at(in);
  }

  Val unfold() {
    Coords in(c.begin(), c.end() - 1);
    if (in.empty()) return x_at(in);
    in[dim()] = space().add(space().scale(in[dim()], node.integer("step")), c.back());
    return x_at(in);
  }

  Val triangle(bool lower) {
    const Index row = c[c.size() - 2], column = c.back();
    const Index distance = space().sub(column, row);
    const int64_t k = node.integer("diagonal");
    const IndexRange r = space().range(distance);
    const Val zero = e.zero(dtype());
    if (lower ? r.min > k : r.max < k) return zero;
    const Val v = x_at(c);
    if (lower ? r.max <= k : r.min >= k) return v;
    const std::string condition =
        fmt::format("{} {} {}", e.text(column), lower ? "<=" : ">=", e.text(space().add(row, k)));
    return e.define(stem(), dtype(), fmt::format("{} ? {} : {}", condition, v.text, zero.text),
                    std::max({v.depth, e.depth(row), e.depth(column)}), what());
  }

  Val diagonal() {
    const auto d1 = static_cast<size_t>(node.integer("dim1")), d2 = static_cast<size_t>(node.integer("dim2"));
    const int64_t offset = node.integer("offset");
    Coords in;
    size_t next = 0;
    for (size_t d = 0; d < shape_of(x()).size(); ++d) {
      if (d == d1) {
        in.push_back(space().add(c.back(), std::max<int64_t>(-offset, 0)));
      } else if (d == d2) {
        in.push_back(space().add(c.back(), std::max<int64_t>(offset, 0)));
      } else {
        in.push_back(c[next++]);
      }
    }
    return x_at(in);
  }

  Val slice_scatter() {
    const int64_t start = node.integer("start"), end = node.integer("end"), step = node.integer("step");
    const int64_t count = end > start ? (end - start + step - 1) / step : 0;
    const Index i = c[dim()];
    std::string condition = e.bounds(i, start, end);
    const Index from_start = space().add(i, -start);
    if (condition != "false" && step != 1) {
      const std::string on_step = fmt::format("floor_mod<{}>({}, {}) == 0", e.index_type(), e.text(from_start), step);
      condition = condition.empty() ? on_step : condition + " && " + on_step;
    }
    return e.branch(
        stem(), dtype(), condition,
        [&] {
          Coords in = c;
          in[dim()] = step == 1 ? confined(from_start, count) : space().div(confined(from_start, end - start), step);
          return e.convert(e.value(node.value("src"), in), dtype());
        },
        [&] { return x_at(c); }, what());
  }

  Val select_scatter() {
    const int64_t index = node.integer("index");
    return e.branch(
        stem(), dtype(), e.bounds(c[dim()], index, index + 1),
        [&] {
          Coords in = c;
          in.erase(in.begin() + static_cast<std::ptrdiff_t>(dim()));
          return e.convert(e.value(node.value("src"), in), dtype());
        },
        [&] { return x_at(c); }, what());
  }

  Val upsample_nearest();
};

// PyTorch's source index, floor(i * scale) in float, tabulated here: mostly it is i / factor exactly.
Val Movement::upsample_nearest() {
  const ir::Shape& in_shape = shape_of(x());
  std::vector<double> user;
  if (node.has_arg("scales")) {
    const std::string& text = node.text("scales");
    for (size_t at = 0; at < text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      user.push_back(std::strtod(text.substr(at, comma - at).c_str(), nullptr));
      at = comma + 1;
    }
  }
  Coords in = c;
  for (size_t d = 2; d < c.size(); ++d) {
    const int64_t n = in_shape[d], m = out_shape()[d];
    if (n == m) continue;  // as PyTorch: equal extents copy, whatever the scale says
    const double factor = d - 2 < user.size() ? user[d - 2] : 0;
    const float scale = factor > 0 ? static_cast<float>(1.0 / factor) : static_cast<float>(n) / static_cast<float>(m);
    const auto source = [&](int64_t i) {
      return m == 2 * n ? i / 2 : std::min<int64_t>(static_cast<int64_t>(std::floor(static_cast<float>(i) * scale)), n - 1);
    };
    bool is_quotient = m % n == 0;
    for (int64_t i = 0; is_quotient && i < m; ++i) is_quotient = source(i) == i / (m / n);
    if (is_quotient) {
      in[d] = space().div(c[d], m / n);
    } else {
      const std::string_view t = e.index_type();
      const std::string text = fmt::format("clamp_index<{0}>(static_cast<{0}>(floorf(static_cast<float>({1}) * {2})), {3})", t,
                                           e.text(c[d]), float_literal(scale, DType::f32), n);
      in[d] = e.opaque("j", text, e.depth(c[d]), n);
    }
  }
  return x_at(in);
}

}  // namespace

Val emit_movement(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  Movement m{e, node, coords, v.node};
  const std::string_view name = node.op->name;
  if (name == "view") return m.view();
  if (name == "permute") return m.permute();
  if (name == "expand") return m.expand();
  if (name == "slice") return m.slice();
  if (name == "select") return m.select();
  if (name == "cat") return m.cat(0, 0);
  if (name == "pad") return m.pad();
  if (name == "flip") return m.flip();
  if (name == "roll") return m.roll();
  if (name == "repeat") return m.repeat();
  if (name == "unfold") return m.unfold();
  if (name == "tril" || name == "triu") return m.triangle(name == "tril");
  if (name == "diagonal") return m.diagonal();
  if (name == "slice_scatter") return m.slice_scatter();
  if (name == "select_scatter") return m.select_scatter();
  if (name == "upsample_nearest") return m.upsample_nearest();
  e.refuse(fmt::format("movement op {} has no code", name));
  return e.zero(node.type().dtype);
}

Val emit_source(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const DType type = node.type().dtype;
  const std::string_view name = node.op->name;
  if (name == "full") return e.literal(node.number("value"), type);
  if (name == "arange") {
    const double start = node.number("start"), step = node.number("step");
    const bool whole = start == std::floor(start) && step == std::floor(step) && std::abs(start) < 1e15 && std::abs(step) < 1e15;
    const double last = start + step * static_cast<double>(ir::numel(node.type().shape));
    if (whole && std::abs(start) < 1e9 && std::abs(last) < 1e9)
      return e.from_index(e.space().add(e.space().scale(coords[0], static_cast<int64_t>(step)), static_cast<int64_t>(start)), type);
    if (ir::is_integral(type))
      return e.define(fmt::format("v{}", v.node), type,
                      fmt::format("static_cast<{}>({} + {} * int64_t({}))", compute_type(type), int_literal(static_cast<int64_t>(start)),
                                  int_literal(static_cast<int64_t>(step)), e.text(coords[0])),
                      e.depth(coords[0]), label(e.graph(), v.node));
    return e.define(fmt::format("v{}", v.node), type,
                    fmt::format("static_cast<{}>({} + {} * static_cast<double>({}))", compute_type(type),
                                float_literal(start, DType::f64), float_literal(step, DType::f64), e.text(coords[0])),
                    e.depth(coords[0]), label(e.graph(), v.node));
  }
  if (name == "eye") {
    const Index distance = e.space().sub(coords[0], coords[1]);
    if (distance.is_constant()) return e.literal(distance.constant == 0, type);
    return e.define(fmt::format("v{}", v.node), type,
                    fmt::format("{} == {} ? {} : {}", e.text(coords[0]), e.text(coords[1]), e.literal(1, type).text, e.zero(type).text),
                    std::max(e.depth(coords[0]), e.depth(coords[1])), label(e.graph(), v.node));
  }
  e.refuse(fmt::format("{} is not computed by any task", label(e.graph(), v.node)));
  return e.zero(type);
}

namespace {

// The value of an index tensor at `at`, as a coordinate of a dim of `extent`.
Index loaded_index(Emitter& e, ValueRef indices, const Coords& at, int64_t extent, bool wrap) {
  const Val v = e.value(indices, at);
  const std::string text = wrap ? fmt::format("wrap_index<{}>({}, {})", e.index_type(), v.text, extent)
                                : fmt::format("static_cast<{}>({})", e.index_type(), v.text);
  return e.opaque("j", text, v.depth, extent);
}

// x[..., i0, i1, ...] with None entries: where the broadcast index dims sit in the result follows NumPy.
Val emit_advanced_index(Emitter& e, const ir::Node& node, const Coords& coords) {
  const ValueRef x = node.value("x");
  const auto& indices = std::get<ir::ValueList>(node.arg("indices"));
  const ir::Shape& shape = e.graph().type_of(x).shape;
  ir::Shape joint;
  std::vector<size_t> indexed;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (indices[d].node < 0) continue;
    indexed.push_back(d);
    joint = ir::broadcast(joint, e.graph().type_of(indices[d]).shape).value_or(joint);
  }
  const bool adjacent = !indexed.empty() && indexed.back() - indexed.front() + 1 == indexed.size();
  const size_t joint_at = adjacent ? indexed.front() : 0;
  const Coords joint_coords(coords.begin() + static_cast<std::ptrdiff_t>(joint_at),
                            coords.begin() + static_cast<std::ptrdiff_t>(joint_at + joint.size()));
  Coords in(shape.size());
  size_t next = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (next == joint_at) next += joint.size();
    if (d >= indices.size() || indices[d].node < 0) {
      in[d] = coords[next++];
      if (next == joint_at) next += joint.size();
      continue;
    }
    const ir::Shape& own = e.graph().type_of(indices[d]).shape;
    Coords at(own.size());
    const size_t skip = joint.size() - own.size();
    for (size_t k = 0; k < own.size(); ++k) at[k] = own[k] == 1 ? Index{} : joint_coords[k + skip];
    in[d] = loaded_index(e, indices[d], at, shape[d], true);
  }
  return e.value(x, in);
}

}  // namespace

Val emit_index(Emitter& e, const ir::Node& node, ValueRef, const Coords& coords) {
  const std::string_view name = node.op->name;
  if (name == "index") return emit_advanced_index(e, node, coords);
  if (name == "embedding") {
    const ValueRef weight = node.value("weight");
    const Coords at(coords.begin(), coords.end() - 1);
    return e.value(weight, {loaded_index(e, node.value("indices"), at, e.graph().type_of(weight).shape[0], false), coords.back()});
  }
  const auto dim = static_cast<size_t>(node.integer("dim"));
  const ValueRef x = node.value("x");
  Coords in = coords;
  const ir::Shape& shape = e.graph().type_of(x).shape;
  if (shape.empty()) return e.value(x, {});
  in[dim] = loaded_index(e, node.value("index"), name == "gather" ? coords : Coords{coords[dim]}, shape[dim], false);
  return e.value(x, in);
}

}  // namespace stitch::code
