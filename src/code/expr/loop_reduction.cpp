// Reductions over a few elements, which a thread does by itself.
#include <algorithm>

#include "code/expr/loops.h"
#include "ir/ops.h"

namespace stitch::code {

using ir::DType;

Val emit_short_reduction(Emitter& e, const ir::Node& node, ir::ValueRef v, const Coords& coords) {
  const std::string_view op = node.op->name;
  const ir::ValueRef x = node.value("x");
  const ir::Shape& shape = e.graph().type_of(x).shape;
  const DType type = node.type().dtype;
  const ir::IntList& dims = node.integers("dims");
  const bool keepdim = node.boolean("keepdim");
  const std::string start = op == "amax" ? lowest(type) : op == "amin" ? highest(type) : e.zero(type).text;
  const Val acc = accumulator(e, fmt::format("v{}", v.node), type, start, label(e.graph(), v.node));
  LoopNest nest(e);
  Coords at(shape.size());
  size_t kept = 0;
  int64_t count = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = dims.empty() || std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    if (reduced) {
      at[d] = nest.loop(shape[d]);
      count *= shape[d];
      if (keepdim) ++kept;
    } else {
      at[d] = coords[kept++];
    }
  }
  const std::string element = e.convert(e.value(x, at), type).text;
  const char* const combine = op == "amax" ? "op::maximum" : op == "amin" ? "op::minimum" : nullptr;
  e.line(fmt::format("{} = {};", acc.text, combine ? fmt::format("{}({}, {})", combine, acc.text, element) : added(type, acc.text, element)));
  nest.close();
  if (op != "mean" || count == 1) return acc;
  e.line(fmt::format("{} = {} / {};", acc.text, acc.text, e.literal(static_cast<double>(count), type).text));
  return acc;
}

}  // namespace stitch::code
