#pragma once
// Index arithmetic of generated kernels: integer expressions in a normal form, with known ranges.
//
// An Index is constant + sum of coefficient * atom. An atom is a loop variable, or the quotient or remainder of an Index
// by a positive constant. Division rounds down. Simplification happens in the constructors, so that a coordinate
// computed through views and permutes that cancel comes out as the plain linear index it is:
//   unravel(i, [4,6]) = (i/6, i%6)   and   (i/6)*6 + i%6 = i.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/types.h"

namespace stitch::code {

struct Index {
  std::vector<std::pair<int32_t, int64_t>> terms;  // (atom, coefficient != 0), ascending by atom
  int64_t constant = 0;

  bool is_constant() const { return terms.empty(); }
  bool operator==(const Index&) const = default;
  auto operator<=>(const Index&) const = default;
};

using Coords = std::vector<Index>;

struct IndexRange {
  int64_t min = 0, max = 0;  // inclusive
};

class IndexSpace {
 public:
  struct Atom {
    enum class Kind { variable, quotient, remainder } kind = Kind::variable;
    std::string name;   // of a variable
    Index operand;      // of a quotient or remainder
    int64_t divisor = 1;
    IndexRange range;
  };

  // A new variable with values in [0, extent). The name is what the generated code calls it.
  Index variable(std::string name, int64_t extent) { return variable_in(std::move(name), {0, extent - 1}); }
  Index variable_in(std::string name, IndexRange range);
  static Index constant(int64_t value) { return Index{{}, value}; }

  Index add(const Index& a, const Index& b);
  Index sub(const Index& a, const Index& b) { return add(a, scale(b, -1)); }
  Index add(const Index& a, int64_t value) const;
  Index scale(const Index& a, int64_t factor) const;
  Index div(const Index& a, int64_t divisor);
  Index mod(const Index& a, int64_t divisor);

  // Row-major linear index of coordinates in a shape, and back.
  Index ravel(const Coords& coords, const ir::Shape& shape);
  Coords unravel(const Index& linear, const ir::Shape& shape);

  IndexRange range(const Index& a) const;
  const Atom& atom(int32_t id) const { return atoms_[static_cast<size_t>(id)]; }
  // Whether the value depends on this variable (an Index of one variable).
  bool depends_on(const Index& a, const Index& variable) const;
  // C++ text with quotients and remainders written out; for messages and tests. Generated code names them instead.
  std::string text(const Index& a) const;

 private:
  Index simplify_sum(Index a);
  bool fold_remainder(Index& a);
  Index quotient_atom(const Index& a, int64_t divisor);
  Index remainder_atom(const Index& a, int64_t divisor);
  int32_t intern(Atom atom);
  // Splits a into (multiple of divisor) / divisor and the rest; the rest keeps the order of a's terms.
  void split(const Index& a, int64_t divisor, Index& quotient, Index& rest) const;

  std::vector<Atom> atoms_;
  std::map<std::pair<Index, int64_t>, int32_t> quotients_, remainders_;
};

}  // namespace stitch::code
