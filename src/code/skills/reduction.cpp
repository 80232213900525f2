// Reductions, softmax and norms with their pointwise neighbours: one block per row. Each statistic is one cooperative pass over the row
// (a row that fits the cache is read from memory once), then the results are computed element by element.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "code/skills/common.h"
#include "code/skills/skills.h"
#include "ir/ops.h"
#include "plan/fusion.h"

namespace stitch::code {
namespace {

using ir::Node;
using ir::OpClass;
using ir::ValueRef;

bool is_anchor(const Node& n) {
  switch (n.op->cls) {
    case OpClass::reduction:
    case OpClass::arg_reduction:
    case OpClass::row: return true;
    case OpClass::norm: return n.op->name != "batch_norm";
    default: return false;
  }
}

// What one block works on: row r of `outer`, elements j of `inner`. In trailing form element (r, j) is the linear index r * inner + j of
// every full-size tensor; otherwise `dims` of the anchor's operand are reduced.
struct Rows {
  int64_t outer = 0, inner = 0;
  bool trailing = true;
  ir::IntList dims;
};

std::vector<int32_t> anchors_of(const TaskContext& c) {
  std::vector<int32_t> out;
  for (int32_t n : c.task.nodes)
    if (!is_inline(c.graph.nodes[static_cast<size_t>(n)])) out.push_back(n);
  return out;
}

ir::IntList reduced_dims(const TaskContext& c, const Node& n) {
  const auto rank = static_cast<int64_t>(c.graph.type_of(n.value("x")).shape.size());
  ir::IntList dims;
  if (n.op->cls == OpClass::reduction) dims = n.integers("dims");
  else if (n.has_arg("dim") && rank > 0) dims = {n.integer("dim")};
  if (dims.empty())
    for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
  return dims;
}

bool outputs_fit(const TaskContext& c, std::initializer_list<int64_t> sizes) {
  return std::all_of(c.task.outputs.begin(), c.task.outputs.end(), [&](ValueRef v) {
    return std::find(sizes.begin(), sizes.end(), ir::numel(c.graph.type_of(v).shape)) != sizes.end();
  });
}

std::optional<Rows> rows_of(const TaskContext& c) {
  const std::vector<int32_t> anchors = anchors_of(c);
  if (anchors.empty()) return std::nullopt;
  for (int32_t a : anchors)
    if (!is_anchor(c.graph.nodes[static_cast<size_t>(a)])) return std::nullopt;
  const Node& first = c.graph.nodes[static_cast<size_t>(anchors.front())];
  const plan::RowShape row = plan::row_shape(c.graph, first);
  const bool same = std::all_of(anchors.begin(), anchors.end(), [&](int32_t a) { return plan::row_shape(c.graph, c.graph.nodes[static_cast<size_t>(a)]) == row; });
  if (row.inner > 0 && same && outputs_fit(c, {row.outer, row.outer * row.inner})) return Rows{row.outer, row.inner, true, {}};
  if (anchors.size() != 1 || first.op->cls == OpClass::norm) return std::nullopt;
  const ir::Shape& x = c.graph.type_of(first.value("x")).shape;
  Rows rows{1, 1, false, reduced_dims(c, first)};
  for (size_t d = 0; d < x.size(); ++d)
    (std::find(rows.dims.begin(), rows.dims.end(), static_cast<int64_t>(d)) != rows.dims.end() ? rows.inner : rows.outer) *= x[d];
  if (rows.inner == 0) return std::nullopt;
  const bool full = first.op->cls == OpClass::row;
  if (full ? c.task.nodes.size() != 1 : !outputs_fit(c, {rows.outer})) return std::nullopt;
  return rows;
}

// Accumulation type: wide for integers, compute type for floats.
std::string accumulator(ir::DType t) { return ir::is_floating(t) ? std::string(compute_type(t)) : "int64_t"; }

class RowKernel {
 public:
  RowKernel(const TaskContext& c, Rows rows) : c_(c), rows_(std::move(rows)), e_(c.graph, space_, needs_wide_index(c)) {}

