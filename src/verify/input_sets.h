#pragma once
// Input sets and who runs them: on the host (and for small programs anywhere) the parent holds all tensors; on a GPU the reference
// process does. What the sets together say about a candidate is decided in protocol_run.cpp for both.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "run/worker.h"
#include "verify/inputs.h"
#include "verify/judge.h"
#include "verify/session.h"

namespace stitch::verify {

struct CheckContext;

struct SetItem {
  enum class Kind { stored, random, property } kind;
  std::string name;
  uint64_t seed = 0;
  Property property = Property::none;
  const ir::Case* stored = nullptr;  // kind stored
  bool own = false;                  // kind random: drawn by the user's own get_inputs() instead of the models
};

// One set, run twice over two kinds of poison, and judged.
struct SetAnswer {
  Judgement judgement;               // the worse of the two calls
  bool repeats = true;               // the second call repeated the first bit for bit
  std::string output_hash, exact_hash;
  std::optional<AllClose> kernelbench;  // KernelBench's rule, where an answer of PyTorch's own was at hand
};

class SetRunner {
 public:
  virtual ~SetRunner() = default;
  // `measure`: find the reference's own error even if the tolerance settles the question. Outer error: the oracle failed; inner: the candidate.
  virtual Result<run::Outcome<SetAnswer>> run(const SetItem&, bool measure) = 0;
  virtual const Evidence& evidence() const = 0;
  virtual run::Worker& worker() = 0;
};

}  // namespace stitch::verify
