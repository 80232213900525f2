#include "loop/store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"

namespace stitch::loop {
namespace {

struct Store : ::testing::Test {
  TempFolder folder = *TempFolder::create("store");
  fs::path db = folder.path() / "runs.sqlite";

  RunStore open() { return std::move(*RunStore::open(db)); }
  std::string status(int64_t run) { return open().get(run)->value().status; }
  // A process that does `body` and is then killed, or waits for that. Its run is the value.
  pid_t in_process(const std::function<void(RunStore&)>& body, bool wait) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto store = RunStore::open(db);
      body(*store);
      [[maybe_unused]] const ssize_t n = write(ready[1], "x", 1);
      if (wait) pause();
      raise(SIGKILL);
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    if (!wait) reap(child);
    return child;
  }
  static void reap(pid_t child) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
  }
  void sql(const char* text) {
    sqlite3* raw = nullptr;
    ASSERT_EQ(sqlite3_open(db.c_str(), &raw), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(raw, text, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(raw);
    sqlite3_close(raw);
  }
};

void begin(RunStore& s) { EXPECT_TRUE(s.begin({0, "p", "in.py", "/out", "k"})); }

TEST_F(Store, ARunIsRunningOnlyWhileItsProcessLives) {
  const pid_t child = in_process(begin, true);
  EXPECT_EQ(status(1), "running");
  EXPECT_EQ(open().list(9)->at(0).status, "running");
  kill(child, SIGKILL);
  reap(child);
  EXPECT_EQ(status(1), "interrupted");
  EXPECT_EQ(open().list(9)->at(0).status, "interrupted");
  EXPECT_EQ((*open().find_unfinished("/out", "k"))->status, "interrupted");
}

TEST_F(Store, ARunOfThisProcessIsRunningForOtherStores) {
  RunStore mine = open();
  begin(mine);
  EXPECT_EQ(status(1), "running");
  ASSERT_TRUE(mine.finish(1, "done", "{}"));
  EXPECT_EQ(status(1), "done");
}

TEST_F(Store, TwoRunsDoNotHideEachOther) {
  in_process(begin, false);
  RunStore mine = open();
  begin(mine);
  EXPECT_EQ(status(1), "interrupted");
  EXPECT_EQ(status(2), "running");
}

TEST_F(Store, OneProcessAtATimeGoesOnWithARun) {
  in_process(begin, false);
  RunStore first = open(), second = open();
  ASSERT_TRUE(first.take_up(1));
  EXPECT_EQ(status(1), "running");
  const Status refused = second.take_up(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "Run 1 is going on in another process; wait for it to finish.");
}

TEST_F(Store, AFailedRunKeepsItsReasonUntilItGoesOn) {
  RunStore s = open();
  begin(s);
  ASSERT_TRUE(s.fail(1, "The disk is full."));
  EXPECT_EQ(status(1), "failed");
  EXPECT_EQ((*s.find_unfinished("/out", "k"))->reason, "The disk is full.");
  ASSERT_TRUE(s.take_up(1));
  EXPECT_EQ(s.get(1)->value().reason, "");
  ASSERT_TRUE(s.finish(1, "incorrect", "{}", "wrong"));
  EXPECT_EQ(s.get(1)->value().reason, "wrong");
  EXPECT_FALSE(s.find_unfinished("/out", "k")->has_value());
}

TEST_F(Store, WhatWasSetAsideIsNotGoneOnWithButStaysOnRecord) {
  in_process(begin, false);
  RunStore s = open();
  begin(s);
  ASSERT_TRUE(s.fail(2, "no"));
  ASSERT_TRUE(s.set_aside("/elsewhere"));
  EXPECT_TRUE(s.find_unfinished("/out", "k")->has_value());
  ASSERT_TRUE(s.set_aside("/out"));
  EXPECT_FALSE(s.find_unfinished("/out", "k")->has_value());
  EXPECT_EQ(status(1), "interrupted");
  EXPECT_EQ(status(2), "failed");
}

TEST_F(Store, AStoreOfTheFirstFormatIsTakenOver) {
  sql("CREATE TABLE runs(id INTEGER PRIMARY KEY, program TEXT NOT NULL, input TEXT NOT NULL, out TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL,"
      " started REAL NOT NULL, finished REAL NOT NULL DEFAULT 0, verdict TEXT NOT NULL DEFAULT '');"
      "CREATE TABLE steps(run INTEGER NOT NULL REFERENCES runs(id), step TEXT NOT NULL, attempt INTEGER NOT NULL, seconds REAL NOT NULL,"
      " data TEXT NOT NULL, recorded REAL NOT NULL, PRIMARY KEY(run, step));"
      "INSERT INTO runs VALUES(1, 'p', 'i', '/o', 'k', 'running', 5, 0, ''), (2, 'p', 'i', '/o', 'k', 'abandoned', 5, 6, ''), (3, 'p', 'i', '/o', 'k', 'done', 5, 6, '{}');"
      "INSERT INTO steps VALUES(1, 'capture', 1, 0.5, '{}', 7); PRAGMA user_version=1;");
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {  // all at once
    children.push_back(fork());
    if (children.back() == 0) _exit(RunStore::open(db).has_value() ? 0 : 1);
  }
  for (const pid_t c : children) {
    int result = 0;
    waitpid(c, &result, 0);
    EXPECT_EQ(result, 0);
  }
  EXPECT_EQ(status(1), "interrupted");
  EXPECT_EQ(status(2), "interrupted");
  EXPECT_EQ(status(3), "done");
  EXPECT_EQ((*open().find_unfinished("/o", "k"))->id, 1);
  EXPECT_EQ(open().steps(1)->at(0).files, "");
}

TEST_F(Store, AStoreOfALaterFormatIsRefusedAndLeftAsItIs) {
  open();
  sql("PRAGMA user_version=99;");
  const auto r = RunStore::open(db);
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message.find("version 99 of its format is newer"), std::string::npos) << r.error().message;
  EXPECT_NE(r.error().message.find(db.string()), std::string::npos);
}

}  // namespace
}  // namespace stitch::loop
