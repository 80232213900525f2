// Pools and resampling: one output element from its window.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "code/expr/loops.h"
#include "code/skill.h"
#include "ir/ops.h"

namespace stitch::code {

using ir::DType;
using ir::IntList;
using ir::ValueRef;

namespace {

// Largest element over the open loops and where it is; PyTorch keeps the first among equals and any NaN.
Val emit_maximum(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords,
                 const std::function<void(LoopNest&, Coords&)>& window) {
  const ValueRef x = node.value("x");
  const ir::Shape& sx = e.graph().type_of(x).shape;
  const DType type = node.types[0].dtype;
  const Val best = accumulator(e, fmt::format("acc{}", v.node), type, lowest(type), label(e.graph(), v.node));
  const bool indices = node.types.size() > 1;
  Val where;
  if (indices) where = accumulator(e, fmt::format("at{}", v.node), DType::i64, "-1", "");
  {
    LoopNest nest(e);
    Coords in{coords[0], coords[1]};
    window(nest, in);
    const Val value = e.convert(e.value(x, in), type);
    if (!indices) {
      e.line(fmt::format("{0} = op::maximum({0}, {1});", best.text, value.text));
    } else {
      const Coords spatial(in.begin() + 2, in.end());
      const ir::Shape spatial_shape(sx.begin() + 2, sx.end());
      const std::string flat = e.text(e.space().ravel(spatial, spatial_shape));
      e.open(fmt::format("if ({0} < 0 || {1} > {2} || op::is_nan({1}))", where.text, value.text, best.text), true);
      e.line(fmt::format("{} = {};", best.text, value.text));
      e.line(fmt::format("{} = {};", where.text, flat));
      e.close();
    }
  }
  e.remember(Emitter::key_of({v.node, 0}, coords), best);
  if (indices) e.remember(Emitter::key_of({v.node, 1}, coords), where);
  return v.output == 0 ? best : where;
}

// First and last-plus-one position of a window, as names in the current scope.
struct Window {
  std::string begin, end;
};
Window named_window(Emitter& e, const std::string& begin, const std::string& end, int depth) {
  const Window w{e.fresh("begin"), e.fresh("end")};
  e.line_at(depth, fmt::format("const {} {} = {};", e.index_type(), w.begin, begin));
  e.line_at(depth, fmt::format("const {} {} = {};", e.index_type(), w.end, end));
  return w;
}

Window adaptive_window(Emitter& e, const Index& at, int64_t in, int64_t out) {
  IndexSpace& s = e.space();
  return named_window(e, e.text(s.div(s.scale(at, in), out)), e.text(s.div(s.add(s.scale(at, in), in + out - 1), out)), e.depth());
}

Val emit_average(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords, const std::vector<Window>& windows,
                 const std::string& count, int64_t divisor) {
  const ValueRef x = node.value("x");
  const ir::Shape& sx = e.graph().type_of(x).shape;
  const DType type = node.type().dtype;
  const Val acc = accumulator(e, fmt::format("acc{}", v.node), type, e.zero(type).text, label(e.graph(), v.node));
  {
    LoopNest nest(e);
    Coords in{coords[0], coords[1]};
    for (size_t d = 0; d < windows.size(); ++d) in.push_back(nest.loop_between(windows[d].begin, windows[d].end, sx[d + 2]));
    const Val value = e.convert(e.value(x, in), type);
    e.line(fmt::format("{} = {};", acc.text, added(type, acc.text, value.text)));
  }
  const std::string by = divisor != 0 ? e.literal(static_cast<double>(divisor), type).text
                                      : fmt::format("static_cast<{}>({})", compute_type(type), count);
  return e.define(fmt::format("v{}", v.node), type, ir::is_floating(type) ? acc.text + " / " + by : fmt::format("op::div_floor({}, {})", acc.text, by),
                  acc.depth);
}

Val emit_avg_pool(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const ir::Shape& sx = e.graph().type_of(node.value("x")).shape;
  const IntList &kernel = node.integers("kernel"), &stride = node.integers("stride"), &padding = node.integers("padding");
  std::vector<Window> windows;
  std::string padded, inside;
  for (size_t d = 0; d < kernel.size(); ++d) {
    const Index start = e.space().add(e.space().scale(coords[d + 2], stride[d]), -padding[d]);
    const int64_t n = sx[d + 2];
    const std::string from = e.text(start), to = e.text(e.space().add(start, kernel[d]));
    const IndexRange r = e.space().range(start);
    const bool cut = r.min < 0 || r.max + kernel[d] > n;
    windows.push_back(cut ? named_window(e, fmt::format("({0}) < 0 ? 0 : {0}", from), fmt::format("({0}) > {1} ? {1} : {0}", to, n), e.depth())
                          : named_window(e, from, to, e.depth()));
    const std::string product = d == 0 ? "" : " * ";
    padded += product + (r.max + kernel[d] > n + padding[d]
                             ? fmt::format("(({0}) > {1} ? {1} - ({2}) : {3})", to, n + padding[d], from, kernel[d])
                             : std::to_string(kernel[d]));
    inside += fmt::format("{}({} - {})", product, windows[d].end, windows[d].begin);
  }
  const int64_t divisor = node.has_arg("divisor_override") ? node.integer("divisor_override") : 0;
  return emit_average(e, node, v, coords, windows, node.boolean("count_include_pad") ? padded : inside, divisor);
}

std::vector<double> user_scales(const ir::Node& node) {
  std::vector<double> scales;
  if (!node.has_arg("scales")) return scales;
  const std::string& text = node.text("scales");
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    scales.push_back(std::strtod(text.substr(at, comma - at).c_str(), nullptr));
    at = comma + 1;
  }
  return scales;
}

// Source position of output index `at` along one spatial dim, PyTorch's area_pixel_compute_source_index.
std::string source_position(Emitter& e, const ir::Node& node, const Index& at, size_t d, int64_t n, int64_t m, DType type, bool clip) {
  const bool corners = node.boolean("align_corners");
  const std::vector<double> user = user_scales(node);
  double scale;
  if (corners) {
    scale = m > 1 ? static_cast<double>(n - 1) / static_cast<double>(m - 1) : 0;
  } else {
    scale = d < user.size() && user[d] > 0 ? 1.0 / user[d] : static_cast<double>(n) / static_cast<double>(m);
  }
  const std::string i = fmt::format("static_cast<{}>({})", compute_type(type), e.text(at)), s = float_literal(scale, type);
  if (corners) return fmt::format("{} * {}", i, s);
  const std::string half = float_literal(0.5, type);
  const std::string position = fmt::format("({} + {}) * {} - {}", i, half, s, half);
  return clip ? fmt::format("op::maximum({}, {})", position, float_literal(0, type)) : position;
}

Val emit_linear(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const ValueRef x = node.value("x");
  const ir::Shape& sx = e.graph().type_of(x).shape;
  const DType type = node.type().dtype;
  const size_t spatial = sx.size() - 2;
  std::vector<std::array<Index, 2>> at(spatial);
  std::vector<std::array<std::string, 2>> weight(spatial);
  const int here = e.depth();
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t n = sx[d + 2];
    const Val position = e.define("p", type, source_position(e, node, coords[d + 2], d, n, node.type().shape[d + 2], type, true), here,
                                  d == 0 ? label(e.graph(), v.node) : "");
    at[d][0] = e.opaque("j", fmt::format("clamp_index<{0}>(static_cast<{0}>({1}), {2})", e.index_type(), position.text, n), here, n);
    at[d][1] = e.opaque("j", fmt::format("clamp_index<{0}>({1} + 1, {2})", e.index_type(), e.text(at[d][0]), n), here, n);
    const Val t = e.define("f", type, fmt::format("{} - static_cast<{}>({})", position.text, compute_type(type), e.text(at[d][0])), here);
    weight[d][0] = fmt::format("({} - {})", float_literal(1, type), t.text);
    weight[d][1] = t.text;
  }
  std::string sum;
  for (size_t corner = 0; corner < (size_t{1} << spatial); ++corner) {
    Coords in{coords[0], coords[1]};
    std::string term;
    for (size_t d = 0; d < spatial; ++d) {
      const size_t side = corner >> (spatial - 1 - d) & 1;
      in.push_back(at[d][side]);
      term += weight[d][side] + " * ";
    }
    sum += (corner == 0 ? "" : " + ") + term + e.convert(e.value(x, in), type).text;
  }
  return e.define(fmt::format("v{}", v.node), type, sum, here);
}

