#include "code/expr/index.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace stitch::code {
namespace {

int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b < 0 ? q - 1 : q;
}

int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t r = a % b;
  return r < 0 ? r + b : r;
}

// a + b without looking for remainders to fold.
Index merge(const Index& a, const Index& b) {
  Index sum;
  sum.constant = a.constant + b.constant;
  sum.terms.reserve(a.terms.size() + b.terms.size());
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    if (j == b.terms.size() || (i < a.terms.size() && a.terms[i].first < b.terms[j].first)) {
      sum.terms.push_back(a.terms[i++]);
    } else if (i == a.terms.size() || b.terms[j].first < a.terms[i].first) {
      sum.terms.push_back(b.terms[j++]);
    } else {
      const int64_t c = a.terms[i].second + b.terms[j].second;
      if (c != 0) sum.terms.emplace_back(a.terms[i].first, c);
      ++i, ++j;
    }
  }
  return sum;
}

Index scaled(const Index& a, int64_t factor) {
  if (factor == 0) return {};
  Index out = a;
  for (auto& [atom, c] : out.terms) c *= factor;
  out.constant *= factor;
  return out;
}

}  // namespace

Index IndexSpace::variable_in(std::string name, IndexRange range) {
  if (range.max <= range.min) return constant(range.min);  // one value only: not a variable at all
  Atom atom;
  atom.name = std::move(name);
  atom.range = range;
  const auto id = static_cast<int32_t>(atoms_.size());
  atoms_.push_back(std::move(atom));
  return Index{{{id, 1}}, 0};
}

int32_t IndexSpace::intern(Atom atom) {
  auto& table = atom.kind == Atom::Kind::quotient ? quotients_ : remainders_;
  const auto [it, is_new] = table.try_emplace({atom.operand, atom.divisor}, static_cast<int32_t>(atoms_.size()));
  if (is_new) atoms_.push_back(std::move(atom));
  return it->second;
}

IndexRange IndexSpace::range(const Index& a) const {
  IndexRange r{a.constant, a.constant};
  for (const auto& [id, c] : a.terms) {
    const IndexRange& x = atom(id).range;
    r.min += c > 0 ? c * x.min : c * x.max;
    r.max += c > 0 ? c * x.max : c * x.min;
  }
  return r;
}

Index IndexSpace::add(const Index& a, int64_t value) const {
  Index out = a;
  out.constant += value;
  return out;
}

Index IndexSpace::scale(const Index& a, int64_t factor) const { return scaled(a, factor); }

Index IndexSpace::add(const Index& a, const Index& b) { return simplify_sum(merge(a, b)); }

Index IndexSpace::simplify_sum(Index a) {
  while (fold_remainder(a)) {
  }
  return a;
}

// One step of (x/c)*c + x%c -> x and (x/c)%e*c + x%c -> x%(c*e), on the coefficients that occur in the sum.
bool IndexSpace::fold_remainder(Index& a) {
  for (const auto& [id, k] : a.terms) {
    const Atom rem = atom(id);
    if (rem.kind != Atom::Kind::remainder) continue;
    const Index quotient = div(rem.operand, rem.divisor);
    const Index low{{{id, k}}, 0};
    const int64_t step = k * rem.divisor;
    Index folded = merge(merge(merge(a, scaled(low, -1)), scaled(quotient, -step)), scaled(rem.operand, k));
    if (folded.terms.size() < a.terms.size()) {
      a = std::move(folded);
      return true;
    }
    for (const auto& [high_id, high_c] : a.terms) {
      const Atom high = atom(high_id);
      if (high.kind != Atom::Kind::remainder || high_c != step || high.operand != quotient) continue;
      const Index both = mod(rem.operand, rem.divisor * high.divisor);
      folded = merge(merge(merge(a, scaled(low, -1)), Index{{{high_id, -step}}, 0}), scaled(both, k));
      if (folded.terms.size() < a.terms.size()) {
        a = std::move(folded);
        return true;
      }
    }
  }
  return false;
}

void IndexSpace::split(const Index& a, int64_t divisor, Index& quotient, Index& rest) const {
  quotient = rest = {};
  for (const auto& [id, c] : a.terms) {
    if (c % divisor == 0) {
      quotient.terms.emplace_back(id, c / divisor);
    } else {
      rest.terms.emplace_back(id, c);
    }
  }
  quotient.constant = floor_div(a.constant, divisor);
  rest.constant = floor_mod(a.constant, divisor);
}

Index IndexSpace::div(const Index& a, int64_t divisor) {
  assert(divisor > 0);
  if (divisor == 1) return a;
  Index quotient, rest;
  split(a, divisor, quotient, rest);
  const IndexRange r = range(rest);
  const int64_t low = floor_div(r.min, divisor);
  if (low == floor_div(r.max, divisor)) {
    quotient.constant += low;
    return simplify_sum(std::move(quotient));
  }
  // (g*x + y)/divisor with 0 <= y < g, g dividing divisor, is x/(divisor/g).
  for (const auto& [id, c] : rest.terms) {
    const int64_t g = std::gcd(std::abs(c), divisor);
    if (g == 1) continue;
    Index coarse, fine;
    split(rest, g, coarse, fine);
    const IndexRange f = range(fine);
    if (f.min >= 0 && f.max < g) return add(quotient, div(simplify_sum(coarse), divisor / g));
  }
  return add(quotient, quotient_atom(simplify_sum(rest), divisor));
}

