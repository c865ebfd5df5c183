// SPDX-License-Identifier: Apache-2.0
// docs/guide/ is true: its code stands in programs that are built, its output is theirs, and its commands run as
// written. Lines of code in docs/howto/ stand in an example or a header.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "tests/cli/training_run.h"
#include "tests/support/source_root.h"

namespace paoding {
namespace {

const fs::path& folder_of_guide() {
  static const fs::path folder = source_root() / "docs/guide";
  return folder;
}

std::vector<fs::path> chapters() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder_of_guide())) {
    if (std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0])) != 0)
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// "1_first_model.md" is about examples/guide/first_model.cpp.
std::string program_of(const fs::path& chapter) { return chapter.stem().string().substr(2); }

// Between ```language and ```.
std::vector<std::string> blocks(const fs::path& chapter, const std::string& language) {
  std::vector<std::string> found;
  bool is_in = false;
  for (const std::string& line : lines_of(slurp(chapter))) {
    if (is_in && line == "```") {
      is_in = false;
    } else if (is_in) {
      found.back() += line + "\n";
    } else if (line == "```" + language) {
      is_in = true;
      found.emplace_back();
    }
  }
  return found;
}

// Without its numbers, and with single blanks.
std::string shape_of_line(const std::string& line) {
  static const std::regex number(R"(-?\d+(\.\d+)?(e[-+]?\d+)?)"), blanks(" +");
  return std::regex_replace(std::regex_replace(line, number, "#"), blanks, " ");
}

class Guide : public TrainingRun {
 protected:
  void SetUp() override {
    TrainingRun::SetUp();
    fs::create_directory_symlink(program_.parent_path(), folder_ / "build");
  }
  // Pages quote the output on a CPU; on a GPU the kernels would read otherwise.
  Ran on_the_cpu(const std::string& command) const {
    return shell("export CUDA_VISIBLE_DEVICES=-1 TMPDIR=\"$PWD\"; " + command);
  }
};

TEST_F(Guide, HasItsCodeFromProgramsThatAreBuilt) {
  ASSERT_EQ(chapters().size(), 5u);
  std::string all;
  for (const fs::path& chapter : chapters()) {
    const std::string source = slurp(source_root() / "examples/guide" / (program_of(chapter) + ".cpp"));
    all += source;
    const auto code = blocks(chapter, "cpp");
    EXPECT_GE(code.size(), 3u) << chapter;
    for (const std::string& block : code) EXPECT_TRUE(has(source, block)) << chapter << "\n" << block;
  }
  for (const std::string& block : blocks(folder_of_guide() / "index.md", "cpp")) {
    for (const std::string& line : lines_of(block)) EXPECT_TRUE(has(all, line)) << line;
  }
}

// Single blanks, no remark after the code.
std::string code_of(const std::string& line) {
  static const std::regex remark(R"(\s+//.*)"), blanks(R"(\s+)"), ends("^ | $");
  return std::regex_replace(std::regex_replace(std::regex_replace(line, remark, ""), blanks, " "), ends, "");
}

TEST_F(Guide, HowTosHaveLinesOfExamplesAndHeaders) {
  std::string all;
  for (const char* folder : {"examples", "include"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source_root() / folder)) {
      if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
      for (std::string line : lines_of(slurp(entry.path()))) {
        const std::size_t begin = line.find_first_not_of(" /");
        if (begin != std::string::npos) all += code_of(line.substr(begin)) + "\n";
      }
    }
  }
  int lines = 0;
  for (const auto& entry : fs::directory_iterator(source_root() / "docs/howto")) {
    for (const std::string& block : blocks(entry.path(), "cpp")) {
      for (const std::string& line : lines_of(block)) {
        const std::string code = code_of(line);
        if (code.empty() || code == "...") continue;
        ++lines;
        EXPECT_TRUE(has(all, code)) << entry.path() << ": " << line;
      }
    }
  }
  EXPECT_GT(lines, 20);
}

TEST_F(Guide, ShowsWhatItsProgramsPrint) {
  for (const fs::path& chapter : chapters()) {
    const Ran ran = on_the_cpu("build/examples/guide/" + program_of(chapter));
    ASSERT_EQ(ran.code, 0) << chapter << "\n" << ran.err;
    std::string printed;
    for (const std::string& line : lines_of(ran.out)) printed += shape_of_line(line) + "\n";
    const auto shown = blocks(chapter, "text");
    EXPECT_GE(shown.size(), 1u) << chapter;
    for (const std::string& block : shown) {
      for (const std::string& line : lines_of(block)) {
        EXPECT_TRUE(line == ".." || has(printed, shape_of_line(line))) << chapter << ": " << line << "\n" << ran.out;
      }
    }
  }
}

TEST_F(Guide, HasCommandsThatRunAsWritten) {
  if (std::system("command -v curl >/dev/null") != 0) GTEST_SKIP() << "NOT CHECKED: there is no curl";
  // Installing, building and fetching have been done; a server takes a moment, and its port may be another's.
  std::string script =
      "set -emo pipefail\n"
      "make() { :; }\n"
      "paoding() { if [[ $1 == fetch ]]; then :; else command paoding \"$@\"; fi; }\n"
      "curl() { command curl --silent --fail --show-error --retry 30 --retry-connrefused --retry-delay 1 \"$@\"; echo; "
      "}\n"
      "port=$(shuf -n 1 -i 20000-30000)\n";
  script += blocks(folder_of_guide() / "index.md", "sh").back();  // the path
  for (const fs::path& chapter : chapters()) {
    for (const std::string& block : blocks(chapter, "sh")) {
      script +=
          "echo '" + chapter.stem().string() + "'\n" + std::regex_replace(block, std::regex("\\b8080\\b"), "$port");
    }
  }
  folder_.write("guide.sh", script);
  const Ran ran = on_the_cpu("bash guide.sh");
  EXPECT_EQ(ran.code, 0) << script << ran.out << ran.err;
  EXPECT_TRUE(has(ran.out, "{\"predictions\":[[{\"text\":\"")) << ran.out;
  EXPECT_TRUE(has(ran.out, "paoding_requests_total{code=\"200\"} 2")) << ran.out;
}

}  // namespace
}  // namespace paoding
