// Type rules of convolutions, pooling and resampling.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "ir/infer_rules.h"

namespace stitch::ir::rules {
namespace {

// Products of two values below 2^48 do not fit 64 bits.
using Wide = __int128;

Status one_per_spatial_dim(const Ctx& c, std::initializer_list<std::string_view> parameters, size_t spatial) {
  for (std::string_view p : parameters)
    if (c.n.integers(p).size() != spatial) return c.bad("{} needs one entry for each of the {} spatial dims", p, spatial);
  return {};
}

Result<int64_t> window_result(const Ctx& c, Wide extent) {
  if (extent < 1) return c.bad("the window is larger than the input");
  if (extent > kMaxElements) return c.bad("the result is too large");
  return static_cast<int64_t>(extent);
}

Result<int64_t> convolved(const Ctx& c, size_t i) {
  const int64_t in = c.shape("x")[i + 2], kernel = c.shape("weight")[i + 2];
  const int64_t stride = c.n.integers("stride")[i], padding = c.n.integers("padding")[i], dilation = c.n.integers("dilation")[i];
  const int64_t extra = c.n.integers("output_padding")[i];
  if (stride < 1 || dilation < 1 || padding < 0 || kernel < 1) return c.bad("kernel, stride and dilation must be positive, padding not negative");
  const Wide window = Wide{dilation} * (kernel - 1) + 1;
  if (c.n.boolean("transposed")) {
    if (extra < 0 || (extra >= stride && extra >= dilation)) return c.bad("output_padding must be smaller than stride or dilation");
    return window_result(c, Wide{in - 1} * stride - 2 * Wide{padding} + window + extra);
  }
  if (extra != 0) return c.bad("output_padding is for transposed convolutions");
  const Wide room = Wide{in} + 2 * Wide{padding} - window;
  return window_result(c, room < 0 ? Wide{0} : room / stride + 1);
}

// Pooled extent as PyTorch: in ceil mode the last window must start inside the input or its left padding.
Result<int64_t> pooled(const Ctx& c, size_t i, int64_t dilation) {
  const int64_t in = c.shape("x")[i + 2], kernel = c.n.integers("kernel")[i], stride = c.n.integers("stride")[i], padding = c.n.integers("padding")[i];
  const bool ceil_mode = c.n.boolean("ceil_mode");
  if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0) return c.bad("kernel, stride and dilation must be positive, padding not negative");
  if (padding > (Wide{dilation} * (kernel - 1) + 1) / 2) return c.bad("padding may be at most half the window");
  const Wide room = Wide{in} + 2 * Wide{padding} - Wide{dilation} * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
  if (room < 0) return c.bad("the window is larger than the input");
  Wide out = room / stride + 1;
  if (ceil_mode && (out - 1) * stride >= Wide{in} + padding) --out;
  return window_result(c, out);
}

// `scales`: None or one positive number per spatial dim, "2.0,2.0".
Status check_scales(const Ctx& c, size_t spatial) {
  if (!c.n.has_arg("scales")) return {};
  const std::string& text = c.n.text("scales");
  size_t count = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    double v = 0;
    const auto r = std::from_chars(text.data() + at, text.data() + end, v);
    if (r.ec != std::errc{} || r.ptr != text.data() + end || !(v > 0) || std::isinf(v)) return c.bad("scales must be positive numbers such as \"2.0,2.0\"");
    ++count;
    at = end + 1;
  }
  if (count != spatial) return c.bad("scales needs one number for each of the {} spatial dims", spatial);
  return {};
}

Result<size_t> spatial_dims(const Ctx& c) {
  const Shape& x = c.shape("x");
  if (x.size() < 3 || x.size() > 5) return c.bad("x {} needs the dims (N, C, 1 to 3 spatial)", to_string(x));
  return x.size() - 2;
}

}  // namespace

