#pragma once
// Runs the Python capture worker (python/stitchcuda/capture.py). Nothing else in C++ knows PyTorch.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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

// Many programs in one Python process, each captured in a child of its own: one that crashes, hangs or leaks touches no other. Bundles are
// written without weights and cases.
struct BatchItem {
  std::string target;
  std::filesystem::path out;
};
struct BatchOptions {
  int64_t seed = 42;
  bool dropout_as_input = true;
  std::chrono::seconds timeout{300};  // for one program
};
struct BatchResult {
  Status status;                      // the bundle is written, or why not
  double seconds = 0;
  uint64_t max_rss_bytes = 0;
  std::vector<std::string> aten_ops;  // distinct operators of the exported program, "aten.linear.default"; also where one of them is not supported
};
// Calls `on_result` once per item, in order. Error: no Python, or Python cannot be started.
Status capture_batch(const std::vector<BatchItem>&, const BatchOptions&, const std::function<void(size_t item, BatchResult)>& on_result);

}  // namespace stitch::capture
