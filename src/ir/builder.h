#pragma once
// Concise construction of graphs, for tests and passes:
//   GraphBuilder b;
//   auto x = b.input("x", {DType::f32, {2, 3}});
//   b.output("y", b.op("softmax", {{"x", x}, {"dim", int64_t{1}}}));
//   Graph g = b.graph();

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ir/graph.h"

namespace stitch::ir {

class GraphBuilder {
 public:
  using NamedArg = std::pair<std::string_view, Arg>;

  ValueRef input(std::string name, TensorType type);
  ValueRef weight(std::string name, TensorType type);
  // Parameters not named take their defaults; result types are inferred. `dtype` is needed where it does not follow from the
  // operands (cast, full and arange other than f32); otherwise pointwise ops promote and the rest follow their first tensor.
  // `results` matters for ops with optional results (max_pool). The value returned is the first result; result k is
  // ValueRef{v.node, k}. Throws std::logic_error on a wrong graph: the builder is for programs that are known to be right.
  ValueRef op(std::string_view name, std::initializer_list<NamedArg> args, std::optional<DType> dtype = std::nullopt, int results = 1);
  void output(std::string name, ValueRef value);
  void mutates(std::string weight, ValueRef value);
  const Graph& graph() const { return g_; }

 private:
  ValueRef leaf(const char* op, std::string name, TensorType type);
  Graph g_;
};

}  // namespace stitch::ir
