#pragma once
// Tasks with one heavy node, the anchor (a product, a convolution), and cheap nodes after it.

#include <functional>
#include <string>
#include <vector>

#include "code/skill.h"
#include "ir/ops.h"

namespace stitch::code {

// Index of the task's only node of this class, -1 if there is not exactly one.
int32_t anchor_of(const TaskContext&, ir::OpClass);
// The task's nodes that read `node`, directly or not, ascending.
std::vector<int32_t> nodes_after(const TaskContext&, int32_t node);

// The code of a task in two steps: `head` (its nodes, ascending) is written by write_head as a task of its own, the
// remaining nodes by the skills for them; results of the first that only the second needs stay in scratch. When `head` is
// the whole task, only write_head is called.
using Writer = std::function<Result<TaskSource>(const TaskContext&)>;
Result<TaskSource> write_head_and_rest(const TaskContext&, const std::vector<int32_t>& head, const Writer& write_head, std::string_view skill);

// Fused pointwise nodes as an ending: a struct that a kernel calls with each finished element of the anchor.
//   struct NAME { pointers...; __device__ void operator()(int64_t i, float value) const { ... } };
struct Ending {
  std::string definition;  // the struct; "" for a plain store
  std::string value;       // how the launcher makes one: "t03_ending{bias, out}" or "stitch::Store{out}"
};
// `unsupported` when the nodes after the anchor do not keep its elements in place.
Result<Ending> write_ending(const TaskContext&, ir::ValueRef anchor);

// "stitch::Element::f32"; "" for types without a matrix unit.
std::string element_name(ir::DType);
bool is_element(ir::DType);

}  // namespace stitch::code
