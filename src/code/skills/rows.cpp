#include "code/skills/rows.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "ir/ops.h"

namespace stitch::code {
namespace {

using ir::DType;
using ir::Node;
using ir::OpClass;
using ir::ValueRef;

bool is_anchor(const Node& n) {
  switch (n.op->cls) {
    case OpClass::reduction:
    case OpClass::arg_reduction:
    case OpClass::row:
    case OpClass::norm: return !is_inline(n);
    default: return false;
  }
}

RowPattern merged(const ir::Shape& shape, const std::vector<bool>& reduced) {
  RowPattern p;
  for (size_t d = 0; d < shape.size(); ++d) {
    (reduced[d] ? p.inner : p.outer) *= shape[d];
    if (shape[d] == 1) continue;
    if (!p.dims.empty() && p.dims.back().second == reduced[d]) {
      p.dims.back().first *= shape[d];
    } else {
      p.dims.emplace_back(shape[d], reduced[d]);
    }
  }
  return p;
}

std::string number(double value, DType t) { return float_literal(value, t); }
std::string count(int64_t n, DType t) { return float_literal(static_cast<double>(n), t); }

// Accumulators: wide for integers, compute type for floats.
std::string accumulator(DType t) { return ir::is_floating(t) ? std::string(compute_type(t)) : "int64_t"; }

// Builds the statistics of one anchor from stage `first` on.
class Anchor {
 public:
  Anchor(const TaskContext& c, RowProgram& program, int32_t index, size_t first, bool resident, std::string position)
      : c_(c), p_(program), index_(index), first_(first), resident_(resident), position_(std::move(position)), n_(c.graph.nodes[static_cast<size_t>(index)]), what_(label(c.graph, index)) {}

  // Returns the number of the stage after which the anchor's values are known.
  size_t add() {
    switch (n_.op->cls) {
      case OpClass::reduction: reduction(); break;
      case OpClass::arg_reduction: arg_reduction(); break;
      case OpClass::row: softmax(); break;
      default: norm(); break;
    }
    return last_;
  }

 private:
  using Term = std::function<std::string(RowScope&, const std::string&, const std::string&)>;
  using Finish = std::function<void(RowScope&, const Val&)>;

  ValueRef x() const { return n_.value("x"); }
  DType x_type() const { return c_.graph.type_of(x()).dtype; }
  int64_t inner() const { return p_.pattern.inner; }
  std::string name(const char* of) const { return fmt::format("{}.{}", index_, of); }

  void put(size_t stage, std::string operation, std::string type, DType dtype, const std::string& comment, Term term, Finish finish, Statistic::Joins joins = Statistic::Joins::combined) {
    if (p_.stages.size() <= stage) p_.stages.resize(stage + 1);
    p_.stages[stage].push_back({x(), dtype, std::move(operation), std::move(type), std::move(term), joins, "", comment, std::move(finish)});
    last_ = std::max(last_, stage);
  }
  // The result of a reduction is `text` of the total.
  Finish result(DType t, std::function<std::string(RowScope&, const std::string&)> text) const {
    const ValueRef v{index_, 0};
    return [v, t, text = std::move(text), what = what_](RowScope& s, const Val& total) {
      s.scalars[v] = s.e.define("s", t, text(s, total.text), s.e.depth(), what);
    };
  }
  Finish cast_result(DType t) const {
    return result(t, [t](RowScope&, const std::string& total) {
      return ir::is_floating(t) || t == DType::i64 ? total : fmt::format("static_cast<{}>({})", compute_type(t), total);
    });
  }
  // The element (or `text` of it) as an operand of accumulations of type t.
  static Term as(DType t, std::function<std::string(const std::string&)> text = {}) {
    return [t, text = std::move(text)](RowScope&, const std::string& v, const std::string&) {
      const std::string x = text ? text(v) : v;
      return ir::is_floating(t) || t == DType::i64 ? x : fmt::format("static_cast<{}>({})", accumulator(t), x);
    };
  }

