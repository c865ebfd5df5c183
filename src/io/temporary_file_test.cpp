// SPDX-License-Identifier: Apache-2.0
#include "io/temporary_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <set>

#include "paoding/error.h"
#include "tests/support/temporary_folder.h"

namespace paoding::files {
namespace {

namespace fs = std::filesystem;

std::set<std::string> file_names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

constexpr IsOurs kAny = [](std::string_view) { return true; };

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TemporaryFile, OfAProcessThatWasKilledIsDeletedByTheNextThatWrites) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(folder / "target", kAny);
    file.write("half", 4);
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  ASSERT_EQ(folder.files(), 1) << "what is to be deleted is not there";
  folder.write(".paoding-notes.tmp", "another's");
  folder.write("paoding-1-1.tmp", "another's");
  fs::create_symlink("target", folder / ".paoding-1-2.tmp");
  AtomicFile file(folder / "target", kAny);
  file.write("whole", 5);
  file.commit();
  EXPECT_EQ(slurp(folder / "target"), "whole");
  EXPECT_EQ(file_names_in(folder.path()),
            (std::set<std::string>{"target", ".paoding-notes.tmp", "paoding-1-1.tmp", ".paoding-1-2.tmp"}));
}

TEST(TemporaryFile, ThatIsBeingWrittenIsLeftAlone) {
  const TemporaryFolder folder;
  AtomicFile first(folder / "first", kAny);
  first.write("1", 1);
  {
    AtomicFile second(folder / "second", kAny);
    remove_stale_files(folder.path());
    EXPECT_EQ(folder.files(), 2);
    second.write("2", 1);
    second.commit();
  }
  AtomicFile given_up(folder / "third", kAny);
  first.commit();
  EXPECT_EQ(slurp(folder / "first"), "1");
  EXPECT_EQ(slurp(folder / "second"), "2");
  EXPECT_EQ(folder.files(), 3);
}

TEST(TemporaryFile, GoesAwayWithAProcessThatEndsInASignalsHandler) {
  const TemporaryFolder folder;
  folder.write("target", "before");
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(folder / "target", kAny);
    file.write("half", 4);
    remove_temporary_files();
    _exit(7);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(file_names_in(folder.path()), std::set<std::string>{"target"});
  EXPECT_EQ(slurp(folder / "target"), "before");
}

// ---- obstacles that others put in the way ----

TEST(AtomicFile, ReplacesALinkAndNotWhatItLeadsTo) {
  const TemporaryFolder folder;
  folder.write("victim", "precious");
  fs::create_symlink(folder / "victim", folder / "link");
  AtomicFile file(folder / "link", kAny);
  file.write("new", 3);
  file.commit();
  EXPECT_EQ(slurp(folder / "victim"), "precious");
  EXPECT_FALSE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(slurp(folder / "link"), "new");
}

TEST(AtomicFile, ReplacesWhatIsOursOrEmptyAndNothingElse) {
  const TemporaryFolder folder;
  const IsOurs is_ours = [](std::string_view head) { return head.starts_with("ours"); };
  folder.write("letter", "dear");
  folder.write("old", "ours, of yesterday");
  folder.write("empty", "");
  for (const char* name : {"old", "empty", "none"}) {
    AtomicFile file(folder / name, is_ours);
    file.write("new", 3);
    file.commit();
    EXPECT_EQ(slurp(folder / name), "new");
  }
  try {
    const AtomicFile file(folder / "letter", is_ours);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    EXPECT_EQ(std::string(error.what()), (folder / "letter").string() +
                                             ": is there and is no such file of paoding's: give another name, or "
                                             "delete it");
  }
  EXPECT_EQ(slurp(folder / "letter"), "dear");
}

TEST(AtomicFile, ThatIsSeenWhileItGrowsIsNoLinkAndNothingElses) {
  const TemporaryFolder folder;
  const IsOurs is_ours = [](std::string_view head) { return head.starts_with("ours"); };
  folder.write("victim", "ours, but elsewhere");
  folder.write("letter", "dear");
  folder.write("old", "ours, of yesterday");
  fs::create_symlink(folder / "victim", folder / "link");
  fs::create_symlink(folder / "nothing", folder / "dangling");
  for (const char* name : {"link", "dangling", "letter"}) {
    EXPECT_THROW(open_empty(folder / name, is_ours), Error) << name;
  }
  EXPECT_EQ(slurp(folder / "victim"), "ours, but elsewhere");
  EXPECT_EQ(slurp(folder / "letter"), "dear");
  EXPECT_FALSE(fs::exists(folder / "nothing"));
  EXPECT_TRUE(open_empty(folder / "old", is_ours).is_open());
  EXPECT_EQ(slurp(folder / "old"), "");
}

TEST(AtomicFile, GivesNobodyElsesRights) {
  const TemporaryFolder folder;
  ASSERT_EQ(chmod(folder.write("target", "x").c_str(), 06640), 0);
  AtomicFile file(folder / "target", kAny);
  file.commit();
  struct stat status {};
  ASSERT_EQ(stat((folder / "target").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

TEST(FileLock, FollowsNoLinkAndWritesIntoNoFileOfAnother) {
  const TemporaryFolder folder;
  folder.write("victim", "precious");
  const auto lock = [&] { Lock(folder / ".lock", "works"); };
  fs::create_symlink("victim", folder / ".lock");
  EXPECT_EQ(refusal(lock), (folder / ".lock").string() + ": is a link, must be a file that paoding made: delete it");
  fs::remove(folder / ".lock");
  fs::create_symlink("absent", folder / ".lock");
  EXPECT_NE(refusal(lock), "no error");
  EXPECT_FALSE(fs::exists(folder / "absent"));
  fs::remove(folder / ".lock");
  ASSERT_EQ(mkfifo((folder / ".lock").c_str(), 0600), 0);
  EXPECT_NE(refusal(lock).find("is a FIFO"), std::string::npos);
  fs::remove(folder / ".lock");
  fs::create_hard_link(folder / "victim", folder / ".lock");
  EXPECT_EQ(refusal(lock), "no error");
  EXPECT_EQ(slurp(folder / "victim"), "precious");
  fs::remove(folder / ".lock");
  for (const std::string text : {"not a number\n", "12345678901234567890123456789012345\n"}) {
    folder.write(".lock", text);
    EXPECT_EQ(refusal(lock), "no error");
    EXPECT_EQ(slurp(folder / ".lock"), text);
  }
  folder.write(".lock", "123456\n");
  EXPECT_EQ(refusal(lock), "no error");
  EXPECT_EQ(slurp(folder / ".lock"), std::to_string(getpid()) + "\n");
}

}  // namespace
}  // namespace paoding::files