  Result<TaskSource> write(std::string_view skill) {
    set_up(e_, c_);
    for (std::string_view name : {"r", "j", "words"}) e_.reserve(name);
    e_.line("__shared__ double words[64];  // room for what the warps exchange");
    e_.line(fmt::format("const {0} r = static_cast<{0}>(blockIdx.x);", e_.index_type()));
    r_ = space_.variable("r", std::max<int64_t>(1, rows_.outer));
    e_.declare(r_);
    e_.set_hook([this](ValueRef v, const Coords& at) { return computed(v, at); });
    for (int32_t a : anchors_of(c_)) statistics(a);
    results();
    if (e_.refused()) return fail(ErrorKind::unsupported, "{}", e_.refusal());
    return finish(skill);
  }

 private:
  const Node& node(int32_t n) const { return c_.graph.nodes[static_cast<size_t>(n)]; }

  // Coordinates of element j of the row in the anchor's operand.
  Coords element(const ir::Shape& shape, const Index& j) {
    if (rows_.trailing) return space_.unravel(space_.add(space_.scale(r_, rows_.inner), j), shape);
    ir::Shape kept, reduced;
    for (size_t d = 0; d < shape.size(); ++d) (is_reduced(d) ? reduced : kept).push_back(shape[d]);
    const Coords k = space_.unravel(r_, kept), m = space_.unravel(j, reduced);
    Coords out;
    size_t ik = 0, im = 0;
    for (size_t d = 0; d < shape.size(); ++d) out.push_back(is_reduced(d) ? m[im++] : k[ik++]);
    return out;
  }
  bool is_reduced(size_t d) const { return std::find(rows_.dims.begin(), rows_.dims.end(), static_cast<int64_t>(d)) != rows_.dims.end(); }

  // One pass over the row: `term` turns an element into what is accumulated. Returns the statistic, known to every thread.
  template <class Term>
  Val pass(const std::string& operation, const std::string& type, ir::DType dtype, const std::string& comment, ValueRef x, Term&& term) {
    const std::string acc = e_.fresh("acc"), j = e_.fresh("j");
    e_.line(fmt::format("{} {} = {}::identity();  // {}", type, acc, operation, comment));
    e_.open(fmt::format("for ({0} {1} = static_cast<{0}>(threadIdx.x); {1} < {2}; {1} += static_cast<{0}>(blockDim.x))", e_.index_type(), j, rows_.inner), false);
    const Index index = space_.variable(j, rows_.inner);
    e_.declare(index);
    const Val v = e_.value(x, element(c_.graph.type_of(x).shape, index));
    e_.line(fmt::format("{0} = {1}::combine({0}, {2});", acc, operation, term(v.text, j)));
    e_.close();
    const std::string name = e_.fresh("s");
    e_.line(fmt::format("const {0} {1} = block_reduce<{2}>({3}, reinterpret_cast<{0}*>(words));", type, name, operation, acc));
    return Val{name, dtype, e_.depth()};
  }
  Val sum(ValueRef x, const std::string& comment, const std::function<std::string(const std::string&)>& term) {
    const ir::DType t = c_.graph.type_of(x).dtype;
    const std::string type = accumulator(t);
    return pass(fmt::format("Sum<{}>", type), type, t, comment, x, [&](const std::string& v, const std::string&) { return fmt::format("static_cast<{}>({})", type, term(v)); });
  }
  Val extreme(ValueRef x, bool largest, const std::string& comment, const std::function<std::string(const std::string&)>& term = {}) {
    const ir::DType t = c_.graph.type_of(x).dtype;
    const std::string type = accumulator(t);
    return pass(fmt::format("{}<{}>", largest ? "Maximum" : "Minimum", type), type, t, comment, x,
                [&](const std::string& v, const std::string&) { return fmt::format("static_cast<{}>({})", type, term ? term(v) : v); });
  }

  void statistics(int32_t a) {
    const Node& n = node(a);
    const std::string what = label(c_.graph, a);
    switch (n.op->cls) {
      case OpClass::reduction: scalars_[{a, 0}] = reduction(n, what); break;
      case OpClass::arg_reduction: arg_reduction(a, n, what); break;
      case OpClass::row: softmax(a, n, what); break;
      default: norm(a, n, what); break;
    }
  }

  Val named(ir::DType type, const std::string& text, const std::string& comment) { return e_.define("s", type, text, e_.depth(), comment); }

