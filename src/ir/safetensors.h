#pragma once
// The safetensors container (https://github.com/huggingface/safetensors#format): 8 bytes little-endian header length, a JSON header with
// dtype, shape and byte range per tensor, then the bytes. Files come from outside: everything is checked before use.

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"

namespace stitch::ir {

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    TensorType type;
    uint64_t begin = 0, end = 0;  // byte range in the file
  };

  // Reads and checks the header only: sizes, bounds, overlaps, duplicate names, byte ranges against dtype and shape.
  static Result<SafetensorsFile> open(const std::filesystem::path& file);

  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* find(std::string_view name) const;
  Result<Tensor> read(const Entry&) const;  // only this tensor's bytes

 private:
  std::filesystem::path file_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> by_name_;
};

// Atomic; nothing half-written stays. Two tensors of one name, or bytes that do not fit a type, are an internal error.
Status write_safetensors(const std::filesystem::path& file, const std::vector<Tensor>& tensors);

}  // namespace stitch::ir
