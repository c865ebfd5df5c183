// SPDX-License-Identifier: Apache-2.0
// Where what was recorded goes when its path cannot be written to.
#include "profile/save.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "paoding/error.h"
#include "paoding/profile.h"
#include "profile/recording.h"
#include "tests/support/temporary_folder.h"

namespace paoding::profile {
namespace {

namespace fs = std::filesystem;

// TMPDIR for as long as it is there.
class TemporaryFilesIn {
 public:
  explicit TemporaryFilesIn(const std::string& folder) {
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", folder.c_str(), 1);
  }
  ~TemporaryFilesIn() { before_ ? ::setenv("TMPDIR", before_->c_str(), 1) : ::unsetenv("TMPDIR"); }

 private:
  std::optional<std::string> before_;
};

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) all.push_back(entry.path());
  }
  return all;
}

TEST(StopProfiler, ToAPathThatCannotBeWrittenKeepsTheRecordingElsewhereAndSaysWhere) {
  const TemporaryFolder folder;
  const TemporaryFilesIn temporary(folder.path().string());
  start_profiler(State::cpu);
  { const ProfileRange range("mine"); }
  const std::string report = stop_profiler(SortBy::total, "/no/such/folder/run.paoding");
  const std::vector<fs::path> files = files_in(folder.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].filename(), "run.paoding");
  EXPECT_NE(report.find("/no/such/folder/run.paoding"), std::string::npos) << report;
  EXPECT_NE(report.find("it is in " + files[0].string()), std::string::npos) << report;
  const Trace read = read_recording(files[0].string());
  ASSERT_GE(read.size(), 1u);
  EXPECT_EQ(read.name(0), "mine");
}

TEST(StopProfiler, WithNoPlaceAtAllSaysBothAndReportsAgain) {
  const TemporaryFilesIn temporary("/no/such/folder");
  Profiler seen(State::cpu);
  { const ProfileRange range("mine"); }
  try {
    seen.stop(SortBy::total, "/no/such/other/run.json");
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    for (const char* part : {"/no/such/other/run.json", "/no/such/folder/paoding_profile_"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  EXPECT_NE(seen.stop().find("mine"), std::string::npos);
}

}  // namespace
}  // namespace paoding::profile
