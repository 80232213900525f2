#pragma once
// Where a resampled element comes from.

#include <cstdint>
#include <vector>

#include "interp/rules.h"

namespace stitch::interp {

// The user's scale factors ("2.0,2.0" in the node); empty where only a size was given.
std::vector<double> scales_of(const Call&);
// `scale` 0: not given, the ratio of the extents counts. `spatial`: number of spatial dims.
int64_t nearest_source(int64_t i, int64_t in, int64_t out, double scale, size_t spatial);

}  // namespace stitch::interp
