#pragma once
// Tensors that a bundle describes instead of storing (docs/bundle.md). The values are a pure function of the generator, the
// tensor's name and `salt` (a case's name), the same on every machine and for any number of threads. They are not the numbers
// PyTorch would draw.

#include <string_view>

#include "base/result.h"
#include "ir/bundle.h"
#include "ir/tensor.h"

namespace stitch::ir {

// bad_input if the tensor has no generator, or one that does not fit its dtype.
Result<Tensor> generate(const TensorInfo& info, std::string_view salt);

}  // namespace stitch::ir
