// Scatters, scans and attention as serial loops. A scatter is computed from the side of its result: each element looks for
// the updates that hit it. That costs more reads than atomics would, but is deterministic, and it is only the fallback.
#include <algorithm>
#include <cmath>

#include "code/expr/loops.h"
#include "code/skill.h"
#include "ir/ops.h"

namespace stitch::code {

using ir::DType;
using ir::ValueRef;

namespace {

// Stores the updated element in acc: acc = update, or acc += update.
void update(Emitter& e, const Val& acc, const Val& value, bool accumulate) {
  const Val v = e.convert(value, acc.type);
  e.line(fmt::format("{} = {};", acc.text, accumulate ? added(acc.type, acc.text, v.text) : v.text));
}

Val emit_scatter_dim(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const DType type = node.type().dtype;
  const ValueRef index = node.value("index");
  const ir::Shape& si = e.graph().type_of(index).shape;
  const auto dim = static_cast<size_t>(node.integer("dim"));
  const Val x = e.convert(e.value(node.value("x"), coords), type);
  const Val acc = accumulator(e, fmt::format("acc{}", v.node), type, x.text, label(e.graph(), v.node));
  LoopNest nest(e);
  Coords at = coords;
  for (size_t d = 0; d < coords.size(); ++d)
    if (d != dim) at[d] = nest.confine(coords[d], si[d]);
  if (coords.empty()) {
    update(e, acc, e.operand(node.arg("src"), at, si, type), node.op->name == "scatter_add");
    return acc;
  }
  at[dim] = nest.loop(si[dim]);
  const Val hit = e.value(index, at);
  nest.guard(fmt::format("{} == {}", hit.text, e.text(coords[dim])));
  const ir::Arg& src = node.arg("src");
  const auto* tensor = std::get_if<ValueRef>(&src);
  update(e, acc, tensor ? e.value(*tensor, at) : e.operand(src, {}, {}, type), node.op->name == "scatter_add");
  return acc;
}

Val emit_index_put(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const DType type = node.type().dtype;
  const auto& indices = std::get<ir::ValueList>(node.arg("indices"));
  ir::Shape joint;
  std::vector<size_t> indexed;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (indices[d].node < 0) continue;
    indexed.push_back(d);
    joint = ir::broadcast(joint, e.graph().type_of(indices[d]).shape).value_or(joint);
  }
  const Val x = e.convert(e.value(node.value("x"), coords), type);
  const Val acc = accumulator(e, fmt::format("acc{}", v.node), type, x.text, label(e.graph(), v.node));
  LoopNest nest(e);
  Coords joint_at;
  for (const int64_t n : joint) joint_at.push_back(nest.loop(n));
  for (const size_t d : indexed) {
    const ir::Shape& own = e.graph().type_of(indices[d]).shape;
    Coords at(own.size());
    for (size_t k = 0; k < own.size(); ++k) at[k] = own[k] == 1 ? Index{} : joint_at[joint.size() - own.size() + k];
    const Val loaded = e.value(indices[d], at);
    nest.guard(fmt::format("wrap_index<{}>({}, {}) == {}", e.index_type(), loaded.text, node.type().shape[d], e.text(coords[d])));
  }
  // Coordinates in the indexed result x[indices], to which `values` broadcasts.
  const bool adjacent = !indexed.empty() && indexed.back() - indexed.front() + 1 == indexed.size();
  const size_t joint_position = adjacent ? indexed.front() : 0;
  Coords result;
  ir::Shape result_shape;
  for (size_t d = 0; d < coords.size(); ++d) {
    if (d < indices.size() && indices[d].node >= 0) continue;
    result.push_back(coords[d]);
    result_shape.push_back(node.type().shape[d]);
  }
  result.insert(result.begin() + static_cast<std::ptrdiff_t>(joint_position), joint_at.begin(), joint_at.end());
  result_shape.insert(result_shape.begin() + static_cast<std::ptrdiff_t>(joint_position), joint.begin(), joint.end());
  update(e, acc, e.operand(node.arg("values"), result, result_shape, type), node.boolean("accumulate"));
  return acc;
}

}  // namespace

Val emit_scatter(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  return node.op->name == "index_put" ? emit_index_put(e, node, v, coords) : emit_scatter_dim(e, node, v, coords);
}

