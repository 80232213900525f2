#pragma once
// Runs the Python capture worker (python/stitchcuda/capture.py). Nothing else in C++ knows PyTorch.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "ir/bundle.h"

namespace stitch::capture {

struct CaptureOptions {
  std::string target;                // FILE.py, module:callable or FILE.pt2
  std::filesystem::path out;         // bundle folder to write
  std::string inputs_attribute;      // for module:callable; "" = get_inputs or example_inputs
  int64_t seed = 42;
  int cases = 1;
  std::optional<bool> expected;      // run the module and store its outputs; unset = when it is small
  bool no_weights = false;
  bool dropout_as_input = false;     // active dropout: its random mask becomes an input; otherwise it is refused
};

using Progress = std::function<void(const std::string& text)>;

// A Python that has PyTorch: $STITCHCUDA_PYTHON, the environment that set-up made, python3 on PATH.
Result<std::string> find_python();

// Whether there is such a file or folder at all; needs no Python. A name with a colon may be module:callable.
Status check_target(const std::string& target);

// Captures and reads the bundle back (which checks it). On failure nothing stays at `out`.
Result<ir::Bundle> capture(const CaptureOptions&, const Progress&);

}  // namespace stitch::capture
