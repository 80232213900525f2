// Skills for single nodes that work along one dim or over windows: scans, sort and top-k, softmax over a dim that is not
// the innermost, pooling.
#include <algorithm>

#include "code/skills/common.h"
#include "code/skills/shapes.h"
#include "code/skills/skills.h"

namespace stitch::code {
namespace {

using ir::DType;
using ir::ValueRef;

bool is_empty(const ir::Node& n) { return ir::numel(n.type().shape) == 0; }
const ir::TensorType& input_type(const TaskContext& context, const ir::Node& n) { return context.graph.type_of(n.value("x")); }
ValueRef result(const TaskContext& context, int32_t k = 0) { return {context.task.nodes[0], k}; }

// ---------------------------------------------------------------------------------------------------------------------
// Scans

// The kernels' name of the op, "" when there is none for this type.
std::string scan_op(const TaskContext& context, const ir::Node& n) {
  const std::string_view op = n.op_name();
  const DType out = n.type().dtype;
  const std::string compute(compute_type(out));
  if (ir::size_of(out) < 4 && !ir::is_floating(out)) return "";  // shuffles move whole words
  if (op == "cumsum") return fmt::format("stitch::Sum<{}>", compute);
  if (op == "cumprod") return fmt::format("stitch::Product<{}>", compute);
  if (op == "logcumsumexp") return fmt::format("stitch::LogAddExp<{}>", compute);
  if (input_type(context, n).dtype != out) return "";
  if (op == "cummax" || op == "cummin") return fmt::format("stitch::RunningExtremum<{}, {}>", compute, op == "cummax");
  return "";
}

bool takes_scan(const TaskContext& context) {
  const ir::Node* n = single_node(context);
  return n && n->op->cls == ir::OpClass::scan && !is_empty(*n) && !n->type().shape.empty() && !scan_op(context, *n).empty();
}

Result<TaskSource> write_scan(const TaskContext& context) {
  if (!takes_scan(context)) return fail(ErrorKind::unsupported, "this scan has no kernel");
  const ir::Node& n = *single_node(context);
  const AroundDim a = around(n.type().shape, n.integer("dim"));
  TaskSource out;
  Scratch scratch;
  const std::string values = result_or_scratch(context, 0, scratch), indices = n.types.size() > 1 ? result_or_scratch(context, 1, scratch) : "nullptr";
  out.scratch_bytes = scratch.bytes();
  out.headers = {"scan.cuh"};
  out.kernels = shape_struct(context, "ScanShape", fmt::format(".outer = {}, .extent = {}, .inner = {}", a.outer, a.extent, a.inner));
  out.kernels += launcher(context, "scan",
                          fmt::format("  return stitch::scan<{}, {}>({}, {}, {}, stream);\n", shape_name(context), scan_op(context, n), context.parameter(n.value("x")),
                                      values, indices));
  return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// Sort and top-k

bool takes_sort(const TaskContext& context) {
  const ir::Node* n = single_node(context);
  if (!n || n->op->cls != ir::OpClass::sort || is_empty(*n) || n->type().shape.empty() || n->type().dtype == DType::b8) return false;
  return input_type(context, *n).dtype == n->type().dtype && around(input_type(context, *n).shape, n->integer("dim")).extent < INT32_MAX;
}

Result<TaskSource> write_sort(const TaskContext& context) {
  if (!takes_sort(context)) return fail(ErrorKind::unsupported, "this sort has no kernel");
  const ir::Node& n = *single_node(context);
  const bool top = n.op_name() == "topk";
  const AroundDim a = around(input_type(context, n).shape, n.integer("dim"));
  const int64_t keep = top ? n.integer("k") : a.extent, rows = a.outer * a.inner;
  TaskSource out;
  out.headers = {"sort.cuh"};
  // As SortShape::scratch_entries(); an entry is the value and a 32-bit index.
  constexpr int64_t kTile = 4096;
  const int64_t size = ir::size_of(n.type().dtype), entry = size <= 4 ? 8 : 16;
  Scratch scratch;
  if (a.extent > kTile) (void)scratch.take(2 * rows * (keep <= kTile / 4 ? ceil_div(a.extent, kTile) * keep : a.extent) * entry, "char");  // the kernel's own, first
  const std::string values = result_or_scratch(context, 0, scratch), indices = result_or_scratch(context, 1, scratch);
  out.scratch_bytes = scratch.bytes();
  out.kernels = shape_struct(context, "SortShape",
                             fmt::format(".outer = {}, .extent = {}, .inner = {}, .keep = {}, .descending = {}", a.outer, a.extent, a.inner, keep,
                                         top ? n.boolean("largest") : n.boolean("descending")));
  out.kernels += launcher(context, "sort", fmt::format("  return stitch::sort<{}>({}, {}, {}, scratch, stream);\n", shape_name(context), context.parameter(n.value("x")),
                                                       values, indices));
  return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// Softmax along an outer dim

bool takes_columns(const TaskContext& context) {
  const ir::Node* n = single_node(context);
  if (!n || n->op->cls != ir::OpClass::row || is_empty(*n) || n->type().shape.empty() || !ir::is_floating(n->type().dtype)) return false;
  return input_type(context, *n).dtype == n->type().dtype && around(n->type().shape, n->integer("dim")).inner > 1;
}

Result<TaskSource> write_columns(const TaskContext& context) {
  if (!takes_columns(context)) return fail(ErrorKind::unsupported, "this softmax has no kernel");
  const ir::Node& n = *single_node(context);
  const AroundDim a = around(n.type().shape, n.integer("dim"));
  TaskSource out;
  out.headers = {"columns.cuh"};
  out.kernels = shape_struct(context, "ColumnShape",
                             fmt::format(".outer = {}, .extent = {}, .inner = {}, .log = {}", a.outer, a.extent, a.inner, n.op_name() == "log_softmax"));
  out.kernels += launcher(context, "softmax_columns", fmt::format("  return stitch::softmax_columns<{}>({}, stitch::Store{{{}}}, stream);\n", shape_name(context),
                                                                  context.parameter(n.value("x")), context.parameter(result(context))));
  return out;
}

// ---------------------------------------------------------------------------------------------------------------------
// Pooling

bool takes_pool(const TaskContext& context) {
  const ir::Node* n = single_node(context);
  if (!n || n->op->cls != ir::OpClass::pool || is_empty(*n) || !ir::is_floating(n->type().dtype)) return false;
  if (n->op_name().substr(0, 8) == "upsample") return false;  // every element is a few loads: the generic kernel is as good
  const ir::TensorType& x = input_type(context, *n);
  if (x.dtype != n->type().dtype || ir::numel(x.shape) == 0) return false;
  const std::vector<ValueRef> values{result(context)};
  return std::find(context.task.outputs.begin(), context.task.outputs.end(), values[0]) != context.task.outputs.end() &&
         ir::numel(x.shape) / (x.shape[0] * x.shape[1]) < INT32_MAX;
}

// "{1, 3, 3}" of the entries from `skip` on, with leading fillers.
std::string three(const ir::IntList& values, size_t skip, int64_t filler) {
  ir::IntList out(3, filler);
  const size_t n = values.size() - skip;
  for (size_t i = 0; i < n; ++i) out[3 - n + i] = values[skip + i];
  return fmt::format("{{{}}}", fmt::join(out, ", "));
}

Result<TaskSource> write_pool(const TaskContext& context) {
  if (!takes_pool(context)) return fail(ErrorKind::unsupported, "this pooling has no kernel");
  const ir::Node& n = *single_node(context);
  const ir::Shape& x = input_type(context, n).shape;
  const bool adaptive = n.op_name().substr(0, 8) == "adaptive", max = n.op_name().find("max") != std::string_view::npos;
  std::string fields = fmt::format(".planes = {}, .in = {}, .out = {}, .adaptive = {}", x[0] * x[1], three(x, 2, 1), three(n.type().shape, 2, 1), adaptive);
  if (adaptive) {
    fields += ", .kernel = {}, .stride = {}, .padding = {}, .dilation = {}, .count_padding = false, .divisor = 0";
  } else {
    const std::string dilation = max && !n.integers("dilation").empty() ? three(n.integers("dilation"), 0, 1) : "{1, 1, 1}";
    fields += fmt::format(",\n      .kernel = {}, .stride = {}, .padding = {}, .dilation = {}, .count_padding = {}, .divisor = {}", three(n.integers("kernel"), 0, 1),
                          three(n.integers("stride"), 0, 1), three(n.integers("padding"), 0, 0), dilation, !max && n.boolean("count_include_pad"),
                          !max && n.has_arg("divisor_override") ? n.integer("divisor_override") : 0);
  }
  TaskSource out;
  out.headers = {"pool.cuh"};
  out.kernels = shape_struct(context, "PoolShape", fields);
  const std::string store = fmt::format("stitch::Store{{{}}}", context.parameter(result(context)));
  const std::string indices = n.types.size() > 1 ? result_or_null(context, 1) : "nullptr";
  out.kernels += launcher(context, "pool",
                          max ? fmt::format("  return stitch::max_pool<{}>({}, {}, {}, stream);\n", shape_name(context), context.parameter(n.value("x")), indices, store)
                              : fmt::format("  return stitch::avg_pool<{}>({}, {}, stream);\n", shape_name(context), context.parameter(n.value("x")), store));
  return out;
}

}  // namespace

Skill scan_skill() { return {"scan", takes_scan, write_scan, true}; }
Skill sort_skill() { return {"sort", takes_sort, write_sort, true}; }
Skill softmax_columns_skill() { return {"softmax_columns", takes_columns, write_columns, true}; }
Skill pool_skill() { return {"pool", takes_pool, write_pool, true}; }

}  // namespace stitch::code
