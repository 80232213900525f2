#pragma once
// What a reduction task computes, apart from how its kernel is laid out: the rows that its reductions, softmaxes and norms run
// along, the statistics of a row in the order in which they can be known, and the elements that follow from them.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "code/expr/emitter.h"
#include "code/skill.h"

namespace stitch::code {

// The full-size iteration space, neighbouring dims of one role merged, extents of 1 dropped. A row is a setting of the kept
// dims (r counts them row-major, `outer` rows), its elements a setting of the reduced ones (c, `inner` elements).
struct RowPattern {
  std::vector<std::pair<int64_t, bool>> dims;  // (extent, reduced)
  int64_t outer = 1, inner = 1;
  bool operator==(const RowPattern&) const = default;
  bool reduces_last() const { return dims.empty() || dims.back().second; }
};
std::optional<RowPattern> pattern_of(const ir::Graph&, const ir::Node&);

// While one kernel is written: its emitter, where it stands in the row, and what it knows of the row so far.
struct RowScope {
  Emitter& e;
  const RowPattern& pattern;
  Index row;                               // r
  std::map<ir::ValueRef, Val> scalars;     // results of reductions, one per row
  std::map<std::string, Val> statistics;   // mean, deviation ... by a name of the node's own

  // The kept term of the element of x at these coordinates, if it is at hand.
  const Val* kept(const std::string& name, ir::ValueRef x, const Coords& at) const { return e.recall("kept " + name + Emitter::key_of(x, at)); }

  Index linear(const Index& c) const;      // of element c of this row
  Coords element(const ir::Shape& shape, const Index& c) const { return e.space().unravel(linear(c), shape); }
  // Row of a coordinate of a full-size value.
  Index row_at(const Coords& at, const ir::Shape& shape) const;
};

struct Statistic {
  ir::ValueRef x;               // operand, read at every element
  ir::DType dtype;              // that the element is converted to first
  std::string operation, type;  // "Sum<float>", "float": combining operation and its value type
  // Contribution of an element, from its text and its position in the row.
  std::function<std::string(RowScope&, const std::string& v, const std::string& c)> term;
  // How it joins the accumulator: acc = combine(acc, term), acc.add(term), or acc.add(all terms of one access).
  enum class Joins { combined, added, added_together } joins = Joins::combined;
  std::string keep;             // resident rows: the terms stay in registers, too, under this name (see RowScope::kept)
  std::string comment;
  std::function<void(RowScope&, const Val& total)> finish;  // puts what follows into the scope
};

class RowProgram {
 public:
  // Nothing if the task's reductions do not share one set of rows, or an output has another size.
  // `resident`: rows stay in registers, so a second pass is free; otherwise passes over memory are saved.
  // `position`: C++ type of a position in a row.
  static std::optional<RowProgram> of(const TaskContext&, bool resident, const std::string& position = "int");

  RowPattern pattern;
  std::vector<std::vector<Statistic>> stages;  // a stage's statistics need those of earlier stages only
  std::vector<ir::ValueRef> full, single;      // task outputs with one value per element, per row
  std::map<ir::ValueRef, std::function<Val(RowScope&, const Coords&)>> elements;  // results of softmax and norms

  // Values of the task's reductions for the expression generator; refuses what belongs to another row.
  std::optional<Val> known(RowScope&, const ir::Graph&, ir::ValueRef, const Coords&) const;
  // Whether an element of x is read again after `stage`.
  bool read_later(const ir::Graph&, ir::ValueRef x, size_t stage) const;
  bool one_pass() const { return stages.size() <= 1 && full.empty(); }
};

}  // namespace stitch::code
