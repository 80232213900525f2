#include "run/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace stitch::run {
namespace {

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

void set_dlpack_type(TensorRecord& r, ir::DType t) {
  constexpr uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6;
  r.bits = static_cast<uint8_t>(ir::size_of(t) * 8);
  switch (t) {
    case ir::DType::f64: case ir::DType::f32: case ir::DType::f16: r.code = kFloat; break;
    case ir::DType::bf16: r.code = kBfloat; break;
    case ir::DType::u8: r.code = kUInt; break;
    case ir::DType::b8: r.code = kBool; break;
    default: r.code = kInt;
  }
}

// First byte in [begin, end) that does not continue the 16-bit pattern, or `end`.
uint64_t first_difference(const std::byte* base, uint64_t begin, uint64_t end, uint16_t pattern) {
  const std::byte low{static_cast<unsigned char>(pattern & 0xff)}, high{static_cast<unsigned char>(pattern >> 8)};
  for (uint64_t i = begin; i < end; ++i)
    if (base[i] != (i % 2 ? high : low)) return i;
  return end;
}

}  // namespace

void fill_pattern(std::span<std::byte> memory, uint16_t pattern) {
  const std::byte bytes[2] = {std::byte(pattern & 0xff), std::byte(pattern >> 8)};
  if (memory.empty()) return;
  size_t done = std::min<size_t>(2, memory.size());
  std::memcpy(memory.data(), bytes, done);
  while (done < memory.size()) {
    const size_t n = std::min(done, memory.size() - done);
    std::memcpy(memory.data() + done, memory.data(), n);
    done += n;
  }
}

Result<RegionLayout> layout_of(const std::vector<ir::TensorType>& types) {
  RegionLayout layout;
  uint64_t at = round_up(types.size() * sizeof(TensorRecord), kPage);
  for (const auto& type : types) {
    if (type.shape.size() > kMaxRank)
      return fail(ErrorKind::unsupported, "A tensor has {} dimensions; at most {} are supported.", type.shape.size(), kMaxRank);
    TensorRecord r{};
    r.bytes = static_cast<uint64_t>(ir::bytes_of(type));
    r.ndim = static_cast<int32_t>(type.shape.size());
    for (size_t d = 0; d < type.shape.size(); ++d) r.shape[d] = type.shape[d];
    set_dlpack_type(r, type.dtype);
    at += kPage;  // leading red zone
    // The data ends as close to a page end as its alignment allows, so that the trailing zone starts right behind it.
    const uint64_t padded = std::max<uint64_t>(256, round_up(r.bytes, 256));
    const uint64_t pages = round_up(padded, kPage);
    r.offset = at + pages - padded;
    r.fence = at + pages + kPage;
    at = r.fence + kPage;
    layout.records.push_back(r);
  }
  layout.bytes = std::max<uint64_t>(at, kPage);
  return layout;
}

Result<SharedRegion> SharedRegion::create(const std::string& name, const std::vector<ir::TensorType>& types) {
  STITCH_TRY(RegionLayout layout, layout_of(types));
  SharedRegion region;
  region.records_ = std::move(layout.records);
  region.bytes_ = layout.bytes;
  region.fd_ = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (region.fd_ < 0 || ftruncate(region.fd_, static_cast<off_t>(region.bytes_)) != 0)
    return fail(ErrorKind::environment, "Could not reserve {} bytes of shared memory: {}.", region.bytes_, std::strerror(errno));
  // Sealed: a candidate that shrinks the file would make the parent's own reads fault.
  if (fcntl(region.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail(ErrorKind::environment, "Could not seal shared memory: {}.", std::strerror(errno));
  void* base = mmap(nullptr, region.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd_, 0);
  if (base == MAP_FAILED)
    return fail(ErrorKind::environment, "Could not map {} bytes of shared memory: {}.", region.bytes_, std::strerror(errno));
  region.base_ = static_cast<std::byte*>(base);
  if (!region.records_.empty())
    std::memcpy(region.base_, region.records_.data(), region.records_.size() * sizeof(TensorRecord));
  for (const auto& r : region.records_) {
    const uint64_t lead = (r.offset - kPage) / kPage * kPage;
    fill_pattern({region.base_ + lead, r.offset - lead}, kRedZone);
    // The zone's phase is that of its absolute offset, so that both ends check with one rule.
    const uint64_t tail = r.offset + r.bytes;
    const uint64_t even = tail + (tail % 2);
    if (tail % 2) region.base_[tail] = std::byte(kRedZone >> 8);
    fill_pattern({region.base_ + even, r.fence - even}, kRedZone);
  }
  return region;
}

Result<SharedRegion> SharedRegion::create_bytes(const std::string& name, size_t bytes) {
  return create(name, {ir::TensorType{ir::DType::u8, {static_cast<int64_t>(bytes)}}});
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept { *this = std::move(other); }

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(records_, other.records_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (base_) munmap(base_, bytes_);
  if (fd_ >= 0) close(fd_);
}

std::span<std::byte> SharedRegion::data(size_t tensor) {
  const auto& r = records_.at(tensor);
  return {base_ + r.offset, r.bytes};
}
std::span<const std::byte> SharedRegion::data(size_t tensor) const {
  const auto& r = records_.at(tensor);
  return {base_ + r.offset, r.bytes};
}

void SharedRegion::fill(size_t tensor, std::span<const std::byte> bytes) {
  auto to = data(tensor);
  if (to.size() != bytes.size()) throw std::logic_error("SharedRegion::fill: sizes differ");
  if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
}

void SharedRegion::poison(uint16_t pattern) {
  for (size_t i = 0; i < records_.size(); ++i) fill_pattern(data(i), pattern);
}

std::optional<SharedRegion::Damage> SharedRegion::damaged_redzone() const {
  for (size_t i = 0; i < records_.size(); ++i) {
    const auto& r = records_[i];
    const uint64_t lead = (r.offset - kPage) / kPage * kPage, tail = r.offset + r.bytes;
    if (const auto at = first_difference(base_, tail, r.fence, kRedZone); at != r.fence)
      return Damage{i, static_cast<int64_t>(at - r.offset)};
    if (const auto at = first_difference(base_, lead, r.offset, kRedZone); at != r.offset)
      return Damage{i, static_cast<int64_t>(at) - static_cast<int64_t>(r.offset)};
  }
  return std::nullopt;
}

}  // namespace stitch::run
