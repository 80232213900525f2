#pragma once
// The pull-style expression generator: value(v, coords) emits CUDA C++ that computes one element of a graph value by
// recursion through the nodes of a task down to loads of the task's inputs.
//
// Text goes into nested scopes (kernel body, loops, branches). A line is placed in the outermost scope in which its
// operands exist, so what does not change in a loop is computed before it; a load never leaves a branch, because
// outside its address may be invalid. Equal subexpressions are computed once per scope.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "code/expr/index.h"
#include "ir/graph.h"

namespace stitch::code {

// A computed element: C++ text of compute_type(type), valid in scopes at `depth` and deeper.
struct Val {
  std::string text;
  ir::DType type = ir::DType::f32;
  int depth = 0;
};

class Emitter {
 public:
  // `wide`: index arithmetic in int64_t instead of int.
  Emitter(const ir::Graph& graph, IndexSpace& space, bool wide);

  const ir::Graph& graph() const { return graph_; }
  IndexSpace& space() { return space_; }
  std::string_view index_type() const { return wide_ ? "int64_t" : "int"; }

  // --- what may be read -------------------------------------------------------------------------------------------
  void bind(ir::ValueRef value, std::string pointer) { buffers_[value] = std::move(pointer); }
  bool used(ir::ValueRef value) const { return used_.count(value) > 0; }  // a load of it was emitted
  void allow(int32_t node) { nodes_.insert(node); }        // a node whose value may be computed inline
  void allow_loops() { loops_ = true; }                    // contractions, pools ... as serial loops in a thread
  // Asked before anything else about every value of an allowed node; used for values that a skill computes itself.
  using Hook = std::function<std::optional<Val>(ir::ValueRef, const Coords&)>;
  void set_hook(Hook hook) { hook_ = std::move(hook); }
  // Asked at every load, with the element's address: text to use in place of pointer[address] (of the stored type).
  using LoadHook = std::function<std::optional<std::string>(ir::ValueRef, const Index& address)>;
  void set_load_hook(LoadHook hook) { load_hook_ = std::move(hook); }
  // Loads at base + lane are done for `width` lanes at once where base is a multiple of width.
  void set_lanes(const Index& lane, int width);
  void clear_lanes() { width_ = 1; }

  // --- values -------------------------------------------------------------------------------------------------------
  Val value(ir::ValueRef v, const Coords& coords);
  Val operand(const ir::Arg& arg, const Coords& coords, const ir::Shape& shape, ir::DType type);  // broadcast, converted
  Val load(ir::ValueRef v, const Coords& coords);
  Val convert(const Val& v, ir::DType to);
  Val literal(double value, ir::DType type) const;
  Val zero(ir::DType type) const { return literal(0, type); }
  Val from_index(const Index& index, ir::DType type);
  // Names an expression over existing values: "const float NAME = text;  // comment".
  Val define(std::string_view stem, ir::DType type, std::string text, int depth, std::string_view comment = {});
  // An index known only at run time (a loaded one, a reflected one), as a variable in [0, extent).
  Index opaque(std::string_view stem, const std::string& text, int depth, int64_t extent);
  std::string text(const Index& index);                    // names quotients and remainders on the way
  int depth(const Index& index) const;

  // Condition min <= index < max as text; "" when it always holds, "false" when it never does.
  std::string bounds(const Index& index, int64_t min, int64_t max);
  // `var` = if (condition) a() else b(); both in branches of their own. An empty condition means true.
  Val branch(std::string_view stem, ir::DType type, const std::string& condition,
             const std::function<Val()>& yes, const std::function<Val()>& no, std::string_view comment);

  // --- scopes -------------------------------------------------------------------------------------------------------
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  // "for (...)" or "if (...)"; braces are added. A pragma stays right in front of its loop, whatever is hoisted before it.
  void open(const std::string& header, bool conditional, std::string_view pragma = {});
  void close(std::string_view trailer = {});               // text after "}" on the same line
  std::string close_apart(std::string_view trailer = {});  // the block as text, for the caller to place in the enclosing scope
  void declare(const Index& variable);                     // it exists from the current scope on
  void line(std::string_view text);                        // in the current scope
  void line_at(int depth, std::string_view text);
  void remember(const std::string& key, Val value);        // until the scope at value.depth ends
  const Val* recall(const std::string& key) const;
  static std::string key_of(ir::ValueRef v, const Coords& coords);
  std::string fresh(std::string_view stem);                // an unused identifier
  void reserve(std::string_view name) { names_.emplace(name, 1); }
  std::string body() const { return scopes_.front().body; }
  int innermost_conditional() const;

  // --- outcome ------------------------------------------------------------------------------------------------------
  void refuse(std::string why);                            // the first reason is kept
  bool refused() const { return !refusal_.empty(); }
  const std::string& refusal() const { return refusal_; }
  struct LoadCounts {
    int vector = 0, uniform = 0;
    int64_t scalar_elements = 0;  // size of the largest buffer read lane by lane
  };
  const LoadCounts& loads() const { return loads_; }

  // Emission stops (refuses) beyond this many lines: pull evaluation of a graph with much reuse at shifted
  // coordinates grows exponentially, and then several kernels are better.
  int line_limit = 4000;

 private:
  struct Scope {
    std::string body;
    bool conditional = false;
    std::unordered_map<std::string, Val> memo;
    std::map<int32_t, std::string> index_names;
  };

  Val compute(ir::ValueRef v, const Coords& coords);
  Val vector_load(ir::ValueRef v, const std::string& pointer, const Index& base);
  const std::string* index_name(int32_t atom) const;
  void name_atom(int32_t atom);

  const ir::Graph& graph_;
  IndexSpace& space_;
  bool wide_, loops_ = false;
  std::map<ir::ValueRef, std::string> buffers_;
  std::set<ir::ValueRef> used_;
  std::set<int32_t> nodes_;
  Hook hook_;
  LoadHook load_hook_;
  Index lane_;
  int width_ = 1;
  std::vector<Scope> scopes_;
  std::map<int32_t, int> variable_depth_;
  std::map<std::string, int, std::less<>> names_;
  std::string refusal_;
  LoadCounts loads_;
  int lines_ = 0, nesting_ = 0;
};

// Values of one family of ops each, by the semantics of docs/ir.md.
Val emit_pointwise(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_source(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_movement(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_index(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);
Val emit_batch_norm(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);   // inference mode only
Val emit_short_reduction(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);  // what plan::is_short_reduction() names
Val emit_loop(Emitter&, const ir::Node&, ir::ValueRef, const Coords&);          // everything a thread can loop over

// Whether value() can compute this node without a hook, and without loops over more than its own element.
bool is_inline(const ir::Node&);

// Dtype a comparison or logical op computes in: PyTorch's promotion of its operands.
ir::DType promoted_type(const ir::Graph&, const ir::Node&);
// "%7 gelu": how comments name a node.
std::string label(const ir::Graph&, int32_t node);
// C++ literals.
std::string float_literal(double value, ir::DType type);
std::string int_literal(int64_t value);

}  // namespace stitch::code
