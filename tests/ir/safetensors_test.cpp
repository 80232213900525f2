#include "ir/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <random>

#include "base/files.h"

namespace stitch::ir {
namespace {

using testing::HasSubstr;

class Safetensors : public testing::Test {
 protected:
  fs::path file() const { return folder_.path() / "t.safetensors"; }
  // A file of a header and `data` bytes, with the header's length field as given or as it is.
  void write(const std::string& header, size_t data, std::optional<uint64_t> length = std::nullopt) {
    const uint64_t n = length.value_or(header.size());
    ASSERT_TRUE(write_file(file(), std::string(reinterpret_cast<const char*>(&n), 8) + header + std::string(data, '\1')));
  }
  std::string error(const std::string& header, size_t data, std::optional<uint64_t> length = std::nullopt) {
    write(header, data, length);
    const auto f = SafetensorsFile::open(file());
    return f ? "opened" : f.error().message;
  }
  // Without write_file's fsync: hundreds of these are written.
  void write_raw(std::string_view bytes) { std::ofstream(file(), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size())); }
  TempFolder folder_ = std::move(*TempFolder::create("safetensors-test"));
};

TEST_F(Safetensors, EveryDtypeRoundTrips) {
  std::vector<Tensor> tensors;
  std::mt19937 rng(1);
  for (const DType d : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16, DType::i8, DType::u8, DType::b8})
    for (const Shape& s : {Shape{}, Shape{3, 5}, Shape{0, 4}}) {
      tensors.push_back(make_tensor(fmt::format("{} {}\"é", name_of(d), to_string(s)), {d, s}));
      for (std::byte& b : tensors.back().data) b = static_cast<std::byte>(rng());
    }
  ASSERT_TRUE(write_safetensors(file(), tensors));
  const auto f = SafetensorsFile::open(file());
  ASSERT_TRUE(f) << f.error().message;
  ASSERT_EQ(f->entries().size(), tensors.size());
  for (const Tensor& t : tensors) {
    const auto* e = f->find(t.name);
    ASSERT_TRUE(e) << t.name;
    const auto r = f->read(*e);
    ASSERT_TRUE(r);
    EXPECT_EQ(r->type, t.type);
    EXPECT_EQ(r->data, t.data);
  }
  EXPECT_EQ(f->find("nothing"), nullptr);
}

TEST_F(Safetensors, ReadsWhatTheReferenceImplementationWrites) {
  // Bytes of safetensors.numpy.save({"a": arange(3, float32), "b": [True, False]}, metadata={"format": "pt"}).
  const std::string header = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"b":{"dtype":"BOOL","shape":[2],"data_offsets":[12,14]}}  )";
  const float a[] = {0, 1, 2};
  const uint64_t n = header.size();
  ASSERT_TRUE(write_file(file(), std::string(reinterpret_cast<const char*>(&n), 8) + header + std::string(reinterpret_cast<const char*>(a), 12) + std::string("\1\0", 2)));
  const auto f = SafetensorsFile::open(file());
  ASSERT_TRUE(f) << f.error().message;
  const auto ta = f->read(*f->find("a")), tb = f->read(*f->find("b"));
  EXPECT_EQ(get(*ta, 2), 2);
  EXPECT_EQ(get(*tb, 0), 1);
  EXPECT_EQ(get(*tb, 1), 0);
}

