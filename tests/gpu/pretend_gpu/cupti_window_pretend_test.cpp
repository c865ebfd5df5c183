// SPDX-License-Identifier: Apache-2.0
// A segment of a recording that goes by CUPTI: the kernels that are seen in it and on both sides of it, whoever
// launches meanwhile, and that nothing of CUPTI stays.
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "gpu/profile/cupti_library.h"
#include "paoding/profile.h"
#include "profile/report.h"
#include "profile/trace.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"
#include "tests/support/temporary_folder.h"

namespace paoding::testing_program {
namespace {

// The kernels of every run in order, by instance: told by CUPTI; by stamps, in full or by its ends only.
struct Seen {
  std::vector<std::map<std::string, int>> by_cupti;
  std::vector<int> by_stamps;
  std::string report;
};

class WindowOfCupti : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
    build_loop(graph_);
    program_.emplace(graph_, on_gpu());
    program_->run(feeds_of_loop(graph_));
    program_->wait();
  }
  void TearDown() override { pretend_gpu().spoil_records({}); }

  void run(int times) {
    for (int i = 0; i < times; ++i) program_->run(), program_->wait();
  }
  static Seen seen_of(Profiler& profiler) {
    Seen seen;
    seen.report = profiler.stop();
    const profile::Trace& trace = profiler.trace();
    std::map<std::uint32_t, std::size_t> numbers;
    for (const profile::SpanId run : trace.runs()) numbers.emplace(trace.run(run), numbers.size());
    seen.by_cupti.resize(numbers.size());
    seen.by_stamps.resize(numbers.size());
    for (profile::SpanId i = 0; i < trace.size(); ++i) {
      if (!trace.on_gpu(i) || !numbers.contains(trace.run(i))) continue;
      const bool is_cupti = trace.text(trace.track(i).name) == "stream 7";  // as the pretended one says
      if (is_cupti) {
        ++seen.by_cupti[numbers[trace.run(i)]][std::string(trace.text(trace.site(i).instance))];
      } else {
        ++seen.by_stamps[numbers[trace.run(i)]];
      }
    }
    return seen;
  }

  Graph graph_;
  std::optional<Program> program_;
};

TEST_F(WindowOfCupti, SeesItsRunsWholeAndStampsTheOthers) {
  Profiler profiler;
  run(5);
  {
    const CuptiWindow window;
    run(3);
  }
  run(4);
  const Seen seen = seen_of(profiler);
  ASSERT_EQ(seen.by_cupti.size(), 12u) << seen.report;
  for (std::size_t i = 0; i < 12; ++i) {
    const bool is_in = i >= 5 && i < 8;
    EXPECT_EQ(seen.by_cupti[i].empty(), !is_in) << i << seen.report;
    EXPECT_EQ(seen.by_stamps[i] == 0, is_in) << i << seen.report;
    EXPECT_TRUE(!is_in || seen.by_cupti[i] == seen.by_cupti[5]) << i;
  }
  EXPECT_GE(seen.by_cupti[5].size(), 4u);
  EXPECT_FALSE(has(seen.report, ", left out")) << seen.report;
  EXPECT_FALSE(has(seen.report, "did not show")) << seen.report;
  run(2);  // launches that CUPTI saw would die of it
}

// Rows count the runs of a window with the others: nothing is in the report twice or not at all.
TEST_F(WindowOfCupti, IsInTheReportsRows) {
  std::string report;
  const auto calls_of = [&](bool has_window) {
    Profiler profiler;
    run(6);
    std::optional<CuptiWindow> window;
    if (has_window) window.emplace();
    run(6);
    window.reset();
    run(6);
    report = profiler.stop();
    std::map<std::string, std::uint64_t> calls;
    for (const profile::Section& section : profile::measure(profiler.trace()).per_thread) {
      for (const profile::Row& row : section.rows) {
        if (row.gpu > 0) calls[row.name] += row.calls;
      }
    }
    return calls;
  };
  const auto without = calls_of(false);
  EXPECT_GE(without.size(), 4u);
  EXPECT_EQ(calls_of(true), without) << report;
}

TEST_F(WindowOfCupti, ComesAgainAsOftenAsWanted) {
  Profiler profiler;
  for (int i = 0; i < 50; ++i) {
    run(1);
    const CuptiWindow window;
    run(1);
  }
  const Seen seen = seen_of(profiler);
  ASSERT_EQ(seen.by_cupti.size(), 100u);
  for (std::size_t i = 1; i < 100; i += 2) EXPECT_EQ(seen.by_cupti[i], seen.by_cupti[1]) << i;
  EXPECT_FALSE(has(seen.report, "nodes of graphs")) << seen.report;
}

