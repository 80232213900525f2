#include "plan/prepare.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "plan/prepare_passes.h"
#include "plan/rewriter.h"

namespace stitch::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueRef;

// y = (x - mean) * (rsqrt(var + eps) * w) + b with per-channel vectors viewed as (1, C, 1, ...). The scale is computed per element by the
// fused kernel from cached vectors: one rsqrt per element is hidden behind the memory traffic.
ValueRef lower_one_batch_norm(Rewriter& r, const Node& n) {
  const ValueRef x = r.mapped(n.value("x"));
  const ir::TensorType type = n.type();
  ir::Shape per_channel(type.shape.size(), 1);
  per_channel[1] = type.shape[1];
  const auto vector = [&](std::string_view parameter) { return r.view(r.mapped(n.value(parameter)), per_channel, n); };
  const auto typed = [&](ValueRef v) { return ir::TensorType{r.type(v).dtype, per_channel}; };

  const ValueRef mean = vector("running_mean"), variance = vector("running_var");
  const ValueRef shifted = r.binary("add", variance, n.number("eps"), typed(variance), n);
  ValueRef scale = r.emit("rsqrt", {{"x", shifted}}, typed(shifted), n);
  if (n.has_arg("weight")) scale = r.binary("mul", scale, vector("weight"), typed(scale), n);
  ValueRef y = r.binary("sub", x, mean, type, n);
  y = r.binary("mul", y, scale, type, n);
  if (n.has_arg("bias")) y = r.binary("add", y, vector("bias"), type, n);
  return y;
}

Graph lower_batch_norm(const Graph& g) {
  Rewriter r(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    const bool lower = n.op_name() == "batch_norm" && !n.boolean("training") && n.has_arg("running_mean");
    if (lower) r.replace({static_cast<int32_t>(i), 0}, lower_one_batch_norm(r, n));
    else r.copy(static_cast<int32_t>(i));
  }
  return r.finish();
}

struct Contraction {
  std::string a, b, out;
  std::string batch, rows, columns, inner;  // letters by role
};

// Roles of the letters, or nothing when the equation is no plain batched product (repeated letters, letters summed in
// one operand only, more than two operands).
bool classify(const std::string& equation, Contraction& c) {
  const size_t comma = equation.find(','), arrow = equation.find("->");
  if (comma == equation.npos || arrow == equation.npos || equation.find(',', comma + 1) != equation.npos) return false;
  c.a = equation.substr(0, comma);
  c.b = equation.substr(comma + 1, arrow - comma - 1);
  c.out = equation.substr(arrow + 2);
  const auto repeated = [](std::string s) {
    std::sort(s.begin(), s.end());
    return std::adjacent_find(s.begin(), s.end()) != s.end();
  };
  if (repeated(c.a) || repeated(c.b) || repeated(c.out)) return false;
  const auto has = [](const std::string& s, char l) { return s.find(l) != s.npos; };
  for (char l : c.a) {
    if (has(c.b, l)) (has(c.out, l) ? c.batch : c.inner) += l;
    else if (has(c.out, l)) c.rows += l;
    else return false;
  }
  for (char l : c.b) {
    if (has(c.a, l)) continue;
    if (!has(c.out, l)) return false;
    c.columns += l;
  }
  return !c.inner.empty() && c.out.size() == c.batch.size() + c.rows.size() + c.columns.size();
}

ValueRef lower_one_einsum(Rewriter& r, const Node& n, const Contraction& c) {
  const auto& tensors = std::get<ir::ValueList>(n.arg("tensors"));
  const ValueRef a = r.mapped(tensors[0]), b = r.mapped(tensors[1]);
  std::map<char, int64_t> extent;
  for (size_t i = 0; i < c.a.size(); ++i) extent[c.a[i]] = r.type(a).shape[i];
  for (size_t i = 0; i < c.b.size(); ++i) extent[c.b[i]] = r.type(b).shape[i];
  const auto product = [&](const std::string& letters) {
    int64_t p = 1;
    for (char l : letters) p *= extent[l];
    return p;
  };
  const auto arranged = [&](ValueRef v, const std::string& from, const std::string& to, const std::string& x, const std::string& y) {
    ir::IntList dims;
    for (char l : to) dims.push_back(static_cast<int64_t>(from.find(l)));
    const ValueRef p = r.permute(v, dims, n);
    return r.view(p, {product(c.batch), product(x), product(y)}, n);
  };
  const ValueRef left = arranged(a, c.a, c.batch + c.rows + c.inner, c.rows, c.inner);
  const ValueRef right = arranged(b, c.b, c.batch + c.inner + c.columns, c.inner, c.columns);
  const ir::TensorType flat{n.type().dtype, {product(c.batch), product(c.rows), product(c.columns)}};
  ValueRef out = r.emit("matmul", {{"a", left}, {"b", right}}, flat, n);
  const std::string order = c.batch + c.rows + c.columns;
  ir::Shape shape;
  for (char l : order) shape.push_back(extent[l]);
  out = r.view(out, shape, n);
  ir::IntList dims;
  for (char l : c.out) dims.push_back(static_cast<int64_t>(order.find(l)));
  return r.permute(out, dims, n);
}