  Val reduction(const Node& n, const std::string& what) {
    const ValueRef x = n.value("x");
    const std::string_view op = n.op->name;
    const ir::DType t = n.type().dtype;
    const std::string type(compute_type(t));
    const auto same = [](const std::string& v) { return v; };
    if (op == "sum") return cast(sum(x, what, same), t);
    if (op == "mean") return named(t, fmt::format("{} / static_cast<{}>({})", sum(x, what, same).text, type, rows_.inner), what);
    if (op == "prod") {
      const std::string acc = accumulator(c_.graph.type_of(x).dtype);
      return cast(pass(fmt::format("Product<{}>", acc), acc, t, what, x, [&](const std::string& v, const std::string&) { return fmt::format("static_cast<{}>({})", acc, v); }), t);
    }
    if (op == "amax" || op == "amin") return cast(extreme(x, op == "amax", what), t);
    if (op == "any" || op == "all") {
      const Val v = pass(fmt::format("{}<int>", op == "any" ? "Maximum" : "Minimum"), "int", ir::DType::i32, what, x, [](const std::string& v, const std::string&) { return fmt::format("(({}) != 0 ? 1 : 0)", v); });
      // The empty row: no element of any() is true, all of all() are.
      return named(ir::DType::b8, fmt::format("{} > 0", v.text), what);
    }
    if (op == "logsumexp") return log_sum_exp(x, what);
    if (op == "vector_norm") return vector_norm(n, x, type, what);
    const Val variance_sum = squares_about_mean(x, what);
    const double divisor = std::max(0.0, static_cast<double>(rows_.inner) - n.number("correction"));
    const std::string variance = fmt::format("{} / {}", variance_sum.text, float_literal(divisor, t));
    return named(t, op == "std" ? fmt::format("sqrt({})", variance) : variance, what);
  }

  Val cast(const Val& v, ir::DType t) { return named(t, fmt::format("static_cast<{}>({})", compute_type(t), v.text), ""); }

  Val mean_of(ValueRef x, const std::string& what) {
    const ir::DType t = c_.graph.type_of(x).dtype;
    const Val s = sum(x, what + ": mean", [](const std::string& v) { return v; });
    return named(t, fmt::format("{} / static_cast<{}>({})", s.text, compute_type(t), rows_.inner), "mean");
  }
  Val squares_about_mean(ValueRef x, const std::string& what) {
    const Val mean = mean_of(x, what);
    return sum(x, what + ": squared distances from the mean", [&](const std::string& v) { return fmt::format("({0} - {1}) * ({0} - {1})", v, mean.text); });
  }

  Val log_sum_exp(ValueRef x, const std::string& what) {
    const ir::DType t = c_.graph.type_of(x).dtype;
    const Val m = extreme(x, true, what + ": maximum");
    // An infinite maximum would give inf - inf.
    const Val shift = named(t, fmt::format("isinf({0}) ? static_cast<{1}>(0) : {0}", m.text, compute_type(t)), "");
    const Val s = sum(x, what + ": sum of exponentials", [&](const std::string& v) { return fmt::format("exp({} - {})", v, shift.text); });
    return named(t, fmt::format("{} + log({})", shift.text, s.text), what);
  }

  Val vector_norm(const Node& n, ValueRef x, const std::string& type, const std::string& what) {
    const double p = n.number("ord");
    const ir::DType t = n.type().dtype;
    const auto magnitude = [](const std::string& v) { return fmt::format("fabs({})", v); };
    if (std::isinf(p)) return cast(extreme(x, p > 0, what, magnitude), t);
    const std::string power = float_literal(p, t);
    const Val s = sum(x, what, [&](const std::string& v) {
      if (p == 0) return fmt::format("({} != 0 ? static_cast<{}>(1) : static_cast<{}>(0))", v, type, type);
      if (p == 1) return magnitude(v);
      if (p == 2) return fmt::format("{0} * {0}", v);
      return fmt::format("pow({}, {})", magnitude(v), power);
    });
    if (p == 0 || p == 1) return s;
    return named(t, p == 2 ? fmt::format("sqrt({})", s.text) : fmt::format("pow({}, {})", s.text, float_literal(1 / p, t)), what);
  }