  // Mean, then (x - mean)^2 summed: `finish` gets that sum. The mean is statistic "mean".
  void moments(DType t, Finish finish) {
    const std::string type = accumulator(t), key = name("mean");
    if (!resident_) {  // in one pass over memory
      put(first_, fmt::format("Moments<{}>", type), fmt::format("Moments<{}>", type), t, what_ + ": mean and squared distances from it", as(t),
          [t, key, finish = std::move(finish)](RowScope& s, const Val& total) {
            s.statistics[key] = s.e.define("mean", t, total.text + ".mean", s.e.depth());
            finish(s, Val{total.text + ".m2", t, total.depth});
          },
          Statistic::Joins::added_together);
      return;
    }
    put(first_, fmt::format("Sum<{}>", type), type, t, what_ + ": mean", as(t), [t, key, n = inner()](RowScope& s, const Val& total) {
      s.statistics[key] = s.e.define("mean", t, fmt::format("{} / {}", total.text, count(n, t)), s.e.depth());
    });
    // That mean has rounding errors; what is left of it after subtraction is summed too, and taken off: rows of equal values then
    // have exactly their mean, and variance 0.
    put(first_ + 1, fmt::format("Deviations<{}>", type), fmt::format("Deviations<{}>", type), t, what_ + ": squared distances from the mean",
        [key](RowScope& s, const std::string& v, const std::string&) { return fmt::format("{} - {}", v, s.statistics.at(key).text); },
        [t, key, n = inner(), finish = std::move(finish)](RowScope& s, const Val& total) {
          const std::string elements = count(n, t);
          s.statistics[key] = s.e.define("mean", t, fmt::format("{} + {}.sum / {}", s.statistics.at(key).text, total.text, elements), s.e.depth());
          finish(s, Val{fmt::format("{}.m2({})", total.text, elements), t, total.depth});
        },
        Statistic::Joins::added);
  }

  void extreme(size_t stage, bool largest, DType t, const std::string& comment, Term term, Finish finish) {
    const std::string type = accumulator(t);
    put(stage, fmt::format("{}<{}>", largest ? "Maximum" : "Minimum", type), type, t, comment, std::move(term), std::move(finish));
  }

  // Largest element ("top") and sum of exponentials relative to it ("sum"), for softmax and logsumexp.
  void exponentials(DType t) {
    const std::string type(compute_type(t)), top = name("top"), sum = name("sum");
    if (!resident_) {  // in one pass over memory
      put(first_, fmt::format("LogSum<{}>", type), fmt::format("LogSum<{}>", type), t, what_ + ": maximum and sum of exponentials",
          [](RowScope&, const std::string& v, const std::string&) { return v; },
          [t, top, sum](RowScope& s, const Val& total) {
            s.statistics[top] = s.e.define("top", t, total.text + ".top", s.e.depth());
            s.statistics[sum] = s.e.define("sum", t, total.text + ".sum", s.e.depth());
          },
          Statistic::Joins::added);
      return;
    }
    extreme(first_, true, t, what_ + ": maximum", as(t), [t, top](RowScope& s, const Val& total) { s.statistics[top] = s.e.define("top", t, total.text, s.e.depth()); });
    put(first_ + 1, fmt::format("Sum<{}>", type), type, t, what_ + ": sum of exponentials",
        [top](RowScope& s, const std::string& v, const std::string&) { return fmt::format("exp({} - {})", v, s.statistics.at(top).text); },
        [t, sum](RowScope& s, const Val& total) { s.statistics[sum] = s.e.define("sum", t, total.text, s.e.depth()); });
  }

  void reduction() {
    const std::string_view op = n_.op->name;
    const DType t = n_.type().dtype;
    const std::string acc = accumulator(t);
    if (op == "sum" || op == "prod") {
      put(first_, fmt::format("{}<{}>", op == "sum" ? "Sum" : "Product", acc), acc, t, what_, as(t), cast_result(t));
    } else if (op == "mean") {
      put(first_, fmt::format("Sum<{}>", acc), acc, t, what_, as(t),
          result(t, [t, n = inner()](RowScope&, const std::string& total) { return fmt::format("{} / {}", total, count(n, t)); }));
    } else if (op == "amax" || op == "amin") {
      extreme(first_, op == "amax", x_type(), what_, as(x_type()), cast_result(t));
    } else if (op == "any" || op == "all") {
      put(first_, fmt::format("{}<int>", op == "any" ? "Maximum" : "Minimum"), "int", x_type(), what_,
          [](RowScope&, const std::string& v, const std::string&) { return fmt::format("(({}) != 0 ? 1 : 0)", v); },
          result(DType::b8, [](RowScope&, const std::string& total) { return total + " > 0"; }));  // so for the empty row, too
    } else if (op == "logsumexp") {
      log_sum_exp(t);
    } else if (op == "vector_norm") {
      vector_norm(t);
    } else {  // var, std
      const double divisor = std::max(0.0, static_cast<double>(inner()) - n_.number("correction"));
      moments(t, result(t, [t, divisor, root = op == "std"](RowScope&, const std::string& total) {
                const std::string variance = fmt::format("{} / {}", total, number(divisor, t));
                return root ? fmt::format("sqrt({})", variance) : variance;
              }));
    }
  }

