#include "verify/oracle.h"

#include <algorithm>

#include "interp/interpreter.h"
#include "verify/inputs.h"

namespace stitch::verify {
namespace {

class InterpreterOracle final : public Oracle {
 public:
  InterpreterOracle(const ir::Graph& graph, std::vector<ir::Tensor> weights, int64_t memory_limit)
      : graph_(graph), weights_(std::move(weights)) {
    options_.memory_limit = memory_limit;
  }

  Result<std::vector<ir::Tensor>> exact(const std::vector<ir::Tensor>& inputs) override {
    return evaluate(values_of(inputs, 0, 0), values_of(weights_, 0, 0), false);
  }

  Result<std::vector<ir::Tensor>> reference(const std::vector<ir::Tensor>& inputs, int draw, double size) override {
    const auto seed = static_cast<uint64_t>(draw);
    return evaluate(values_of(inputs, seed, size), values_of(weights_, seed ? seed + 1000000 : 0, size), true);
  }

  std::string name() const override { return "interpreter in fp64"; }

 private:
  // seed 0: as they are. Odd seeds disturb each element by itself; even ones a row (the last dim) as a whole, as the rounding errors of
  // a sum of equal terms do, which noise of single elements averages out of.
  std::vector<interp::Value> values_of(const std::vector<ir::Tensor>& tensors, uint64_t seed, double size) const {
    std::vector<interp::Value> out;
    for (size_t k = 0; k < tensors.size(); ++k) {
      auto v = interp::from_tensor(tensors[k]);
      const auto& shape = tensors[k].type.shape;
      const size_t row = seed % 2 == 0 && !shape.empty() ? static_cast<size_t>(std::max<int64_t>(1, shape.back())) : 1;
      if (seed)
        for (size_t i = 0; i < v.f.size(); ++i) v.f[i] *= 1 + size * perturbation(seed, k, i / row);
      out.push_back(std::move(v));
    }
    return out;
  }

  Result<std::vector<ir::Tensor>> evaluate(std::vector<interp::Value> inputs, std::vector<interp::Value> weights, bool round) {
    auto options = options_;
    options.round_to_dtype = round;
    STITCH_TRY(auto values, interp::run(graph_, inputs, weights, options));
    std::vector<ir::Tensor> out;
    for (size_t i = 0; i < values.size(); ++i) out.push_back(interp::to_f64_tensor(values[i], graph_.outputs[i].name));
    return out;
  }

  const ir::Graph& graph_;
  std::vector<ir::Tensor> weights_;
  interp::Options options_;
};

}  // namespace

std::unique_ptr<Oracle> interpreter_oracle(const ir::Graph& graph, std::vector<ir::Tensor> weights, int64_t memory_limit) {
  return std::make_unique<InterpreterOracle>(graph, std::move(weights), memory_limit);
}

}  // namespace stitch::verify
