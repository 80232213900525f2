// Attention by the tiled kernel: no score matrix in memory.
#include <algorithm>
#include <cmath>

#include "code/skills/common.h"
#include "code/skills/shapes.h"
#include "code/skills/skills.h"

namespace stitch::code {
namespace {

using ir::DType;

constexpr int64_t kSharedLimit = 227 << 10;  // bytes a block may have on sm_90

struct Layer {
  const ir::Node* node = nullptr;
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

bool read(const TaskContext& context, Layer& l) {
  l.node = single_node(context);
  if (!l.node || l.node->op->cls != ir::OpClass::attention) return false;
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
  TaskSource out;
  out.headers = {"attention.cuh"};
  out.kernels = shape_struct(context, "AttentionShape",
                             fmt::format(".batch_outer = {}, .batch_inner = {}, .heads = {}, .kv_heads = {}, .rows = {}, .keys = {}, .width = {}, .value_width = {}, "
                                         ".causal = {},\n      .mask_outer = {}, .mask_inner = {}, .mask_head = {}, .mask_row = {}, .mask_key = {}",
                                         l.batch_outer, l.batch_inner, l.heads, l.kv_heads, l.q[r - 2], l.k[r - 2], l.q[r - 1], l.v[r - 1], n.boolean("is_causal"),
                                         l.mask_outer, l.mask_inner, l.mask_head, l.mask_row, l.mask_key));
  const std::string mask = n.has_arg("mask") ? context.parameter(n.value("mask")) : "static_cast<const stitch::NoMask*>(nullptr)";
  out.kernels += launcher(context, "attention",
                          fmt::format("  return stitch::attention<{}>({}, {}, {}, {}, {}f, stitch::Store{{{}}}, stream);\n", shape_name(context),
                                      context.parameter(n.value("q")), context.parameter(n.value("k")), context.parameter(n.value("v")), mask,
                                      fmt::format("{:#.9g}", scale), context.parameter({context.task.nodes[0], 0})));
  return out;
}

}  // namespace

Skill attention_skill() { return {"attention", takes, write, true}; }

}  // namespace stitch::code
