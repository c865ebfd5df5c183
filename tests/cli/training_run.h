// SPDX-License-Identifier: Apache-2.0
// `paoding train`, predict and evaluate as a user runs them, in a folder of the test's with a small dictionary: a run
// takes a tenth of a second.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <simdjson.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace paoding {

namespace fs = std::filesystem;

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

/// Contents of a checkpoint's folder, by file name.
inline std::map<std::string, std::string> all_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files[entry.path().filename()] = slurp(entry.path());
  return files;
}

class TrainingRun : public ::testing::Test {
 protected:
  struct Ran {
    int code = -1;  // -1: a signal ended it
    std::string out, err;
  };

  void SetUp() override {
    program_ = fs::read_symlink("/proc/self/exe").parent_path() / "paoding";
    ASSERT_TRUE(fs::exists(program_)) << program_ << " is not there: build all targets";
    folder_.write("data/g2p/cmudict-en-us.dict", dictionary(150));
  }

  /// Words of 4 and 6 letters, as spelled as they are said.
  static std::string dictionary(int words) {
    const std::string consonants = "bdklnst", vowels = "aeo";
    std::string text;
    for (int i = 0; i < words; ++i) {
      int rest = i * 37 + 11;
      std::string word, said;
      for (int syllable = 0; syllable < (i % 3 == 0 ? 3 : 2); ++syllable) {
        for (const std::string& letters : {consonants, vowels}) {
          const char letter = letters[static_cast<std::size_t>(rest) % letters.size()];
          rest = rest / static_cast<int>(letters.size()) + i * syllable;
          word += letter;
          said += std::string(" ") + static_cast<char>(letter - 'a' + 'A');
        }
      }
      text += word + said + "\n";
    }
    return text;
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Runs a shell's command in the test's folder; "paoding" is the program.
  Ran shell(const std::string& command) const {
    const std::string all = "cd '" + folder_.path().string() + "' && paoding() { '" + program_.string() +
                            "' \"$@\"; } && (" + command + ") >.out 2>.err </dev/null";
    const int status = std::system(("OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2 " + quoted_shell(all)).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(folder_ / ".out"), slurp(folder_ / ".err")};
  }
  static std::string quoted_shell(const std::string& command) {
    std::string text = "bash -c '";
    for (const char c : command) text += c == '\'' ? "'\\''" : std::string(1, c);
    return text + "'";
  }

  /// A small training; the test part is left out unless asked for.
  static std::string train(const std::string& more) {
    return "paoding train g2p --hidden=16 --layers=1 --batch-size=8 --epochs=2 " + more;
  }
  Ran trained(const std::string& out, const std::string& more = "--no-test --show 0") const {
    const Ran ran = shell(train("--out " + out + " " + more));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran;
  }

  /// The same in the background, as a process that signals can be sent to. Its output goes to .out and .err, or to
  /// `out`.
  pid_t start(std::vector<std::string> arguments, int out = -1) const {
    arguments.insert(arguments.begin(), program_.string());
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    const std::string folder = folder_.path().string();
    fs::remove(folder_ / ".out");  // whoever waits for a line must not find that of a run before
    const pid_t child = fork();
    if (child != 0) return child;
    setenv("OMP_NUM_THREADS", "2", 1);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    if (chdir(folder.c_str()) != 0) _exit(99);
    dup2(out >= 0 ? out : open(".out", O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
    dup2(open(".err", O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
    execv(words[0], words.data());
    _exit(99);
  }
  Ran ended(pid_t child) const {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(folder_ / ".out"), slurp(folder_ / ".err")};
  }

  /// Checkpoints of a run, oldest first.
  std::vector<std::string> checkpoints(const std::string& out) const {
    std::vector<std::string> names;
    if (!fs::exists(folder_ / out)) return names;
    for (const auto& entry : fs::directory_iterator(folder_ / out)) {
      const std::string name = entry.path().filename();
      if (name.rfind("step-", 0) == 0) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  /// Every file of the last checkpoint.
  std::map<std::string, std::string> last(const std::string& out) const {
    const auto names = checkpoints(out);
    return names.empty() ? std::map<std::string, std::string>() : all_files(folder_ / (out + "/" + names.back()));
  }

  TemporaryFolder folder_;
  fs::path program_;
};

}  // namespace paoding
