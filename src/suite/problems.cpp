#include "suite/problems.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

#include "base/files.h"

namespace stitch::suite {
namespace {

// The number that `text` starts with; moves `text` behind it.
std::optional<int> take_number(std::string_view& text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || n < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return n;
}

}  // namespace

std::string Problem::folder() const { return fmt::format("level{}/{:03}_{}", level, id, name); }

Result<Selection> Selection::parse(std::string_view text) {
  Selection s;
  const std::string whole(text);
  while (!text.empty()) {
    const auto first = take_number(text);
    auto last = first;
    if (first && text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
    }
    const bool more = text.starts_with(',');
    if (more) text.remove_prefix(1);
    if (!first || !last || *last < *first || (more ? text.empty() : !text.empty()))
      return fail(ErrorKind::bad_input, "\"{}\" is no list of problems; write numbers and ranges, such as 1,5-9.", whole);
    s.ranges.emplace_back(*first, *last);
  }
  return s;
}

bool Selection::has(int id) const {
  return ranges.empty() || std::any_of(ranges.begin(), ranges.end(), [&](const auto& r) { return r.first <= id && id <= r.second; });
}

Result<fs::path> find_levels(const fs::path& root) {
  std::error_code ec;
  for (const fs::path& folder : {root, root / "KernelBench"})
    if (fs::is_directory(folder / "level1", ec)) return fs::absolute(folder).lexically_normal();
  return fail(ErrorKind::bad_input, "{} is no checkout of KernelBench (it has no level1/ and no KernelBench/level1/); check --kernelbench-root.", root.string());
}

Result<std::vector<Problem>> find_problems(const fs::path& root, int level, const Selection& selection) {
  STITCH_TRY(const fs::path levels, find_levels(root));
  const fs::path folder = levels / fmt::format("level{}", level);
  std::error_code ec;
  if (!fs::is_directory(folder, ec)) return fail(ErrorKind::bad_input, "{} does not exist; choose another --level.", folder.string());
  std::vector<Problem> found;
  for (const auto& e : fs::directory_iterator(folder, ec)) {
    const std::string stem = e.path().stem().string();
    std::string_view rest = stem;
    const auto id = take_number(rest);
    if (e.path().extension() != ".py" || !id || !rest.starts_with('_') || !selection.has(*id)) continue;
    found.push_back({level, *id, std::string(rest.substr(1)), e.path()});
  }
  std::sort(found.begin(), found.end(), [](const Problem& a, const Problem& b) { return std::tie(a.id, a.name) < std::tie(b.id, b.name); });
  if (found.empty()) return fail(ErrorKind::bad_input, "No problem of {} is selected; check --problems.", folder.string());
  return found;
}

}  // namespace stitch::suite
