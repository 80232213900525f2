#include "ir/names.h"

#include "base/terminal.h"

namespace stitch::ir {
namespace {

constexpr size_t kLongest = 4096;  // as long as a file's path may be

}  // namespace

Status check_name(std::string_view name, std::string_view what) {
  if (name.size() > kLongest)
    return fail(ErrorKind::bad_input, "{} is {} bytes long (\"{}...\"); a name may have {} at most.", what, name.size(), printable(name.substr(0, 24)), kLongest);
  for (size_t i = 0; i < name.size(); ++i)
    if (control_length(name, i) > 0)
      return fail(ErrorKind::bad_input, "{} holds a control character after \"{}\"; give it a name of visible characters.", what,
                  printable(name.substr(i > 24 ? i - 24 : 0, std::min<size_t>(i, 24))));
  return {};
}

Status check_names(const Graph& g) {
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    STITCH_CHECK_OK(check_name(n.name, fmt::format("The name of node %{}", i)));
    STITCH_CHECK_OK(check_name(n.scope, fmt::format("The module path of node %{}", i)));
    STITCH_CHECK_OK(check_name(n.source, fmt::format("The source place of node %{}", i)));
  }
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    STITCH_CHECK_OK(check_name(g.outputs[i].name, fmt::format("The name of output {}", i)));
    STITCH_CHECK_OK(check_name(g.outputs[i].target, fmt::format("The name of the tensor that output {} changes", i)));
  }
  return {};
}

}  // namespace stitch::ir
