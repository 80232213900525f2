// topk and sort: stable, NaN counts as the largest value.
#include <numeric>

#include "interp/rows.h"
#include "interp/rules.h"

namespace stitch::interp {
namespace {

template <class T>
void sort_rows(const Call& c, const std::vector<T>& x, std::vector<T>& values, std::vector<int64_t>& indices, int64_t k, bool descending) {
  const auto& shape = c.in("x").type.shape;
  const Rows from = rows_over(shape, {c.node.integer("dim")}), to = rows_over(c.node.type().shape, {c.node.integer("dim")});
  parallel_for(from.count(), grain_for(from.length() * 16), [&](int64_t begin, int64_t end) {
    std::vector<int64_t> order(static_cast<size_t>(from.length()));
    for (int64_t r = begin; r < end; ++r) {
      const auto at = [&](int64_t i) { return x[static_cast<size_t>(from.starts[static_cast<size_t>(r)] + from.members[static_cast<size_t>(i)])]; };
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
        const T a = descending ? at(j) : at(i), b = descending ? at(i) : at(j);
        return a < b || (b != b && a == a);
      });
      for (int64_t i = 0; i < k; ++i) {
        const auto place = static_cast<size_t>(to.starts[static_cast<size_t>(r)] + to.members[static_cast<size_t>(i)]);
        values[place] = at(order[static_cast<size_t>(i)]);
        indices[place] = order[static_cast<size_t>(i)];
      }
    }
  });
}

Result<Values> sorted(const Call& c) {
  const Value& x = c.in("x");
  Value values = c.result(0), indices = c.result(1);
  const bool top = c.is("topk"), descending = c.node.boolean(top ? "largest" : "descending");
  const auto dim = static_cast<size_t>(c.node.integer("dim"));
  const int64_t k = top ? c.node.integer("k") : x.type.shape.empty() ? 1 : x.type.shape[dim];
  if (k == 0) {
  } else if (x.floating()) {
    sort_rows(c, x.f, values.f, indices.i, k, descending);
  } else {
    sort_rows(c, x.i, values.i, indices.i, k, descending);
  }
  Values out = one(std::move(values));
  out.push_back(std::move(indices));
  return out;
}

constexpr Entry kRules[] = {{"topk", sorted}, {"sort", sorted}};

}  // namespace

std::span<const Entry> families::sort() { return kRules; }

}  // namespace stitch::interp
