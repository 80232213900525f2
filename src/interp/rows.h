#pragma once
// Reductions over any set of dims, seen as rows: every result element owns one row of x.

#include <cstdint>
#include <vector>

#include "interp/strided.h"

namespace stitch::interp {

struct Rows {
  std::vector<int64_t> starts;   // offset of each row's first element, in the order of the results
  std::vector<int64_t> members;  // offsets within a row, in x's order
  bool dense = false;            // members are 0, 1, 2 ...
  int64_t count() const { return static_cast<int64_t>(starts.size()); }
  int64_t length() const { return static_cast<int64_t>(members.size()); }
};

// Empty `dims`: all of them, one row.
Rows rows_over(const ir::Shape& shape, const std::vector<int64_t>& dims);

// Pairwise sum of f(0) ... f(n - 1): error grows with log n.
template <class F>
double pairwise_sum(int64_t begin, int64_t end, const F& f) {
  if (end - begin <= 128) {
    double s = 0;
    for (int64_t i = begin; i < end; ++i) s += f(i);
    return s;
  }
  const int64_t middle = begin + (end - begin) / 2;
  return pairwise_sum(begin, middle, f) + pairwise_sum(middle, end, f);
}

}  // namespace stitch::interp
