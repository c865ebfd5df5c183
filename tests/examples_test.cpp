// SPDX-License-Identifier: Apache-2.0
// The programs of examples/ run as built, and print what they promise.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "tests/source_root.h"

namespace paoding {
namespace {

namespace fs = std::filesystem;

struct Ran {
  int code = -1;
  std::string out;
};

Ran run(const std::string& example) {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "examples" / example;
  if (!fs::exists(program)) return {-1, program.string() + " is not there: build all targets"};
  Ran ran;
  std::FILE* pipe = popen(("'" + program.string() + "' 2>&1").c_str(), "r");
  std::array<char, 4096> part;
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe)) ran.out.append(part.data(), count);
  ran.code = WEXITSTATUS(pclose(pipe));
  return ran;
}

// What stands behind `label` in `text`, as a number.
double number_behind(const std::string& text, const std::string& label) {
  const auto at = text.find(label);
  return at == std::string::npos ? std::numeric_limits<double>::quiet_NaN() : std::stod(text.substr(at + label.size()));
}

TEST(Examples, AllRunToTheEnd) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(source_root() / "examples")) {
    if (entry.path().extension() != ".cpp") continue;
    const Ran ran = run(entry.path().stem().string());
    EXPECT_EQ(ran.code, 0) << entry.path() << "\n" << ran.out;
    EXPECT_FALSE(ran.out.empty()) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 4);
}

TEST(Examples, OwnOpHasTheGradientOfItsFormula) {
  const Ran ran = run("03_own_op");
  const double derived = number_behind(ran.out, "dslope[0] = "), measured = number_behind(ran.out, "by differences ");
  EXPECT_NEAR(derived, measured, 1e-3 * std::fabs(measured)) << ran.out;
}

TEST(Examples, OwnCellLeavesTheLoopWithOneProductPerTimeStepAndWeight) {
  const Ran ran = run("04_own_cell");
  // Forward and backward: four launches a step, and five, and a few dozen around the loops.
  EXPECT_LE(number_behind(ran.out, " on cpu\n"), 50 * 9 + 40) << ran.out;
}

}  // namespace
}  // namespace paoding
