#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "hw/device.h"
#include "ir/ops.h"

namespace stitch::hw {
namespace {

// Peak of the fastest unit a matrix product may use without losing the class's precision. In fp32 that is not the FMA pipe: an
// fp32-accurate product from three fp16 tensor-core products (Ootomo and Yokota, 2022) runs at a third of the fp16 rate.
double matrix_peak(const Work& work, const Device& d, PrecisionClass c, ir::DType dtype) {
  if (dtype == ir::DType::f64) return d.fp64_flops;
  if (dtype == ir::DType::f16) return d.fp16_flops;
  if (dtype == ir::DType::bf16) return d.bf16_flops;
  const double split = std::max(d.fp32_flops, d.fp16_flops / 3);
  switch (c) {
    case PrecisionClass::fp32: return split;
    // fp16 operands carry TF32's 11-bit significand at twice its rate.
    case PrecisionClass::default_flags: return work.convolution ? d.fp16_flops : split;
    case PrecisionClass::tf32: return d.fp16_flops;
    case PrecisionClass::bf16: return d.bf16_flops;
    case PrecisionClass::fp16: return d.fp16_flops;
  }
  return split;
}

// Bytes of a value that a group must read at least once: a gather or slice inside the group may read less than all of
// it, so the reading ops' results bound it.
double bytes_needed(const ir::Graph& g, ir::ValueRef v, const std::vector<int32_t>& readers) {
  double needed = 0;
  const double all = static_cast<double>(ir::bytes_of(g.type_of(v)));
  for (int32_t r : readers) {
    const ir::Node& n = g.nodes[static_cast<size_t>(r)];
    const bool selects = n.op->cls == ir::OpClass::index || n.op->cls == ir::OpClass::movement;
    const double reads = selects ? static_cast<double>(ir::numel(n.type().shape) * ir::size_of(g.type_of(v).dtype)) : all;
    needed = std::max(needed, std::min(all, reads));
  }
  return needed;
}

// 1234567 -> "1.23 M": three digits and the unit's prefix.
std::string scaled(double v) {
  static const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t p = 0;
  for (; v >= 999.5 && p + 1 < std::size(prefixes); ++p) v /= 1000;
  return fmt::format("{:.3g} {}", v, prefixes[p]);
}

bool is_leaf(const ir::Node& n) { return n.op_name() == "input" || n.op_name() == "weight"; }

// 3x3 stride-1 convolutions may use Winograd; see work.cpp.
double winograd_discount(const ir::Graph& g, const ir::Node& n) {
  if (n.op->cls != ir::OpClass::convolution || n.boolean("transposed")) return 1;
  const ir::Shape& w = g.type_of(n.value("weight")).shape;
  if (w.size() != 4 || w[2] != 3 || w[3] != 3) return 1;
  const auto all_one = [](const ir::IntList& v) { return std::all_of(v.begin(), v.end(), [](int64_t x) { return x == 1; }); };
  return all_one(n.integers("stride")) && all_one(n.integers("dilation")) ? 0.25 : 1;
}

}  // namespace

Floor floor_of(const ir::Graph& g, const std::vector<int32_t>& nodes, const Device& d, PrecisionClass c) {
  const std::unordered_set<int32_t> inside(nodes.begin(), nodes.end());
  std::unordered_map<ir::ValueRef, std::vector<int32_t>> external;
  Floor f;
  for (int32_t id : nodes) {
    const ir::Node& n = g.nodes[static_cast<size_t>(id)];
    for (const ir::ValueRef& v : ir::operands(n))
      if (!inside.count(v.node) || is_leaf(g.at(v))) external[v].push_back(id);
    const Work w = work_of(g, n);
    f.flops += w.matrix_flops + w.vector_flops;
    f.matrix_flops += w.matrix_flops;
    f.winograd = f.winograd || winograd_discount(g, n) < 1;
    f.matrix_seconds += w.matrix_flops * winograd_discount(g, n) / matrix_peak(w, d, c, n.type().dtype);
    f.vector_flops += w.vector_flops;
    f.special_ops += w.special_ops;
  }
  for (const auto& [value, readers] : external) f.bytes += bytes_needed(g, value, readers);
  // Values read outside the group must be written: by later nodes or as program outputs.
  std::unordered_set<ir::ValueRef> written;
  for (size_t id = 0; id < g.nodes.size(); ++id)
    if (!inside.count(static_cast<int32_t>(id)))
      for (const ir::ValueRef& v : ir::operands(g.nodes[id]))
        if (inside.count(v.node)) written.insert(v);
  for (const ir::Output& o : g.outputs)
    if (inside.count(o.value.node)) written.insert(o.value);
  for (const ir::ValueRef& v : written)
    if (!is_leaf(g.at(v))) f.bytes += static_cast<double>(ir::bytes_of(g.type_of(v)));
  f.memory_seconds = f.bytes / d.dram_bytes_per_s;
  f.vector_seconds = f.vector_flops / d.fp32_flops;
  f.special_seconds = f.special_ops / d.special_per_s;
  f.compute_seconds = std::max({f.matrix_seconds, f.vector_seconds, f.special_seconds});
  f.seconds = std::max(f.memory_seconds, f.compute_seconds);
  f.bound = f.compute_seconds > f.memory_seconds ? "compute" : "memory";
  return f;
}

std::string explain(const Floor& f, const Device& d) {
  std::string out = fmt::format("Largest of: {}B read and written / {}B/s = {:.3g} us", scaled(f.bytes), scaled(d.dram_bytes_per_s), f.memory_seconds * 1e6);
  const auto add = [&](double work, double seconds, std::string_view unit, std::string_view kind) {
    if (work > 0) out += fmt::format("; {}{} {} / {}{}/s = {:.3g} us", scaled(work), unit, kind, scaled(work / seconds), unit, seconds * 1e6);
  };
  add(f.matrix_flops, f.matrix_seconds, "flop", f.winograd ? "of products, 3x3 convolutions by Winograd," : "of products");
  add(f.vector_flops, f.vector_seconds, "flop", "elementwise");
  add(f.special_ops, f.special_seconds, "op", "of special functions");
  return out + ".";
}

}  // namespace stitch::hw
