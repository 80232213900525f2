// Attention by the tiled kernel: no score matrix in memory. Queries, keys and values are read through the permutes and slices of the task,
// and the result is written through its permute.
#include <algorithm>
#include <cmath>
#include <set>

#include "code/skills/anchored.h"
#include "code/skills/common.h"
#include "code/skills/shapes.h"
#include "code/skills/skills.h"
#include "plan/operand_view.h"

namespace stitch::code {
namespace {

using ir::DType;

constexpr int64_t kSharedLimit = 227 << 10;  // bytes a block may have on sm_90

struct Layer {
  const ir::Node* node = nullptr;
  ir::ValueRef result;
  plan::HeadsView q_at, k_at, v_at;
  std::optional<plan::HeadsView> out_at;
  ir::Shape q, k, v;
  DType dtype = DType::f32;
  int64_t heads = 1, kv_heads = 1, batch_outer = 1, batch_inner = 1;
  int64_t mask_outer = 0, mask_inner = 0, mask_head = 0, mask_row = 0, mask_key = 0;
};

// Strides of the mask per dim of the score tensor (batch..., heads, rows, keys), 0 where it is broadcast; false when the
// leading batch dims need more than two strides.
bool read_mask(const ir::Shape& mask, const ir::Shape& scores, Layer& l) {
  std::vector<int64_t> strides(scores.size(), 0);
  const std::vector<int64_t> packed = ir::contiguous_strides(mask);
  const size_t lead = scores.size() - mask.size();
  for (size_t i = 0; i < mask.size(); ++i)
    if (mask[i] != 1) strides[lead + i] = packed[i];
  const size_t r = scores.size();
  l.mask_key = strides[r - 1];
  l.mask_row = strides[r - 2];
  if (r >= 3) l.mask_head = strides[r - 3];
  // Batch dims from the inside out: as long as one stride serves, they join batch_inner, then batch_outer.
  l.batch_inner = l.batch_outer = 1;
  bool outer = false;
  for (size_t i = r >= 3 ? r - 3 : 0; i-- > 0;) {
    if (scores[i] == 1) continue;
    int64_t& extent = outer ? l.batch_outer : l.batch_inner;
    int64_t& stride = outer ? l.mask_outer : l.mask_inner;
    if (extent == 1) stride = strides[i];
    else if (strides[i] != stride * extent) {
      if (outer) return false;
      outer = true;
      l.batch_outer = 1;
      l.mask_outer = strides[i];
      l.batch_outer *= scores[i];
      continue;
    }
    extent *= scores[i];
  }
  return true;
}

// The task's nodes are the attention, views behind its operands, and at most one permute of its result.
bool read_views(const TaskContext& context, int32_t anchor, Layer& l) {
  const ir::Node& n = context.graph.nodes[static_cast<size_t>(anchor)];
  const std::set<int32_t> inside(context.task.nodes.begin(), context.task.nodes.end());
  const auto q = plan::view_heads(context.graph, n.value("q"), inside), k = plan::view_heads(context.graph, n.value("k"), inside),
             v = plan::view_heads(context.graph, n.value("v"), inside);
  if (!q || !k || !v || (n.has_arg("mask") && inside.count(n.value("mask").node))) return false;
  l.q_at = *q;
  l.k_at = *k;
  l.v_at = *v;
  const std::vector<int32_t> after = nodes_after(context, anchor);
  l.result = {after.empty() ? anchor : after[0], 0};
  if (context.task.outputs != std::vector<ir::ValueRef>{l.result} || after.size() > 1) return false;
  if (after.empty()) return true;
  if (context.graph.at(l.result).op_name() != "permute") return false;
  l.out_at = plan::view_permuted_heads(context.graph, l.result.node);
  return l.out_at.has_value();
}

bool read(const TaskContext& context, Layer& l) {
  const int32_t anchor = anchor_of(context, ir::OpClass::attention);
  if (anchor < 0 || !read_views(context, anchor, l)) return false;
  l.node = &context.graph.nodes[static_cast<size_t>(anchor)];
  const ir::Node& n = *l.node;
  l.q = context.graph.type_of(n.value("q")).shape;
  l.k = context.graph.type_of(n.value("k")).shape;
  l.v = context.graph.type_of(n.value("v")).shape;
  l.dtype = n.type().dtype;
  if (l.dtype == DType::f64 || ir::numel(n.type().shape) == 0 || ir::numel(l.k) == 0) return false;
  for (std::string_view p : {"q", "k", "v"})
    if (context.graph.type_of(n.value(p)).dtype != l.dtype) return false;
  const size_t r = l.q.size();
  if (r >= 3) {
    l.heads = l.q[r - 3];
    l.kv_heads = l.k[r - 3];
  }
  for (size_t i = 0; i + 3 < r; ++i) l.batch_inner *= l.q[i];
  if (n.has_arg("mask")) {
    const ir::TensorType& mask = context.graph.type_of(n.value("mask"));
    if (mask.dtype == DType::f64) return false;
    ir::Shape scores(l.q.begin(), l.q.end() - 1);
    scores.push_back(l.k[r - 2]);
    if (!read_mask(mask.shape, scores, l)) return false;
  }
  // As AttentionShape::shared_bytes().
  const auto up = [](int64_t x, int64_t to) { return (x + to - 1) / to * to; };
  const int64_t width = up(l.q[r - 1], 4), value_width = up(l.v[r - 1], 64), rows = l.q[r - 2] > 32 ? 64 : 16;
  return value_width <= 256 && 4 * (rows * (width + 4 + 68) + 64 * (std::max(width, value_width) + 4)) <= kSharedLimit;
}

bool takes(const TaskContext& context) {
  Layer l;
  return read(context, l);
}

Result<TaskSource> write(const TaskContext& context) {
  Layer l;
  if (!read(context, l)) return fail(ErrorKind::unsupported, "attention of this form has no tiled kernel");
  const ir::Node& n = *l.node;
  const size_t r = l.q.size();
  const double scale = n.has_arg("scale") ? n.number("scale") : 1 / std::sqrt(static_cast<double>(l.q[r - 1]));
  const auto strides = [](const plan::HeadsView& at) { return fmt::format("{{{}, {}, {}}}", at.batch, at.head, at.row); };
  const auto pointer = [&](const plan::HeadsView& at) { return context.parameter(at.base) + (at.offset ? fmt::format(" + {}", at.offset) : ""); };
  std::string layouts = fmt::format(".q = {}, .k = {}, .v = {}", strides(l.q_at), strides(l.k_at), strides(l.v_at));
  if (l.out_at) layouts += fmt::format(", .out = {}", strides(*l.out_at));
  TaskSource out;
  out.headers = {"attention.cuh"};
  out.kernels = shape_struct(context, "AttentionShape",
                             fmt::format(".batch_outer = {}, .batch_inner = {}, .heads = {}, .kv_heads = {}, .rows = {}, .keys = {}, .width = {}, .value_width = {}, "
                                         ".causal = {},\n      .mask_outer = {}, .mask_inner = {}, .mask_head = {}, .mask_row = {}, .mask_key = {},\n      {}",
                                         l.batch_outer, l.batch_inner, l.heads, l.kv_heads, l.q[r - 2], l.k[r - 2], l.q[r - 1], l.v[r - 1], n.boolean("is_causal"),
                                         l.mask_outer, l.mask_inner, l.mask_head, l.mask_row, l.mask_key, layouts));
  const std::string mask = n.has_arg("mask") ? context.parameter(n.value("mask")) : "static_cast<const stitch::NoMask*>(nullptr)";
  out.kernels += launcher(context, "attention",
                          fmt::format("  return stitch::attention<{}>({}, {}, {}, {}, {}f, stitch::Store{{{}}}, stream);\n", shape_name(context),
                                      pointer(l.q_at), pointer(l.k_at), pointer(l.v_at), mask, fmt::format("{:#.9g}", scale), context.parameter(l.result)));
  return out;
}

}  // namespace

Skill attention_skill() { return {"attention", takes, write, true}; }

}  // namespace stitch::code
