#pragma once
// Fresh inputs for a candidate: random sets like the program's own, and sets with a property that cheap code gets wrong.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/bundle.h"
#include "ir/tensor.h"

namespace stitch::verify {

// How one input is drawn. Inferred once from the bundle: its generator, its data in the first case, and what the graph
// does with it (indices must stay within the tensor they index).
struct InputModel {
  enum class Kind { normal, uniform, integers, choice, boolean, row_distribution, fixed } kind = Kind::normal;
  double a = 0, b = 1;             // normal: mean, stddev; uniform: [a, b); integers: [a, b); boolean: a = rate of true
  std::vector<double> values;      // choice: the few distinct values seen (labels, masks)
  bool non_negative = false;       // the case data never was negative: property sets keep it so
  bool lower_triangular = false, upper_triangular = false, symmetric = false;  // last two dims
  bool plain() const { return kind == Kind::normal || kind == Kind::uniform; }  // properties may be applied
  std::string text() const;        // for the verdict: "normal(0.01, 1)", "integers [0, 1000)"
};

// `sample`: the first case's tensor for this input, if there is one. `input` is the node index in the graph.
InputModel infer_model(const ir::Bundle&, size_t input, const std::optional<ir::Tensor>& sample);
std::vector<InputModel> infer_models(const ir::Bundle&, const std::optional<ir::Case>& sample);

enum class Property { none, outliers, zeros, denormals, constant_rows, large, small, shifted };
const char* name_of(Property);
inline constexpr Property kProperties[] = {Property::outliers, Property::zeros, Property::denormals, Property::constant_rows,
                                           Property::large, Property::small, Property::shifted};

// One set, reproducible from (seed, property). Floats that are not plain, integers and bools ignore the property.
// `sample` supplies the tensors of kind `fixed`.
std::vector<ir::Tensor> draw_inputs(const ir::Bundle&, const std::vector<InputModel>&, uint64_t seed, Property,
                                    const std::optional<ir::Case>& sample);

// In [-2, 2): multiplying an element by (1 + u * x) shows how rounding errors of size u move a result.
double perturbation(uint64_t seed, uint64_t tensor, uint64_t element);
// Every float scaled by its own factor in [1, 1 + amount): same signs, same zeros, other values.
std::vector<ir::Tensor> altered_weights(const std::vector<ir::Tensor>&, double amount, uint64_t seed);

uint64_t random_seed();  // from the kernel, not guessable by a candidate

}  // namespace stitch::verify