TEST_F(WindowOfCupti, EndsWithTheRecording) {
  Profiler profiler;
  const CuptiWindow window;
  run(2);
  const Seen seen = seen_of(profiler);
  EXPECT_FALSE(seen.by_cupti.at(1).empty()) << seen.report;
  Profiler next;  // which the window, still there, is none of
  run(1);
  EXPECT_TRUE(seen_of(next).by_cupti.at(0).empty());
}

TEST_F(WindowOfCupti, OutsideOfARecordingOrTwiceIsAnError) {
  EXPECT_THROW({ const CuptiWindow window; }, Error);
  const Profiler profiler;
  const CuptiWindow window;
  EXPECT_THROW({ const CuptiWindow second; }, Error);
}

TEST_F(WindowOfCupti, ThatIsRefusedIsNamedAndDoneWithout) {
  pretend_gpu().spoil_records({.refusal = 39});
  Profiler profiler;
  run(1);
  {
    const CuptiWindow window;
    run(3);
  }
  run(1);
  const Seen seen = seen_of(profiler);
  EXPECT_TRUE(has(seen.report, "CUPTI error 39")) << seen.report;
  for (const int spans : seen.by_stamps) EXPECT_GT(spans, 0) << seen.report;
}

// Launches of another thread go on while CUPTI comes and goes: each is seen by the one or by the other.
TEST_F(WindowOfCupti, ComesAndGoesWhileAnotherThreadLaunches) {
  Program other(graph_, on_gpu());
  other.run(feeds_of_loop(graph_));
  other.wait();
  Profiler profiler;
  std::atomic<bool> is_over = false;
  std::thread beside([&] {
    while (!is_over) other.run(), other.wait();
  });
  for (int i = 0; i < 20; ++i) {
    const CuptiWindow window;
    run(2);
  }
  is_over = true;
  beside.join();
  const Seen seen = seen_of(profiler);
  ASSERT_GE(seen.by_cupti.size(), 41u) << seen.report;
  std::set<std::size_t> sizes;
  for (std::size_t i = 0; i < seen.by_cupti.size(); ++i) {
    EXPECT_NE(seen.by_cupti[i].empty(), seen.by_stamps[i] == 0) << i << seen.report;
    if (!seen.by_cupti[i].empty()) sizes.insert(seen.by_cupti[i].size());
  }
  EXPECT_EQ(sizes.size(), 1u) << seen.report;
}

TEST_F(WindowOfCupti, IsOfTheStepsThatAreAskedFor) {
  ProfiledSteps steps({2, 9}, State::all, Detail::op, {4, 6});
  for (int i = 0; i < 12; ++i) {
    steps.before(i);
    run(1);
  }
  ASSERT_NE(steps.profiler(), nullptr);
  const Seen seen = seen_of(*steps.profiler());
  ASSERT_EQ(seen.by_cupti.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(seen.by_cupti[i].empty(), i < 2 || i >= 4) << i;
}

TEST(WindowOfCuptiOnTheCommandLine, IsOfTheRunsThatAreAskedFor) {
  if (gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
  const std::filesystem::path paoding = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "paoding";
  if (!std::filesystem::exists(paoding)) GTEST_SKIP() << "NOT CHECKED: " << paoding << " is not built";
  const TemporaryFolder folder;
  std::ofstream(folder / "product.txt")
      << "paoding graph 1\nx = input f64[8,8]\ny = matmul(x, x)\nz = exp(y)\nfetch z\n";
  const auto output_of = [&](const std::string& command) {
    const std::string out = (folder / "out").string();
    const std::string line =
        fmt::format("PAODING_CUDA_PATH={} PAODING_CACHE_DIR={} {} {} > {} 2>&1", PAODING_PRETEND_FOLDER,
                    (folder / "cache").string(), paoding.string(), command, out);
    std::stringstream text;
    text << std::system(line.c_str()) << " " << std::ifstream(out).rdbuf();
    return text.str();
  };
  const std::string run = fmt::format("run {} --random 7 --device cuda ", (folder / "product.txt").string());
  for (const std::string& command : {run + "--cupti-steps 1:3 --kernels",
                                     "profile --steps 1:4 --cupti-steps 0:2 --kernels " + run + " --repeat 4"}) {
    const std::string text = output_of(command);
    EXPECT_TRUE(text.starts_with("0 ")) << text;
    EXPECT_TRUE(has(text, "kernel pretended_product")) << command << text;
    EXPECT_FALSE(has(text, ", left out")) << text;
  }
  EXPECT_TRUE(has(output_of(run + "--cupti-steps 3:1"), "steps are '3:1'"));
}

}  // namespace
}  // namespace paoding::testing_program