Graph lower_einsum(const Graph& g) {
  Rewriter r(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    Contraction c;
    const Node& n = g.nodes[i];
    const auto id = static_cast<int32_t>(i);
    if (n.op_name() == "einsum" && ir::is_floating(n.type().dtype) && classify(n.text("equation"), c))
      r.replace({id, 0}, lower_one_einsum(r, n, c));
    else r.copy(id);
  }
  return r.finish();
}

bool is_leaf(const Node& n) { return n.op_name() == "input" || n.op_name() == "weight"; }

// Two nodes are equal when op, arguments and result types are: inputs and weights never are (their names differ).
Graph merge_common(const Graph& g) {
  Rewriter r(g);
  std::unordered_multimap<size_t, int32_t> seen;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const auto old = static_cast<int32_t>(i);
    if (is_leaf(g.nodes[i])) { r.copy(old); continue; }
    Node candidate = g.nodes[i];
    size_t hash = std::hash<std::string_view>{}(candidate.op_name());
    for_each_operand(candidate, [&](ValueRef& v) {
      v = r.mapped(v);
      hash = hash * 1000003 + std::hash<ValueRef>{}(v);
    });
    const auto [begin, end] = seen.equal_range(hash);
    const auto twin = std::find_if(begin, end, [&](const auto& entry) {
      const Node& other = r.graph().nodes[static_cast<size_t>(entry.second)];
      return other.op == candidate.op && other.args == candidate.args && other.types == candidate.types;
    });
    if (twin != end) {
      for (size_t k = 0; k < candidate.types.size(); ++k)
        r.replace({old, static_cast<int32_t>(k)}, {twin->second, static_cast<int32_t>(k)});
    } else {
      seen.emplace(hash, r.copy(old));
    }
  }
  return r.finish();
}

// Worth a copy per consumer: costs no memory traffic to make again.
std::vector<bool> cheap_nodes(const Graph& g) {
  std::vector<bool> cheap(g.nodes.size(), false);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    if (n.op->cls == ir::OpClass::source) cheap[i] = !is_leaf(n);
    const std::string_view op = n.op_name();
    if (op == "view" || op == "expand" || op == "permute" || op == "slice" || op == "select") {
      const ValueRef x = n.value("x");
      cheap[i] = is_leaf(g.at(x)) || cheap[static_cast<size_t>(x.node)];
    }
  }
  return cheap;
}

Graph split_cheap(const Graph& g) {
  const std::vector<bool> cheap = cheap_nodes(g);
  Rewriter r(g);
  // Makes a fresh copy of a cheap value (and of the cheap values it reads) in front of its consumer.
  const auto fresh = [&](auto&& self, ValueRef old) -> ValueRef {
    if (!cheap[static_cast<size_t>(old.node)]) return r.mapped(old);
    const Node& n = g.nodes[static_cast<size_t>(old.node)];
    for (const ValueRef& operand : ir::operands(n)) r.replace(operand, self(self, operand));
    return {r.copy(old.node), old.output};
  };
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (cheap[i]) continue;
    for (const ValueRef& operand : ir::operands(g.nodes[i]))
      if (cheap[static_cast<size_t>(operand.node)]) r.replace(operand, fresh(fresh, operand));
    r.copy(static_cast<int32_t>(i));
  }
  for (const ir::Output& o : g.outputs)
    if (cheap[static_cast<size_t>(o.value.node)]) r.replace(o.value, fresh(fresh, o.value));
  return r.finish();
}

// Inputs and weights stay even when unused: the candidate's signature is the module's.
Graph drop_dead(const Graph& g) {
  std::vector<bool> live(g.nodes.size(), false);
  for (const ir::Output& o : g.outputs) live[static_cast<size_t>(o.value.node)] = true;
  for (size_t i = g.nodes.size(); i-- > 0;) {
    if (is_leaf(g.nodes[i])) live[i] = true;
    if (!live[i]) continue;
    for (const ValueRef& v : ir::operands(g.nodes[i])) live[static_cast<size_t>(v.node)] = true;
  }
  Rewriter r(g);
  for (size_t i = 0; i < g.nodes.size(); ++i)
    if (live[i]) r.copy(static_cast<int32_t>(i));
  return r.finish();
}

}  // namespace

Result<ir::Graph> prepare(const ir::Graph& original) {
  using Pass = Graph (*)(const Graph&);
  constexpr Pass passes[] = {lower_batch_norm, lower_einsum, group_repeated_heads, lower_wide_attention, turn_products, merge_common, split_cheap, drop_dead};
  Graph g = original;
  for (Pass pass : passes) g = pass(g);
  if (auto status = ir::validate(g); !status) {
    Error e = status.error();
    e.kind = ErrorKind::internal;
    e.message = "Preparing the graph broke a rule (please report this): " + e.message;
    return tl::make_unexpected(std::move(e));
  }
  return g;
}

}  // namespace stitch::plan
