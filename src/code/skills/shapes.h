#pragma once
// Shared by the skills that call kernels of kernels/ on one node: shape constants as the kernels take them.

#include <optional>
#include <string>

#include "code/skill.h"
#include "ir/ops.h"

namespace stitch::code {

// The task's only node, when it is one and reads nothing but task inputs; nullptr otherwise.
const ir::Node* single_node(const TaskContext&);

// A row-major tensor around one dim: element (o, e, i) is at (o * extent + e) * inner + i.
struct AroundDim {
  int64_t outer = 1, extent = 1, inner = 1;
};
AroundDim around(const ir::Shape&, int64_t dim);

// "struct t03_shape {\n  static constexpr stitch::KIND value{FIELDS};\n};\n" (nvcc 13.0 takes no struct as a template argument).
std::string shape_struct(const TaskContext&, std::string_view kind, const std::string& fields);
std::string shape_name(const TaskContext&);

// Comment, signature and body of a launcher.
std::string launcher(const TaskContext&, std::string_view skill, const std::string& body);
// Parameter of an optional operand, or a typed null pointer.
std::string pointer_or_null(const TaskContext&, const ir::Node&, std::string_view argument, ir::DType type);
// Parameter of a result of a single-node task, or a typed null pointer when nobody reads it.
std::string result_or_null(const TaskContext&, int32_t output);

// Parts of a task's scratch: each is 256-byte aligned.
class Scratch {
 public:
  // "reinterpret_cast<float*>(static_cast<char*>(scratch) + 1024)"
  std::string take(int64_t bytes, std::string_view type);
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};
// Parameter of a result of a single-node task, or, for a kernel that always writes it, a place in the scratch when nobody reads it.
std::string result_or_scratch(const TaskContext&, int32_t output, Scratch&);

}  // namespace stitch::code
