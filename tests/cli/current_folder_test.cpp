// SPDX-License-Identifier: Apache-2.0
// The current folder may be anyone's, for instance a downloaded run's: a file in it that has the name of a library is
// never loaded, by no command.
#include <link.h>

#include <algorithm>

#include "tests/cli/cli_run.h"
#include "tests/support/source_root.h"

namespace paoding::cli_run {
namespace {

class CurrentFolder : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    planted_ = folder_ / "planted";
    fs::create_directory(planted_);
    // This process has the program's libraries: those it is linked with, and those it loads when it runs.
    dl_iterate_phdr(
        [](dl_phdr_info* loaded, std::size_t, void* to) {
          const fs::path file = loaded->dlpi_name;
          if (file.has_parent_path()) plant(*static_cast<fs::path*>(to), file.filename());
          return 0;
        },
        &planted_);
    for (const char* name : {"libcuda.so.1", "libnvrtc.so.13", "libnvrtc.so.12", "libcublasLt.so.13", "libcudnn.so.9",
                             "libcupti.so.13", "libcupti.so.12"}) {
      plant(planted_, name);
    }
    ASSERT_TRUE(fs::exists(planted_ / "libdnnl.so.2") || fs::exists(planted_ / "libdnnl.so.3"));
    ASSERT_TRUE(fs::exists(planted_ / "libstdc++.so.6"));
  }

  // Whoever loads it says "file too short".
  static void plant(const fs::path& folder, const fs::path& name) { std::ofstream(folder / name) << "planted"; }

  // The program as it was when its run path had empty entries.
  fs::path with_empty_entries() const {
    std::string bytes = read_file(program());
    const std::string entries = "$ORIGIN:$ORIGIN/";
    const std::size_t begin = bytes.find(entries), end = bytes.find('\0', begin);
    EXPECT_NE(begin, std::string::npos) << "the run path is another one now";
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(begin + std::string("$ORIGIN").size()),
              bytes.begin() + static_cast<std::ptrdiff_t>(end), ':');
    const fs::path copy = folder_ / "paoding";
    std::ofstream(copy, std::ios::binary) << bytes;
    fs::permissions(copy, fs::perms::owner_all);
    return copy;
  }

  fs::path planted_;
};

TEST_F(CurrentFolder, ItsLibrariesAreNotLoaded) {
  const std::string here = "cd " + planted_.string() + " && ";
  Ran ran = shell(here + program().string() + " --version");
  EXPECT_EQ(ran.code, 0) << ran.err;
  ran = shell(here + program().string() + " run --random 1 --device cpu " + path("scale.txt"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  ran = shell(here + "PAODING_CUDA_PATH=. " + program().string() + " doctor");
  EXPECT_FALSE(has(ran.out + ran.err, "does not load")) << ran.out << ran.err;
  // That they would be seen.
  ran = shell(here + "LD_LIBRARY_PATH=" + program().parent_path().string() + " " + with_empty_entries().string() +
              " --version");
  EXPECT_EQ(ran.code, 127) << ran.out;
  EXPECT_TRUE(has(ran.err, "file too short")) << ran.err;
}

TEST_F(CurrentFolder, TheCheckOfRunPathsFindsEmptyEntries) {
  const std::string check = (source_root() / "tools/check_run_paths.sh").string() + " ";
  Ran ran = shell(check + program().string());
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  const std::string bad = with_empty_entries().string();
  ran = shell(check + folder_.string());
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_TRUE(has(ran.out, bad + ":1: its run path is \"$ORIGIN::::")) << ran.out;
  EXPECT_TRUE(has(ran.out, "the entry \"\" is the current folder")) << ran.out;
}

}  // namespace
}  // namespace paoding::cli_run
