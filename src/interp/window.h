#pragma once
// One to three spatial dims seen as three, for convolutions and pooling.

#include <array>
#include <cstdint>

#include "ir/types.h"

namespace stitch::interp {

using Spatial = std::array<int64_t, 3>;

// The spatial extents of (N, C, ...), filled up in front.
inline Spatial spatial_of(const ir::Shape& shape) {
  Spatial s{1, 1, 1};
  for (size_t d = 2; d < shape.size(); ++d) s[3 - (shape.size() - d)] = shape[d];
  return s;
}
// A per-dim argument (stride, padding ...).
inline Spatial spatial_argument(const ir::IntList& list, int64_t missing) {
  Spatial s{missing, missing, missing};
  for (size_t d = 0; d < list.size(); ++d) s[3 - list.size() + d] = list[d];
  return s;
}
inline int64_t volume(const Spatial& s) { return s[0] * s[1] * s[2]; }

}  // namespace stitch::interp
