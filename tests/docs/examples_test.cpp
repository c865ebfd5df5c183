// SPDX-License-Identifier: Apache-2.0
// The programs of examples/ run as built, and print the output that they promise.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/source_root.h"
#include "tests/support/temporary_folder.h"

namespace paoding {
namespace {

namespace fs = std::filesystem;

struct Ran {
  int code = -1;
  std::string out;
};

/// With `folder` for its temporary files.
Ran run_program(const std::string& example, const std::string& argument = "", const fs::path& folder = "") {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "examples" / example;
  if (!fs::exists(program)) return {-1, program.string() + " is not there: build all targets"};
  const std::string place = folder.empty() ? "" : "TMPDIR='" + folder.string() + "' ";
  const std::string more = argument.empty() ? "" : " '" + argument + "'";
  Ran ran;
  std::FILE* pipe = popen((place + "'" + program.string() + "'" + more + " 2>&1").c_str(), "r");
  std::array<char, 4096> part;
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe)) ran.out.append(part.data(), count);
  ran.code = WEXITSTATUS(pclose(pipe));
  return ran;
}

// The number after `label` in `text`.
double number_behind(const std::string& text, const std::string& label) {
  const auto at = text.find(label);
  return at == std::string::npos ? std::numeric_limits<double>::quiet_NaN() : std::stod(text.substr(at + label.size()));
}

TEST(Examples, AllRunToTheEnd) {
  const TemporaryFolder folder;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(source_root() / "examples")) {
    if (entry.path().extension() == ".cpp") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());  // 07 needs the file of 06
  EXPECT_GE(names.size(), 10u);
  for (const std::string& name : names) {
    const Ran ran = run_program(name, "", folder.path());
    EXPECT_EQ(ran.code, 0) << name << "\n" << ran.out;
    EXPECT_FALSE(ran.out.empty()) << name;
  }
}

TEST(Examples, OwnOpHasTheGradientOfItsFormula) {
  const Ran ran = run_program("03_own_op");
  const double derived = number_behind(ran.out, "dslope[0] = "), measured = number_behind(ran.out, "by differences ");
  EXPECT_NEAR(derived, measured, 1e-3 * std::fabs(measured)) << ran.out;
}

TEST(Examples, OwnCellLeavesTheLoopWithOneProductPerTimeStepAndWeight) {
  const Ran ran = run_program("04_own_cell");
  // Forward and backward: four launches a step, and five, and a few dozen around the loops.
  EXPECT_LE(number_behind(ran.out, " on cpu\n"), 50 * 9 + 40) << ran.out;
}

TEST(Examples, AddingIsLearntSavedAndLoadedAndGoesOnWhereItStopped) {
  const TemporaryFolder folder;
  const std::string place = (folder / "adder").string();
  const Ran before = run_program("07_load_and_predict", place);
  EXPECT_EQ(before.code, 1);
  EXPECT_NE(before.out.find("run 06_train_and_save first"), std::string::npos) << before.out;

  const Ran whole = run_program("06_train_and_save", place);
  EXPECT_LT(number_behind(whole.out, "step 600: loss = "), 0.05) << whole.out;
  const Ran predicted = run_program("07_load_and_predict", place);
  EXPECT_EQ(predicted.code, 0) << predicted.out;
  EXPECT_GE(number_behind(predicted.out, "right: "), 190) << predicted.out;

  // From an earlier checkpoint the last third of the training has the same bits.
  fs::create_directory(folder / "again");
  fs::rename(folder / "adder/step-00000400", folder / "again/step-00000400");
  const Ran again = run_program("06_train_and_save", (folder / "again").string());
  EXPECT_NE(again.out.find("goes on after step 400\nstep 600:"), std::string::npos) << again.out;
  for (const char* file : {"parameters.safetensors", "manifest.json"}) {
    EXPECT_EQ(slurp(folder / "adder/step-00000600" / file), slurp(folder / "again/step-00000600" / file)) << file;
  }
}

TEST(Examples, TheEvaluatingProgramSeesWhatTheTrainingOneLearns) {
  const Ran ran = run_program("08_evaluate_with_shared_parameters");
  EXPECT_LT(number_behind(ran.out, "after 0 steps: "), 350) << ran.out;
  EXPECT_GT(number_behind(ran.out, "after 1000 steps: "), 480) << ran.out;
}

TEST(Examples, TheProfiledLoopWritesItsTimelineAndAddsUpToTheClock) {
  const TemporaryFolder folder;
  const Ran ran = run_program("09_profile_a_loop", (folder / "loop.json").string());
  EXPECT_EQ(ran.code, 0) << ran.out;
  const double clock = number_behind(ran.out, "A clock around the steps saw ");
  const double reported = number_behind(ran.out, "Total time: ");
  EXPECT_GE(reported, 0.99 * clock) << ran.out;  // the clock's line prints six digits
  EXPECT_LT(reported, 1.2 * clock + 1) << ran.out;
  simdjson::dom::parser parser;
  EXPECT_EQ(parser.load((folder / "loop.json").string()).error(), simdjson::SUCCESS);
}

