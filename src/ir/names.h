#pragma once
// Names that a bundle brings along end up in C++ and Python sources, in JSON, HTML and on terminals.

#include <string_view>

#include "base/result.h"
#include "ir/graph.h"

namespace stitch::ir {

// Refuses characters that act on what shows them (line ends, escape sequences, turned writing direction) and names longer than any program's.
// `what` says whose name it is: "The name of node %3". Everything else is allowed, so writers must escape for their language.
Status check_name(std::string_view name, std::string_view what);
// All names of a graph: of values, module paths, source places, outputs and the tensors they change.
Status check_names(const Graph&);

}  // namespace stitch::ir
