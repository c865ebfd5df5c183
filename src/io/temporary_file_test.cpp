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
#include "tests/temporary_folder.h"

namespace paoding::files {
namespace {

namespace fs = std::filesystem;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

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
    AtomicFile file(folder / "target");
    file.write("half", 4);
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  ASSERT_EQ(folder.files(), 1) << "what is to be deleted is not there";
  folder.write(".paoding-notes.tmp", "another's");
  folder.write("paoding-1-1.tmp", "another's");
  fs::create_symlink("target", folder / ".paoding-1-2.tmp");
  AtomicFile file(folder / "target");
  file.write("whole", 5);
  file.commit();
  EXPECT_EQ(slurp(folder / "target"), "whole");
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"target", ".paoding-notes.tmp", "paoding-1-1.tmp", ".paoding-1-2.tmp"}));
}

TEST(TemporaryFile, ThatIsBeingWrittenIsLeftAlone) {
  const TemporaryFolder folder;
  AtomicFile first(folder / "first");
  first.write("1", 1);
  {
    AtomicFile second(folder / "second");
    remove_stale_files(folder.path());
    EXPECT_EQ(folder.files(), 2);
    second.write("2", 1);
    second.commit();
  }
  AtomicFile given_up(folder / "third");
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
    AtomicFile file(folder / "target");
    file.write("half", 4);
    remove_temporary_files();
    _exit(7);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"target"});
  EXPECT_EQ(slurp(folder / "target"), "before");
}

// ---- what others put in the way ----

TEST(AtomicFile, ReplacesALinkOrWhatItLeadsToAsItIsAsked) {
  const TemporaryFolder folder;
  folder.write("victim", "precious");
  fs::create_symlink(folder / "victim", folder / "link");
  {
    AtomicFile file(folder / "link", Links::replaced);
    file.write("new", 3);
    file.commit();
  }
  EXPECT_EQ(slurp(folder / "victim"), "precious");
  EXPECT_FALSE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(slurp(folder / "link"), "new");
  fs::remove(folder / "link");
  fs::create_symlink(folder / "victim", folder / "link");
  AtomicFile file(folder / "link");
  file.write("new", 3);
  file.commit();
  EXPECT_EQ(slurp(folder / "victim"), "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
}

TEST(AtomicFile, GivesNobodyElsesRights) {
  const TemporaryFolder folder;
  ASSERT_EQ(chmod(folder.write("target", "x").c_str(), 06640), 0);
  AtomicFile file(folder / "target");
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
