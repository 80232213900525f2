#pragma once
// What the skills that generate kernels with the expression generator share.

#include <string>
#include <utility>
#include <vector>

#include "code/expr/emitter.h"
#include "code/skill.h"

namespace stitch::code {

// Index arithmetic needs 64 bits when a tensor that the task touches has close to 2^31 elements or more.
bool needs_wide_index(const TaskContext&);

// Parameter list and argument list of one kernel, in step with each other.
class KernelParams {
 public:
  void add(std::string declaration, std::string argument) { items_.emplace_back(std::move(declaration), std::move(argument)); }
  void input(const TaskContext&, ir::ValueRef);
  void output(const TaskContext&, ir::ValueRef);
  void append(const KernelParams& more) { items_.insert(items_.end(), more.items_.begin(), more.items_.end()); }
  std::string declarations() const;  // "const float* __restrict__ x, float* __restrict__ out"
  std::string arguments() const;     // "x, out"

 private:
  std::vector<std::pair<std::string, std::string>> items_;
};

// "// <why>\n// x f32[2,3], y f32[2,3] -> out f32[2,3]; skill pointwise\n": the comment above a task's launcher.
std::string task_comment(const TaskContext&, std::string_view skill);
// Text of a stored value: narrowed where the element type is a reduced-precision float.
std::string stored(Emitter&, const Val& value, ir::DType type);
int64_t ceil_div(int64_t a, int64_t b);

// Binds the task's inputs and allows its nodes.
void set_up(Emitter&, const TaskContext&);

// One element of every output in `outputs` per thread iteration; all have the same number of elements. With `loops`,
// nodes without a pointwise form are computed by serial loops in the thread. Returns kernel text and launch statements.
struct KernelText {
  std::string device;  // __global__ function
  std::string launch;  // statements of the launcher, ending with STITCH_CHECK_LAUNCH();
};
Result<KernelText> elementwise_kernel(const TaskContext&, const std::string& kernel_name, const std::vector<ir::ValueRef>& outputs, bool loops);
// A task made of one elementwise kernel per number of elements among its outputs.
Result<TaskSource> elementwise_task(const TaskContext&, std::string_view skill, bool loops);

}  // namespace stitch::code
