#pragma once
// What the partition leaves as copies although the kernel beside it can read or write another layout.

#include <vector>

#include "ir/graph.h"
#include "plan/fusion.h"

namespace stitch::plan {

// Products and attention take over the permutes, slices, selects and expands of their operands that they can read in place, and attention
// the permute of its result. Groups that lose all their nodes are left empty.
void absorb_views(const ir::Graph&, std::vector<Group>&);

// A view whose operand the kernel stores anyway becomes a group of its own, which is no work, instead of a second copy.
void detach_views(const ir::Graph&, std::vector<Group>&);

}  // namespace stitch::plan
