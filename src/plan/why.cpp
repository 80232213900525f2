#include "plan/why.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/terminal.h"
#include "ir/ops.h"
#include "plan/kinds.h"
#include "plan/names.h"

namespace stitch::plan {
namespace {

using ir::Graph;

const ir::Node& node(const Graph& g, int32_t m) { return g.nodes[static_cast<size_t>(m)]; }
bool is_view(const ir::Node& n) { return n.op_name() == "view"; }
bool moves(const ir::Node& n) { return n.op->cls == ir::OpClass::movement && !is_view(n); }

// "mul, add x2, gelu": in order, plain views left out.
std::string words(const Graph& g, const std::vector<int32_t>& nodes) {
  constexpr size_t kMost = 8;
  std::vector<std::pair<std::string, int>> list;
  for (const int32_t m : nodes) {
    if (is_view(node(g, m))) continue;
    std::string word = word_for(g, node(g, m));
    if (!list.empty() && list.back().first == word) ++list.back().second;
    else list.emplace_back(std::move(word), 1);
  }
  std::vector<std::string> out;
  for (const auto& [word, times] : list) out.push_back(times == 1 ? word : fmt::format("{} x{}", word, times));
  const size_t rest = out.size() > kMost ? out.size() - kMost : 0;
  if (rest > 0) out.resize(kMost);
  return fmt::format("{}{}", fmt::join(out, ", "), rest > 0 ? fmt::format(" and {} more", rest) : "");
}

// Values between the task's nodes that need no memory of their own.
std::string saved(const Graph& g, const Task& t) {
  int count = 0;
  uint64_t bytes = 0;
  for (const int32_t m : t.nodes) {
    if (is_view(node(g, m)) || m == t.nodes.back()) continue;
    if (std::any_of(t.outputs.begin(), t.outputs.end(), [&](ir::ValueRef v) { return v.node == m; })) continue;
    ++count;
    bytes += static_cast<uint64_t>(ir::bytes_of(node(g, m).type()));
  }
  if (count == 0) return ".";
  return fmt::format("; {} ({}) {} never stored.", count == 1 ? "1 intermediate" : fmt::format("{} intermediates", count), format_bytes(bytes), count == 1 ? "is" : "are");
}

std::vector<int32_t> nodes_where(const Graph& g, const Task& t, auto predicate) {
  std::vector<int32_t> out;
  for (const int32_t m : t.nodes)
    if (predicate(m, node(g, m))) out.push_back(m);
  return out;
}

// " with a, b before it and c after it"
std::string around(const Graph& g, const Task& t, int32_t anchor) {
  const std::string before = words(g, nodes_where(g, t, [&](int32_t m, const ir::Node&) { return m < anchor; }));
  const std::string after = words(g, nodes_where(g, t, [&](int32_t m, const ir::Node&) { return m > anchor; }));
  if (before.empty() && after.empty()) return "";
  return " with " + (before.empty() ? after + " after it" : before + " before it" + (after.empty() ? "" : " and " + after + " after it"));
}

std::string product(const Graph& g, const Task& t, int32_t anchor, const std::string& head) {
  const std::string ending = words(g, nodes_where(g, t, [&](int32_t m, const ir::Node& n) { return m != anchor && !moves(n); }));
  const std::string views = words(g, nodes_where(g, t, [&](int32_t, const ir::Node& n) { return moves(n); }));
  return head + (ending.empty() ? "" : fmt::format(" with {} in its epilogue", ending)) + (views.empty() ? "" : fmt::format(", {} done on the way", views)) + saved(g, t);
}

}  // namespace

std::string what_is_fused(const Graph& g, const Task& t) {
  const int32_t anchor = anchor_node(g, t);
  const ir::Node& main = node(g, anchor >= 0 ? anchor : t.nodes.back());
  const std::string head = fmt::format("{} {}", word_for(g, main), ir::to_string(main.type()));
  const std::string tail = anchor >= 0 ? around(g, t, anchor) + saved(g, t) : ".";
  switch (t.kind) {
    case TaskKind::alias: return fmt::format("{} of contiguous data: no work, the result shares its operand's storage.", head);
    case TaskKind::pointwise: return fmt::format("{} over {} in one pass{}", words(g, t.nodes), ir::to_string(node(g, t.nodes.back()).type()), saved(g, t));
    case TaskKind::row: {
      const RowShape rows = row_shape(g, main);
      return fmt::format("{} over {} rows of {}{}", head, rows.outer, rows.inner, tail);
    }
    case TaskKind::reduction: {
      const ir::ValueRef x = main.value("x");
      return fmt::format("{} of {}{}", head, ir::to_string(g.type_of(x)), tail);
    }
    case TaskKind::gemm:
    case TaskKind::convolution: return product(g, t, anchor, head);
    case TaskKind::attention: return product(g, t, anchor, head + ", the score matrix is never stored");
    case TaskKind::recurrent: return head + ": the products of all inputs come before the time loop.";
    case TaskKind::column:
    case TaskKind::norm:
    case TaskKind::pool:
    case TaskKind::scan:
    case TaskKind::sort:
    case TaskKind::scatter:
    case TaskKind::generic: return t.nodes.size() == 1 ? head + " by itself." : fmt::format("{} over {} in one task.", words(g, t.nodes), ir::to_string(main.type()));
  }
  return "";
}

std::string why_it_stops(const Graph& g, const Task& t, const Stop& stop, const std::vector<std::string>& task_of) {
  if (t.kind == TaskKind::alias || stop.reason.empty()) return "";
  if (stop.reader < 0) return fmt::format(" Stops there: {}.", stop.reason);
  const std::string& id = task_of[static_cast<size_t>(stop.reader)];
  return id == t.id ? "" : fmt::format(" Stops before {} ({}): {}.", word_for(g, node(g, stop.reader)), id, stop.reason);
}

}  // namespace stitch::plan
