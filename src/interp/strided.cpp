#include "interp/strided.h"

namespace stitch::interp {

Layout dense(const ir::Shape& shape) { return {shape, ir::contiguous_strides(shape), 0}; }

Layout broadcast_to(const ir::Shape& from, const ir::Shape& to) {
  Layout l{to, std::vector<int64_t>(to.size(), 0), 0};
  const auto strides = ir::contiguous_strides(from);
  for (size_t k = 0; k < from.size(); ++k) {
    const size_t d = to.size() - from.size() + k;
    l.strides[d] = from[k] == 1 ? 0 : strides[k];
  }
  return l;
}

Layout collapse(const Layout& l) {
  Layout out{{}, {}, l.offset};
  for (size_t d = 0; d < l.shape.size(); ++d) {
    if (l.shape[d] == 1) continue;
    if (!out.shape.empty() && out.strides.back() == l.strides[d] * l.shape[d]) {
      out.shape.back() *= l.shape[d];
      out.strides.back() = l.strides[d];
    } else {
      out.shape.push_back(l.shape[d]);
      out.strides.push_back(l.strides[d]);
    }
  }
  if (out.shape.empty()) out = {{1}, {0}, l.offset};
  return out;
}

std::vector<int64_t> offsets_of(const Layout& layout) {
  const Layout l = collapse(layout);
  const int64_t n = ir::numel(l.shape);
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(n));
  for_each_run(l, 0, n, [&](int64_t offset, int64_t stride, int64_t length) {
    for (int64_t i = 0; i < length; ++i) out.push_back(offset + i * stride);
  });
  return out;
}

}  // namespace stitch::interp
