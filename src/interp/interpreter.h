#pragma once
// The reference interpreter: runs a graph on the CPU in fp64, with no torch and no GPU. It is the oracle of the host
// target and of the random-graph tests, so it is written for clarity first; loops are parallel over the outer index.

#include <functional>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/tensor.h"

namespace stitch::interp {

// A tensor while it is being computed: floats as double, integers and bools as int64_t (one of the two is filled).
struct Value {
  ir::TensorType type;
  std::vector<double> f;
  std::vector<int64_t> i;
  bool floating() const { return ir::is_floating(type.dtype); }
};

struct Options {
  // false: floats stay fp64 everywhere, also through casts to f16/bf16/f32 (the oracle). true: every node's result is
  // rounded to its dtype (a model of unfused execution, for error estimates).
  bool round_to_dtype = false;
  // Stops with an environment error before allocating more than this many bytes of live values (8 per element; inputs, weights
  // and an op's scratch memory are not counted).
  int64_t memory_limit = int64_t{16} << 30;
};

Value from_tensor(const ir::Tensor&);
ir::Tensor to_tensor(const Value&, std::string name);              // rounds to the value's dtype
ir::Tensor to_f64_tensor(const Value&, std::string name);          // floats stay f64, ints i64

// `inputs` and `weights` in graph order, types checked. Returns one Value per graph output. Errors: type mismatch
// (bad_input), an index out of range (bad_input, names the node), an op without a rule (internal).
Result<std::vector<Value>> run(const ir::Graph&, const std::vector<Value>& inputs, const std::vector<Value>& weights,
                               const Options& = {});
// Same, and hands every computed node's results (inputs and weights are not among them) to `observe` as they are made, for
// comparing a program task by task.
Result<std::vector<Value>> run(const ir::Graph&, const std::vector<Value>& inputs, const std::vector<Value>& weights,
                               const Options&, const std::function<void(int32_t node, const std::vector<Value>&)>& observe);

}  // namespace stitch::interp
