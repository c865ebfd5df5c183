// SPDX-License-Identifier: Apache-2.0
// Recordings of runs on a GPU by CUPTI: with one that tells the numbers of executable graphs, with one that does not,
// and with one that has no time for some of its records.
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
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

// Steps of several kinds, in a loop and outside of it.
void build_profiled(Graph& g) {
  const Value a = g.input("a", f32, {5, 3}), ids = g.input("ids", i64, {4, 2});
  const StepResult made = scan({full(g, {2, 3}, 0)}, {ids}, [&](const Values& c, const Values& e) {
    const Scope scope(a.graph(), "lookup");
    return step({tanh(c[0]) + gather(a, e[0], 0)}, {});
  });
  assign(g.parameter("w", f32, {2, 3}), made.carries[0] * 2.0);
  g.fetch("sorted", sort(sum(made.carries[0], Ints{0})).values);
}

// "op@turn run", of every kernel on the GPU's track in the order of their times.
std::vector<std::string> profiled_kernels(const profile::Trace& trace) {
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != profile::SpanKind::kernel || !trace.on_gpu(i)) continue;
    all.emplace_back(trace.start(i), fmt::format("{} {}", trace.text(trace.site(i).instance), trace.run(i)));
  }
  std::ranges::stable_sort(all, {}, &std::pair<std::int64_t, std::string>::first);
  std::vector<std::string> names;
  for (const auto& [start, name] : all) names.push_back(name);
  return names;
}

struct Recorded {
  std::vector<std::string> kernels;
  std::string report;
};

class ProfileOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
    ::setenv("PAODING_CUPTI", "1", 1);
    build_profiled(graph_);
    parameters_.emplace(graph_, Device::cuda(0));
    program_.emplace(graph_, on_gpu(), &*parameters_);
    const auto feeds = to_tensors(graph_, {{"a", Dense(15, 0.5)}, {"ids", {0, 1, 2, 3, 4, 0, 1, 2}}});
    program_->run(feeds);
    pretend_gpu().schedule(1, 0);
  }
  void TearDown() override {
    pretend_gpu().profile(true);
    ::unsetenv("PAODING_CUPTI");
  }

  Recorded record(bool keeps_order, int runs = 3) {
    pretend_gpu().profile(keeps_order);
    Profiler seen;
    for (int i = 0; i < runs; ++i) program_->run();
    program_->wait();
    Recorded made;
    made.report = seen.stop();
    made.kernels = profiled_kernels(seen.trace());
    return made;
  }

  Graph graph_;
  std::optional<Parameters> parameters_;
  std::optional<Program> program_;
};

// The same with each run's kernels in the other order.
std::vector<std::string> turned(std::vector<std::string> all, std::size_t runs) {
  const std::size_t each = all.size() / runs;
  for (std::size_t run = 0; run < runs; ++run) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(run * each);
    std::reverse(begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  return all;
}

// With runs numbered from 1.
std::vector<std::string> numbered(const std::vector<std::string>& all, std::size_t runs) {
  std::vector<std::string> made;
  for (std::size_t i = 0; i < all.size(); ++i) {
    made.push_back(fmt::format("{} {}", all[i].substr(0, all[i].rfind(' ')), i / (all.size() / runs) + 1));
  }
  return made;
}

TEST_F(ProfileOnAGpu, FindsEveryKernelByItsNodeWhateverItsTime) {
  const Recorded in_order = record(true), turned_times = record(false);
  ASSERT_GE(in_order.kernels.size(), 3u * 5);
  EXPECT_EQ(in_order.kernels.size() % 3, 0u);
  EXPECT_EQ(numbered(turned_times.kernels, 3), numbered(turned(in_order.kernels, 3), 3));
  EXPECT_TRUE(has(in_order.report, "commit guard")) << in_order.report;
  for (const char* part : {", left out", "could not be told", "did not show"}) {
    EXPECT_FALSE(has(turned_times.report, part)) << turned_times.report;
  }
}

// A graph that was launched while CUPTI looked dies when it is launched again.
TEST_F(ProfileOnAGpu, KeepsWhatKernelsWereLaunchedWith) {
  Profiler seen;
  program_->run();
  program_->wait();
  seen.end();
  const profile::Trace& trace = seen.trace();
  profile::ArgumentsInOrder arguments(trace);
  int on_gpu = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    std::map<std::string, std::int64_t> own;
    arguments.for_each(i, [&](const profile::ArgumentColumn& column, std::size_t at) {
      own[std::string(trace.text(column.name))] = column.integer(at);
    });
    const bool is_kernel = trace.on_gpu(i) && trace.kind(i) == profile::SpanKind::kernel;
    on_gpu += is_kernel;
    const std::map<std::string, std::int64_t> expected{
        {"registers", 40}, {"shared bytes", 1024}, {"threads", 128}, {"CTAs", 3}};
    EXPECT_EQ(own, is_kernel ? expected : (std::map<std::string, std::int64_t>{})) << trace.name(i);
  }
  EXPECT_GE(on_gpu, 5);
}

