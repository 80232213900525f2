// Op name -> rule.
#include <unordered_map>

#include "interp/rules.h"

namespace stitch::interp {

Rule find_rule(std::string_view op) {
  static const std::unordered_map<std::string_view, Rule> rules = [] {
    std::unordered_map<std::string_view, Rule> map;
    for (const auto& family : {families::source(), families::pointwise(), families::movement(), families::reduction(), families::scan(),
                               families::norm(), families::contraction(), families::convolution(), families::pool(), families::resample(),
                               families::index(), families::sort(), families::attention(), families::recurrent()})
      for (const Entry& e : family) map.emplace(e.op, e.rule);
    return map;
  }();
  const auto it = rules.find(op);
  return it == rules.end() ? nullptr : it->second;
}

}  // namespace stitch::interp
