// Shape and dtype rules, one function per family.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "ir/ops.h"

namespace stitch::ir {
namespace {

using Types = std::vector<TensorType>;

struct Ctx {
  const Graph& g;
  const Node& n;
  const TensorType& in(std::string_view p) const { return g.type_of(n.value(p)); }
  const Shape& shape(std::string_view p) const { return in(p).shape; }
  DType declared() const { return n.types.empty() ? DType::f32 : n.types.front().dtype; }
  tl::unexpected<Error> bad(const std::string& why) const { return fail(ErrorKind::bad_input, "{}: {}", n.op_name(), why); }
};

Result<int64_t> dim_in(const Ctx& c, int64_t d, size_t rank, const char* what = "dim") {
  if (d < 0 || d >= static_cast<int64_t>(std::max<size_t>(rank, 1)))
    return c.bad(fmt::format("{} {} is out of range for rank {}", what, d, rank));
  return d;
}

Result<Types> pointwise(const Ctx& c) {
  Shape shape;
  for (size_t i = 0; i < c.n.args.size(); ++i)
    if (const auto* v = std::get_if<ValueRef>(&c.n.args[i])) {
      const auto b = broadcast(shape, c.g.type_of(*v).shape);
      if (!b) return c.bad(fmt::format("shapes {} and {} do not broadcast", to_string(shape), to_string(c.g.type_of(*v).shape)));
      shape = *b;
    }
  static const std::unordered_map<std::string_view, DType> fixed = {
      {"eq", DType::b8}, {"ne", DType::b8}, {"lt", DType::b8}, {"le", DType::b8}, {"gt", DType::b8}, {"ge", DType::b8},
      {"logical_not", DType::b8}, {"logical_and", DType::b8}, {"logical_or", DType::b8}, {"logical_xor", DType::b8},
      {"isnan", DType::b8}, {"isinf", DType::b8}};
  const auto it = fixed.find(c.n.op_name());
  return Types{{it == fixed.end() ? c.declared() : it->second, shape}};
}

Result<Types> source(const Ctx& c) {
  const std::string_view op = c.n.op_name();
  if (op == "full") return Types{{c.declared(), c.n.integers("size")}};
  if (op == "eye") return Types{{c.declared(), {c.n.integer("rows"), c.n.integer("cols")}}};
  if (op == "arange") {
    const double step = c.n.number("step");
    if (step == 0 || !std::isfinite(step)) return c.bad("step must not be 0");
    const double count = std::ceil((c.n.number("end") - c.n.number("start")) / step);
    return Types{{c.declared(), {static_cast<int64_t>(std::max(0.0, count))}}};
  }
  return c.n.types;  // input, weight
}

Result<Types> reshape(const Ctx& c) {
  const IntList& size = c.n.integers("size");
  if (c.n.op_name() == "view") {
    if (numel(size) != numel(c.shape("x")))
      return c.bad(fmt::format("{} cannot be viewed as {}", to_string(c.shape("x")), to_string(size)));
  } else {
    const auto b = broadcast(c.shape("x"), size);
    if (!b || *b != size) return c.bad(fmt::format("{} does not expand to {}", to_string(c.shape("x")), to_string(size)));
  }
  return Types{{c.in("x").dtype, size}};
}

Result<Types> permute(const Ctx& c) {
  const IntList& dims = c.n.integers("dims");
  IntList sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  Shape shape;
  if (dims.size() != c.shape("x").size()) return c.bad("dims must name every dim once");
  for (size_t i = 0; i < dims.size(); ++i) {
    if (sorted[i] != static_cast<int64_t>(i)) return c.bad("dims must name every dim once");
    shape.push_back(c.shape("x")[static_cast<size_t>(dims[i])]);
  }
  return Types{{c.in("x").dtype, shape}};
}

Result<int64_t> slice_extent(const Ctx& c, int64_t extent) {
  const int64_t start = c.n.integer("start"), end = c.n.integer("end"), step = c.n.integer("step");
  if (start < 0 || end < start || end > extent || step < 1)
    return c.bad(fmt::format("slice {}:{}:{} does not fit extent {}", start, end, step, extent));
  return (end - start + step - 1) / step;
}

Result<Types> slice(const Ctx& c) {
  TensorType t = c.in("x");
  STITCH_TRY(const int64_t d, dim_in(c, c.n.integer("dim"), t.shape.size()));
  if (t.shape.empty()) return c.bad("a scalar has no dims");
  STITCH_TRY(const int64_t extent, slice_extent(c, t.shape[static_cast<size_t>(d)]));
  if (c.n.op_name() == "slice_scatter") {
    Shape want = t.shape;
    want[static_cast<size_t>(d)] = extent;
    if (c.shape("src") != want) return c.bad(fmt::format("src must have shape {}", to_string(want)));
  } else {
    t.shape[static_cast<size_t>(d)] = extent;
  }
  return Types{t};
}

Result<Types> select(const Ctx& c) {
  TensorType t = c.in("x");
  STITCH_TRY(const int64_t d, dim_in(c, c.n.integer("dim"), t.shape.size()));
  if (t.shape.empty()) return c.bad("a scalar has no dims");
  const int64_t index = c.n.integer("index");
  if (index < 0 || index >= t.shape[static_cast<size_t>(d)]) return c.bad(fmt::format("index {} is out of range", index));
  Shape rest = t.shape;
  rest.erase(rest.begin() + d);
  if (c.n.op_name() == "select_scatter") {
    if (c.shape("src") != rest) return c.bad(fmt::format("src must have shape {}", to_string(rest)));
    return Types{t};
  }
  return Types{{t.dtype, rest}};
}

Result<Types> cat(const Ctx& c) {
  const auto* list = std::get_if<ValueList>(&c.n.arg("tensors"));
  if (!list || list->empty()) return c.bad("needs at least one tensor");
  for (const ValueRef& v : *list)
    if (v.node < 0) return c.bad("takes no None");
  Shape shape = c.g.type_of(list->front()).shape;
  STITCH_TRY(const int64_t d, dim_in(c, c.n.integer("dim"), shape.size()));
  if (shape.empty()) return c.bad("a scalar has no dims");
  shape[static_cast<size_t>(d)] = 0;
  for (const ValueRef& v : *list) {
    Shape s = c.g.type_of(v).shape;
    if (s.size() != shape.size()) return c.bad("tensors must have one rank");
    for (size_t i = 0; i < s.size(); ++i)
      if (static_cast<int64_t>(i) != d && s[i] != shape[i]) return c.bad("extents outside dim must agree");
    shape[static_cast<size_t>(d)] += s[static_cast<size_t>(d)];
  }
  return Types{{c.declared(), shape}};
}

Result<Types> pad(const Ctx& c) {
  TensorType t = c.in("x");
  const IntList& p = c.n.integers("pad");
  const std::string& mode = c.n.text("mode");
  if (p.size() % 2 || p.size() / 2 > t.shape.size()) return c.bad("pad needs a pair per dim, from the last");
  if (mode != "constant" && mode != "reflect" && mode != "replicate" && mode != "circular") return c.bad("unknown mode " + mode);
  for (size_t i = 0; i < p.size() / 2; ++i) {
    int64_t& e = t.shape[t.shape.size() - 1 - i];
    const int64_t before = p[2 * i], after = p[2 * i + 1];
    const int64_t most = mode == "reflect" ? e - 1 : mode == "circular" ? e : INT64_MAX / 4;
    if (mode != "constant" && (before < 0 || after < 0)) return c.bad("only constant mode crops");
    if (before > most || after > most) return c.bad("padding is larger than the tensor allows");
    e += before + after;
    if (e < 0) return c.bad("crops more than there is");
  }
  return Types{t};
}

Result<Types> movement(const Ctx& c) {
  const std::string_view op = c.n.op_name();
  if (op == "view" || op == "expand") return reshape(c);
  if (op == "permute") return permute(c);
  if (op == "slice" || op == "slice_scatter") return slice(c);
  if (op == "select" || op == "select_scatter") return select(c);
  if (op == "cat") return cat(c);
  if (op == "pad") return pad(c);
  TensorType t = c.in("x");
  const size_t rank = t.shape.size();
  if (op == "flip" || op == "roll") {
    for (int64_t d : c.n.integers("dims")) STITCH_CHECK_OK(dim_in(c, d, rank).map([](int64_t) {}));
    if (op == "roll" && c.n.integers("dims").size() != c.n.integers("shifts").size()) return c.bad("needs one shift per dim");
  } else if (op == "repeat") {
    const IntList& r = c.n.integers("repeats");
    if (r.size() < rank) return c.bad("needs a repeat per dim");
    t.shape.insert(t.shape.begin(), r.size() - rank, 1);
    for (size_t i = 0; i < r.size(); ++i) {
      if (r[i] < 0) return c.bad("repeats must not be negative");
      t.shape[i] *= r[i];
    }
  } else if (op == "unfold") {
    STITCH_TRY(const int64_t d, dim_in(c, c.n.integer("dim"), rank));
    const int64_t size = c.n.integer("size"), step = c.n.integer("step");
    if (rank == 0 || size < 1 || step < 1 || size > t.shape[static_cast<size_t>(d)]) return c.bad("the window does not fit");
    t.shape[static_cast<size_t>(d)] = (t.shape[static_cast<size_t>(d)] - size) / step + 1;
    t.shape.push_back(size);
  } else if (op == "tril" || op == "triu") {
    if (rank < 2) return c.bad("needs at least two dims");
  } else if (op == "diagonal") {
    STITCH_TRY(const int64_t d1, dim_in(c, c.n.integer("dim1"), rank));
    STITCH_TRY(const int64_t d2, dim_in(c, c.n.integer("dim2"), rank));
    if (rank < 2 || d1 == d2) return c.bad("needs two different dims");
    const int64_t offset = c.n.integer("offset");
    const int64_t rows = t.shape[static_cast<size_t>(d1)], cols = t.shape[static_cast<size_t>(d2)];
    const int64_t length = std::max<int64_t>(0, std::min(offset < 0 ? rows + offset : rows, offset > 0 ? cols - offset : cols));
    t.shape.erase(t.shape.begin() + std::max(d1, d2));
    t.shape.erase(t.shape.begin() + std::min(d1, d2));
    t.shape.push_back(length);
  } else if (op == "upsample_nearest") {
    const IntList& size = c.n.integers("size");
    if (rank != size.size() + 2) return c.bad("needs (N, C, spatial) and a size per spatial dim");
    std::copy(size.begin(), size.end(), t.shape.begin() + 2);
  }
  return Types{t};
}

Result<Shape> reduced(const Ctx& c, const IntList& dims, bool keepdim) {
  const Shape& s = c.shape("x");
  std::vector<bool> drop(s.size(), dims.empty());
  for (int64_t d : dims) {
    STITCH_TRY(const int64_t k, dim_in(c, d, s.size()));
    if (s.empty()) continue;
    if (drop[static_cast<size_t>(k)]) return c.bad("names a dim twice");
    drop[static_cast<size_t>(k)] = true;
  }
  Shape out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (!drop[i]) out.push_back(s[i]);
    else if (keepdim) out.push_back(1);
  }
  return out;
}

Result<Types> reduction(const Ctx& c) {
  STITCH_TRY(Shape shape, reduced(c, c.n.integers("dims"), c.n.boolean("keepdim")));
  const std::string_view op = c.n.op_name();
  return Types{{op == "any" || op == "all" ? DType::b8 : c.declared(), std::move(shape)}};
}

Result<Types> arg_reduction(const Ctx& c) {
  IntList dims;
  if (c.n.has_arg("dim")) dims = {c.n.integer("dim")};
  STITCH_TRY(Shape shape, reduced(c, dims, c.n.boolean("keepdim")));
  if (c.n.op->max_results == 1) return Types{{DType::i64, shape}};
  return Types{{c.in("x").dtype, shape}, {DType::i64, shape}};
}

Result<Types> same_along_dim(const Ctx& c) {
  STITCH_CHECK_OK(dim_in(c, c.n.integer("dim"), c.shape("x").size()).map([](int64_t) {}));
  if (c.n.op->max_results == 2) return Types{{c.in("x").dtype, c.shape("x")}, {DType::i64, c.shape("x")}};
  return Types{{c.declared(), c.shape("x")}};
}

Status vector_of(const Ctx& c, std::string_view p, const Shape& want) {
  if (c.n.has_arg(p) && c.shape(p) != want) return c.bad(fmt::format("{} must have shape {}, not {}", p, to_string(want), to_string(c.shape(p))));
  return {};
}

Result<Types> norm(const Ctx& c) {
  const std::string_view op = c.n.op_name();
  const Shape& s = c.shape("x");
  if (op == "layer_norm" || op == "rms_norm") {
    const IntList& ns = c.n.integers("normalized_shape");
    if (ns.empty() || ns.size() > s.size() || !std::equal(ns.rbegin(), ns.rend(), s.rbegin())) return c.bad("normalized_shape must be the last extents of x");
    STITCH_CHECK_OK(vector_of(c, "weight", ns));
    if (op == "layer_norm") STITCH_CHECK_OK(vector_of(c, "bias", ns));
    return Types{{c.declared(), s}};
  }
  if (s.size() < 2) return c.bad("needs (N, C, ...)");
  STITCH_CHECK_OK(vector_of(c, "weight", {s[1]}));
  STITCH_CHECK_OK(vector_of(c, "bias", {s[1]}));
  if (op == "group_norm") {
    const int64_t groups = c.n.integer("num_groups");
    if (groups < 1 || s[1] % groups) return c.bad("num_groups must divide the channels");
    return Types{{c.declared(), s}};
  }
  STITCH_CHECK_OK(vector_of(c, "running_mean", {s[1]}));
  STITCH_CHECK_OK(vector_of(c, "running_var", {s[1]}));
  if (c.n.has_arg("running_mean") != c.n.has_arg("running_var")) return c.bad("running_mean and running_var come together");
  if (!c.n.boolean("training") && !c.n.has_arg("running_mean")) return c.bad("eval mode needs running statistics");
  Types t{{c.declared(), s}};
  if (c.n.boolean("training") && c.n.has_arg("running_mean")) {
    t.push_back(c.in("running_mean"));
    t.push_back(c.in("running_var"));
  }
  return t;
}

Result<Types> matmul(const Ctx& c, const Shape& a_in, const Shape& b_in) {
  Shape a = a_in, b = b_in;
  if (a.empty() || b.empty()) return c.bad("takes no scalars");
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  if (a.back() != b[b.size() - 2]) return c.bad(fmt::format("inner extents of {} and {} differ", to_string(a_in), to_string(b_in)));
  const auto batch = broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  if (!batch) return c.bad(fmt::format("batch dims of {} and {} do not broadcast", to_string(a_in), to_string(b_in)));
  Shape out = *batch;
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  return Types{{c.declared(), out}};
}

Result<Types> einsum(const Ctx& c) {
  const std::string& eq = c.n.text("equation");
  const auto* list = std::get_if<ValueList>(&c.n.arg("tensors"));
  const size_t arrow = eq.find("->");
  if (!list || arrow == eq.npos) return c.bad("the equation needs an explicit \"->\"");
  std::unordered_map<char, int64_t> extent;
  size_t at = 0;
  for (const ValueRef& v : *list) {
    if (v.node < 0) return c.bad("takes no None");
    const Shape& s = c.g.type_of(v).shape;
    for (size_t d = 0; d < s.size(); ++d, ++at) {
      if (at >= arrow || !std::isalpha(static_cast<unsigned char>(eq[at]))) return c.bad("the equation does not fit the ranks");
      const auto [it, fresh] = extent.emplace(eq[at], s[d]);
      if (!fresh && it->second != s[d] && s[d] != 1 && it->second != 1) return c.bad(fmt::format("index {} has two extents", eq[at]));
      it->second = std::max(it->second, s[d]);
    }
    if (at < arrow && eq[at] == ',') ++at;
  }
  if (at != arrow) return c.bad("the equation does not fit the ranks");
  Shape out;
  for (char l : eq.substr(arrow + 2)) {
    if (!extent.count(l)) return c.bad(fmt::format("index {} of the result is in no operand", l));
    out.push_back(extent[l]);
  }
  return Types{{c.declared(), out}};
}

Result<Types> contraction(const Ctx& c) {
  const std::string_view op = c.n.op_name();
  if (op == "matmul") return matmul(c, c.shape("a"), c.shape("b"));
  if (op == "einsum") return einsum(c);
  if (op == "linear") {
    const Shape& w = c.shape("weight");
    Shape out = c.shape("x");
    if (w.size() != 2 || out.empty() || out.back() != w[1])
      return c.bad(fmt::format("x {} does not fit weight {}", to_string(out), to_string(w)));
    STITCH_CHECK_OK(vector_of(c, "bias", {w[0]}));
    out.back() = w[0];
    return Types{{c.declared(), out}};
  }
  const size_t rank = op == "addmm" ? 2 : 3;
  if (c.shape("a").size() != rank || c.shape("b").size() != rank) return c.bad(fmt::format("needs operands of rank {}", rank));
  STITCH_TRY(Types t, matmul(c, c.shape("a"), c.shape("b")));
  const auto b = broadcast(c.shape("c"), t[0].shape);
  if (!b || *b != t[0].shape) return c.bad("c does not broadcast to the result");
  return t;
}

Result<Types> convolution(const Ctx& c) {
  const Shape &x = c.shape("x"), &w = c.shape("weight");
  if (x.size() < 3 || x.size() > 5 || w.size() != x.size()) return c.bad(fmt::format("x {} and weight {} need (N, C, 1 to 3 spatial dims)", to_string(x), to_string(w)));
  const size_t spatial = x.size() - 2;
  for (std::string_view p : {"stride", "padding", "dilation", "output_padding"})
    if (c.n.integers(p).size() != spatial) return c.bad(fmt::format("{} needs one entry per spatial dim", p));
  const int64_t groups = c.n.integer("groups");
  const bool transposed = c.n.boolean("transposed");
  if (groups < 1 || x[1] % groups) return c.bad("groups must divide the channels");
  if (transposed ? w[0] != x[1] : (w[1] * groups != x[1] || w[0] % groups)) return c.bad(fmt::format("weight {} does not fit x {}", to_string(w), to_string(x)));
  const int64_t channels = transposed ? w[1] * groups : w[0];
  STITCH_CHECK_OK(vector_of(c, "bias", {channels}));
  Shape out{x[0], channels};
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t stride = c.n.integers("stride")[i], padding = c.n.integers("padding")[i], dilation = c.n.integers("dilation")[i];
    const int64_t window = dilation * (w[i + 2] - 1) + 1;
    if (stride < 1 || dilation < 1 || padding < 0) return c.bad("stride and dilation must be positive, padding not negative");
    const int64_t e = transposed ? (x[i + 2] - 1) * stride - 2 * padding + window + c.n.integers("output_padding")[i]
                                 : (x[i + 2] + 2 * padding - window) / stride + 1;
    if (e < 1 || (!transposed && x[i + 2] + 2 * padding < window)) return c.bad("the window is larger than the input");
    out.push_back(e);
  }
  return Types{{c.declared(), out}};
}