TEST_F(ProfileOnAGpu, LeavesGraphsThatCanBeLaunched) {
  const Recorded first = record(true);
  for (int i = 0; i < 3; ++i) program_->run();
  program_->wait();
  const Recorded again = record(true);
  EXPECT_EQ(numbered(again.kernels, 3), numbered(first.kernels, 3));
  program_->run();
  program_->wait();
}

// Work that is enqueued when CUPTI comes has run before, and is none of the recording's.
TEST_F(ProfileOnAGpu, WaitsForRunsFromBeforeTheRecording) {
  const Recorded alone = record(true, 2);
  program_->run();
  const Recorded behind_another = record(true, 2);
  EXPECT_FALSE(has(behind_another.report, ", left out")) << behind_another.report;
  EXPECT_EQ(numbered(behind_another.kernels, 2), numbered(alone.kernels, 2));
}

// A record without a time would be at the beginning of all time, and all that follows would be cut by it.
TEST_F(ProfileOnAGpu, LeavesOutRecordsWithoutATime) {
  const Recorded whole = record(true, 4);
  pretend_gpu().profile(true, 5);
  Profiler seen;
  for (int i = 0; i < 4; ++i) program_->run();
  program_->wait();
  const std::string report = seen.stop();
  EXPECT_TRUE(has(report, "records of CUPTI without a time, left out (")) << report;
  const profile::Trace& trace = seen.trace();
  const std::size_t left = profiled_kernels(trace).size();
  EXPECT_LT(left, whole.kernels.size());
  EXPECT_GE(left, whole.kernels.size() * 3 / 4 - 1);
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    EXPECT_FALSE(trace.on_gpu(i) && trace.cut(i).at_start) << trace.name(i);
  }
}

// The additional time of a launch while CUPTI looks is the recording's, not the framework's.
TEST_F(ProfileOnAGpu, SaysWhatOfALaunchIsTheRecordings) {
  for (int i = 0; i < 5; ++i) program_->run();
  program_->wait();
  pretend_gpu().before("cuGraphLaunch", [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  Profiler seen;
  for (int i = 0; i < 3; ++i) program_->run();
  program_->wait();
  pretend_gpu().before("cuGraphLaunch", {});
  seen.end();
  const profile::Measures m = profile::measure(seen.trace());
  EXPECT_GT(m.recording, 14e6);
  EXPECT_LT(m.framework, 10e6) << "the launches' time is the framework's";
}

TEST_F(ProfileOnAGpu, KnowsWhatIsCopiedWhileTheHostGoesOn) {
  constexpr std::int64_t kMore = (std::int64_t{64} << 18) + 1;  // than 64 MiB, which comes from the caller's memory
  Graph graph;
  graph.fetch("y", sum(slice(graph.input("large", f32, {kMore}), 0, 0, 8)) + sum(graph.input("small", f32, {8})));
  Program program(graph, on_gpu());
  const Tensor large(f32, {kMore});
  Profiler seen;
  program.set_input(program.input_index("large"), large);
  program.set_input(program.input_index("small"), Tensor::from(f32, {8}, Dense(8, 0.5)));
  program.run();
  program.wait();
  seen.end();
  std::map<bool, int> of;
  const profile::Trace& trace = seen.trace();
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.site(i).copy != profile::Copy::host_to_device) continue;
    ++of[trace.site(i).async];
  }
  EXPECT_EQ(of[false], 1);
  EXPECT_EQ(of[true], 1);
}

