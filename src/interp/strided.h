#pragma once
// Index arithmetic shared by the rules: a strided view of a dense array, and reading it in row-major order.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "ir/types.h"

namespace stitch::interp {

// Element (i0, i1, ...) of a view of shape `shape` lies at offset + i0*strides[0] + i1*strides[1] + ...
struct Layout {
  ir::Shape shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;
};

Layout dense(const ir::Shape& shape);
Layout broadcast_to(const ir::Shape& from, const ir::Shape& to);  // stride 0 where `from` is repeated
// The same elements in the same order with as few dims as possible (at least one).
Layout collapse(const Layout&);

// Offsets of all elements in row-major order.
std::vector<int64_t> offsets_of(const Layout&);

// Walks elements [start, start + n) of a layout in runs along the last dim: body(first offset, stride, length).
template <class Body>
void for_each_run(const Layout& l, int64_t start, int64_t n, Body&& body) {
  const size_t rank = l.shape.size();
  if (rank == 0) {
    if (n > 0) body(l.offset, int64_t{0}, int64_t{1});
    return;
  }
  std::vector<int64_t> at(rank);
  int64_t offset = l.offset, rest = start;
  for (size_t d = rank; d-- > 0;) {
    at[d] = rest % std::max<int64_t>(1, l.shape[d]);
    rest /= std::max<int64_t>(1, l.shape[d]);
    offset += at[d] * l.strides[d];
  }
  const int64_t inner = l.shape[rank - 1], stride = l.strides[rank - 1];
  while (n > 0) {
    const int64_t length = std::min(n, inner - at[rank - 1]);
    body(offset, stride, length);
    n -= length;
    offset += length * stride;
    at[rank - 1] += length;
    for (size_t d = rank - 1; d > 0 && at[d] == l.shape[d]; --d) {  // carry
      offset += l.strides[d - 1] - at[d] * l.strides[d];
      at[d] = 0;
      ++at[d - 1];
    }
  }
}

// out[k] = convert(source element k of the layout) for k in [start, start + n).
template <class T, class U, class Convert>
void gather(const Layout& l, const T* source, int64_t start, int64_t n, U* out, Convert&& convert) {
  for_each_run(l, start, n, [&](int64_t offset, int64_t stride, int64_t length) {
    const T* p = source + offset;
    if (stride == 1) std::transform(p, p + length, out, convert);
    else if (stride == 0) std::fill_n(out, length, static_cast<U>(convert(*p)));
    else for (int64_t i = 0; i < length; ++i) out[i] = convert(p[i * stride]);
    out += length;
  });
}

// Writes the whole view densely to `out`, in parallel.
template <class T>
void copy_dense(const Layout& layout, const T* source, T* out) {
  const Layout l = collapse(layout);
  parallel_for(ir::numel(l.shape), 32768, [&](int64_t begin, int64_t end) {
    gather(l, source, begin, end - begin, out + begin, [](T v) { return v; });
  });
}

}  // namespace stitch::interp