// Pooled extent as PyTorch: in ceil mode the last window must start inside the input or its left padding.
int64_t pooled(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
  int64_t out = (room >= 0 ? room / stride : -((-room + stride - 1) / stride)) + 1;
  if (ceil_mode && (out - 1) * stride >= in + padding) --out;
  return out;
}

Result<Types> pool(const Ctx& c) {
  const std::string_view op = c.n.op_name();
  TensorType t = c.in("x");
  if (t.shape.size() < 3 || t.shape.size() > 5) return c.bad("needs (N, C, 1 to 3 spatial dims)");
  const size_t spatial = t.shape.size() - 2;
  if (op == "max_pool" || op == "avg_pool") {
    for (std::string_view p : {"kernel", "stride", "padding"})
      if (c.n.integers(p).size() != spatial) return c.bad(fmt::format("{} needs one entry per spatial dim", p));
    for (size_t i = 0; i < spatial; ++i) {
      const int64_t dilation = op == "max_pool" && !c.n.integers("dilation").empty() ? c.n.integers("dilation").at(i) : 1;
      const int64_t k = c.n.integers("kernel")[i], s = c.n.integers("stride")[i], p = c.n.integers("padding")[i];
      if (k < 1 || s < 1 || p < 0 || dilation < 1 || p > k / 2 * std::max<int64_t>(1, dilation)) return c.bad("kernel, stride or padding is out of range");
      t.shape[i + 2] = pooled(t.shape[i + 2], k, s, p, dilation, c.n.boolean("ceil_mode"));
      if (t.shape[i + 2] < 1) return c.bad("the window is larger than the input");
    }
  } else {
    const IntList& size = c.n.integers(op.substr(0, 8) == "upsample" ? "size" : "output_size");
    if (size.size() != spatial) return c.bad("needs a size per spatial dim");
    std::copy(size.begin(), size.end(), t.shape.begin() + 2);
  }
  Types out{t};
  if (c.n.op->max_results == 2 && c.n.types.size() == 2) out.push_back({DType::i64, t.shape});
  return out;
}

