#include "plan/operand_view.h"

#include "ir/ops.h"

namespace stitch::plan {
namespace {

// Strides of the same elements under another shape, where that is possible without moving them. Runs of dims that are
// contiguous in memory are split anew; extents of 1 have stride 0.
std::optional<std::vector<int64_t>> reshape_strides(const ir::Shape& from, const std::vector<int64_t>& strides, const ir::Shape& to) {
  std::vector<std::pair<int64_t, int64_t>> runs;  // (elements, stride of the innermost), outermost first
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 1) continue;
    if (!runs.empty() && runs.back().second == from[i] * strides[i]) {
      runs.back().first *= from[i];
      runs.back().second = strides[i];
    } else {
      runs.emplace_back(from[i], strides[i]);
    }
  }
  std::vector<int64_t> out(to.size(), 0);
  size_t at = to.size();
  for (size_t r = runs.size(); r-- > 0;) {
    int64_t covered = 1;
    while (covered < runs[r].first) {
      if (at == 0) return std::nullopt;
      --at;
      if (to[at] == 1) continue;
      out[at] = covered * runs[r].second;
      covered *= to[at];
    }
    if (covered != runs[r].first) return std::nullopt;
  }
  return out;
}

bool step(const ir::Graph& g, const ir::Node& n, OperandView& v);

// The view of `value` in terms of its base, outermost node first: `v` starts as the contiguous view of the base.
bool build(const ir::Graph& g, ir::ValueRef value, const std::set<int32_t>& inside, OperandView& v) {
  if (!inside.count(value.node)) {
    v.base = value;
    v.shape = g.type_of(value).shape;
    v.strides = ir::contiguous_strides(v.shape);
    return true;
  }
  const ir::Node& n = g.at(value);
  if (n.op->index_of("x") < 0) return false;
  return build(g, n.value("x"), inside, v) && step(g, n, v);
}

bool step(const ir::Graph&, const ir::Node& n, OperandView& v) {
  const std::string_view op = n.op_name();
  if (op == "view") {
    auto strides = reshape_strides(v.shape, v.strides, n.type().shape);
    if (!strides) return false;
    v.strides = *strides;
  } else if (op == "permute") {
    std::vector<int64_t> strides;
    for (int64_t d : n.integers("dims")) strides.push_back(v.strides[static_cast<size_t>(d)]);
    v.strides = strides;
  } else if (op == "expand") {
    std::vector<int64_t> strides(n.type().shape.size(), 0);
    const size_t lead = strides.size() - v.shape.size();
    for (size_t i = 0; i < v.shape.size(); ++i) strides[lead + i] = v.shape[i] == 1 ? 0 : v.strides[i];
    v.strides = strides;
  } else if (op == "slice") {
    const auto d = static_cast<size_t>(n.integer("dim"));
    v.offset += n.integer("start") * v.strides[d];
    v.strides[d] *= n.integer("step");
  } else if (op == "select") {
    const auto d = n.integer("dim");
    v.offset += n.integer("index") * v.strides[static_cast<size_t>(d)];
    v.strides.erase(v.strides.begin() + d);
  } else {
    return false;
  }
  v.shape = n.type().shape;
  return true;
}

std::optional<HeadsView> as_heads(const OperandView& v) {
  const size_t r = v.shape.size();
  if (r < 2 || (v.shape[r - 1] > 1 && v.strides[r - 1] != 1)) return std::nullopt;
  HeadsView out{v.base, v.offset, 0, r >= 3 ? v.strides[r - 3] : 0, v.shape[r - 2] > 1 ? v.strides[r - 2] : v.shape[r - 1]};
  if (out.row < v.shape[r - 1]) return std::nullopt;
  int64_t entries = 1;  // of the batch dims seen, innermost first
  for (size_t d = r >= 3 ? r - 3 : 0; d-- > 0;) {
    if (v.shape[d] == 1) continue;
    if (entries == 1) out.batch = v.strides[d];
    else if (v.strides[d] != out.batch * entries) return std::nullopt;
    entries *= v.shape[d];
  }
  return out;
}

}  // namespace

std::optional<OperandView> view_operand(const ir::Graph& g, ir::ValueRef value, const std::set<int32_t>& inside) {
  OperandView v;
  if (!build(g, value, inside, v)) return std::nullopt;
  return v;
}

std::optional<HeadsView> view_heads(const ir::Graph& g, ir::ValueRef value, const std::set<int32_t>& inside) {
  const auto v = view_operand(g, value, inside);
  return v ? as_heads(*v) : std::nullopt;
}

std::optional<HeadsView> view_permuted_heads(const ir::Graph& g, int32_t permute) {
  const ir::Node& n = g.nodes[static_cast<size_t>(permute)];
  OperandView v{{permute, 0}, g.type_of(n.value("x")).shape, {}, 0};
  v.strides.resize(v.shape.size());
  const std::vector<int64_t> result = ir::contiguous_strides(n.type().shape);
  for (size_t d = 0; d < result.size(); ++d) v.strides[static_cast<size_t>(n.integers("dims")[d])] = result[d];
  return as_heads(v);
}

}  // namespace stitch::plan