  void log_sum_exp(DType t) {
    exponentials(t);
    Statistic& last = p_.stages[last_].back();
    last.finish = [first = last.finish, t, top = name("top"), sum = name("sum"), v = ValueRef{index_, 0}, what = what_](RowScope& s, const Val& total) {
      first(s, total);
      s.scalars[v] = s.e.define("s", t, fmt::format("op::log_sum({}, {})", s.statistics.at(top).text, s.statistics.at(sum).text), s.e.depth(), what);
    };
  }

  void vector_norm(DType t) {
    const double p = n_.number("ord");
    const std::string type = accumulator(t);
    const auto magnitude = [](const std::string& v) { return fmt::format("fabs({})", v); };
    if (std::isinf(p)) return extreme(first_, p > 0, t, what_, as(t, magnitude), cast_result(t));
    const auto text = [p, t, magnitude](const std::string& v) {
      if (p == 0) return fmt::format("{} != 0 ? {} : {}", v, number(1, t), number(0, t));
      if (p == 1) return magnitude(v);
      if (p == 2) return fmt::format("op::square({})", v);
      return fmt::format("pow({}, {})", magnitude(v), number(p, t));
    };
    put(first_, fmt::format("Sum<{}>", type), type, t, what_, as(t, text), result(t, [p, t](RowScope&, const std::string& total) {
          if (p == 0 || p == 1) return total;
          return p == 2 ? fmt::format("sqrt({})", total) : fmt::format("pow({}, {})", total, number(1 / p, t));
        }));
  }

  void arg_reduction() {
    const bool largest = n_.op->name == "argmax" || n_.op->name == "max_dim", pair = n_.op->max_results == 2;
    const DType t = x_type();
    const std::string type = accumulator(t), index = compute_type(t) == "float" ? position_ : "int64_t",
                      placed = fmt::format("Placed<{}, {}>", type, index);  // of one word size: no padding
    put(first_, fmt::format("ArgExtreme<{}, {}, {}>", type, index, largest), placed, t, what_,
        [term = as(t), placed](RowScope& s, const std::string& v, const std::string& c) { return fmt::format("{}{{{}, {}}}", placed, term(s, v, c), c); },
        [pair, t, index = index_](RowScope& s, const Val& total) {
          s.scalars[{index, pair ? 1 : 0}] = s.e.define("s", DType::i64, total.text + ".index", s.e.depth(), "index");
          if (pair) s.scalars[{index, 0}] = s.e.define("s", t, fmt::format("static_cast<{}>({}.value)", compute_type(t), total.text), s.e.depth(), "value");
        });
  }

  void softmax() {
    const DType t = n_.type().dtype;
    exponentials(t);
    const bool log = n_.op->name == "log_softmax";
    Statistic& last = p_.stages[last_].back();
    const std::string numerator = resident_ && !log ? name("exp") : "";
    last.keep = numerator;
    last.finish = [first = last.finish, t, log, sum = name("sum"), scale = name("scale")](RowScope& s, const Val& total) {
      first(s, total);
      const std::string& known = s.statistics.at(sum).text;
      s.statistics[scale] = s.e.define("scale", t, log ? fmt::format("log({})", known) : fmt::format("{} / {}", number(1, t), known), s.e.depth());
    };
    p_.elements[{index_, 0}] = [t, log, x = x(), numerator, top = name("top"), scale = name("scale"), what = what_](RowScope& s, const Coords& at) {
      if (const Val* known = numerator.empty() ? nullptr : s.kept(numerator, x, at))
        return s.e.define("v", t, fmt::format("{} * {}", known->text, s.statistics.at(scale).text), known->depth, what);
      const Val v = s.e.convert(s.e.value(x, at), t);
      const std::string &m = s.statistics.at(top).text, &f = s.statistics.at(scale).text;
      return s.e.define("v", t, log ? fmt::format("{} - {} - {}", v.text, m, f) : fmt::format("exp({} - {}) * {}", v.text, m, f), std::max(v.depth, s.statistics.at(scale).depth), what);
    };
  }