Result<Types> advanced_index(const Ctx& c) {
  const auto* list = std::get_if<ValueList>(&c.n.arg("indices"));
  const Shape& x = c.shape("x");
  if (!list || list->size() > x.size()) return c.bad("needs at most one index per dim");
  Shape joint;
  std::vector<size_t> places;
  for (size_t i = 0; i < list->size(); ++i) {
    if ((*list)[i].node < 0) continue;
    const TensorType& t = c.g.type_of((*list)[i]);
    if (!is_integral(t.dtype)) return c.bad("index tensors must be integers");
    const auto b = broadcast(joint, t.shape);
    if (!b) return c.bad("index tensors do not broadcast");
    joint = *b;
    places.push_back(i);
  }
  if (places.empty()) return c.bad("needs an index tensor");
  // NumPy: adjacent index dims are replaced in place, separated ones go to the front.
  const bool adjacent = places.back() - places.front() + 1 == places.size();
  Shape out;
  if (!adjacent) out = joint;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool indexed = std::find(places.begin(), places.end(), i) != places.end();
    if (adjacent && i == places.front()) out.insert(out.end(), joint.begin(), joint.end());
    if (!indexed) out.push_back(x[i]);
  }
  if (c.n.op_name() == "index") return Types{{c.in("x").dtype, out}};
  const auto b = broadcast(c.shape("values"), out);
  if (!b || *b != out) return c.bad("values do not broadcast to the indexed shape");
  return Types{c.in("x")};
}

