#pragma once
// Test helper: a graph is planned, coded and built for the host target, run through the candidate ABI in this process,
// and compared with the reference interpreter in fp64.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "code/coder.h"
#include "ir/graph.h"
#include "ir/tensor.h"

namespace stitch::testing {

struct Road {
  bool fuse = true;           // false: one task per node
  bool generic_only = false;  // leave out the special skills
  std::string program = "test";
};

// A program built for the host target. Each run is a process of its own: a library once loaded cannot be unloaded.
class HostProgram {
 public:
  // An error is the failing step's sentence.
  static Result<HostProgram> make(const ir::Graph&, const Road&);
  // Outputs in graph order; `sentence` of a failing call.
  Result<std::vector<ir::Tensor>> run(const std::vector<ir::Tensor>& inputs, const std::vector<ir::Tensor>& weights) const;
  fs::path keep() const { folder_->keep(); return library_.parent_path(); }  // leaves the sources on disk
  const code::Sources& sources() const { return sources_; }
  const ir::Graph& graph() const { return graph_; }  // as planned

 private:
  ir::Graph graph_;
  code::Sources sources_;
  std::shared_ptr<TempFolder> folder_;
  fs::path library_;
};

// Random values for the graph's inputs and weights: floats in [-2, 2), integers in [0, integers), bools.
std::vector<ir::Tensor> random_tensors(const ir::Graph&, const std::vector<int32_t>& leaves, uint64_t seed, int64_t integers = 2);

// Every output against the interpreter: within 1e-5 (f32) of the value and the tensor's scale, or a few times the error of a
// run that rounds after every node, where the graph amplifies rounding.
::testing::AssertionResult agrees_with_interpreter(const ir::Graph&, const Road&, uint64_t seed, int64_t integers = 2);

}  // namespace stitch::testing
