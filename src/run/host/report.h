#pragma once
// What the emulator and the sanitizers found wrong with a candidate.

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace stitch::host {

using Index3 = std::array<unsigned, 3>;

struct Fault {
  // out_of_bounds, use_after_free, illegal_address, stack_overflow, misaligned, null_pointer, divide_by_zero, race,
  // uninitialised_shared, barrier_divergence, bad_shuffle_mask, shared_too_large, trap, ...
  std::string kind;
  std::string message;            // one sentence
  std::string file;               // of the candidate's own source; "" if unknown
  int line = 0;
  std::string other_file;         // the other access of a race, the other barrier; "" if there is none
  int other_line = 0;
  std::string kernel;
  std::optional<Index3> block, thread, other_thread;
};

// "file:line: kind: message [kernel, block x,y,z, thread x,y,z]"
std::string to_string(const Fault&);

// Faults of one run, in the order found: from the report file (see run_environment; a missing file means none) and from
// the AddressSanitizer text in `stderr_text`. Code addresses are turned into lines with addr2line.
Result<std::vector<Fault>> read_faults(const std::filesystem::path& report, std::string_view stderr_text);

}  // namespace stitch::host