// Element i of a scan: a loop over the elements up to it.
Val emit_scan(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const std::string_view name = node.op->name;
  const DType type = node.types[0].dtype;
  const ValueRef x = node.value("x");
  if (coords.empty()) return v.output == 1 ? e.zero(DType::i64) : e.convert(e.value(x, coords), type);
  const auto dim = static_cast<size_t>(node.integer("dim"));
  const int64_t n = e.graph().type_of(x).shape[dim];
  const bool extreme = name == "cummax" || name == "cummin";
  const bool log_sum = name == "logcumsumexp";
  const std::string initial = extreme                ? (name == "cummax" ? lowest(type) : highest(type))
                              : name == "cumprod"    ? e.literal(1, type).text
                              : log_sum              ? lowest(type)
                                                     : e.zero(type).text;
  const Val acc = accumulator(e, fmt::format("acc{}", v.node), type, initial, label(e.graph(), v.node));
  Val where, tail;
  if (extreme) where = accumulator(e, fmt::format("at{}", v.node), DType::i64, "0", "");
  if (log_sum) tail = accumulator(e, fmt::format("sum{}", v.node), type, e.zero(type).text, "");
  {
    LoopNest nest(e);
    const std::string last = e.text(e.space().add(coords[dim], 1));
    Coords at = coords;
    at[dim] = nest.loop_between("0", last, n);
    const Val value = e.convert(e.value(x, at), type);
    if (extreme) {
      // The last index among equals, as PyTorch; a NaN stays.
      e.open(fmt::format("if (op::is_nan({0}) || (!op::is_nan({1}) && {0} {2} {1}))", value.text, acc.text, name == "cummax" ? ">=" : "<="), true);
      e.line(fmt::format("{} = {};", acc.text, value.text));
      e.line(fmt::format("{} = {};", where.text, e.text(at[dim])));
      e.close();
    } else if (log_sum) {
      e.line(fmt::format("op::log_sum_step({}, {}, {});", acc.text, tail.text, value.text));
    } else if (name == "cumprod") {
      e.line(fmt::format("{0} = {1};", acc.text, ir::is_floating(type) ? acc.text + " * " + value.text : fmt::format("op::mul({}, {})", acc.text, value.text)));
    } else {
      e.line(fmt::format("{} = {};", acc.text, added(type, acc.text, value.text)));
    }
  }
  if (extreme) {
    e.remember(Emitter::key_of({v.node, 0}, coords), acc);
    e.remember(Emitter::key_of({v.node, 1}, coords), where);
    return v.output == 0 ? acc : where;
  }
  if (log_sum) return e.define(fmt::format("v{}", v.node), type, fmt::format("op::log_sum({}, {})", acc.text, tail.text), acc.depth);
  return acc;
}

// One output element of attention: scores of its row with a running maximum, so that no score is stored.
Val emit_attention(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const DType type = node.type().dtype;
  const ValueRef q = node.value("q"), k = node.value("k"), value_ref = node.value("v");
  const ir::Shape &sq = e.graph().type_of(q).shape, &sk = e.graph().type_of(k).shape, &sv = e.graph().type_of(value_ref).shape;
  const size_t rank = coords.size();
  const int64_t width = sq.back(), length = sk[sk.size() - 2];
  const double scale = node.has_arg("scale") ? node.number("scale") : 1.0 / std::sqrt(static_cast<double>(width));
  const auto head = [&](const ir::Shape& s, Index row, Index column) {
    Coords c(s.size());
    for (size_t d = 0; d + 2 < s.size(); ++d) {
      const size_t out = d + rank - s.size();
      c[d] = s[d] == 1 ? Index{} : coords[out];
      // grouped queries: several query heads share one key/value head
      if (node.boolean("enable_gqa") && d + 3 == s.size() && s[d] != node.type().shape[out]) c[d] = e.space().div(coords[out], node.type().shape[out] / s[d]);
    }
    c[s.size() - 2] = std::move(row);
    c[s.size() - 1] = std::move(column);
    return c;
  };
  const Index row = coords[rank - 2];
  const std::string what = label(e.graph(), v.node);
  const Val top = accumulator(e, fmt::format("top{}", v.node), type, lowest(type), what + ": running maximum");
  const Val total = accumulator(e, fmt::format("sum{}", v.node), type, e.zero(type).text, "");
  const Val acc = accumulator(e, fmt::format("acc{}", v.node), type, e.zero(type).text, "");
  {
    LoopNest nest(e);
    const Index s = nest.loop(length);
    if (node.boolean("is_causal")) nest.guard(fmt::format("{} <= {}", e.text(s), e.text(row)));
    const Val score = accumulator(e, "score", type, e.zero(type).text, "");
    {
      LoopNest dot(e);
      const Index d = dot.loop(width);
      const Val a = e.value(q, head(sq, row, d)), b = e.value(k, head(sk, s, d));
      multiply_add(e, score, a, b);
    }
    e.line(fmt::format("{} *= {};", score.text, e.literal(scale, type).text));
    if (node.has_arg("mask")) {
      const ValueRef mask = node.value("mask");
      ir::Shape full = node.type().shape;
      full.back() = length;
      Coords at = coords;
      at.back() = s;
      const bool boolean = ir::is_bool(e.graph().type_of(mask).dtype);
      const Val m = e.operand(node.arg("mask"), at, full, boolean ? DType::b8 : type);
      e.line(boolean ? fmt::format("if (!{}) {} = {};", m.text, score.text, lowest(type)) : fmt::format("{} += {};", score.text, m.text));
    }
    const Val x = e.convert(e.value(value_ref, head(sv, s, coords[rank - 1])), type);
    e.line(fmt::format("op::softmax_step({}, {}, {}, {}, {});", top.text, total.text, acc.text, score.text, x.text));
  }
  return e.define(fmt::format("v{}", v.node), type, fmt::format("{0} == {2} ? {2} : {1} / {0}", total.text, acc.text, e.zero(type).text), acc.depth);
}

}  // namespace stitch::code
