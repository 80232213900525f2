#pragma once
// Memory shared with the worker: one sealed memfd per group of tensors. Every tensor lies between red zones filled with
// a pattern; the last page of each trailing zone is unmapped in the worker. The parent keeps no pointer the worker can
// shrink away (the memfd is sealed against resizing).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/tensor.h"
#include "run/protocol.h"

namespace stitch::run {

// Places of tensors in a region and the region's size in bytes. Between two tensors lie at least two pages.
struct RegionLayout {
  std::vector<TensorRecord> records;
  uint64_t bytes = 0;
};
Result<RegionLayout> layout_of(const std::vector<ir::TensorType>& types);

class SharedRegion {
 public:
  // Room for the given tensors, red zones filled, data zero.
  static Result<SharedRegion> create(const std::string& name, const std::vector<ir::TensorType>& types);
  // `bytes` of plain memory as one u8 tensor (workspace, text).
  static Result<SharedRegion> create_bytes(const std::string& name, size_t bytes);
  SharedRegion(SharedRegion&&) noexcept;
  SharedRegion& operator=(SharedRegion&&) noexcept;
  ~SharedRegion();

  int fd() const { return fd_; }
  size_t bytes() const { return bytes_; }
  size_t count() const { return records_.size(); }
  std::span<std::byte> data(size_t tensor);
  std::span<const std::byte> data(size_t tensor) const;

  void fill(size_t tensor, std::span<const std::byte> bytes);  // sizes must agree
  void poison(uint16_t pattern);                               // all tensors' data

  struct Damage {
    size_t tensor;
    int64_t offset;  // of the first damaged byte: relative to the tensor's start, negative = before it
  };
  std::optional<Damage> damaged_redzone() const;  // first red-zone byte that changed

 private:
  SharedRegion() = default;
  int fd_ = -1;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  std::vector<TensorRecord> records_;  // the parent's own copy: the one in shared memory may be scribbled over
};

void fill_pattern(std::span<std::byte> memory, uint16_t pattern);

}  // namespace stitch::run