Index IndexSpace::mod(const Index& a, int64_t divisor) {
  assert(divisor > 0);
  if (divisor == 1) return {};
  Index quotient, rest;
  split(a, divisor, quotient, rest);
  const IndexRange r = range(rest);
  const int64_t low = floor_div(r.min, divisor);
  if (low == floor_div(r.max, divisor)) {
    rest.constant -= low * divisor;
    return simplify_sum(std::move(rest));
  }
  for (const auto& [id, c] : rest.terms) {
    const int64_t g = std::gcd(std::abs(c), divisor);
    if (g == 1) continue;
    Index coarse, fine;
    split(rest, g, coarse, fine);
    const IndexRange f = range(fine);
    if (f.min >= 0 && f.max < g) return add(scaled(mod(simplify_sum(coarse), divisor / g), g), fine);
  }
  return remainder_atom(simplify_sum(rest), divisor);
}

// The operand is already reduced: no coefficient divides by the divisor.
Index IndexSpace::quotient_atom(const Index& a, int64_t divisor) {
  if (a.terms.size() == 1 && a.terms[0].second == 1 && a.constant == 0) {
    const Atom inner = atom(a.terms[0].first);
    if (inner.kind == Atom::Kind::quotient) return div(inner.operand, inner.divisor * divisor);
    if (inner.kind == Atom::Kind::remainder && inner.divisor % divisor == 0)
      return mod(div(inner.operand, divisor), inner.divisor / divisor);
  }
  const IndexRange r = range(a);
  Atom q;
  q.kind = Atom::Kind::quotient;
  q.operand = a;
  q.divisor = divisor;
  q.range = {floor_div(r.min, divisor), floor_div(r.max, divisor)};
  return Index{{{intern(std::move(q)), 1}}, 0};
}

Index IndexSpace::remainder_atom(const Index& a, int64_t divisor) {
  // Remainders of a multiple of the divisor inside the sum vanish: (x % 12 + y) % 4 = (x + y) % 4.
  for (const auto& [id, c] : a.terms) {
    const Atom inner = atom(id);
    if (inner.kind != Atom::Kind::remainder || inner.divisor % divisor != 0) continue;
    const Index without = merge(a, Index{{{id, -c}}, 0});
    return mod(add(without, scaled(inner.operand, c)), divisor);
  }
  Atom m;
  m.kind = Atom::Kind::remainder;
  m.operand = a;
  m.divisor = divisor;
  m.range = {0, divisor - 1};
  return Index{{{intern(std::move(m)), 1}}, 0};
}

Index IndexSpace::ravel(const Coords& coords, const ir::Shape& shape) {
  assert(coords.size() == shape.size());
  Index linear;
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    linear = add(linear, scale(coords[d], stride));
    stride *= shape[d];
  }
  return linear;
}

Coords IndexSpace::unravel(const Index& linear, const ir::Shape& shape) {
  Coords coords(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    const int64_t extent = std::max<int64_t>(shape[d], 1);
    // The outermost coordinate needs no remainder; neither does one whose quotient is known to be small: mod() sees that.
    coords[d] = extent == 1 ? Index{} : mod(div(linear, stride), extent);
    stride *= extent;
  }
  return coords;
}

bool IndexSpace::depends_on(const Index& a, const Index& variable) const {
  if (variable.terms.empty()) return false;
  for (const auto& [id, c] : a.terms) {
    if (id == variable.terms[0].first) return true;
    const Atom& x = atom(id);
    if (x.kind != Atom::Kind::variable && depends_on(x.operand, variable)) return true;
  }
  return false;
}

std::string IndexSpace::text(const Index& a) const {
  std::string out;
  for (const auto& [id, c] : a.terms) {
    const Atom& x = atom(id);
    std::string t;
    if (x.kind == Atom::Kind::variable) {
      t = x.name;
    } else {
      std::string inner = text(x.operand);
      if (x.operand.terms.size() + (x.operand.constant != 0) > 1) inner = "(" + inner + ")";
      t = inner + (x.kind == Atom::Kind::quotient ? " / " : " % ") + std::to_string(x.divisor);
      if (c != 1 && c != -1) t = "(" + t + ")";
    }
    const int64_t magnitude = std::abs(c);
    if (out.empty()) {
      out = c < 0 ? "-" : "";
    } else {
      out += c < 0 ? " - " : " + ";
    }
    out += magnitude == 1 ? t : t + " * " + std::to_string(magnitude);
  }
  if (out.empty()) return std::to_string(a.constant);
  if (a.constant != 0) out += (a.constant < 0 ? " - " : " + ") + std::to_string(std::abs(a.constant));
  return out;
}

}  // namespace stitch::code
