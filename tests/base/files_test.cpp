#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/parallel.h"

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

TEST(Files, AFullDeviceIsOneSentence) {
  const Status s = append_line("/dev/full", "x");
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().message, "The disk holding /dev/full is full; free some space and run again.");
}

TEST(Files, HostilePathsAreErrorsNotExceptions) {
  const auto folder = *TempFolder::create("paths");
  const std::string longest(255, 'n'), too_long(300, 'n');
  EXPECT_TRUE(write_file(folder.path() / longest, "x"));
  EXPECT_FALSE(write_file(folder.path() / too_long, "x"));
  EXPECT_FALSE(make_folder(folder.path() / too_long / "x"));
  fs::create_symlink("loop", folder.path() / "loop");
  EXPECT_FALSE(make_folder(folder.path() / "loop/x"));
  EXPECT_FALSE(read_file(folder.path() / "loop"));
  EXPECT_FALSE(write_file(folder.path(), "x"));
  EXPECT_EQ(make_folder("/dev/null/x").error().message, "Cannot create folder /dev/null/x: a part of the path is a file, not a folder.");
}

TEST(Files, AFileWithoutEndOrMemoryIsRefused) {
  EXPECT_NE(read_file("/dev/zero").error().message.find("no end in sight"), std::string::npos);
  const auto folder = *TempFolder::create("sparse");
  ASSERT_TRUE(write_file(folder.path() / "f", ""));
  if (truncate((folder.path() / "f").c_str(), off_t{1} << 42) != 0) GTEST_SKIP() << "this file system has no sparse files of 4 TiB";
  const rlimit old = [] {
    rlimit l{};
    getrlimit(RLIMIT_AS, &l);
    return l;
  }();
  const rlimit small{rlim_t{1} << 40, old.rlim_max};
  setrlimit(RLIMIT_AS, &small);
  const auto r = read_file(folder.path() / "f");
  setrlimit(RLIMIT_AS, &old);
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message.find("does not fit in memory"), std::string::npos);
}

TEST(Files, AStaleTemporaryFileIsNoObstacle) {
  const auto folder = *TempFolder::create("stale");
  for (unsigned i = 0; i < 200; ++i)  // names a killed process with our number might have left
    ASSERT_TRUE(append_line(folder.path() / fmt::format(".stitch.{}.{}.tmp", getpid(), i), ""));
  EXPECT_TRUE(write_file(folder.path() / "f", "x"));
  EXPECT_EQ(*read_file(folder.path() / "f"), "x");
}

TEST(Files, DataHomeFollowsTheEnvironment) {
  const auto with = [](const char* name, const char* value) {
    const char* old = getenv(name);
    const std::string kept = old ? old : "";
    value ? setenv(name, value, 1) : unsetenv(name);
    const fs::path result = data_home();
    old ? setenv(name, kept.c_str(), 1) : unsetenv(name);
    return result;
  };
  EXPECT_EQ(with("STITCHCUDA_HOME", "/x/y"), "/x/y");
  EXPECT_TRUE(with("HOME", nullptr).is_absolute());
  EXPECT_TRUE(fs::exists(source_root() / "include/stitch/abi.h"));
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

TEST(Hash, FilesAreReadInPieces) {
  const auto folder = *TempFolder::create("hash");
  const std::string bytes(3 * (1 << 20) + 17, 'x');
  ASSERT_TRUE(write_file(folder.path() / "f", bytes));
  EXPECT_EQ(*sha256_of_file(folder.path() / "f"), sha256_hex(bytes));
  EXPECT_FALSE(sha256_of_file(folder.path() / "none"));
  EXPECT_FALSE(sha256_of_file(folder.path()));
}

TEST(Parallel, CoversEveryIndexOnceAndRethrows) {
  std::vector<int> hit(1000, 0);
  parallel_for(1000, 10, [&](int64_t b, int64_t e) { for (int64_t i = b; i < e; ++i) hit[static_cast<size_t>(i)]++; });
  EXPECT_EQ(std::count(hit.begin(), hit.end(), 1), 1000);
  EXPECT_THROW(parallel_for(100, 1, [](int64_t, int64_t) { throw std::runtime_error("x"); }), std::runtime_error);
}

}  // namespace
}  // namespace stitch
