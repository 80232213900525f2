#pragma once
// Shared by the type rules (infer*.cpp). A rule may assume what validate() has checked before: operands exist, arguments
// have the right kind, every operand's extents are within kMaxElements and so is every integer argument.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/ops.h"

namespace stitch::ir {

inline constexpr int64_t kMaxElements = int64_t{1} << 48;

// Every extent is non-negative and there are at most kMaxElements elements; the product cannot overflow.
bool sane_extents(const Shape&);

namespace rules {

using Types = std::vector<TensorType>;

struct Ctx {
  const Graph& g;
  const Node& n;
  const TensorType& in(std::string_view p) const { return g.type_of(n.value(p)); }
  const Shape& shape(std::string_view p) const { return in(p).shape; }
  DType declared() const { return n.types.empty() ? DType::f32 : n.types.front().dtype; }
  bool is(std::string_view op) const { return n.op->name == op; }

  template <class... Args>
  tl::unexpected<Error> bad(fmt::format_string<Args...> format, Args&&... args) const {
    return fail(ErrorKind::bad_input, "{}: {}", n.op->name, fmt::format(format, std::forward<Args>(args)...));
  }
};

// `d` as an index below `rank`; a scalar counts as rank 1, as in PyTorch.
Result<size_t> dim_in(const Ctx&, int64_t d, size_t rank);
// The same for ops that need the dim to exist.
Result<size_t> real_dim_in(const Ctx&, int64_t d, size_t rank);
// Optional parameter `p` has exactly this shape.
Status shape_is(const Ctx&, std::string_view p, const Shape& want);
// All named operands that are given have one dtype.
Status one_dtype(const Ctx&, std::initializer_list<std::string_view> parameters);
// The declared dtype if it is a float, else an error.
Result<DType> float_result(const Ctx&);

Result<Types> source(const Ctx&);
Result<Types> pointwise(const Ctx&);
Result<Types> movement(const Ctx&);
Result<Types> reduction(const Ctx&);
Result<Types> arg_reduction(const Ctx&);
Result<Types> scan(const Ctx&);
Result<Types> row(const Ctx&);
Result<Types> norm(const Ctx&);
Result<Types> contraction(const Ctx&);
Result<Types> convolution(const Ctx&);
Result<Types> pool(const Ctx&);
Result<Types> resample(const Ctx&);
Result<Types> index(const Ctx&);
Result<Types> sort(const Ctx&);
Result<Types> attention(const Ctx&);
Result<Types> recurrent(const Ctx&);

}  // namespace rules
}  // namespace stitch::ir
