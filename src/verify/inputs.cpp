#include "verify/inputs.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/parallel.h"
#include "ir/ops.h"

namespace stitch::verify {
namespace {

// Counter-based generator (splitmix64 finaliser): element i of a stream is a pure function of (seed, i), so that
// filling is parallel and reproducible.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
double unit(uint64_t seed, uint64_t i) { return static_cast<double>(mix(seed ^ mix(i)) >> 11) * 0x1p-53; }
double gauss(uint64_t seed, uint64_t i) {
  const double u = std::max(unit(seed, 2 * i), 0x1p-53), v = unit(seed, 2 * i + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}

bool moves_data(const ir::Node& n) {
  const auto name = n.op_name();
  return (n.op->cls == ir::OpClass::movement && name != "pad" && name != "slice_scatter" && name != "select_scatter") ||
         name == "cast";
}

// Extent that bounds the values of index operand `v` of node `n`, if n indexes with it.
std::optional<int64_t> bound_in(const ir::Graph& g, const ir::Node& n, int32_t v, bool& other_use) {
  const auto name = n.op_name();
  auto is = [&](const char* parameter) {
    const int at = n.op->index_of(parameter);
    const auto* ref = at >= 0 ? std::get_if<ir::ValueRef>(&n.args[static_cast<size_t>(at)]) : nullptr;
    return ref && ref->node == v;
  };
  auto extent = [&](const char* tensor, int64_t dim) -> std::optional<int64_t> {
    const auto& shape = g.type_of(n.value(tensor)).shape;
    return dim >= 0 && dim < static_cast<int64_t>(shape.size()) ? std::optional(shape[static_cast<size_t>(dim)]) : std::nullopt;
  };
  if (name == "embedding" && is("indices")) return extent("weight", 0);
  for (const char* parameter : {"index", "indices"}) {
    if (!is(parameter) || n.op->index_of("dim") < 0) continue;
    return extent("x", n.integer("dim"));
  }
  if ((name == "index" || name == "index_put") && n.op->index_of("indices") >= 0)
    if (const auto* list = std::get_if<ir::ValueList>(&n.args[static_cast<size_t>(n.op->index_of("indices"))]))
      for (size_t d = 0; d < list->size(); ++d)
        if ((*list)[d].node == v) return extent("x", static_cast<int64_t>(d));
  other_use = true;
  return std::nullopt;
}

// Smallest extent the input's values index into, following it through casts and views.
std::optional<int64_t> index_bound(const ir::Graph& g, int32_t input, bool& other_use) {
  const auto readers = ir::users(g);
  std::optional<int64_t> bound;
  std::vector<int32_t> todo = {input};
  std::set<int32_t> seen = {input};
  while (!todo.empty()) {
    const int32_t v = todo.back();
    todo.pop_back();
    for (int32_t u : readers[static_cast<size_t>(v)]) {
      const auto& n = g.nodes[static_cast<size_t>(u)];
      if (moves_data(n)) {
        if (seen.insert(u).second) todo.push_back(u);
      } else if (auto b = bound_in(g, n, v, other_use)) {
        bound = bound ? std::min(*bound, *b) : *b;
      }
    }
  }
  return bound;
}

struct Statistics {
  double low = HUGE_VAL, high = -HUGE_VAL, mean = 0, deviation = 0;
  std::set<double> distinct;  // up to 9
  size_t finite = 0;
};

Statistics statistics_of(const ir::Tensor& t) {
  Statistics s;
  const int64_t n = ir::numel(t.type.shape), stride = std::max<int64_t>(1, n / 100000);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; i += stride) {
    const double v = ir::get(t, i);
    if (s.distinct.size() < 9) s.distinct.insert(v);
    if (!std::isfinite(v)) continue;
    s.low = std::min(s.low, v);
    s.high = std::max(s.high, v);
    sum += v;
    squares += v * v;
    ++s.finite;
  }
  if (s.finite) {
    s.mean = sum / static_cast<double>(s.finite);
    s.deviation = std::sqrt(std::max(0.0, squares / static_cast<double>(s.finite) - s.mean * s.mean));
  }
  return s;
}

// Zeros on one side of the diagonal, or equality with the transpose, in every matrix of the last two dims.
void find_structure(const ir::Tensor& t, InputModel& m) {
  const auto& shape = t.type.shape;
  if (shape.size() < 2) return;
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (rows != columns || rows < 3) return;
  const int64_t matrices = ir::numel(t.type.shape) / (rows * columns);
  bool lower = true, upper = true, symmetric = true;
  for (int64_t k = 0; k < matrices && (lower || upper || symmetric); ++k)
    for (int64_t i = 0; i < rows && (lower || upper || symmetric); ++i)
      for (int64_t j = i + 1; j < columns; ++j) {
        const double above = ir::get(t, (k * rows + i) * columns + j), below = ir::get(t, (k * rows + j) * columns + i);
        lower = lower && above == 0;
        upper = upper && below == 0;
        symmetric = symmetric && above == below;
      }
  m.lower_triangular = lower;
  m.upper_triangular = upper && !lower;
  m.symmetric = symmetric && !lower && !upper;
}

bool rows_sum_to_one(const ir::Tensor& t) {
  if (t.type.shape.empty() || t.type.shape.back() < 2) return false;
  const int64_t columns = t.type.shape.back(), rows = std::min<int64_t>(ir::numel(t.type.shape) / columns, 64);
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < columns; ++j) {
      const double v = ir::get(t, i * columns + j);
      if (!(v >= 0)) return false;
      sum += v;
    }
    if (std::abs(sum - 1) > 1e-2) return false;
  }
  return true;
}

