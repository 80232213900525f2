#include "ir/fingerprint.h"

#include "base/hash.h"

namespace stitch::ir {

std::string fingerprint(const Graph& g) {
  Graph bare = g;
  for (Node& n : bare.nodes) {
    n.scope.clear();
    n.source.clear();
    if (n.op_name() != "input" && n.op_name() != "weight") n.name.clear();
  }
  return sha256_hex("stitch graph 1\n" + print(bare));
}

}  // namespace stitch::ir
