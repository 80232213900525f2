#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "plan/prepare_passes.h"
#include "plan/rewriter.h"

namespace stitch::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueRef;

// Keys or values whose heads repeat: before the repetition, (..., heads / repeats, keys, width).
struct Repeated {
  ValueRef source;
  ir::IntList permute;  // of the source, to make heads the third dim from the right; empty: it is
  int64_t repeats = 1;
};

// The dim at which `wide` has one extent more than `narrow`, counted in `wide`; nothing if they differ otherwise.
std::optional<size_t> added_dim(const ir::Shape& narrow, const ir::Shape& wide, int64_t extent, size_t at) {
  ir::Shape with = narrow;
  if (at > with.size()) return std::nullopt;
  with.insert(with.begin() + static_cast<std::ptrdiff_t>(at), extent);
  return with == wide ? std::optional(at) : std::nullopt;
}

// view(expand(view(x))) that repeats every entry of dim `heads` of x, as expand + reshape and repeat_interleave are captured.
std::optional<Repeated> repeated_at(const Graph& g, ValueRef v, size_t heads) {
  const Node& merge = g.at(v);
  if (merge.op_name() != "view") return std::nullopt;
  const Node& expand = g.at(merge.value("x"));
  if (expand.op_name() != "expand") return std::nullopt;
  const Node& split = g.at(expand.value("x"));
  if (split.op_name() != "view") return std::nullopt;
  const ValueRef x = split.value("x");
  const ir::Shape &narrow = g.type_of(x).shape, &wide = expand.type().shape;
  if (narrow.size() != merge.type().shape.size() || wide.size() != narrow.size() + 1) return std::nullopt;
  const int64_t repeats = wide[heads + 1];
  if (!added_dim(narrow, split.type().shape, 1, heads + 1) || !added_dim(narrow, wide, repeats, heads + 1)) return std::nullopt;
  ir::Shape merged = narrow;
  merged[heads] *= repeats;
  return merged == merge.type().shape ? std::optional(Repeated{x, {}, repeats}) : std::nullopt;
}

std::optional<Repeated> repeated_heads(const Graph& g, ValueRef v) {
  const size_t rank = g.type_of(v).shape.size();
  if (rank < 3) return std::nullopt;
  const Node& n = g.at(v);
  if (n.op_name() != "permute") return repeated_at(g, v, rank - 3);
  const ir::IntList& dims = n.integers("dims");
  auto r = repeated_at(g, n.value("x"), static_cast<size_t>(dims[rank - 3]));
  if (r) r->permute = dims;
  return r;
}

ValueRef without_repeats(Rewriter& r, const Repeated& repeated, const Node& like) {
  const ValueRef x = r.mapped(repeated.source);
  return repeated.permute.empty() ? x : r.permute(x, repeated.permute, like);
}

// Heads wider than this do not fit into the shared memory of the tiled kernel.
constexpr int64_t kWidestHead = 256;

// Where the score matrix is small next to q, k and v, three passes through memory cost less than recomputing scores. Rows that no key may attend
// need care (softmax gives NaN, attention gives 0), so masks are left to the generic kernel.
bool is_wide_attention(const Graph& g, const Node& n) {
  if (n.op_name() != "scaled_dot_product_attention" || n.has_arg("mask") || n.boolean("is_causal") || n.boolean("enable_gqa")) return false;
  const ir::Shape &k = g.type_of(n.value("k")).shape, &v = g.type_of(n.value("v")).shape;
  const ir::DType dtype = n.type().dtype;
  return (dtype == ir::DType::f32 || dtype == ir::DType::f64) && std::max(k.back(), v.back()) > kWidestHead && k[k.size() - 2] > 0;
}

// softmax(scale * q k^T) v
ValueRef lower_one_attention(Rewriter& r, const Node& n) {
  const ValueRef q = r.mapped(n.value("q")), k = r.mapped(n.value("k")), v = r.mapped(n.value("v"));
  const ir::Shape& keys = r.type(k).shape;
  ir::IntList turned(keys.size());
  std::iota(turned.begin(), turned.end(), 0);
  std::swap(turned[keys.size() - 1], turned[keys.size() - 2]);
  ir::TensorType scores = r.type(q);
  scores.shape.back() = keys[keys.size() - 2];
  const double scale = n.has_arg("scale") ? n.number("scale") : 1 / std::sqrt(static_cast<double>(keys.back()));
  ValueRef s = r.emit("matmul", {{"a", q}, {"b", r.permute(k, turned, n)}}, scores, n);
  s = r.binary("mul", s, scale, scores, n);
  s = r.emit("softmax", {{"x", s}, {"dim", static_cast<int64_t>(scores.shape.size()) - 1}}, scores, n);
  return r.emit("matmul", {{"a", s}, {"b", v}}, n.type(), n);
}

}  // namespace

Graph lower_wide_attention(const Graph& g) {
  Rewriter r(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (is_wide_attention(g, g.nodes[i])) r.replace({id, 0}, lower_one_attention(r, g.nodes[i]));
    else r.copy(id);
  }
  return r.finish();
}

Graph group_repeated_heads(const Graph& g) {
  Rewriter r(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    const auto id = static_cast<int32_t>(i);
    const bool attention = n.op_name() == "scaled_dot_product_attention" && !n.boolean("enable_gqa");
    const auto k = attention ? repeated_heads(g, n.value("k")) : std::nullopt, v = attention ? repeated_heads(g, n.value("v")) : std::nullopt;
    if (!k || !v || k->repeats != v->repeats) {
      r.copy(id);
      continue;
    }
    ir::Arg mask = ir::None{};
    if (n.has_arg("mask")) mask = r.mapped(n.value("mask"));
    const ValueRef grouped = r.emit("scaled_dot_product_attention",
                                    {{"q", r.mapped(n.value("q"))},
                                     {"k", without_repeats(r, *k, n)},
                                     {"v", without_repeats(r, *v, n)},
                                     {"mask", mask},
                                     {"is_causal", n.boolean("is_causal")},
                                     {"scale", n.arg("scale")},
                                     {"enable_gqa", true}},
                                    n.type(), n);
    r.replace({id, 0}, grouped);
  }
  return r.finish();
}

}  // namespace stitch::plan
