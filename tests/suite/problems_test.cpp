#include "suite/problems.h"

#include <gtest/gtest.h>

#include "suite/planted.h"

namespace stitch::suite {
namespace {

TEST(Selection, NumbersAndRanges) {
  const auto s = Selection::parse("1,5-7,20");
  ASSERT_TRUE(s) << s.error().message;
  for (const int id : {1, 5, 6, 7, 20}) EXPECT_TRUE(s->has(id)) << id;
  for (const int id : {0, 2, 4, 8, 19, 21}) EXPECT_FALSE(s->has(id)) << id;
}

TEST(Selection, NothingSelectsAll) {
  EXPECT_TRUE(Selection::parse("")->has(17));
}

TEST(Selection, RefusesWhatIsNoList) {
  for (const char* text : {"a", "1,", ",1", "1-", "5-3", "1 2", "-4", "1--2", "99999999999"}) {
    const auto s = Selection::parse(text);
    ASSERT_FALSE(s) << text;
    EXPECT_EQ(s.error().kind, ErrorKind::bad_input);
    EXPECT_NE(s.error().message.find(text), std::string::npos) << s.error().message;
  }
}

struct Problems : ::testing::Test {
  TempFolder folder = *TempFolder::create("problems");
  void SetUp() override {
    ASSERT_TRUE(plant(folder.path(), {{"10_Ten", ""}, {"2_Two_a", ""}, {"1_One", ""}, {"helper", ""}}));
    ASSERT_TRUE(write_file(folder.path() / "KernelBench/level1/3_notes.txt", ""));
  }
};

TEST_F(Problems, AreFoundByNumberFromEitherRoot) {
  for (const fs::path& root : {folder.path(), folder.path() / "KernelBench"}) {
    const auto found = find_problems(root, 1, *Selection::parse(""));
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->size(), 3u);
    EXPECT_EQ(found->at(0).folder(), "level1/001_One");
    EXPECT_EQ(found->at(1).folder(), "level1/002_Two_a");
    EXPECT_EQ(found->at(2).folder(), "level1/010_Ten");
    EXPECT_EQ(found->at(2).name, "Ten");
  }
}

TEST_F(Problems, MissingFoldersAreOneSentence) {
  EXPECT_NE(find_problems(folder.path() / "nowhere", 1, {}).error().message.find("no checkout of KernelBench"), std::string::npos);
  EXPECT_NE(find_problems(folder.path(), 7, {}).error().message.find("level7"), std::string::npos);
  EXPECT_NE(find_problems(folder.path(), 1, *Selection::parse("4-9")).error().message.find("--problems"), std::string::npos);
}

}  // namespace
}  // namespace stitch::suite
