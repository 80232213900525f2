#include "code/expr/loops.h"

#include <algorithm>
#include <limits>
#include <map>

#include "code/skill.h"
#include "ir/ops.h"

namespace stitch::code {

using ir::DType;
using ir::ValueRef;

Index LoopNest::loop_between(const std::string& from, const std::string& to, int64_t extent) {
  if (from == "0" && extent == 1 && to == "1") return {};
  const std::string name = e_.fresh("k");
  e_.open(fmt::format("for ({0} {1} = {2}; {1} < {3}; ++{1})", e_.index_type(), name, from, to), true);
  Index v = e_.space().variable(name, extent);
  if (v.is_constant()) return v;
  e_.declare(v);
  return v;
}

void LoopNest::guard(const std::string& condition) {
  if (!condition.empty()) e_.open(fmt::format("if ({})", condition), true);
}

Index LoopNest::confine(const Index& index, int64_t extent) {
  const std::string condition = e_.bounds(index, 0, extent);
  if (condition.empty()) return index;
  guard(condition);
  return e_.opaque("j", e_.text(index), e_.depth(), extent);
}

void LoopNest::close() {
  while (e_.depth() > base_) e_.close();
}

Val accumulator(Emitter& e, std::string_view stem, DType type, const std::string& initial, std::string_view comment) {
  Val acc{e.fresh(stem), type, e.depth()};
  e.line(fmt::format("{} {} = {};{}{}", compute_type(type), acc.text, initial, comment.empty() ? "" : "  // ", comment));
  return acc;
}

std::string added(DType type, const std::string& a, const std::string& b) {
  return ir::is_floating(type) ? fmt::format("{} + {}", a, b) : fmt::format("op::add({}, {})", a, b);
}

void multiply_add(Emitter& e, const Val& acc, const Val& a, const Val& b) {
  const Val x = e.convert(a, acc.type), y = e.convert(b, acc.type);
  if (ir::is_floating(acc.type)) {
    e.line(fmt::format("{} += {} * {};", acc.text, x.text, y.text));
  } else {
    e.line(fmt::format("{0} = op::add({0}, op::mul({1}, {2}));", acc.text, x.text, y.text));
  }
}

std::string lowest(DType type) {
  if (ir::is_floating(type)) return "-" + float_literal(std::numeric_limits<double>::infinity(), type);
  if (ir::is_bool(type)) return "false";
  return fmt::format("std::numeric_limits<{}>::lowest()", compute_type(type));
}
std::string highest(DType type) {
  if (ir::is_floating(type)) return float_literal(std::numeric_limits<double>::infinity(), type);
  if (ir::is_bool(type)) return "true";
  return fmt::format("std::numeric_limits<{}>::max()", compute_type(type));
}

Val emit_loop(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const std::string_view name = node.op->name;
  switch (node.op->cls) {
    case ir::OpClass::contraction: return emit_contraction(e, node, v, coords);
    case ir::OpClass::convolution: return emit_convolution(e, node, v, coords);
    case ir::OpClass::pool: return name.starts_with("upsample") ? emit_resample(e, node, v, coords) : emit_pool(e, node, v, coords);
    case ir::OpClass::index: return emit_scatter(e, node, v, coords);
    case ir::OpClass::scan: return emit_scan(e, node, v, coords);
    case ir::OpClass::attention: return emit_attention(e, node, v, coords);
    default: break;
  }
  e.refuse(fmt::format("{} has no loop form", label(e.graph(), v.node)));
  return e.zero(node.types[static_cast<size_t>(v.output)].dtype);
}

// ---------------------------------------------------------------------------------------------------------------------
// Contractions

namespace {

// Coordinates of an operand's batch dims under broadcasting, then the given matrix coordinates.
Coords batched(const ir::Shape& shape, size_t matrix_dims, const Coords& batch, std::initializer_list<Index> matrix) {
  Coords c;
  const size_t dims = shape.size() - matrix_dims;
  for (size_t d = 0; d < dims; ++d) c.push_back(shape[d] == 1 ? Index{} : batch[batch.size() - dims + d]);
  c.insert(c.end(), matrix.begin(), matrix.end());
  return c;
}

Val emit_product(Emitter& e, ValueRef a, ValueRef b, DType type, bool transposed_b, const Coords& coords, const std::string& stem,
                 const std::string& what) {
  const ir::Shape& sa = e.graph().type_of(a).shape;
  const ir::Shape& sb = e.graph().type_of(b).shape;
  const bool vector_a = sa.size() == 1, vector_b = sb.size() == 1;
  size_t batch_dims = coords.size() - (vector_a ? 0 : 1) - (vector_b ? 0 : 1);
  const Coords batch(coords.begin(), coords.begin() + static_cast<std::ptrdiff_t>(batch_dims));
  const Val acc = accumulator(e, stem, type, e.zero(type).text, what);
  LoopNest nest(e);
  const Index k = nest.loop(sa.back());
  Coords ca = vector_a ? Coords{k} : batched(sa, 2, batch, {coords[batch_dims], k});
  Coords cb;
  if (vector_b) {
    cb = {k};
  } else if (transposed_b) {
    cb = batched(sb, 2, batch, {coords.back(), k});
  } else {
    cb = batched(sb, 2, batch, {k, coords.back()});
  }
  const Val x = e.value(a, ca), y = e.value(b, cb);
  multiply_add(e, acc, x, y);
  return acc;
}

Val emit_einsum(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const DType type = node.type().dtype;
  const auto& tensors = std::get<ir::ValueList>(node.arg("tensors"));
  const std::string& equation = node.text("equation");
  const size_t arrow = equation.find("->");
  std::vector<std::string> letters(1);
  for (char ch : equation.substr(0, arrow)) {
    if (ch == ',') {
      letters.emplace_back();
    } else {
      letters.back() += ch;
    }
  }
  const std::string out = equation.substr(arrow + 2);
  std::map<char, Index> at;
  std::map<char, int64_t> extent;
  for (size_t d = 0; d < out.size(); ++d) at[out[d]] = coords[d];
  for (size_t t = 0; t < tensors.size(); ++t)
    for (size_t d = 0; d < letters[t].size(); ++d)
      extent[letters[t][d]] = std::max(extent[letters[t][d]], e.graph().type_of(tensors[t]).shape[d]);
  const Val acc = accumulator(e, fmt::format("acc{}", v.node), type, e.zero(type).text, label(e.graph(), v.node) + " " + equation);
  LoopNest nest(e);
  for (const auto& [letter, n] : extent)
    if (!at.count(letter)) at[letter] = nest.loop(n);
  Val product;
  for (size_t t = 0; t < tensors.size(); ++t) {
    Coords c;
    for (size_t d = 0; d < letters[t].size(); ++d)
      c.push_back(e.graph().type_of(tensors[t]).shape[d] == 1 ? Index{} : at[letters[t][d]]);
    const Val x = e.convert(e.value(tensors[t], c), type);
    if (t == 0) {
      product = x;
    } else if (t + 1 < tensors.size()) {
      product = e.define("m", type, ir::is_floating(type) ? product.text + " * " + x.text : fmt::format("op::mul({}, {})", product.text, x.text),
                         std::max(product.depth, x.depth));
    } else {
      multiply_add(e, acc, product, x);
    }
  }
  if (tensors.size() == 1) e.line(fmt::format("{} = {};", acc.text, added(type, acc.text, product.text)));
  return acc;
}

}  // namespace

Val emit_contraction(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const std::string_view name = node.op->name;
  const DType type = node.type().dtype;
  const std::string stem = fmt::format("acc{}", v.node), what = label(e.graph(), v.node);
  if (name == "einsum") return emit_einsum(e, node, v, coords);
  if (name == "matmul") return emit_product(e, node.value("a"), node.value("b"), type, false, coords, stem, what);
  if (name == "linear") {
    const Val acc = emit_product(e, node.value("x"), node.value("weight"), type, true, coords, stem, what);
    if (!node.has_arg("bias")) return acc;
    const Val bias = e.convert(e.value(node.value("bias"), {coords.back()}), type);
    return e.define(fmt::format("v{}", v.node), type, added(type, acc.text, bias.text), std::max(acc.depth, bias.depth));
  }
  // beta * c + alpha * (a @ b); a zero beta ignores c, NaN and all.
  Val result = emit_product(e, node.value("a"), node.value("b"), type, false, coords, stem, what);
  const std::string result_name = fmt::format("v{}", v.node);
  const auto times = [&](std::string_view factor, const Val& x) {
    if (node.number(factor) == 1) return x;
    const std::string f = e.literal(node.number(factor), type).text;
    return e.define(result_name, type, ir::is_floating(type) ? f + " * " + x.text : fmt::format("op::mul({}, {})", f, x.text), x.depth);
  };
  result = times("alpha", result);
  if (node.number("beta") == 0) return result;
  const Val c = times("beta", e.operand(node.arg("c"), coords, node.type().shape, type));
  return e.define(result_name, type, added(type, c.text, result.text), std::max(c.depth, result.depth));
}

// ---------------------------------------------------------------------------------------------------------------------
// Convolution, by its definition: one output element from its window

Val emit_convolution(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  IndexSpace& space = e.space();
  const DType type = node.type().dtype;
  const ValueRef x = node.value("x"), w = node.value("weight");
  const ir::Shape& sx = e.graph().type_of(x).shape;
  const ir::Shape& sw = e.graph().type_of(w).shape;
  const ir::IntList &stride = node.integers("stride"), &padding = node.integers("padding"), &dilation = node.integers("dilation");
  const bool transposed = node.boolean("transposed");
  const int64_t groups = node.integer("groups"), out_channels = node.type().shape[1];
  const int64_t in_per_group = sx[1] / groups, out_per_group = out_channels / groups;
  const size_t spatial = sx.size() - 2;

  const Val acc = accumulator(e, fmt::format("acc{}", v.node), type, e.zero(type).text, label(e.graph(), v.node));
  const Index group = space.div(coords[1], out_per_group);
  {
    LoopNest nest(e);
    Coords cx{coords[0], {}}, cw;
    std::vector<Index> taps;
    for (size_t d = 0; d < spatial; ++d) {
      const Index tap = nest.loop(sw[d + 2]);
      taps.push_back(tap);
      if (!transposed) {
        const Index at = space.add(space.add(space.scale(coords[d + 2], stride[d]), space.scale(tap, dilation[d])), -padding[d]);
        cx.push_back(nest.confine(at, sx[d + 2]));
        continue;
      }
      const Index at = space.add(space.sub(coords[d + 2], space.scale(tap, dilation[d])), padding[d]);
      if (stride[d] == 1) {
        cx.push_back(nest.confine(at, sx[d + 2]));
      } else {
        const Index reached = nest.confine(at, (sx[d + 2] - 1) * stride[d] + 1);
        nest.guard(fmt::format("({}) % {} == 0", e.text(reached), stride[d]));
        cx.push_back(e.opaque("j", fmt::format("({}) / {}", e.text(reached), stride[d]), e.depth(), sx[d + 2]));
      }
    }
    const Index c = nest.loop(in_per_group);
    const Index in_channel = space.add(space.scale(group, in_per_group), c);
    cx[1] = in_channel;
    cw = transposed ? Coords{in_channel, space.sub(coords[1], space.scale(group, out_per_group))} : Coords{coords[1], c};
    cw.insert(cw.end(), taps.begin(), taps.end());
    const Val a = e.value(x, cx), b = e.value(w, cw);
    multiply_add(e, acc, a, b);
  }
  if (!node.has_arg("bias")) return acc;
  const Val bias = e.convert(e.value(node.value("bias"), {coords[1]}), type);
  return e.define(fmt::format("v{}", v.node), type, added(type, acc.text, bias.text), std::max(acc.depth, bias.depth));
}

}  // namespace stitch::code
