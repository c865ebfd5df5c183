// SPDX-License-Identifier: Apache-2.0
// tools/fetch_data.sh as far as it goes without a network.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/source_root.h"
#include "tests/support/temporary_folder.h"

namespace paoding {
namespace {

struct Outcome {
  int status = 0;
  std::string text;  // of both streams
};

Outcome run_script(const std::string& arguments, const std::string& environment = "") {
  const std::string script = (source_root() / "tools" / "fetch_data.sh").string();
  FILE* pipe = popen((environment + " bash '" + script + "' " + arguments + " 2>&1 </dev/null").c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (const std::size_t count = fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.text.append(buffer.data(), count);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

void write_all(const TemporaryFolder& folder) {
  folder.write("g2p/cmudict-en-us.dict", "a AH\n");
  for (const std::string name : {"train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"}) {
    folder.write("fashion/" + name + "-ubyte.gz", "x");
  }
  folder.write("translate/Translation-en", "123");
  folder.write("translate/Translation-it", "4567");
  folder.write("kjv/mods.d/engKJV2006eb.conf", "x");
  for (const std::string name : {"ot.bzs", "ot.bzv", "ot.bzz", "nt.bzs", "nt.bzv", "nt.bzz"}) {
    folder.write("kjv/modules/texts/ztext/engKJV2006eb/" + name, "x");
  }
}

TEST(FetchScript, LeavesWhatIsThere) {
  const TemporaryFolder folder;
  write_all(folder);
  const std::string where = folder.path().string();
  const std::string expected = "g2p: 5 bytes, there already, in " + where + "/g2p\n" +
                               "fashion: 4 bytes, there already, in " + where + "/fashion\n" +
                               "translate: 7 bytes, there already, in " + where + "/translate\n" +
                               "kjv: 7 bytes, there already, in " + where + "/kjv\n";
  EXPECT_EQ(run_script("all '" + where + "'").text, expected);
  EXPECT_EQ(run_script("", "PAODING_DATA_DIR='" + where + "'").text, expected);
}

TEST(FetchScript, TakesAnEmptyFileForNoneAndLeavesNothingHalfDone) {
  const TemporaryFolder folder, etc;
  write_all(folder);
  folder.write("translate/Translation-it", "");
  // An apt without sources: there is nothing to ask.
  const auto conf =
      etc.write("apt.conf", "Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"/dev/null\";\n");
  const Outcome outcome =
      run_script("translate '" + folder.path().string() + "'", "APT_CONFIG='" + conf.string() + "'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find("fetch_data: "), std::string::npos) << outcome.text;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "translate/Translation-en"));
}

TEST(FetchScript, EndsAtOnceOnOneSignalAndLeavesNothing) {
  const TemporaryFolder folder, programs;
  // An apt that does not answer.
  const auto fake = programs.write("apt-get", "#!/bin/sh\necho $$ >\"${0%/*}/started\"\nexec sleep 60\n");
  std::filesystem::permissions(fake, std::filesystem::perms::owner_all);
  const auto driver = programs.write("driver",
                                     "set -m  # a background without it ignores SIGINT\n"
                                     "PATH=${0%/*}:$PATH bash \"$1\" translate \"$2\" &\n"
                                     "until [ -s \"${0%/*}/started\" ]; do sleep 0.05; done\n"
                                     "kill -$3 $!; wait $!; exit $?\n");
  const std::string script = (source_root() / "tools" / "fetch_data.sh").string();
  for (const auto& [signal, code] : {std::pair("HUP", 129), std::pair("INT", 130), std::pair("TERM", 143)}) {
    std::filesystem::remove(programs / "started");
    const auto begin = std::chrono::steady_clock::now();
    const std::string command =
        "bash " + driver.string() + " '" + script + "' " + folder.path().string() + " " + signal;
    EXPECT_EQ(WEXITSTATUS(std::system((command + " >/dev/null 2>&1").c_str())), code) << signal;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << signal;
    EXPECT_EQ(folder.files(), 0) << signal;
    EXPECT_NE(kill(std::stoi(slurp(programs / "started")), 0), 0) << "apt-get goes on after " << signal;
  }
}

TEST(FetchScript, NamesTheSetsItKnows) {
  const Outcome outcome = run_script("mnist");
  EXPECT_EQ(outcome.status, 2);
  const std::string script = (source_root() / "tools" / "fetch_data.sh").string();
  EXPECT_EQ(outcome.text, "usage: " + script + " [g2p|fashion|translate|kjv|all] [FOLDER]\n") << "as it was called";
}

TEST(FetchScript, SaysThatAFolderCannotBeWritten) {
  const Outcome outcome = run_script("kjv /proc/paoding");
  if (outcome.text.find("installed") != std::string::npos)
    GTEST_SKIP() << "NOT CHECKED: needs a machine without the data set, and it is installed";
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.text, "fetch_data: /proc/paoding: cannot write there; name another FOLDER\n");
}

}  // namespace
}  // namespace paoding
