#include "ir/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace stitch::ir {
namespace {

struct Info {
  DType dtype;
  std::string_view name;
  int64_t size;
};
constexpr std::array kInfo{Info{DType::f64, "f64", 8}, Info{DType::f32, "f32", 4}, Info{DType::f16, "f16", 2},
                           Info{DType::bf16, "bf16", 2}, Info{DType::i64, "i64", 8}, Info{DType::i32, "i32", 4},
                           Info{DType::i16, "i16", 2}, Info{DType::i8, "i8", 1}, Info{DType::u8, "u8", 1},
                           Info{DType::b8, "b8", 1}};

}  // namespace

int64_t size_of(DType d) { return kInfo[static_cast<size_t>(d)].size; }
std::string_view name_of(DType d) { return kInfo[static_cast<size_t>(d)].name; }
std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Info& i : kInfo)
    if (i.name == name) return i.dtype;
  return std::nullopt;
}
bool is_floating(DType d) { return d <= DType::bf16; }
bool is_integral(DType d) { return d >= DType::i64 && d <= DType::u8; }
bool is_bool(DType d) { return d == DType::b8; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_floating(a)) {
    if (size_of(a) == size_of(b)) return DType::f32;  // f16 and bf16: neither holds the other
    return size_of(a) > size_of(b) ? a : b;
  }
  if (is_bool(a) || is_bool(b)) return is_bool(a) ? b : a;
  if (size_of(a) == size_of(b)) return DType::i16;  // i8 and u8
  return size_of(a) > size_of(b) ? a : b;
}

int64_t numel(const Shape& s) {
  int64_t n = 1;
  bool too_many = false;
  for (int64_t e : s) too_many = __builtin_mul_overflow(n, e, &n) || too_many;
  if (std::find(s.begin(), s.end(), 0) != s.end()) return 0;
  return too_many ? INT64_MAX : n;
}

std::vector<int64_t> contiguous_strides(const Shape& s) {
  std::vector<int64_t> strides(s.size(), 1);
  for (size_t i = s.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(1, s[i]);
  return strides;
}

std::string to_string(const Shape& s) { return fmt::format("[{}]", fmt::join(s, ",")); }

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

int64_t bytes_of(const TensorType& t) {
  int64_t bytes = 0;
  return __builtin_mul_overflow(numel(t.shape), size_of(t.dtype), &bytes) ? INT64_MAX : bytes;
}

int64_t bytes_of(const std::vector<TensorType>& types) {
  int64_t sum = 0;
  for (const TensorType& t : types)
    if (__builtin_add_overflow(sum, bytes_of(t), &sum)) return INT64_MAX;
  return sum;
}
std::string to_string(const TensorType& t) { return fmt::format("{}{}", name_of(t.dtype), to_string(t.shape)); }

}  // namespace stitch::ir
