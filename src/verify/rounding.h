#pragma once
// What rounding may do to a program in a precision class: tolerances, and the size of the perturbations that model it.

#include "hw/device.h"
#include "ir/bundle.h"
#include "verify/compare.h"

namespace stitch::verify {

// Bounds of a precision class for this graph: the coarsest of the class itself and the float types the graph computes
// in (a graph of f16 nodes cannot be held to an fp32 bound). TF32 counts in class `default` only if the graph has a
// convolution that may use it.
Tolerance tolerance_of(hw::PrecisionClass, const ir::Graph&, const ir::PrecisionFlags&);
// Unit roundoff of the arithmetic that the class allows for this graph.
double roundoff_of(hw::PrecisionClass, const ir::Graph&, const ir::PrecisionFlags&);

// Terms of the longest sum (or product of a contraction) in the graph, at least 1.
double longest_sum(const ir::Graph&);
// Size of a perturbation that stands for the rounding errors of whole sums: on special data (equal values, huge offsets)
// these do not average out. Errors of a blocked sum of n terms grow like sqrt(n) u.
double summation_error(double roundoff, double terms);

}  // namespace stitch::verify