InputModel float_model(const ir::Tensor& sample) {
  InputModel m;
  const auto s = statistics_of(sample);
  const auto n = ir::numel(sample.type.shape);
  if (s.finite == 0) {
    m.kind = InputModel::Kind::fixed;
    return m;
  }
  m.non_negative = s.low >= 0;
  find_structure(sample, m);
  const bool structured = m.lower_triangular || m.upper_triangular;
  if (s.distinct.size() <= 8 && n >= 32) {
    m.kind = InputModel::Kind::choice;
    m.values.assign(s.distinct.begin(), s.distinct.end());
    // A constant tensor says nothing about its range; vary it around its value.
    if (m.values.size() == 1 && std::isfinite(m.values[0])) {
      const double c = m.values[0];
      m.kind = InputModel::Kind::uniform;
      m.a = c == 0 ? 0 : std::min(0.5 * c, 1.5 * c);
      m.b = c == 0 ? 1 : std::max(0.5 * c, 1.5 * c);
    }
    return m;
  }
  if (rows_sum_to_one(sample) && !structured) {
    m.kind = InputModel::Kind::row_distribution;
    return m;
  }
  // Uniform data fills its range: standard deviation = width / sqrt(12).
  const double width = s.high - s.low;
  const bool uniform = n >= 16 && !structured && std::abs(s.deviation - width / std::sqrt(12.0)) < 0.05 * width;
  if (uniform || (m.non_negative && !structured)) {
    m.kind = InputModel::Kind::uniform;
    m.a = s.low;
    m.b = s.high;
    if (s.low >= 0 && s.high <= 1 && s.low < 0.2 && s.high > 0.8) m.a = 0, m.b = 1;
    if (!(m.b > m.a)) m.b = m.a + std::max(1.0, std::abs(m.a));
  } else {
    m.kind = InputModel::Kind::normal;
    m.a = n >= 16 ? s.mean : 0;
    m.b = n >= 16 && s.deviation > 0 ? s.deviation : std::max(1.0, std::abs(s.mean));
    if (std::abs(m.a) < 0.1 * m.b) m.a = 0;
  }
  return m;
}

InputModel integer_model(const ir::Bundle& bundle, int32_t node, const std::optional<ir::Tensor>& sample) {
  InputModel m;
  m.kind = InputModel::Kind::integers;
  bool other_use = false;
  const auto bound = index_bound(bundle.graph, node, other_use);
  m.a = 0;
  m.b = bound ? static_cast<double>(*bound) : 2;
  if (sample && ir::numel(sample->type.shape) > 0) {
    const auto s = statistics_of(*sample);
    // The data's own range, unless the values are indices and nothing else: then every index is legal.
    if (!bound || other_use) m.a = s.low, m.b = s.high + 1;
    if (bound) m.a = std::max(m.a, 0.0), m.b = std::min(m.b, static_cast<double>(*bound));
  }
  return m;
}

InputModel generator_model(const ir::Generator& g) {
  InputModel m;
  m.a = g.a;
  m.b = g.b;
  if (g.kind == "uniform") m.kind = InputModel::Kind::uniform;
  else if (g.kind == "randint") m.kind = InputModel::Kind::integers;
  else if (g.kind == "constant") m.kind = InputModel::Kind::choice, m.values = {g.a};
  m.non_negative = m.kind == InputModel::Kind::uniform && g.a >= 0;
  m.lower_triangular = g.structure == "lower";
  m.upper_triangular = g.structure == "upper";
  m.symmetric = g.structure == "symmetric";
  if (g.structure == "rows") m.kind = InputModel::Kind::row_distribution;
  return m;
}

