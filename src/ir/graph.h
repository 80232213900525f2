#pragma once
// The program graph. There is one node type; what an op means is in ops.h (table) and docs/ir.md (semantics).

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/types.h"

namespace stitch::ir {

struct OpSchema;

// One operation. `args` is positional and always as long as the op's parameter list (ops.h): defaults are filled in.
// `types` holds one entry per result (most ops have one).
struct Node {
  const OpSchema* op = nullptr;  // points into the static op table; never null in a graph
  std::vector<Arg> args;
  std::vector<TensorType> types;
  std::string name;    // inputs and weights: their name in the bundle; otherwise "" or a hint such as "attn_scores"
  std::string scope;   // module path the op came from, e.g. "blocks.0.attn"
  std::string source;  // "model.py:41", "" if unknown

  std::string_view op_name() const;
  const TensorType& type() const { return types.front(); }
  // Argument by parameter name. Asking for a name the op does not have is a programming error (throws std::logic_error).
  const Arg& arg(std::string_view parameter) const;
  bool has_arg(std::string_view parameter) const;  // present and not None
  ValueRef value(std::string_view parameter) const;               // tensor argument
  int64_t integer(std::string_view parameter) const;              // int or bool
  double number(std::string_view parameter) const;                // int, bool or float
  bool boolean(std::string_view parameter) const;
  const IntList& integers(std::string_view parameter) const;
  const std::string& text(std::string_view parameter) const;
  bool operator==(const Node&) const = default;  // a NaN argument differs from itself
};

// A program output. A `mutates` output is the new value of a buffer or input that the module changes in place; it is
// not among the values forward() returns.
struct Output {
  ValueRef value;
  std::string name;
  enum class Kind { user, mutates_weight, mutates_input } kind = Kind::user;
  std::string target;  // for mutations: name of the weight or input written to
  bool operator==(const Output&) const = default;
};

// Nodes are in topological order: a node's operands have smaller indices. "input" and "weight" nodes come first.
struct Graph {
  std::vector<Node> nodes;
  std::vector<Output> outputs;

  const Node& at(ValueRef v) const { return nodes[static_cast<size_t>(v.node)]; }
  const TensorType& type_of(ValueRef v) const { return at(v).types[static_cast<size_t>(v.output)]; }
  std::vector<int32_t> inputs() const;   // node indices with op "input", in order
  std::vector<int32_t> weights() const;  // node indices with op "weight", in order
  bool operator==(const Graph&) const = default;
};

// All tensor operands of a node in argument order (immediates and None skipped, lists flattened).
std::vector<ValueRef> operands(const Node&);
// users[i] lists the node indices that read any result of node i, ascending, each once.
std::vector<std::vector<int32_t>> users(const Graph&);

// Text form, one node a line, e.g.
//   %0: f32[4,64] = input() {name="x"}
//   %3: f32[4,64] = softmax(%2, dim=-1) {scope="attn", source="model.py:12"}
//   %5: (f32[4,3], i64[4,3]) = topk(%3, k=3)
//   return %5.0 {name="output0"}, %5.1 {name="output1", mutates_weight="running_mean"}
// Tensor arguments are written positionally, the rest as name=value and only when different from the default.
// parse(print(g)) == g for a graph in canonical form (see canonicalise in ops.h, which parse applies, so that hand-written
// text may say dim=-1). Blank lines and # comments are skipped. Errors carry the line number and what was expected; `what` names the text.
std::string print(const Graph&);
Result<Graph> parse(std::string_view text, std::string_view what = "Program text");

// Checks every rule of the rule table (validate.cpp): operands exist and precede, arity, argument kinds, dtype and
// shape of every result against the op's inference rule, inputs and weights come first and have distinct names, outputs
// exist and have distinct names, mutation targets exist and match in type.
// The error names the node, its source line and what is wrong with it; the rule is in its detail.
Status validate(const Graph&);

}  // namespace stitch::ir
