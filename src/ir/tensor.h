#pragma once
// A dense row-major tensor in host memory, in its own dtype: what bundles, cases and candidates exchange.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/types.h"

namespace stitch::ir {

struct Tensor {
  std::string name;
  TensorType type;
  std::vector<std::byte> data;  // bytes_of(type) bytes, little endian

  template <class T>
  std::span<T> as() { return {reinterpret_cast<T*>(data.data()), data.size() / sizeof(T)}; }
  template <class T>
  std::span<const T> as() const { return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)}; }
};

Tensor make_tensor(std::string name, TensorType type);  // zero-filled

// Element access independent of dtype (floats, ints and bools as double; i64 above 2^53 loses bits).
double get(const Tensor&, int64_t index);
void set(Tensor&, int64_t index, double value);          // rounds to nearest even for f16/bf16, saturates nothing

float half_to_float(uint16_t);
uint16_t float_to_half(float);
float bfloat16_to_float(uint16_t);
uint16_t float_to_bfloat16(float);

}  // namespace stitch::ir