Result<Types> index(const Ctx& c) {
  const std::string_view op = c.n.op_name();
  if (op == "index" || op == "index_put") return advanced_index(c);
  if (op == "embedding") {
    if (c.shape("weight").size() != 2) return c.bad("weight must have two dims");
    Shape out = c.shape("indices");
    out.push_back(c.shape("weight")[1]);
    if (!is_integral(c.in("indices").dtype)) return c.bad("indices must be integers");
    return Types{{c.in("weight").dtype, out}};
  }
  TensorType t = c.in("x");
  STITCH_TRY(const int64_t d, dim_in(c, c.n.integer("dim"), t.shape.size()));
  if (!is_integral(c.in("index").dtype)) return c.bad("index must be integers");
  const Shape& i = c.shape("index");
  if (op == "index_select") {
    if (t.shape.empty() || i.size() > 1) return c.bad("index must have one dim");
    t.shape[static_cast<size_t>(d)] = numel(i);
    return Types{t};
  }
  if (i.size() != t.shape.size()) return c.bad("index must have the rank of x");
  for (size_t k = 0; k < i.size(); ++k)
    if (static_cast<int64_t>(k) != d && i[k] > t.shape[k]) return c.bad("index is larger than x outside dim");
  if (op == "gather") return Types{{t.dtype, i}};
  return Types{t};  // scatter, scatter_add
}

