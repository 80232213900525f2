#pragma once
// Element types, shapes and the values that appear as node arguments.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace stitch::ir {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, b8 };

int64_t size_of(DType);                          // bytes of one element
std::string_view name_of(DType);                 // "f32", "bf16", "i64", "b8" ... as in the text form
std::optional<DType> dtype_from_name(std::string_view);
bool is_floating(DType);
bool is_integral(DType);                         // i64..u8; not b8
bool is_bool(DType);
DType promote(DType, DType);                     // PyTorch's rule for two tensors with dims: f16 + bf16 is f32, i64 + f16 is f16

// Extents in elements, outermost first. Every shape in a graph is static. A scalar has rank 0.
using Shape = std::vector<int64_t>;

int64_t numel(const Shape&);                     // 1 for rank 0; INT64_MAX when it does not fit
std::vector<int64_t> contiguous_strides(const Shape&);  // in elements, row-major
std::string to_string(const Shape&);             // "[2,3]"
// NumPy broadcasting of two shapes; nullopt when they do not broadcast.
std::optional<Shape> broadcast(const Shape&, const Shape&);

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};
int64_t bytes_of(const TensorType&);             // INT64_MAX when it does not fit
int64_t bytes_of(const std::vector<TensorType>&);  // of all; likewise
std::string to_string(const TensorType&);        // "f32[2,3]"

// One result of one node: `node` is an index into Graph::nodes, `output` the position among its results.
struct ValueRef {
  int32_t node = -1;
  int32_t output = 0;
  bool operator==(const ValueRef&) const = default;
  auto operator<=>(const ValueRef&) const = default;
};

struct None {
  bool operator==(const None&) const = default;
};
// A list of tensors; an entry with node == -1 stands for None (as in x[:, idx]).
using ValueList = std::vector<ValueRef>;
using IntList = std::vector<int64_t>;
using FloatList = std::vector<double>;

// An argument as written in the text form. A tensor operand of a pointwise op may be an immediate number.
using Arg = std::variant<None, ValueRef, ValueList, bool, int64_t, double, std::string, DType, IntList, FloatList>;

}  // namespace stitch::ir

template <>
struct std::hash<stitch::ir::ValueRef> {
  size_t operator()(const stitch::ir::ValueRef& v) const noexcept {
    return (static_cast<size_t>(static_cast<uint32_t>(v.node)) << 8) ^ static_cast<size_t>(v.output);
  }
};
