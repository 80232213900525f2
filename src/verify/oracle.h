#pragma once
// Where right answers come from. `exact` is the program in fp64; `reference` is the program in the precision that the
// class allows, which tells how large an honest error is. Draw 0 is the reference as it stands; further draws multiply
// each float of inputs and weights by its own factor within 1 +- 2 `size`.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/bundle.h"
#include "ir/tensor.h"

namespace stitch::verify {

class Oracle {
 public:
  virtual ~Oracle() = default;
  // Floats as f64 tensors, integers and bools as i64; in output order.
  virtual Result<std::vector<ir::Tensor>> exact(const std::vector<ir::Tensor>& inputs) = 0;
  virtual Result<std::vector<ir::Tensor>> reference(const std::vector<ir::Tensor>& inputs, int draw, double size) = 0;
  virtual std::string name() const = 0;  // for the verdict
};

// The CPU interpreter. The graph must outlive it.
std::unique_ptr<Oracle> interpreter_oracle(const ir::Graph&, std::vector<ir::Tensor> weights,
                                           int64_t memory_limit = int64_t{16} << 30);

}  // namespace stitch::verify