Result<Types> sort(const Ctx& c) {
  TensorType t = c.in("x");
  STITCH_TRY(const int64_t d, dim_in(c, c.n.integer("dim"), t.shape.size()));
  if (c.n.op_name() == "topk") {
    const int64_t k = c.n.integer("k");
    if (t.shape.empty() || k < 0 || k > t.shape[static_cast<size_t>(d)]) return c.bad(fmt::format("k = {} is out of range", k));
    t.shape[static_cast<size_t>(d)] = k;
  }
  return Types{t, {DType::i64, t.shape}};
}

Result<Types> attention(const Ctx& c) {
  const Shape &q = c.shape("q"), &k = c.shape("k"), &v = c.shape("v");
  if (q.size() < 2 || k.size() != q.size() || v.size() != q.size()) return c.bad("q, k and v need one rank of at least 2");
  const size_t r = q.size();
  if (q[r - 1] != k[r - 1] || k[r - 2] != v[r - 2]) return c.bad("q, k and v do not fit together");
  Shape out(q.begin(), q.end() - 1);
  out.push_back(v[r - 1]);
  if (c.n.has_arg("mask")) {
    Shape scores(q.begin(), q.end() - 1);
    scores.push_back(k[r - 2]);
    const auto b = broadcast(c.shape("mask"), scores);
    if (!b || *b != scores) return c.bad("mask does not broadcast to the scores");
  }
  return Types{{c.declared(), out}};
}