  void arg_reduction(int32_t a, const Node& n, const std::string& what) {
    const ValueRef x = n.value("x");
    const ir::DType t = c_.graph.type_of(x).dtype;
    const bool largest = n.op->name == "argmax" || n.op->name == "max_dim";
    const std::string type = accumulator(t), placed = fmt::format("Placed<{}>", type);
    const Val s = pass(fmt::format("ArgExtreme<{}, {}>", type, largest), placed, t, what, x,
                       [&](const std::string& v, const std::string& j) { return fmt::format("{}{{static_cast<{}>({}), {}}}", placed, type, v, j); });
    const Val index = e_.define("s", ir::DType::i64, s.text + ".index", e_.depth(), "index");
    if (n.types.size() == 2 || n.op->max_results == 2) {
      scalars_[{a, 0}] = e_.define("s", t, fmt::format("static_cast<{}>({}.value)", compute_type(t), s.text), e_.depth(), "value");
      scalars_[{a, 1}] = index;
    } else {
      scalars_[{a, 0}] = index;
    }
  }

  void softmax(int32_t a, const Node& n, const std::string& what) {
    const ValueRef x = n.value("x");
    const ir::DType t = n.type().dtype;
    const Val m = extreme(x, true, what + ": maximum");
    const Val s = sum(x, what + ": sum of exponentials", [&](const std::string& v) { return fmt::format("exp({} - {})", v, m.text); });
    const bool log = n.op->name == "log_softmax";
    const Val scale = named(t, log ? fmt::format("log({})", s.text) : fmt::format("static_cast<{}>(1) / {}", compute_type(t), s.text), "");
    full_[{a, 0}] = [this, x, m, scale, log, t, what](const Coords& at) {
      const Val v = e_.value(x, at);
      const std::string text = log ? fmt::format("{} - {} - {}", v.text, m.text, scale.text) : fmt::format("exp({} - {}) * {}", v.text, m.text, scale.text);
      return e_.define("v", t, text, v.depth, what);
    };
  }

  void norm(int32_t a, const Node& n, const std::string& what) {
    const ValueRef x = n.value("x");
    const ir::DType t = n.type().dtype;
    const std::string type(compute_type(t));
    const bool rms = n.op->name == "rms_norm";
    const std::string eps = float_literal(n.number("eps"), t);
    const Val mean = rms ? Val{} : mean_of(x, what);
    const Val square = sum(x, what + (rms ? ": squares" : ": squared distances from the mean"),
                           [&](const std::string& v) { return rms ? fmt::format("{0} * {0}", v) : fmt::format("({0} - {1}) * ({0} - {1})", v, mean.text); });
    const Val scale = named(t, fmt::format("static_cast<{0}>(1) / sqrt({1} / static_cast<{0}>({2}) + {3})", type, square.text, rows_.inner, eps), "1 / standard deviation");
    full_[{a, 0}] = [this, &n, x, mean, scale, rms, t, what](const Coords& at) {
      const Val v = e_.value(x, at);
      std::string text = rms ? fmt::format("{} * {}", v.text, scale.text) : fmt::format("({} - {}) * {}", v.text, mean.text, scale.text);
      int depth = v.depth;
      const auto parameter = [&](std::string_view name) -> std::optional<Val> {
        if (n.op->index_of(name) < 0 || !n.has_arg(name)) return std::nullopt;
        const ValueRef p = n.value(name);
        const size_t rank = c_.graph.type_of(p).shape.size();
        const Coords where = n.op->name == "group_norm" ? Coords{at[1]} : Coords(at.end() - static_cast<std::ptrdiff_t>(rank), at.end());
        const Val value = e_.convert(e_.value(p, where), t);
        depth = std::max(depth, value.depth);
        return value;
      };
      if (const auto w = parameter("weight")) text = fmt::format("{} * {}", text, w->text);
      if (const auto b = parameter("bias")) text = fmt::format("{} + {}", text, b->text);
      return e_.define("v", t, text, depth, what);
    };
  }