Val emit_bicubic(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const ValueRef x = node.value("x");
  const ir::Shape& sx = e.graph().type_of(x).shape;
  const DType type = node.type().dtype;
  const int here = e.depth();
  std::array<std::array<Index, 4>, 2> at;
  std::array<std::string, 2> fraction;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t n = sx[d + 2];
    const Val position = e.define("p", type, source_position(e, node, coords[d + 2], d, n, node.type().shape[d + 2], type, false), here,
                                  d == 0 ? label(e.graph(), v.node) : "");
    const Val down = e.define("f", type, fmt::format("floor({})", position.text), here);
    fraction[d] = e.define("f", type, fmt::format("{} - {}", position.text, down.text), here).text;
    for (int tap = 0; tap < 4; ++tap)
      at[d][static_cast<size_t>(tap)] =
          e.opaque("j", fmt::format("clamp_index<{0}>(static_cast<{0}>({1}) + ({2}), {3})", e.index_type(), down.text, tap - 1, n), here, n);
  }
  const auto blended = [&](const std::array<std::string, 4>& p, const std::string& t) {
    return fmt::format("op::cubic({}, {}, {}, {}, {})", p[0], p[1], p[2], p[3], t);
  };
  std::array<std::string, 4> rows;
  for (size_t i = 0; i < 4; ++i) {
    std::array<std::string, 4> p;
    for (size_t j = 0; j < 4; ++j) p[j] = e.convert(e.value(x, {coords[0], coords[1], at[0][i], at[1][j]}), type).text;
    rows[i] = e.define("r", type, blended(p, fraction[1]), here).text;
  }
  return e.define(fmt::format("v{}", v.node), type, blended(rows, fraction[0]), here);
}

}  // namespace

