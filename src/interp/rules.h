#pragma once
// How an op is computed. One file per op family (pointwise.cpp, movement.cpp ...) exports a table of rules; registry.cpp
// joins them. A rule may assume a validated graph; what depends on data (an index out of range) it checks itself.

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "interp/interpreter.h"
#include "ir/graph.h"

namespace stitch::interp {

using Values = std::vector<Value>;

// One node on its way through the interpreter: its arguments, looked up by parameter name.
class Call {
 public:
  using Lookup = std::function<const Value&(ir::ValueRef)>;
  Call(const ir::Graph& graph, int32_t node_index, const Options& options, Lookup lookup)
      : graph(graph), node(graph.nodes[static_cast<size_t>(node_index)]), options(options), index_(node_index), lookup_(std::move(lookup)) {}

  const ir::Graph& graph;
  const ir::Node& node;
  const Options& options;

  bool is(std::string_view op) const { return node.op_name() == op; }
  const Value& value(ir::ValueRef v) const { return lookup_(v); }
  const Value& in(std::string_view parameter) const { return value(node.value(parameter)); }
  // nullptr if the argument is None (or a number).
  const Value* maybe(std::string_view parameter) const;
  std::vector<const Value*> list(std::string_view parameter) const;  // nullptr for an entry that is None
  Value result(size_t k = 0) const;                                  // zeros of the type of result k

  // bad_input that names the node and its source line.
  template <class... Args>
  tl::unexpected<Error> bad(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorKind::bad_input, "{}: {}", where(), fmt::format(format, std::forward<Args>(args)...));
  }
  std::string where() const;  // "%7 gather (model.py:12)"

 private:
  int32_t index_;
  Lookup lookup_;
};

// Returns one Value per result. Integers may exceed the result's dtype (the driver wraps them), floats are not rounded.
using Rule = Result<Values> (*)(const Call&);
struct Entry {
  std::string_view op;
  Rule rule;
};

Rule find_rule(std::string_view op);  // nullptr if there is none; input and weight have none

namespace families {
std::span<const Entry> source();
std::span<const Entry> pointwise();
std::span<const Entry> movement();
std::span<const Entry> reduction();
std::span<const Entry> scan();
std::span<const Entry> norm();
std::span<const Entry> contraction();
std::span<const Entry> convolution();
std::span<const Entry> pool();
std::span<const Entry> resample();
std::span<const Entry> index();
std::span<const Entry> sort();
std::span<const Entry> attention();
std::span<const Entry> recurrent();
}  // namespace families

// Shared by the rules ------------------------------------------------------------------------------------------------
Values one(Value v);                                      // a single result
Value make_value(ir::TensorType type);                    // zeros
int64_t wrap(int64_t v, ir::DType dtype);                 // two's complement of the dtype's width; b8: v != 0
double round_to(double v, ir::DType dtype);               // nearest even in a float dtype; infinity beyond its range
double store_as(double v, ir::DType dtype);               // as f16 and bf16 kernels round: computed in f32, then stored
int64_t float_to_integer(double v, ir::DType dtype);      // truncates; what x86 does (and PyTorch's CPU) out of range
double largest(ir::DType dtype);                          // largest finite number of a float dtype

// The grain for parallel_for over items of `work` elementary operations each.
int64_t grain_for(int64_t work);

// Calls f with the storage that a value uses: std::vector<double> or std::vector<int64_t>.
template <class F>
decltype(auto) with_data(const Value& v, F&& f) {
  return v.floating() ? f(v.f) : f(v.i);
}
template <class T>
std::vector<T>& data_of(Value& v) {
  if constexpr (std::is_same_v<T, double>) return v.f;
  else return v.i;
}
template <class T>
const std::vector<T>& data_of(const Value& v) {
  return data_of<T>(const_cast<Value&>(v));
}

}  // namespace stitch::interp