  // Values of the anchors, wherever other nodes read them. Only this block's row is known.
  std::optional<Val> computed(ValueRef v, const Coords& at) {
    const ir::Shape& shape = c_.graph.type_of(v).shape;
    if (const auto it = scalars_.find(v); it != scalars_.end()) {
      if (rows_.outer > 1 && space_.ravel(at, shape) != r_) e_.refuse(fmt::format("{} is read at another row", label(c_.graph, v.node)));
      return it->second;
    }
    const auto it = full_.find(v);
    if (it == full_.end()) return std::nullopt;
    if (rows_.outer > 1 && row_at(at, shape) != r_) e_.refuse(fmt::format("{} is read at another row", label(c_.graph, v.node)));
    return it->second(at);
  }
  Index row_at(const Coords& at, const ir::Shape& shape) {
    if (rows_.trailing) return space_.div(space_.ravel(at, shape), rows_.inner);
    Coords kept;
    ir::Shape kept_shape;
    for (size_t d = 0; d < shape.size(); ++d)
      if (!is_reduced(d)) {
        kept.push_back(at[d]);
        kept_shape.push_back(shape[d]);
      }
    return space_.ravel(kept, kept_shape);
  }

  void results() {
    std::vector<ValueRef> full, single;
    for (ValueRef v : c_.task.outputs) (ir::numel(c_.graph.type_of(v).shape) == rows_.outer && !full_.count(v) ? single : full).push_back(v);
    if (!full.empty()) {
      const std::string j = e_.fresh("j");
      e_.open(fmt::format("for ({0} {1} = static_cast<{0}>(threadIdx.x); {1} < {2}; {1} += static_cast<{0}>(blockDim.x))", e_.index_type(), j, rows_.inner), false);
      const Index index = space_.variable(j, rows_.inner);
      e_.declare(index);
      for (ValueRef v : full) {
        const ir::TensorType& type = c_.graph.type_of(v);
        const Coords at = element(type.shape, index);
        const Val value = e_.value(v, at);
        e_.line(fmt::format("{}[{}] = {};", c_.parameter(v), e_.text(space_.ravel(at, type.shape)), stored(e_, value, type.dtype)));
      }
      e_.close();
    }
    if (single.empty()) return;
    e_.open("if (threadIdx.x == 0)", true);
    for (ValueRef v : single) {
      const ir::TensorType& type = c_.graph.type_of(v);
      const Val value = e_.value(v, space_.unravel(r_, type.shape));
      e_.line(fmt::format("{}[r] = {};", c_.parameter(v), stored(e_, value, type.dtype)));
    }
    e_.close();
  }

  Result<TaskSource> finish(std::string_view skill) {
    KernelParams params;
    for (ValueRef v : c_.task.inputs)
      if (e_.used(v)) params.input(c_, v);
    for (ValueRef v : c_.task.outputs) params.output(c_, v);
    const int64_t threads = std::min<int64_t>(rows_.outer < 1024 ? 1024 : 256, (rows_.inner + 31) / 32 * 32);
    const std::string name = c_.task.name + "_kernel";
    TaskSource source;
    source.skill = std::string(skill);
    source.headers = {"reduce.cuh"};
    source.kernels = fmt::format("// One block per row: {} rows of {} elements.\n__global__ void __launch_bounds__({}) {}({}) {{\n{}}}\n\n", rows_.outer, rows_.inner, threads, name,
                                 params.declarations(), e_.body());
    source.kernels += fmt::format("{}{} {{\n", task_comment(c_, skill), c_.signature());
    if (rows_.outer > 0) source.kernels += fmt::format("  {}<<<{}, {}, 0, stream>>>({});\n  STITCH_CHECK_LAUNCH();\n", name, rows_.outer, threads, params.arguments());
    source.kernels += "  return nullptr;\n}\n";
    return source;
  }

  const TaskContext& c_;
  Rows rows_;
  IndexSpace space_;
  Emitter e_;
  Index r_;
  std::map<ValueRef, Val> scalars_;                                 // one value per row
  std::map<ValueRef, std::function<Val(const Coords&)>> full_;      // one value per element
};

bool takes(const TaskContext& c) { return rows_of(c).has_value(); }
Result<TaskSource> write(const TaskContext& c) { return RowKernel(c, *rows_of(c)).write("reduction"); }

}  // namespace

Skill reduction_skill() { return {"reduction", takes, write}; }

}  // namespace stitch::code
