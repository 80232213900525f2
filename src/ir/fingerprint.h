#pragma once
#include <string>

#include "ir/graph.h"

namespace stitch::ir {

// SHA-256 (64 hex digits) of what a graph computes: its text form without scopes, source lines and name hints, so that
// moving a line in the user's file does not throw away cached work. Names of inputs, weights and outputs count.
std::string fingerprint(const Graph&);

}  // namespace stitch::ir