// Agrees with the report in docs/howto/read_data_faster.md.
TEST(Examples, ASlowReaderIsTheUsersCodeInItsReport) {
  const auto share = [](const Ran& ran) {
    const std::string line = ran.out.substr(ran.out.find("  Only your code "));
    return number_behind(line, "Ratio: ");
  };
  ::setenv("OMP_NUM_THREADS", "1", 1);  // a step takes about as long on a machine that is busy
  const Ran slow = run_program("13_slow_reader", "20"), quick = run_program("13_slow_reader", "0");
  ::unsetenv("OMP_NUM_THREADS");
  ASSERT_NE(slow.out.find("  Only your code "), std::string::npos) << slow.out;
  EXPECT_GT(share(slow), 50) << slow.out;
  EXPECT_LT(share(quick), share(slow) / 2) << quick.out;
  EXPECT_EQ(number_behind(slow.out, "\n  read a batch "), 20) << slow.out;
  EXPECT_EQ(number_behind(quick.out, "\n  read a batch "), 20) << quick.out;  // there still
  const std::string wall = slow.out.substr(slow.out.find("Wall Time Summary"));
  EXPECT_NEAR(number_behind(wall.substr(wall.find(" your code ")), "Ratio: "), share(slow), 1) << slow.out;
}

// Agrees with both reports in docs/howto/mend_a_slow_op.md.
TEST(Examples, AnOpThatKeepsTheHostBusyHasACallForEveryRow) {
  ::setenv("OMP_NUM_THREADS", "1", 1);
  const Ran ran = run_program("14_slow_op");
  ::unsetenv("OMP_NUM_THREADS");
  ASSERT_EQ(ran.code, 0) << ran.out;
  const std::size_t mended = ran.out.find("======== my_mean");
  ASSERT_NE(mended, std::string::npos) << ran.out;
  const std::string slow = ran.out.substr(0, mended), quick = ran.out.substr(mended);
  const std::size_t row = slow.find("thread0::my_slow_mean");
  ASSERT_NE(row, std::string::npos) << slow;
  EXPECT_GE(number_behind(slow.substr(slow.find("  ", row)), "  "), 10 * 4999) << slow;  // of every step
  EXPECT_NE(quick.find("thread0::my_mean"), std::string::npos) << quick;
  const auto cost = [](const std::string& report) {
    return number_behind(report.substr(report.find("Recording cost: ")), "on the host, ");
  };
  EXPECT_LT(cost(quick), cost(slow) / 3) << slow << quick;  // a tenth and less on quiet cores
  EXPECT_GT(number_behind(slow, "A step of my_slow_mean takes "), 2 * number_behind(quick, "A step of my_mean takes "));
  EXPECT_NEAR(number_behind(slow, "y = "), number_behind(quick, "y = "), 1e-2) << ran.out;
}

// Agrees with docs/howto/branch_on_a_gpu.md on the three ways, on a GPU that is not there.
TEST(Examples, ACaseOnAGpuCopiesLessTheMoreTheGpuDecides) {
  const fs::path gpu = fs::read_symlink("/proc/self/exe").parent_path() / "pretend_gpu";
  if (!fs::exists(gpu / "libcuda.so.1")) GTEST_SKIP() << "NOT CHECKED: " << gpu << " is not built";
  const TemporaryFolder folder;
  ::setenv("PAODING_CUDA_PATH", gpu.c_str(), 1);
  ::setenv("PAODING_CACHE_DIR", folder.path().c_str(), 1);
  const Ran ran = run_program("12_case_on_a_gpu");
  ::unsetenv("PAODING_CUDA_PATH");
  ::unsetenv("PAODING_CACHE_DIR");
  ASSERT_EQ(ran.code, 0) << ran.out;
  const auto calls = [&](const std::string& way) {
    const std::string part = ran.out.substr(ran.out.find("======== " + way));
    return number_behind(part.substr(part.find("GpuMemcpy ")), "Calls: ");
  };
  EXPECT_GT(calls("step by step"), calls("predicates on the CPU")) << ran.out;
  EXPECT_GT(calls("predicates on the CPU"), 0) << ran.out;
  EXPECT_LE(calls("by default"), 100 * 3) << ran.out;  // the feeds; results come without a copy
}

TEST(Examples, GraphTextLearnsXorAndFilesAreRunOrRefusedWithTheirLine) {
  const Ran learnt = run_program("10_run_graph_text");
  EXPECT_LT(number_behind(learnt.out, "loss f32[] = "), 0.05) << learnt.out;
  const std::string y = learnt.out.substr(learnt.out.find("y f32[4,1]"));
  EXPECT_LT(number_behind(y, "= "), 0.2) << learnt.out;
  for (const char* file : {"lerp_grad.txt", "lstm.txt"}) {
    EXPECT_EQ(run_program("10_run_graph_text", (source_root() / "examples/graphs" / file).string()).code, 0) << file;
  }
  const TemporaryFolder folder;
  spill(folder / "wrong.txt", "paoding graph 1\nx = input f32[2]\ny = mull(x, x)\n");
  const Ran refused = run_program("10_run_graph_text", (folder / "wrong.txt").string());
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.out.find(":3:"), std::string::npos) << refused.out;
  // The message of a bad text goes to the terminal without the text's control characters.
  spill(folder / "foreign.txt", R"(paoding graph 1
x = input f32[2]
fetch "\x1b]0;mine\x07" = x
)");
  const Ran foreign = run_program("10_run_graph_text", (folder / "foreign.txt").string());
  EXPECT_EQ(foreign.code, 0);
  EXPECT_NE(foreign.out.find("\\x1b]0;mine\\x07 f32[2]"), std::string::npos) << foreign.out;
  EXPECT_EQ(foreign.out.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace paoding