  void norm() {
    const DType t = n_.type().dtype;
    const std::string type(compute_type(t));
    const bool rms = n_.op->name == "rms_norm", batch = n_.op->name == "batch_norm";
    const Finish scale = [t, n = inner(), eps = n_.number("eps"), key = name("scale")](RowScope& s, const Val& total) {
      s.statistics[key] = s.e.define("scale", t, fmt::format("op::rsqrt({} / {} + {})", total.text, count(n, t), number(eps, t)), s.e.depth(), "1 / standard deviation");
    };
    if (rms) {
      put(first_, fmt::format("Sum<{}>", type), type, t, what_ + ": squares", as(t, [](const std::string& v) { return fmt::format("op::square({})", v); }), scale);
    } else {
      moments(t, !batch || n_.types.size() < 3 ? scale : Finish([this_scale = scale, running = running()](RowScope& s, const Val& total) {
        this_scale(s, total);
        running(s, total);
      }));
    }
    p_.elements[{index_, 0}] = [&n = n_, &graph = c_.graph, t, rms, x = x(), mean = name("mean"), scale_key = name("scale"), what = what_](RowScope& s, const Coords& at) {
      const Val v = s.e.convert(s.e.value(x, at), t);
      const std::string& f = s.statistics.at(scale_key).text;
      std::string text = rms ? fmt::format("{} * {}", v.text, f) : fmt::format("({} - {}) * {}", v.text, s.statistics.at(mean).text, f);
      int depth = std::max(v.depth, s.statistics.at(scale_key).depth);
      const auto parameter = [&](std::string_view which) -> std::optional<Val> {
        if (n.op->index_of(which) < 0 || !n.has_arg(which)) return std::nullopt;
        const ValueRef p = n.value(which);
        const bool channels = n.op->name == "group_norm" || n.op->name == "batch_norm";
        const auto rank = static_cast<std::ptrdiff_t>(graph.type_of(p).shape.size());
        const Val value = s.e.convert(s.e.value(p, channels ? Coords{at[1]} : Coords(at.end() - rank, at.end())), t);
        depth = std::max(depth, value.depth);
        return value;
      };
      if (const auto w = parameter("weight")) text += " * " + w->text;
      if (const auto b = parameter("bias")) text += " + " + b->text;
      return s.e.define("v", t, text, depth, what);
    };
  }

  // Batch norm's running statistics: results 1 and 2.
  Finish running() const {
    return [&n = n_, index = index_, n_elements = inner(), mean = name("mean")](RowScope& s, const Val& total) {
      const auto blend = [&](int result, std::string_view old, const std::string& fresh) {
        const DType t = n.types[static_cast<size_t>(result)].dtype;
        const double share = n.number("momentum");
        const Val before = s.e.convert(s.e.value(n.value(old), {s.row}), t);
        s.scalars[{index, result}] = s.e.define("s", t, fmt::format("{} * {} + {} * static_cast<{}>({})", number(1 - share, t), before.text, number(share, t), compute_type(t), fresh),
                                                s.e.depth(), std::string("new ") + std::string(old));
      };
      blend(1, "running_mean", s.statistics.at(mean).text);
      const double unbiased = static_cast<double>(n_elements - 1);
      blend(2, "running_var", fmt::format("({} / {})", total.text, number(unbiased, n.type().dtype)));
    };
  }