double draw(const InputModel& m, uint64_t seed, uint64_t i) {
  switch (m.kind) {
    case InputModel::Kind::normal: return m.a + m.b * gauss(seed, i);
    case InputModel::Kind::uniform: return m.a + (m.b - m.a) * unit(seed, i);
    case InputModel::Kind::integers: return std::floor(m.a + (m.b - m.a) * unit(seed, i));
    case InputModel::Kind::choice: return m.values[static_cast<size_t>(unit(seed, i) * static_cast<double>(m.values.size()))];
    case InputModel::Kind::boolean: return unit(seed, i) < m.a ? 1 : 0;
    case InputModel::Kind::row_distribution: return std::exp(gauss(seed, i));
    case InputModel::Kind::fixed: break;
  }
  return 0;
}

double spread_of(const InputModel& m) { return m.kind == InputModel::Kind::normal ? m.b : m.b - m.a; }

// The value of element i under a property; `row` is the index of its last-dim row, n the element count.
double with_property(const InputModel& m, Property p, uint64_t seed, int64_t i, int64_t row, int64_t n, bool half) {
  const auto at = static_cast<uint64_t>(i);
  double v = draw(m, seed, at);
  // f16 holds 65504 at most; a scale of 1000 would leave nothing finite to compare after a few sums.
  const double big = half ? 16 : 1000;
  switch (p) {
    case Property::none: break;
    case Property::outliers:
      // Few, large, and in the last hundredth of the tensor: code that sniffs the beginning does not see them.
      if (i >= n - std::max<int64_t>(1, n / 100) && (i == n - 1 || unit(seed ^ 1, at) < 0.05)) v = v * big + spread_of(m) * big;
      break;
    case Property::zeros: v = 0; break;
    case Property::denormals:
      if (unit(seed ^ 2, at) < 0.1) v = (half ? 1e-7 : 1e-40) * (m.non_negative ? 1 : (unit(seed ^ 3, at) < 0.5 ? -1 : 1));
      break;
    case Property::constant_rows: v = draw(m, seed, static_cast<uint64_t>(row)); break;
    case Property::large: v *= big; break;
    case Property::small: v *= half ? 1.0 / 16 : 1e-3; break;
    case Property::shifted: v += 3 * spread_of(m); break;
  }
  return m.non_negative ? std::abs(v) : v;
}

void fill(ir::Tensor& t, const std::function<double(int64_t)>& value) {
  const int64_t n = ir::numel(t.type.shape);
  parallel_for(n, 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ir::set(t, i, value(i));
  });
}

void impose_structure(ir::Tensor& t, const InputModel& m) {
  const int64_t columns = t.type.shape.back(), rows = columns, matrices = ir::numel(t.type.shape) / (rows * columns);
  for (int64_t k = 0; k < matrices; ++k)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = i + 1; j < columns; ++j) {
        const int64_t above = (k * rows + i) * columns + j, below = (k * rows + j) * columns + i;
        if (m.lower_triangular) ir::set(t, above, 0);
        if (m.upper_triangular) ir::set(t, below, 0);
        if (m.symmetric) ir::set(t, below, ir::get(t, above));
      }
}

void normalise_rows(ir::Tensor& t) {
  const int64_t columns = t.type.shape.back(), rows = ir::numel(t.type.shape) / columns;
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < columns; ++j) sum += ir::get(t, i * columns + j);
    for (int64_t j = 0; j < columns; ++j) ir::set(t, i * columns + j, ir::get(t, i * columns + j) / sum);
  }
}

}  // namespace

std::string InputModel::text() const {
  std::string s;
  switch (kind) {
    case Kind::normal: s = fmt::format("normal(mean {:.3g}, stddev {:.3g})", a, b); break;
    case Kind::uniform: s = fmt::format("uniform [{:.3g}, {:.3g})", a, b); break;
    case Kind::integers: s = fmt::format("integers [{:.0f}, {:.0f})", a, b); break;
    case Kind::choice: s = fmt::format("one of {} values", values.size()); break;
    case Kind::boolean: s = fmt::format("true with rate {:.2g}", a); break;
    case Kind::row_distribution: s = "positive rows that sum to 1"; break;
    case Kind::fixed: s = "the case's own data"; break;
  }
  if (lower_triangular) s += ", lower triangular";
  if (upper_triangular) s += ", upper triangular";
  if (symmetric) s += ", symmetric";
  return s;
}

