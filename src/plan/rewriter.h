#pragma once
// Builds a new graph from an old one node by node: a pass walks the old graph in order, emits what should stand there,
// and says which new value replaces each old one.

#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ir/graph.h"
#include "ir/ops.h"

namespace stitch::plan {

class Rewriter {
 public:
  using NamedArg = std::pair<std::string_view, ir::Arg>;

  explicit Rewriter(const ir::Graph& from) : from_(from) {}

  const ir::Graph& from() const { return from_; }
  const ir::Graph& graph() const { return to_; }
  ir::ValueRef mapped(ir::ValueRef old) const;
  void replace(ir::ValueRef old, ir::ValueRef with) { map_[old] = with; }

  // Copies the old node with its operands mapped, and maps its results; returns the new node's index.
  int32_t copy(int32_t old_node);
  // Appends a new node of one result; parameters not named take their defaults. `like` gives scope and source.
  ir::ValueRef emit(std::string_view op, std::initializer_list<NamedArg> args, ir::TensorType type, const ir::Node& like);
  // Short cuts used by several passes.
  ir::ValueRef view(ir::ValueRef x, ir::Shape size, const ir::Node& like);
  ir::ValueRef permute(ir::ValueRef x, const ir::IntList& dims, const ir::Node& like);
  ir::ValueRef binary(std::string_view op, ir::ValueRef x, ir::Arg y, ir::TensorType type, const ir::Node& like);

  const ir::TensorType& type(ir::ValueRef v) const { return to_.type_of(v); }
  ir::Graph finish();  // maps the outputs

 private:
  const ir::Graph& from_;
  ir::Graph to_;
  std::unordered_map<ir::ValueRef, ir::ValueRef> map_;
};

// Calls f on every tensor operand in place.
template <class F>
void for_each_operand(ir::Node& node, F&& f) {
  for (ir::Arg& arg : node.args) {
    if (auto* v = std::get_if<ir::ValueRef>(&arg)) f(*v);
    else if (auto* list = std::get_if<ir::ValueList>(&arg))
      for (ir::ValueRef& v : *list)
        if (v.node >= 0) f(v);
  }
}

}  // namespace stitch::plan
