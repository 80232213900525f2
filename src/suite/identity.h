#pragma once
// Which product, on which machine: what makes a figure repeatable and decides whether an artefact of an earlier run still stands.

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace stitch::suite {

struct Identity {
  std::string capture;  // content hash of the Python package
  std::string product;  // of this program, its kernel and header sources and `capture`
};
Result<Identity> product_identity();

std::string commit_of_source();   // "0123abcd...", with "-dirty" for a changed tree; outside a repository $STITCHCUDA_COMMIT or "unknown"
Json describe_machine();          // {cpu, cores, memory_bytes, gpus: [names]}

}  // namespace stitch::suite