const char* name_of(Property p) {
  switch (p) {
    case Property::none: return "random";
    case Property::outliers: return "outliers";
    case Property::zeros: return "zeros";
    case Property::denormals: return "denormals";
    case Property::constant_rows: return "constant_rows";
    case Property::large: return "large";
    case Property::small: return "small";
    case Property::shifted: return "shifted";
  }
  return "?";
}

InputModel infer_model(const ir::Bundle& bundle, size_t input, const std::optional<ir::Tensor>& sample) {
  const auto& info = bundle.inputs.at(input);
  const int32_t node = bundle.graph.inputs().at(input);
  if (ir::is_bool(info.type.dtype)) {
    InputModel m;
    m.kind = InputModel::Kind::boolean;
    m.a = 0.5;
    if (sample) m.a = std::clamp(statistics_of(*sample).mean, 0.05, 0.95);
    return m;
  }
  if (info.generator) {
    auto m = generator_model(*info.generator);
    if (ir::is_integral(info.type.dtype) && m.kind == InputModel::Kind::integers) {
      bool other_use = false;
      if (auto bound = index_bound(bundle.graph, node, other_use)) m.b = std::min(m.b, static_cast<double>(*bound));
    }
    return m;
  }
  if (ir::is_integral(info.type.dtype)) return integer_model(bundle, node, sample);
  if (!sample || ir::numel(sample->type.shape) == 0) return {};
  return float_model(*sample);
}

std::vector<InputModel> infer_models(const ir::Bundle& bundle, const std::optional<ir::Case>& sample) {
  std::vector<InputModel> models;
  for (size_t i = 0; i < bundle.inputs.size(); ++i)
    models.push_back(infer_model(bundle, i, sample && i < sample->inputs.size() ? std::optional(sample->inputs[i]) : std::nullopt));
  return models;
}

std::vector<ir::Tensor> draw_inputs(const ir::Bundle& bundle, const std::vector<InputModel>& models, uint64_t seed, Property property,
                                    const std::optional<ir::Case>& sample) {
  std::vector<ir::Tensor> out;
  for (size_t k = 0; k < bundle.inputs.size(); ++k) {
    const auto& info = bundle.inputs[k];
    const auto& m = models.at(k);
    if (m.kind == InputModel::Kind::fixed && sample) {
      out.push_back(sample->inputs.at(k));
      continue;
    }
    ir::Tensor t = ir::make_tensor(info.name, info.type);
    const uint64_t stream = mix(seed ^ mix(k + 1));
    const int64_t n = ir::numel(info.type.shape), columns = info.type.shape.empty() ? 1 : std::max<int64_t>(1, info.type.shape.back());
    const bool apply = m.plain() && ir::is_floating(info.type.dtype), half = info.type.dtype == ir::DType::f16;
    fill(t, [&](int64_t i) {
      return apply ? with_property(m, property, stream, i, i / columns, n, half) : draw(m, stream, static_cast<uint64_t>(i));
    });
    if (m.kind == InputModel::Kind::row_distribution) normalise_rows(t);
    if (m.lower_triangular || m.upper_triangular || m.symmetric) impose_structure(t, m);
    out.push_back(std::move(t));
  }
  return out;
}

std::vector<ir::Tensor> altered_weights(const std::vector<ir::Tensor>& weights, double amount, uint64_t seed) {
  std::vector<ir::Tensor> out;
  for (size_t k = 0; k < weights.size(); ++k) {
    ir::Tensor t = weights[k];
    const uint64_t stream = mix(seed ^ mix(k + 1313));
    if (ir::is_floating(t.type.dtype))
      fill(t, [&](int64_t i) { return ir::get(weights[k], i) * (1 + amount * unit(stream, static_cast<uint64_t>(i))); });
    out.push_back(std::move(t));
  }
  return out;
}

double perturbation(uint64_t seed, uint64_t tensor, uint64_t element) {
  return 4 * unit(mix(seed ^ mix(tensor + 77)), element) - 2;
}

uint64_t random_seed() {
  uint64_t seed = 0;
  // Up to 256 bytes are never cut short once the kernel pool is up; an early signal is retried.
  while (getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed)) {}
  return seed;
}

}  // namespace stitch::verify
