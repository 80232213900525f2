#pragma once
// The op table: every operation of the IR, its parameters and its class. Ops are named as PyTorch's core ATen ops
// (overload names dropped); a few composites that a fast kernel wants to see whole (linear, layer_norm, softmax,
// scaled_dot_product_attention, lstm ...) are kept as one op.

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace stitch::ir {

enum class OpClass : uint8_t {
  source,       // input, weight, full, arange, eye
  pointwise,    // out[i] = f(a[i], b[i], ...) after broadcasting; operands may be immediates
  movement,     // out[i] = x[g(i)]: view, permute, expand, slice, cat, pad, flip, roll ...
  reduction,    // over `dims`, with keepdim
  arg_reduction,// argmax, argmin, max_dim, min_dim
  scan,         // cumsum and friends along one dim
  row,          // softmax, log_softmax: same shape, coupled along one dim
  norm,         // batch, layer, group, rms norm
  contraction,  // matmul, linear, addmm, baddbmm, einsum
  convolution,
  pool,         // pooling and resampling
  index,        // gather, embedding, index, scatter ...
  sort,         // topk, sort
  attention,
  recurrent,    // lstm, gru, rnn
};

enum class ParamKind : uint8_t {
  tensor,       // ValueRef
  tensor_opt,   // ValueRef or None
  operand,      // ValueRef or an immediate number
  operand_opt,  // ValueRef, immediate number or None
  tensors,      // ValueList
  integer, integer_opt, number, number_opt, boolean, text, text_opt, dtype,
  integers, integers_opt,
};

struct Param {
  std::string_view name;
  ParamKind kind;
  Arg default_value;
  bool required;
};

struct OpSchema {
  std::string_view name;
  OpClass cls;
  std::vector<Param> params;
  int max_results;  // number of results a node may have; batch_norm has 1 in eval mode and 3 in training
  int index_of(std::string_view parameter) const;  // -1 if there is none
};

const OpSchema* find_op(std::string_view name);  // nullptr if unknown
const std::vector<OpSchema>& all_ops();

// Result types of an op from its arguments (NumPy/PyTorch rules for shapes). For ops whose result dtype depends on
// PyTorch's promotion rules, `declared` (the dtype written in the graph) is checked for plausibility, not recomputed.
// Operands must exist and arguments have the kinds of the op's parameters (validate() checks that first).
Result<std::vector<TensorType>> infer_types(const Graph&, const Node&);

// Brings arguments to canonical form: numbers given as ints become doubles, an empty list of tensors is a ValueList, and a
// negative dim of an operand of known rank counts from the end. What does not fit stays as it is, for validate() to name.
void canonicalise(const Graph&, Node&);

// True for parameters that the text form writes without their name.
bool is_positional(ParamKind);

}  // namespace stitch::ir
