#pragma once
// Graph preparation before planning. Each pass keeps the program's meaning within rounding; the result is the graph that
// the plan's node numbers refer to. Passes, in order:
//   lower_batch_norm   eval-mode batch norm becomes pointwise arithmetic on per-channel vectors (fuses with anything)
//   lower_einsum       two-operand contractions become permute / view / matmul
//   group_repeated_heads  attention over keys and values whose heads were repeated reads them as they were (grouped-query attention)
//   lower_wide_attention  attention whose heads are too wide for the tiled kernel becomes matmul, softmax, matmul
//   turn_products      a product that is only read transposed is computed transposed: (x w')' = w x'
//   merge_common       equal nodes become one (common subexpressions)
//   split_cheap        full, arange, eye and views of inputs or weights get one copy per consumer, so that sharing them never
//                      forces a value into memory
//   drop_dead          nodes that no output needs go away

#include "base/result.h"
#include "ir/graph.h"

namespace stitch::plan {

// Error only if the result fails ir::validate (internal: a pass broke a rule).
Result<ir::Graph> prepare(const ir::Graph&);

}  // namespace stitch::plan
