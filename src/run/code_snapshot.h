#pragma once
// What code a worker has in memory, read from outside: a candidate that patches the timer, the comparison or a CUDA
// entry point in its own process cannot hide that from its parent.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stitch::run {

struct CodeSegment {
  uint64_t begin = 0, end = 0;
  std::string permissions, file;
  std::string hash;  // SHA-256 of the bytes
};

// Executable segments, and read-only data (relocated tables), of everything that is mapped.
struct CodeState {
  std::vector<CodeSegment> segments;
};

CodeState read_code_state(int pid);  // empty when /proc/PID/mem may not be read
// "" when every segment of `before` is still mapped at its place with the same permissions and bytes.
std::optional<std::string> compare_code_state(const CodeState& before, int pid);

}  // namespace stitch::run
