#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json_full.h"
#include "base/json_schema.h"
#include "base/json_util.h"
#include "base/parallel.h"
#include "base/terminal.h"

namespace stitch {
namespace {

TEST(Files, WriteReadAndReplace) {
  const auto folder = *TempFolder::create("files");
  const fs::path f = folder.path() / "a/b.txt";
  ASSERT_TRUE(write_file(f, "one"));
  ASSERT_TRUE(write_file(f, "two"));
  EXPECT_EQ(*read_file(f), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(f.parent_path()), {}), 1);
}

TEST(Files, MessagesNameTheFileAndTheReason) {
  EXPECT_NE(read_file("/no/such/file").error().message.find("/no/such/file does not exist"), std::string::npos);
  EXPECT_NE(read_file("/tmp").error().message.find("is a folder"), std::string::npos);
  EXPECT_NE(write_file("/dev/null/x", "").error().message.find("/dev/null"), std::string::npos);
}

// A file size limit stands for a full disk: the write fails half-way and must leave nothing behind.
TEST(Files, AFailedWriteLeavesTheOldFileAndNoHalfOne) {
  const auto folder = *TempFolder::create("files");
  const fs::path f = folder.path() / "data";
  ASSERT_TRUE(write_file(f, "old"));
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Status s = write_file(f, std::string(1000, 'x'));
    _exit(!s && s.error().message.find("limit") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*read_file(f), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, AFullDiskIsOneSentence) {
  const auto folder = *TempFolder::create("full");
  if (mount("none", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "mounting a small tmpfs needs root";
  const Status s = write_file(folder.path() / "big", std::string(1 << 20, 'x'));
  const auto left = std::distance(fs::directory_iterator(folder.path()), {});
  umount(folder.path().c_str());
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().message.find("is full; free some space"), std::string::npos) << s.error().message;
  EXPECT_EQ(left, 0);
}

TEST(Files, LocksExcludeAndAreReleased) {
  const auto folder = *TempFolder::create("lock");
  const fs::path f = folder.path() / "lock";
  {
    const auto held = FileLock::acquire(f);
    ASSERT_TRUE(held);
    EXPECT_FALSE(FileLock::try_acquire(f));
  }
  EXPECT_TRUE(FileLock::try_acquire(f));
}

TEST(Hash, KnownDigestAndFieldSeparation) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_NE(Sha256().field("ab").field("c").hex(), Sha256().field("a").field("bc").hex());
}

TEST(Json, MistakesHaveLineAndColumn) {
  const auto r = parse_json("{\n  \"a\": ]\n}", "x.json");
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message.find("line 2, column 8"), std::string::npos) << r.error().message;
  EXPECT_FALSE(parse_json(std::string(100000, '['), "bomb"));
  EXPECT_FALSE(parse_json("", "empty"));
}

TEST(Json, TypedMembers) {
  const Json j = *parse_json(R"({"s":"x","i":3,"f":1.5,"b":true,"big":18446744073709551615})", "t");
  EXPECT_EQ(*get_string(j, "s", "t"), "x");
  EXPECT_EQ(*get_integer(j, "i", "t"), 3);
  EXPECT_FALSE(get_integer(j, "f", "t"));
  EXPECT_FALSE(get_integer(j, "big", "t"));
  EXPECT_FALSE(get_string(j, "missing", "t"));
  EXPECT_EQ(dump(Json(std::string("\xff")), -1).find("\xff"), std::string::npos);
}

TEST(Json, SchemaErrorsNameThePath) {
  const Json schema = *parse_json(R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}}})", "s");
  EXPECT_TRUE(validate_json(schema, *parse_json(R"({"a":[1,2]})", "v")));
  const Status s = validate_json(schema, *parse_json(R"({"a":[1,"x"]})", "v"));
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().message.find("[a][1]"), std::string::npos) << s.error().message;
}

TEST(Parallel, CoversEveryIndexOnceAndRethrows) {
  std::vector<int> hit(1000, 0);
  parallel_for(1000, 10, [&](int64_t b, int64_t e) { for (int64_t i = b; i < e; ++i) hit[static_cast<size_t>(i)]++; });
  EXPECT_EQ(std::count(hit.begin(), hit.end(), 1), 1000);
  EXPECT_THROW(parallel_for(100, 1, [](int64_t, int64_t) { throw std::runtime_error("x"); }), std::runtime_error);
}

TEST(Terminal, TablesAlign) {
  Table t({"name", ">ms"});
  t.add({"a", "1.5"});
  t.add({"longer", "10.25"});
  EXPECT_EQ(t.text(), "name       ms\na         1.5\nlonger  10.25\n");
  EXPECT_EQ(format_bytes(1500), "1.5 kB");
  EXPECT_EQ(format_duration(125), "2 min 05 s");
}

}  // namespace
}  // namespace stitch