  const TaskContext& c_;
  RowProgram& p_;
  int32_t index_;
  size_t first_;
  bool resident_;
  std::string position_;
  const Node& n_;
  std::string what_;
  size_t last_ = 0;
};

}  // namespace

std::optional<RowPattern> pattern_of(const ir::Graph& g, const Node& n) {
  if (!is_anchor(n)) return std::nullopt;
  const ir::Shape& x = g.type_of(n.value("x")).shape;
  std::vector<bool> reduced(x.size(), false);
  const std::string_view op = n.op->name;
  if (op == "group_norm") {
    const int64_t groups = n.integer("num_groups");
    return merged({x[0] * groups, groups == 0 ? 0 : ir::numel(x) / std::max<int64_t>(1, x[0] * groups)}, {false, true});
  }
  if (op == "batch_norm") {
    reduced.assign(x.size(), true);
    reduced[1] = false;
  } else if (n.op->cls == OpClass::norm) {
    for (size_t d = x.size() - n.integers("normalized_shape").size(); d < x.size(); ++d) reduced[d] = true;
  } else if (n.op->cls == OpClass::reduction && !n.integers("dims").empty()) {
    for (const int64_t d : n.integers("dims"))
      if (!x.empty()) reduced[static_cast<size_t>(d)] = true;
  } else if (n.op->cls != OpClass::reduction && n.has_arg("dim") && !x.empty()) {
    reduced[static_cast<size_t>(n.integer("dim"))] = true;
  } else {
    reduced.assign(x.size(), true);
  }
  return merged(x, reduced);
}

Index RowScope::linear(const Index& c) const {
  ir::Shape kept, reduced, all;
  for (const auto& [extent, is_reduced] : pattern.dims) {
    (is_reduced ? reduced : kept).push_back(extent);
    all.push_back(extent);
  }
  IndexSpace& s = e.space();
  const Coords k = s.unravel(row, kept), m = s.unravel(c, reduced);
  Coords at;
  size_t ik = 0, im = 0;
  for (const auto& [extent, is_reduced] : pattern.dims) at.push_back(is_reduced ? m[im++] : k[ik++]);
  return s.ravel(at, all);
}

Index RowScope::row_at(const Coords& at, const ir::Shape& shape) const {
  ir::Shape all, kept;
  for (const auto& [extent, is_reduced] : pattern.dims) {
    all.push_back(extent);
    if (!is_reduced) kept.push_back(extent);
  }
  IndexSpace& s = e.space();
  const Coords place = s.unravel(s.ravel(at, shape), all);
  Coords k;
  for (size_t d = 0; d < all.size(); ++d)
    if (!pattern.dims[d].second) k.push_back(place[d]);
  return s.ravel(k, kept);
}

std::optional<RowProgram> RowProgram::of(const TaskContext& c, bool resident, const std::string& position) {
  std::vector<int32_t> anchors;
  RowProgram p;
  for (const int32_t n : c.task.nodes) {
    const Node& node = c.graph.nodes[static_cast<size_t>(n)];
    if (is_inline(node)) continue;
    const std::optional<RowPattern> pattern = pattern_of(c.graph, node);
    if (!pattern || (!anchors.empty() && !(*pattern == p.pattern))) return std::nullopt;
    p.pattern = *pattern;
    anchors.push_back(n);
  }
  if (anchors.empty()) return std::nullopt;
  // An anchor comes after the stages of the anchors it depends on.
  std::map<int32_t, size_t> ready;  // first stage in which a node's value may be used
  for (const int32_t n : c.task.nodes) {
    const Node& node = c.graph.nodes[static_cast<size_t>(n)];
    size_t first = 0;
    for (const ValueRef& v : ir::operands(node))
      if (const auto it = ready.find(v.node); it != ready.end()) first = std::max(first, it->second);
    ready[n] = is_inline(node) ? first : Anchor(c, p, n, first, resident, position).add() + 1;
  }
  for (const ValueRef& v : c.task.outputs) {
    const int64_t size = ir::numel(c.graph.type_of(v).shape);
    if (p.elements.count(v) || (size == p.pattern.outer * p.pattern.inner && p.pattern.inner != 1)) {
      p.full.push_back(v);
    } else if (size == p.pattern.outer) {
      p.single.push_back(v);
    } else {
      return std::nullopt;
    }
  }
  return p;
}

bool RowProgram::read_later(const ir::Graph& g, ValueRef x, size_t stage) const {
  std::vector<ValueRef> open(full.begin(), full.end());
  for (size_t s = stage + 1; s < stages.size(); ++s)
    for (const Statistic& later : stages[s]) open.push_back(later.x);
  std::set<ValueRef> seen(open.begin(), open.end());
  while (!open.empty()) {
    const ValueRef v = open.back();
    open.pop_back();
    if (v == x) return true;
    const Node& n = g.at(v);
    std::vector<ValueRef> reads;
    if (elements.count(v)) reads = {n.value("x")};
    else if (is_inline(n)) reads = ir::operands(n);
    for (const ValueRef& o : reads)
      if (seen.insert(o).second) open.push_back(o);
  }
  return false;
}

std::optional<Val> RowProgram::known(RowScope& s, const ir::Graph& g, ValueRef v, const Coords& at) const {
  const ir::Shape& shape = g.type_of(v).shape;
  const auto elsewhere = [&] { s.e.refuse(fmt::format("{} is read at another row", label(g, v.node))); };
  if (const auto it = s.scalars.find(v); it != s.scalars.end()) {
    if (pattern.outer > 1 && s.e.space().ravel(at, shape) != s.row) elsewhere();
    return it->second;
  }
  const auto it = elements.find(v);
  if (it == elements.end()) return std::nullopt;
  if (pattern.outer > 1 && s.row_at(at, shape) != s.row) elsewhere();
  if (s.e.refused()) return s.e.zero(g.type_of(v).dtype);
  return it->second(s, at);
}

}  // namespace stitch::code