TEST_F(Safetensors, DamageIsNamed) {
  const auto entry = [](const char* name, const char* dtype, const char* shape, const char* range) {
    return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, range);
  };
  const auto one = [&](const char* dtype, const char* shape, const char* range) { return "{" + entry("a", dtype, shape, range) + "}"; };
  EXPECT_EQ(error(one("F32", "[2]", "[0,8]"), 8), "opened");
  EXPECT_EQ(error("{}", 0), "opened");
  EXPECT_THAT(error(one("F32", "[2]", "[0,8]"), 7), HasSubstr("the file is cut off"));
  EXPECT_THAT(error(one("F32", "[2]", "[0,8]"), 9), HasSubstr("1 bytes that belong to no tensor"));
  EXPECT_THAT(error(one("F32", "[2]", "[0,4]"), 4), HasSubstr("holds 4 bytes, but f32[2] needs 8"));
  EXPECT_THAT(error(one("F32", "[2]", "[8,0]"), 8), HasSubstr("beyond the end"));
  EXPECT_THAT(error(one("F32", "[2]", "[-8,0]"), 8), HasSubstr("no valid byte range"));
  EXPECT_THAT(error(one("F32", "[2]", "[0,8,9]"), 8), HasSubstr("no valid byte range"));
  EXPECT_THAT(error(one("F32", "[2]", "[18446744073709551608,18446744073709551615]"), 8), HasSubstr("beyond the end"));
  EXPECT_THAT(error(one("F32", "[-2]", "[0,8]"), 8), HasSubstr("no list of extents"));
  EXPECT_THAT(error(one("F32", "[1.5]", "[0,8]"), 8), HasSubstr("no list of extents"));
  EXPECT_THAT(error(one("F32", "[18446744073709551615]", "[0,8]"), 8), HasSubstr("no list of extents"));
  EXPECT_THAT(error(one("F32", "[4294967296,4294967296,4294967296]", "[0,8]"), 8), HasSubstr("impossibly large"));
  EXPECT_THAT(error(one("F8_E4M3", "[2]", "[0,2]"), 2), HasSubstr("F8_E4M3, which is not supported"));
  EXPECT_THAT(error("{\"a\":3}", 0), HasSubstr("must hold a JSON object"));
  EXPECT_THAT(error("{\"a\":{}}", 0), HasSubstr("lacks \"dtype\""));
  EXPECT_THAT(error("[]", 0), HasSubstr("not an object"));
  EXPECT_THAT(error("{\"a\":", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error(std::string(500, '['), 0), HasSubstr("nested deeper"));
  EXPECT_THAT(error("{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 12), HasSubstr("\"b\" of"));
  EXPECT_THAT(error("{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[1]", "[12,16]") + "}", 16), HasSubstr("overlaps another or leaves a gap"));
  EXPECT_THAT(error("{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("a", "F32", "[1]", "[8,12]") + "}", 12), HasSubstr("gives \"a\" twice"));
  EXPECT_THAT(error("{}", 0, 3), HasSubstr("cut off"));
  EXPECT_THAT(error("{}", 0, UINT64_MAX), HasSubstr("cut off or is no safetensors file"));
  EXPECT_THAT(error("{}", 0, uint64_t{200} << 20), HasSubstr("cut off or is no safetensors file"));
}

TEST_F(Safetensors, EveryTruncationIsAnError) {
  Tensor t = make_tensor("weight", {DType::f32, {4}});
  ASSERT_TRUE(write_safetensors(file(), {t}));
  const std::string whole = *read_file(file());
  for (size_t n = 0; n < whole.size(); ++n) {
    write_raw(std::string_view(whole).substr(0, n));
    const auto f = SafetensorsFile::open(file());
    ASSERT_FALSE(f) << n;
    EXPECT_FALSE(f.error().message.empty());
  }
}

TEST_F(Safetensors, FlippedHeaderBytesNeverCrash) {
  std::vector<Tensor> tensors = {make_tensor("a", {DType::f32, {4}}), make_tensor("b", {DType::i64, {2, 2}})};
  ASSERT_TRUE(write_safetensors(file(), tensors));
  const std::string whole = *read_file(file());
  std::mt19937 rng(3);
  int opened = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    for (int k = 0; k < 2; ++k) bytes[rng() % (whole.size() - 48)] = static_cast<char>(rng());
    write_raw(bytes);
    const auto f = SafetensorsFile::open(file());
    if (!f) continue;
    ++opened;
    for (const auto& e : f->entries()) EXPECT_TRUE(f->read(e));
  }
  EXPECT_LT(opened, 100);
}

TEST_F(Safetensors, OnlyPlainFilesAreOpened) {
  EXPECT_THAT(SafetensorsFile::open(folder_.path() / "missing").error().message, HasSubstr("cannot be opened"));
  EXPECT_THAT(SafetensorsFile::open(folder_.path()).error().message, HasSubstr("no plain file"));
  ASSERT_EQ(::mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(SafetensorsFile::open(folder_.path() / "pipe").error().message, HasSubstr("no plain file"));  // and does not wait
}

TEST_F(Safetensors, ATensorThatVanishesIsAnError) {
  ASSERT_TRUE(write_safetensors(file(), {make_tensor("a", {DType::f32, {4}})}));
  const auto f = SafetensorsFile::open(file());
  ASSERT_TRUE(f);
  fs::resize_file(file(), 60);
  EXPECT_THAT(f->read(f->entries()[0]).error().message, HasSubstr("cut off"));
}

TEST_F(Safetensors, WriterRefusesWhatCannotBeRead) {
  const Tensor a = make_tensor("a", {DType::f32, {4}});
  Tensor cut = a;
  cut.data.pop_back();
  EXPECT_THAT(write_safetensors(file(), {a, a}).error().message, HasSubstr("Two tensors named \"a\""));
  EXPECT_THAT(write_safetensors(file(), {cut}).error().message, HasSubstr("holds 15 bytes"));
  EXPECT_FALSE(fs::exists(file()));
}

}  // namespace
}  // namespace stitch::ir
