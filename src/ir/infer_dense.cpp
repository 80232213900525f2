// Type rules of norms, contractions, attention and recurrent layers.
#include <algorithm>
#include <array>
#include <cctype>

#include "ir/infer_rules.h"

namespace stitch::ir::rules {
namespace {

Result<Types> last_dims_norm(const Ctx& c) {
  const Shape& s = c.shape("x");
  const IntList& ns = c.n.integers("normalized_shape");
  if (ns.empty() || ns.size() > s.size() || !std::equal(ns.rbegin(), ns.rend(), s.rbegin()))
    return c.bad("normalized_shape {} must be the last extents of x {}", to_string(ns), to_string(s));
  STITCH_CHECK_OK(shape_is(c, "weight", ns));
  if (c.is("layer_norm")) STITCH_CHECK_OK(shape_is(c, "bias", ns));
  STITCH_TRY(const DType dtype, float_result(c));
  return Types{{dtype, s}};
}

Result<Types> batch_norm(const Ctx& c) {
  const Shape& s = c.shape("x");
  STITCH_CHECK_OK(shape_is(c, "running_mean", {s[1]}));
  STITCH_CHECK_OK(shape_is(c, "running_var", {s[1]}));
  const bool training = c.n.boolean("training"), tracked = c.n.has_arg("running_mean");
  if (tracked != c.n.has_arg("running_var")) return c.bad("running_mean and running_var come together");
  if (!training && !tracked) return c.bad("eval mode needs running statistics");
  STITCH_TRY(const DType dtype, float_result(c));
  Types t{{dtype, s}};
  if (training && tracked) t.insert(t.end(), {c.in("running_mean"), c.in("running_var")});
  return t;
}

Result<Shape> product_shape(const Ctx& c, const Shape& a_in, const Shape& b_in) {
  Shape a = a_in, b = b_in;
  if (a.empty() || b.empty()) return c.bad("takes no scalars");
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  if (a.back() != b[b.size() - 2]) return c.bad("inner extents of {} and {} differ", to_string(a_in), to_string(b_in));
  const auto batch = broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  if (!batch) return c.bad("batch dims of {} and {} do not broadcast", to_string(a_in), to_string(b_in));
  Shape out = *batch;
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  return out;
}

// A product keeps its operands' category: no float result from ints and the other way round.
Result<Types> product_type(const Ctx& c, DType operand, Shape shape) {
  if (is_floating(operand) != is_floating(c.declared()) || is_bool(operand) != is_bool(c.declared()))
    return c.bad("multiplies {}, but {} is declared", name_of(operand), name_of(c.declared()));
  return Types{{c.declared(), std::move(shape)}};
}

Status broadcasts_to(const Ctx& c, std::string_view p, const Shape& want) {
  const auto b = broadcast(c.shape(p), want);
  if (!b || *b != want) return c.bad("{} {} does not broadcast to {}", p, to_string(c.shape(p)), to_string(want));
  return {};
}

// "ab,bc->ac": letters on the left follow the operands' dims, letters on the right are distinct and known.
Result<Types> einsum(const Ctx& c) {
  const std::string& eq = c.n.text("equation");
  const auto& list = std::get<ValueList>(c.n.arg("tensors"));
  const size_t arrow = eq.find("->");
  if (arrow == eq.npos) return c.bad("the equation needs an explicit \"->\"");
  if (list.empty()) return c.bad("needs at least one tensor");
  std::array<int64_t, 256> extent;
  extent.fill(-1);
  size_t at = 0;
  for (size_t k = 0; k < list.size(); ++k) {
    if (list[k].node < 0) return c.bad("takes no none");
    if (c.g.type_of(list[k]).dtype != c.g.type_of(list[0]).dtype) return c.bad("all tensors need one dtype; cast them first");
    if (k > 0 && (at >= arrow || eq[at++] != ',')) return c.bad("the equation does not fit the number or ranks of the tensors");
    for (int64_t e : c.g.type_of(list[k]).shape) {
      const auto letter = static_cast<unsigned char>(at < arrow ? eq[at++] : 0);
      if (!std::isalpha(letter)) return c.bad("the equation does not fit the ranks of the tensors");
      int64_t& known = extent[letter];
      if (known >= 0 && known != e && known != 1 && e != 1) return c.bad("index {} has the extents {} and {}", static_cast<char>(letter), known, e);
      known = known < 0 || known == 1 ? e : known;
    }
  }
  if (at != arrow) return c.bad("the equation does not fit the number or ranks of the tensors");
  Shape out;
  const std::string_view right = std::string_view(eq).substr(arrow + 2);
  for (size_t i = 0; i < right.size(); ++i) {
    const auto letter = static_cast<unsigned char>(right[i]);
    if (!std::isalpha(letter) || extent[letter] < 0) return c.bad("an index of the result is in no operand");
    if (right.find(right[i]) != i) return c.bad("index {} is twice in the result", right[i]);
    out.push_back(extent[letter]);
  }
  return product_type(c, c.g.type_of(list[0]).dtype, std::move(out));
}

}  // namespace

Result<Types> norm(const Ctx& c) {
  if (c.is("layer_norm") || c.is("rms_norm")) return last_dims_norm(c);
  const Shape& s = c.shape("x");
  if (s.size() < 2) return c.bad("x {} needs the dims (N, C, ...)", to_string(s));
  STITCH_CHECK_OK(shape_is(c, "weight", {s[1]}));
  STITCH_CHECK_OK(shape_is(c, "bias", {s[1]}));
  if (c.is("batch_norm")) return batch_norm(c);
  const int64_t groups = c.n.integer("num_groups");
  if (groups < 1 || s[1] % groups) return c.bad("num_groups {} must divide the {} channels", groups, s[1]);
  STITCH_TRY(const DType dtype, float_result(c));
  return Types{{dtype, s}};
}

Result<Types> contraction(const Ctx& c) {
  if (c.is("einsum")) return einsum(c);
  if (c.is("linear")) {
    const Shape& w = c.shape("weight");
    Shape out = c.shape("x");
    if (w.size() != 2 || out.empty() || out.back() != w[1]) return c.bad("x {} does not fit weight {}", to_string(out), to_string(w));
    STITCH_CHECK_OK(shape_is(c, "bias", {w[0]}));
    STITCH_CHECK_OK(one_dtype(c, {"x", "weight", "bias"}));
    out.back() = w[0];
    return product_type(c, c.in("x").dtype, std::move(out));
  }
  const Shape &a = c.shape("a"), &b = c.shape("b");
  STITCH_CHECK_OK(one_dtype(c, {"a", "b"}));
  STITCH_TRY(Shape out, product_shape(c, a, b));
  if (!c.is("matmul")) {
    const size_t rank = c.is("addmm") ? 2 : 3;
    if (a.size() != rank || b.size() != rank) return c.bad("needs operands of rank {}", rank);
    if (rank == 3 && a[0] != b[0]) return c.bad("batch extents {} and {} differ", a[0], b[0]);
    STITCH_CHECK_OK(broadcasts_to(c, "c", out));
  }
  return product_type(c, c.in("a").dtype, std::move(out));
}

Result<Types> attention(const Ctx& c) {
  const Shape &q = c.shape("q"), &k = c.shape("k"), &v = c.shape("v");
  const auto mismatch = [&] { return c.bad("q {}, k {} and v {} do not fit together", to_string(q), to_string(k), to_string(v)); };
  const size_t r = q.size();
  if (r < 2 || k.size() != r || v.size() != r || q[r - 1] != k[r - 1] || k[r - 2] != v[r - 2]) return mismatch();
  const bool gqa = c.n.boolean("enable_gqa");
  if (gqa && r < 3) return c.bad("enable_gqa needs a head dim");
  for (size_t i = 0; i + 2 < r; ++i) {
    const bool heads = gqa && i == r - 3;
    if (k[i] != v[i] || (heads ? k[i] < 1 || q[i] % k[i] != 0 : q[i] != k[i])) return mismatch();
  }
  STITCH_CHECK_OK(one_dtype(c, {"q", "k", "v"}));
  if (c.n.has_arg("mask")) {
    Shape scores(q.begin(), q.end() - 1);
    scores.push_back(k[r - 2]);
    STITCH_CHECK_OK(broadcasts_to(c, "mask", scores));
    if (!is_bool(c.in("mask").dtype) && !is_floating(c.in("mask").dtype)) return c.bad("mask must be b8 or a float");
  }
  Shape out(q.begin(), q.end() - 1);
  out.push_back(v[r - 1]);
  STITCH_TRY(const DType dtype, float_result(c));
  return Types{{dtype, out}};
}

Result<Types> recurrent(const Ctx& c) {
  const Shape &x = c.shape("x"), &h = c.shape("h0");
  if (x.size() != 3 || h.size() != 3) return c.bad("x and h0 must be batched (three dims)");
  const bool lstm = c.is("lstm"), biases = c.n.boolean("has_biases");
  const int64_t directions = c.n.boolean("bidirectional") ? 2 : 1, layers = c.n.integer("num_layers");
  const int64_t batch = x[c.n.boolean("batch_first") ? 0 : 1], hidden = h[2], gates = lstm ? 4 : c.is("gru") ? 3 : 1;
  if (c.is("rnn") && c.n.text("nonlinearity") != "tanh" && c.n.text("nonlinearity") != "relu") return c.bad("nonlinearity must be \"tanh\" or \"relu\"");
  if (layers < 1 || h[0] != layers * directions || h[1] != batch) return c.bad("h0 must be [{},{},hidden], not {}", layers * directions, batch, to_string(h));
  if (lstm) STITCH_CHECK_OK(shape_is(c, "c0", h));
  const auto& params = std::get<ValueList>(c.n.arg("params"));
  const size_t per_layer = biases ? 4 : 2;
  if (params.size() != static_cast<size_t>(h[0]) * per_layer) return c.bad("params needs {} tensors, {} are given", static_cast<size_t>(h[0]) * per_layer, params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t layer = static_cast<int64_t>(i / per_layer) / directions;
    const Shape wants[] = {{gates * hidden, layer == 0 ? x[2] : hidden * directions}, {gates * hidden, hidden}, {gates * hidden}, {gates * hidden}};
    const Shape& want = wants[i % per_layer];
    if (params[i].node < 0 || c.g.type_of(params[i]).shape != want) return c.bad("params entry {} must have shape {}", i, to_string(want));
  }
  STITCH_TRY(const DType dtype, float_result(c));
  const TensorType state{dtype, h};
  Types out{{dtype, {x[0], x[1], hidden * directions}}, state};
  if (lstm) out.push_back(state);
  return out;
}

}  // namespace stitch::ir::rules
