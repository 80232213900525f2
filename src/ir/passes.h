#pragma once
// Small rewrites that every user of a graph may need.

#include "ir/graph.h"

namespace stitch::ir {

enum class Unused { keep_leaves, drop_weights };

// The graph without the nodes that no output depends on, renumbered. Inputs always stay (they are the program's signature);
// weights that nothing reads and no output changes go with Unused::drop_weights.
Graph eliminate_dead(const Graph&, Unused = Unused::keep_leaves);

}  // namespace stitch::ir
