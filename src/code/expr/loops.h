#pragma once
// Serial loops inside one thread: for the generic skill's definitions of contractions, convolutions, pools ...

#include <string>
#include <utility>
#include <vector>

#include "code/expr/emitter.h"

namespace stitch::code {

// Opens loops and guards in the current scope and closes them all again at the end of its life.
class LoopNest {
 public:
  explicit LoopNest(Emitter& e) : e_(e), base_(e.depth()) {}
  ~LoopNest() { close(); }
  LoopNest(const LoopNest&) = delete;
  LoopNest& operator=(const LoopNest&) = delete;

  Index loop(int64_t extent) { return loop_between("0", std::to_string(extent), extent); }
  // for (k = from; k < to; ++k), k known to stay in [0, extent).
  Index loop_between(const std::string& from, const std::string& to, int64_t extent);
  // Code that follows runs only under the condition ("" = always).
  void guard(const std::string& condition);
  // `index` confined to [0, extent) by a guard.
  Index confine(const Index& index, int64_t extent);
  void close();

 private:
  Emitter& e_;
  int base_;
};

// "float acc_7 = 0.0f;" in the current scope.
Val accumulator(Emitter&, std::string_view stem, ir::DType type, const std::string& initial, std::string_view comment);
// acc += a * b in the arithmetic of acc's type.
void multiply_add(Emitter&, const Val& acc, const Val& a, const Val& b);
std::string added(ir::DType type, const std::string& a, const std::string& b);
// Smallest (or largest) value of a type: the start of a maximum (minimum).
std::string lowest(ir::DType type);
std::string highest(ir::DType type);

// Per family; `v` says which result is asked for.
Val emit_contraction(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_convolution(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_pool(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_resample(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_scatter(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_scan(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_attention(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);

}  // namespace stitch::code
