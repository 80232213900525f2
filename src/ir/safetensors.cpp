#include "ir/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"

namespace stitch::ir {
namespace {

constexpr uint64_t kMaxHeader = 100u << 20;

struct Name {
  DType dtype;
  const char* name;
};
constexpr Name kNames[] = {{DType::f64, "F64"}, {DType::f32, "F32"}, {DType::f16, "F16"}, {DType::bf16, "BF16"}, {DType::i64, "I64"},
                           {DType::i32, "I32"}, {DType::i16, "I16"}, {DType::i8, "I8"},   {DType::u8, "U8"},     {DType::b8, "BOOL"}};

class Reader {
 public:
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  explicit Reader(const std::filesystem::path& file) : fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Reader() { if (fd_ >= 0) ::close(fd_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  bool ok() const { return fd_ >= 0; }
  bool is_file() const {
    struct stat s {};
    return ::fstat(fd_, &s) == 0 && S_ISREG(s.st_mode);
  }
  uint64_t size() const {
    struct stat s {};
    return ::fstat(fd_, &s) == 0 ? static_cast<uint64_t>(s.st_size) : 0;
  }
  bool read(void* to, uint64_t n, uint64_t at) const {
    auto* p = static_cast<char*>(to);
    while (n > 0) {
      const ssize_t r = ::pread(fd_, p, std::min<uint64_t>(n, 1u << 30), static_cast<off_t>(at));
      if (r < 0 && errno == EINTR) continue;
      if (r <= 0) return false;
      p += r;
      at += static_cast<uint64_t>(r);
      n -= static_cast<uint64_t>(r);
    }
    return true;
  }

 private:
  int fd_;
};

Result<SafetensorsFile::Entry> read_entry(const std::string& name, const Json& j, const std::string& file, uint64_t data_begin, uint64_t size) {
  SafetensorsFile::Entry e;
  e.name = name;
  const std::string what = fmt::format("The entry \"{}\" of {}", name, file);
  STITCH_TRY(const std::string dtype, get_string(j, "dtype", what));
  const auto* known = std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) { return dtype == n.name; });
  if (known == std::end(kNames)) return fail(ErrorKind::unsupported, "{} has dtype {}, which is not supported.", what, dtype);
  e.type.dtype = known->dtype;
  STITCH_TRY(const Json* shape, get_array(j, "shape", what));
  uint64_t bytes = static_cast<uint64_t>(size_of(e.type.dtype));
  for (const Json& extent : *shape) {
    if (!extent.is_number_integer() || extent.get<int64_t>() < 0) return fail(ErrorKind::bad_input, "{} has a shape that is no list of extents.", what);
    const auto v = extent.get<int64_t>();
    if (v > 0 && bytes > (uint64_t{1} << 60) / static_cast<uint64_t>(v)) return fail(ErrorKind::bad_input, "{} is impossibly large.", what);
    bytes *= static_cast<uint64_t>(v);
    e.type.shape.push_back(v);
  }
  STITCH_TRY(const Json* range, get_array(j, "data_offsets", what));
  if (range->size() != 2 || !(*range)[0].is_number_unsigned() || !(*range)[1].is_number_unsigned())
    return fail(ErrorKind::bad_input, "{} has no valid byte range.", what);
  const auto begin = (*range)[0].get<uint64_t>(), end = (*range)[1].get<uint64_t>();
  if (begin > end || end > size - data_begin)
    return fail(ErrorKind::bad_input, "{} lies beyond the end of the file; the file is cut off.", what);
  if (end - begin != bytes)
    return fail(ErrorKind::bad_input, "{} holds {} bytes, but {} needs {}; the file is damaged.", what, end - begin, to_string(e.type), bytes);
  e.begin = data_begin + begin;
  e.end = data_begin + end;
  return e;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& file) {
  const std::string name = file.string();
  const Reader reader(file);
  if (!reader.ok()) return fail(ErrorKind::bad_input, "{} cannot be opened ({}); the bundle is incomplete.", name, std::strerror(errno));
  if (!reader.is_file()) return fail(ErrorKind::bad_input, "{} is no plain file; write the bundle again.", name);
  const uint64_t size = reader.size();
  uint64_t header_size = 0;
  if (size < 8 || !reader.read(&header_size, 8, 0)) return fail(ErrorKind::bad_input, "{} is cut off; write the bundle again.", name);
  if (header_size > kMaxHeader || header_size > size - 8) return fail(ErrorKind::bad_input, "{} is cut off or is no safetensors file; write the bundle again.", name);
  std::string text(header_size, '\0');
  if (!reader.read(text.data(), header_size, 8)) return fail(ErrorKind::bad_input, "{} cannot be read; the disk may be failing.", name);
  STITCH_TRY(const Json header, parse_json(text, "The header of " + name));
  if (!header.is_object()) return fail(ErrorKind::bad_input, "The header of {} is not an object; the file is damaged.", name);
  SafetensorsFile out;
  out.file_ = file;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") continue;
    STITCH_TRY(Entry e, read_entry(key, value, name, 8 + header_size, size));
    out.by_name_.emplace(e.name, out.entries_.size());
    out.entries_.push_back(std::move(e));
  }
  std::vector<Entry> sorted = out.entries_;
  std::sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t at = 8 + header_size;
  for (const Entry& e : sorted) {
    if (e.begin != at) return fail(ErrorKind::bad_input, "The tensor \"{}\" of {} overlaps another or leaves a gap; the file is damaged.", e.name, name);
    at = e.end;
  }
  if (at != size) return fail(ErrorKind::bad_input, "{} holds {} bytes that belong to no tensor; the file is damaged.", name, size - at);
  return out;
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &entries_[it->second];
}

Result<Tensor> SafetensorsFile::read(const Entry& e) const {
  const Reader reader(file_);
  Tensor t = make_tensor(e.name, e.type);
  if (!reader.ok() || !reader.read(t.data.data(), e.end - e.begin, e.begin))
    return fail(ErrorKind::bad_input, "{} is cut off; write the bundle again.", file_.string());
  return t;
}

Status write_safetensors(const std::filesystem::path& file, const std::vector<Tensor>& tensors) {
  Json header = Json::object();
  uint64_t at = 0;
  for (const Tensor& t : tensors) {
    if (header.contains(t.name)) return fail(ErrorKind::internal, "Two tensors named \"{}\" cannot go into {}.", t.name, file.string());
    if (t.data.size() != static_cast<size_t>(bytes_of(t.type)))
      return fail(ErrorKind::internal, "The tensor \"{}\" holds {} bytes, but {} needs {}.", t.name, t.data.size(), to_string(t.type), bytes_of(t.type));
    const auto* name = std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) { return n.dtype == t.type.dtype; });
    header[t.name] = {{"dtype", name->name}, {"shape", t.type.shape}, {"data_offsets", {at, at + t.data.size()}}};
    at += t.data.size();
  }
  std::string text = dump(header, -1);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string bytes(reinterpret_cast<const char*>(&size), 8);
  bytes.reserve(8 + text.size() + at);
  bytes += text;
  for (const Tensor& t : tensors) bytes.append(reinterpret_cast<const char*>(t.data.data()), t.data.size());
  return write_file(file, bytes);
}

}  // namespace stitch::ir