Result<Types> recurrent(const Ctx& c) {
  const Shape &x = c.shape("x"), &h = c.shape("h0");
  if (x.size() != 3 || h.size() != 3) return c.bad("x and h0 must be batched (three dims)");
  const int64_t directions = c.n.boolean("bidirectional") ? 2 : 1;
  if (h[0] != c.n.integer("num_layers") * directions) return c.bad("h0 needs a state per layer and direction");
  const auto* params = std::get_if<ValueList>(&c.n.arg("params"));
  if (!params || static_cast<int64_t>(params->size()) != h[0] * (c.n.boolean("has_biases") ? 4 : 2)) return c.bad("params does not fit num_layers, directions and biases");
  const Types state{{c.declared(), {x[0], x[1], h[2] * directions}}, {c.declared(), h}};
  if (c.n.op_name() != "lstm") return state;
  return Types{state[0], state[1], {c.declared(), c.shape("c0")}};
}

}  // namespace

Result<std::vector<TensorType>> infer_types(const Graph& g, const Node& n) {
  const Ctx c{g, n};
  switch (n.op->cls) {
    case OpClass::source: return source(c);
    case OpClass::pointwise: return pointwise(c);
    case OpClass::movement: return movement(c);
    case OpClass::reduction: return reduction(c);
    case OpClass::arg_reduction: return arg_reduction(c);
    case OpClass::scan:
    case OpClass::row: return same_along_dim(c);
    case OpClass::norm: return norm(c);
    case OpClass::contraction: return contraction(c);
    case OpClass::convolution: return convolution(c);
    case OpClass::pool: return pool(c);
    case OpClass::index: return index(c);
    case OpClass::sort: return sort(c);
    case OpClass::attention: return attention(c);
    case OpClass::recurrent: return recurrent(c);
  }
  return fail(ErrorKind::internal, "{} has no type rule", n.op_name());
}

}  // namespace stitch::ir
