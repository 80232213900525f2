#pragma once
// Passes of prepare() that have a file of their own; prepare.h says what each does.

#include "ir/graph.h"

namespace stitch::plan {

ir::Graph group_repeated_heads(const ir::Graph&);
ir::Graph lower_wide_attention(const ir::Graph&);
ir::Graph turn_products(const ir::Graph&);

}  // namespace stitch::plan
