#pragma once
// Internal to the process runner: starts one child as a ProcessSpec asks for.

#include <sys/types.h>

#include "base/process.h"

namespace stitch::detail {

// All descriptors are ours to close. `process` (a pidfd, readable once the child has ended) is -1 on kernels without it.
struct Spawned {
  pid_t pid = -1;
  int process = -1;
  int in = -1, out = -1, err = -1;
};

// The child is running the program when this returns: a failed exec is an error here, and nothing is left behind.
Result<Spawned> spawn(const ProcessSpec&);

}  // namespace stitch::detail