Val emit_pool(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  const std::string_view name = node.op->name;
  const ir::Shape& sx = e.graph().type_of(node.value("x")).shape;
  const ir::Shape& so = node.types[0].shape;
  if (name == "max_pool") {
    const IntList &kernel = node.integers("kernel"), &stride = node.integers("stride"), &padding = node.integers("padding"),
                  &dilation = node.integers("dilation");
    return emit_maximum(e, node, v, coords, [&](LoopNest& nest, Coords& in) {
      for (size_t d = 0; d < kernel.size(); ++d) {
        const Index tap = nest.loop(kernel[d]);
        const Index at = e.space().add(e.space().add(e.space().scale(coords[d + 2], stride[d]), e.space().scale(tap, dilation[d])), -padding[d]);
        in.push_back(nest.confine(at, sx[d + 2]));
      }
    });
  }
  if (name == "adaptive_max_pool")
    return emit_maximum(e, node, v, coords, [&](LoopNest& nest, Coords& in) {
      for (size_t d = 2; d < sx.size(); ++d) {
        const Window w = adaptive_window(e, coords[d], sx[d], so[d]);
        in.push_back(nest.loop_between(w.begin, w.end, sx[d]));
      }
    });
  if (name == "adaptive_avg_pool") {
    std::vector<Window> windows;
    std::string count;
    for (size_t d = 2; d < sx.size(); ++d) {
      windows.push_back(adaptive_window(e, coords[d], sx[d], so[d]));
      count += fmt::format("{}({} - {})", d == 2 ? "" : " * ", windows.back().end, windows.back().begin);
    }
    return emit_average(e, node, v, coords, windows, count, 0);
  }
  return emit_avg_pool(e, node, v, coords);
}

Val emit_resample(Emitter& e, const ir::Node& node, ValueRef v, const Coords& coords) {
  return node.op->name == "upsample_bicubic" ? emit_bicubic(e, node, v, coords) : emit_linear(e, node, v, coords);
}

}  // namespace stitch::code