// The debug execution: every step is seen, its kernel under it, and waited for.
TEST_F(ProfileOnAGpu, SeesTheStepsOfARunStepByStep) {
  CompileOptions options = on_gpu();
  options.execution = Execution::stepwise;
  Program stepwise(graph_, options, &*parameters_);
  const auto feeds = to_tensors(graph_, {{"a", Dense(15, 0.5)}, {"ids", {0, 1, 2, 3, 4, 0, 1, 2}}});
  stepwise.run(feeds);
  Profiler seen;
  stepwise.run(feeds);
  const std::string report = seen.stop();
  const profile::Trace& trace = seen.trace();
  int ops = 0, on_gpu = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == profile::SpanKind::op) ++ops;
    if (trace.kind(i) != profile::SpanKind::kernel) continue;
    ++on_gpu;
    ASSERT_NE(trace.cause(i), profile::kNone) << trace.name(i) << report;
    EXPECT_EQ(trace.site(trace.cause(i)).instance, trace.site(i).instance);
  }
  EXPECT_GE(ops, 8) << report;
  EXPECT_GE(on_gpu, ops) << report;
  EXPECT_FALSE(has(report, ", left out")) << report;
}

// `paoding profile` begins before there is any program, and ends with the process: kernels are recorded from the first
// run on, and their stamps are read after the destructors of libraries that were loaded since.
TEST(ProfileOfACommand, OnAGpuSeesKernelsFromTheFirstRunOn) {
  const std::filesystem::path paoding = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "paoding";
  if (!std::filesystem::exists(paoding)) GTEST_SKIP() << "NOT CHECKED: " << paoding << " is not built";
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string();
  std::ofstream(folder / "square.txt") << "paoding graph 1\nx = input f32[2,3]\ny = mul(x, x)\nfetch y\n";
  for (const std::string how : {"0", "1"}) {
    if (how == "1" && gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
    const std::string command = fmt::format(
        "PAODING_CUPTI={} PAODING_CUDA_PATH={} PAODING_CACHE_DIR={} {} profile run {} --random 7 --device cuda "
        "--repeat 2 > {} 2>&1",
        how, PAODING_PRETEND_FOLDER, (folder / "cache").string(), paoding.string(), (folder / "square.txt").string(),
        out);
    std::stringstream text;
    const int status = std::system(command.c_str());
    text << std::ifstream(out).rdbuf();
    ASSERT_EQ(status, 0) << text.str();
    EXPECT_TRUE(has(text.str(), "GPU 0    kernels")) << text.str();
    EXPECT_TRUE(has(text.str(), "::mul  ")) << text.str();
    EXPECT_FALSE(has(text.str(), ", left out")) << text.str();
    EXPECT_FALSE(has(text.str(), "never finished")) << text.str();
  }
}

TEST_F(ProfileOnAGpu, KeepsProgramsApart) {
  Graph other_graph;
  build_profiled(other_graph);
  Program other(other_graph, on_gpu(), &*parameters_);
  const auto feeds = to_tensors(other_graph, {{"a", Dense(15, 0.5)}, {"ids", {0, 1, 2, 3, 4, 0, 1, 2}}});
  other.run(feeds);
  pretend_gpu().profile(false);
  Profiler seen;
  program_->run(), other.run(), other.run(), program_->run();
  program_->wait(), other.wait();
  const std::string report = seen.stop();
  std::map<std::string, int> of_run;
  for (const std::string& name : profiled_kernels(seen.trace())) ++of_run[name.substr(name.rfind(' '))];
  ASSERT_EQ(of_run.size(), 4u) << report;
  for (const auto& [run, count] : of_run) EXPECT_EQ(count, of_run.begin()->second) << run;
}

}  // namespace
}  // namespace paoding::testing_program