Result<Types> convolution(const Ctx& c) {
  STITCH_TRY(const size_t spatial, spatial_dims(c));
  const Shape &x = c.shape("x"), &w = c.shape("weight");
  if (w.size() != x.size()) return c.bad("weight {} needs the rank of x {}", to_string(w), to_string(x));
  STITCH_CHECK_OK(one_per_spatial_dim(c, {"stride", "padding", "dilation", "output_padding"}, spatial));
  STITCH_CHECK_OK(one_dtype(c, {"x", "weight", "bias"}));
  const int64_t groups = c.n.integer("groups");
  const bool transposed = c.n.boolean("transposed");
  if (groups < 1 || x[1] < groups || x[1] % groups) return c.bad("groups {} must divide the {} channels", groups, x[1]);
  const bool fits = transposed ? w[0] == x[1] : w[1] == x[1] / groups && w[0] % groups == 0;
  if (!fits) return c.bad("weight {} does not fit x {} with groups {}", to_string(w), to_string(x), groups);
  const int64_t channels = transposed ? w[1] * groups : w[0];
  STITCH_CHECK_OK(shape_is(c, "bias", {channels}));
  Shape out{x[0], channels};
  for (size_t i = 0; i < spatial; ++i) {
    STITCH_TRY(const int64_t e, convolved(c, i));
    out.push_back(e);
  }
  STITCH_TRY(const DType dtype, float_result(c));
  return Types{{dtype, out}};
}

Result<Types> pool(const Ctx& c) {
  if (c.is("upsample_linear") || c.is("upsample_bicubic")) return resample(c);
  STITCH_TRY(const size_t spatial, spatial_dims(c));
  TensorType t = c.in("x");
  const bool max = c.is("max_pool");
  if (max || c.is("avg_pool")) {
    STITCH_CHECK_OK(one_per_spatial_dim(c, {"kernel", "stride", "padding"}, spatial));
    if (max) STITCH_CHECK_OK(one_per_spatial_dim(c, {"dilation"}, spatial));
    else if (c.n.has_arg("divisor_override") && c.n.integer("divisor_override") == 0) return c.bad("divisor_override must not be 0");
    for (size_t i = 0; i < spatial; ++i) {
      STITCH_TRY(t.shape[i + 2], pooled(c, i, max ? c.n.integers("dilation")[i] : 1));
    }
  } else {
    STITCH_CHECK_OK(one_per_spatial_dim(c, {"output_size"}, spatial));
    const IntList& size = c.n.integers("output_size");
    for (size_t i = 0; i < spatial; ++i)
      if (size[i] < 1 || t.shape[i + 2] < 1) return c.bad("pools {} to {}, but every spatial extent must be positive", to_string(t.shape), to_string(size));
    std::copy(size.begin(), size.end(), t.shape.begin() + 2);
  }
  Types out{t};
  if (c.n.op->max_results == 2 && c.n.types.size() == 2) out.push_back({DType::i64, t.shape});
  return out;
}

Result<Types> resample(const Ctx& c) {
  STITCH_TRY(const size_t spatial, spatial_dims(c));
  TensorType t = c.in("x");
  if (c.is("upsample_bicubic") && spatial != 2) return c.bad("needs two spatial dims");
  if (!c.is("upsample_nearest") && !is_floating(t.dtype)) return c.bad("x must be a float, not {}", name_of(t.dtype));
  STITCH_CHECK_OK(one_per_spatial_dim(c, {"size"}, spatial));
  STITCH_CHECK_OK(check_scales(c, spatial));
  const IntList& size = c.n.integers("size");
  for (size_t i = 0; i < spatial; ++i)
    if (size[i] < 1 || t.shape[i + 2] < 1) return c.bad("resamples {} to {}, but every spatial extent must be positive", to_string(t.shape), to_string(size));
  std::copy(size.begin(), size.end(), t.shape.begin() + 2);
  return Types{t};
}

}  // namespace stitch::ir::rules
