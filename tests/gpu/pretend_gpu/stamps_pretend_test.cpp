// SPDX-License-Identifier: Apache-2.0
// Recordings of runs on a GPU by stamps of their own: the spans of a replay, the scaled times, the cost for the
// program, compared with a CUPTI's records of the same program.
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "gpu/profile/cupti_library.h"
#include "paoding/profile.h"
#include "profile/report.h"
#include "profile/trace.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"
#include "tests/support/misses_nothing.h"

namespace paoding::testing_program {
namespace {

using profile::SpanKind;

std::size_t stamped_calls_of(const std::string& function) {
  const std::vector<std::string> calls = pretend_gpu().calls();
  return static_cast<std::size_t>(std::ranges::count(calls, function));
}

// A loop, a library's product, updates that share a launch, a sort.
void build_stamped(Graph& g) {
  const Value a = g.input("a", f32, {5, 3}), ids = g.input("ids", i64, {4, 2}), m = g.input("m", f32, {3, 3});
  const StepResult made = scan({full(g, {2, 3}, 0)}, {ids}, [&](const Values& c, const Values& e) {
    const Scope scope(a.graph(), "lookup");
    return step({tanh(matmul(c[0], m)) + gather(a, e[0], 0)}, {});
  });
  assign(g.parameter("w", f32, {2, 3}), made.carries[0] * 2.0);
  g.fetch("sorted", sort(sum(made.carries[0], Ints{0})).values);
}

using KernelCounts = std::map<std::string, std::int64_t>;

// How often each instance of an op ran on the GPU, in all runs.
KernelCounts stamped_kernels(const profile::Trace& trace) {
  KernelCounts counts;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == SpanKind::kernel && trace.on_gpu(i)) {
      counts[std::string(trace.text(trace.site(i).instance)) + " " + std::string(trace.name(i))] += 1;
    }
  }
  return counts;
}

std::int64_t count(const profile::Trace& trace, SpanKind kind) {
  std::int64_t found = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) found += trace.kind(i) == kind ? 1 : 0;
  return found;
}

KernelCounts times(KernelCounts counts, std::int64_t factor) {
  for (auto& [name, of] : counts) of *= factor;
  return counts;
}

class StampsOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    build_stamped(graph_);
    parameters_.emplace(graph_, Device::cuda(0));
    program_.emplace(graph_, on_gpu(), &*parameters_);
    feeds_ = to_tensors(graph_, make_feeds(graph_, 5));
    feeds_["ids"] = Tensor::from(i64, {4, 2}, Dense{0, 1, 2, 3, 4, 0, 1, 2});
    wanted_ = program_->run(feeds_).at("sorted").to_doubles();
    pretend_gpu().schedule(1, 0);
  }

  profile::Trace record(int runs) {
    Profiler seen;
    for (int i = 0; i < runs; ++i) program_->run();
    program_->wait();
    report_ = seen.stop();
    // Take the trace out of the profiler: it is read after the profiler's end.
    return std::move(const_cast<profile::Trace&>(seen.trace()));
  }

  Graph graph_;
  std::optional<Parameters> parameters_;
  std::optional<Program> program_;
  Tensors feeds_;
  Dense wanted_;
  std::string report_;
};

TEST_F(StampsOnAGpu, SeeWhatCuptiSees) {
  if (gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
  ::setenv("PAODING_CUPTI", "1", 1);
  const profile::Trace by_cupti = record(1);
  ::unsetenv("PAODING_CUPTI");
  const profile::Trace by_stamps = record(1);
  EXPECT_EQ(stamped_kernels(by_stamps), stamped_kernels(by_cupti)) << report_;
  EXPECT_EQ(count(by_stamps, SpanKind::replay), 0);
  EXPECT_TRUE(misses_nothing(report_)) << report_;
}

// The host is kept from its work while it reads the chip's clock: the middle of that time is far from the answer's.
// A stamp's kernel stands in front of kernels that leave no stamp themselves: the four products of a library's.
TEST_F(StampsOnAGpu, AreLeftByKernelsOfOurOwn) {
  if (gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
  ::setenv("PAODING_CUPTI", "stamps", 1);
  const profile::Trace trace = record(1);
  ::unsetenv("PAODING_CUPTI");
  std::map<std::string, std::int64_t> by_op;  // on the tracks of both
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == SpanKind::kernel && trace.on_gpu(i)) by_op[std::string(trace.text(trace.site(i).op))] += 1;
  }
  EXPECT_EQ(by_op["matmul"], 8) << report_;
  EXPECT_EQ(by_op["group"] % 2, 0) << report_;
  EXPECT_GE(by_op["group"], 10) << report_;
  std::int64_t others = 0;  // the executor's own, and kernels of several launches
  for (const char* op : {"commit guard", "sort", "gather"}) others += by_op[op] / 2;
  EXPECT_GE(by_op["stamp"], 4) << report_;
  EXPECT_LE(by_op["stamp"], 4 + others) << report_;
}

TEST_F(StampsOnAGpu, LieBetweenLaunchAndWaitHoweverBusyTheHostIs) {
  const KernelCounts seen = stamped_kernels(record(1));
  pretend_gpu().before("cuEventQuery", [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  const profile::Trace trace = record(1);
  pretend_gpu().before("cuEventQuery", {});
  EXPECT_EQ(stamped_kernels(trace), seen) << report_;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != SpanKind::kernel) continue;
    EXPECT_GE(trace.start(i), trace.start(trace.runs().front())) << trace.name(i);
    EXPECT_LE(trace.end(i), trace.window_end()) << trace.name(i);
  }
}

TEST_F(StampsOnAGpu, HaveTimesWhereAnotherProcessHadTheGpuUntilTheEnd) {
  const KernelCounts seen = stamped_kernels(record(1));
  // The first of the kernels that are launched alone answers with the clock.
  for (const char* launch : {"cuLaunchKernel", "cuLaunchKernelEx"}) {
    pretend_gpu().before(launch, [is_first = true]() mutable {
      if (std::exchange(is_first, false)) pretend_gpu().busy_for(std::chrono::milliseconds(50));
    });
  }
  Profiler recording;
  program_->run();
  program_->wait();
  const std::string report = recording.stop();
  for (const char* launch : {"cuLaunchKernel", "cuLaunchKernelEx"}) pretend_gpu().before(launch, {});
  EXPECT_EQ(stamped_kernels(recording.trace()), seen) << report;
  EXPECT_TRUE(misses_nothing(report)) << report;
}

TEST_F(StampsOnAGpu, CostNoCallOfCuptiAndChangeNoResult) {
  program_->run(feeds_);
  Profiler seen;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(program_->run(feeds_).at("sorted").to_doubles(), wanted_) << i;
  seen.end();
  EXPECT_EQ(program_->run(feeds_).at("sorted").to_doubles(), wanted_);
}

// Every other of the first replays, then few; the parts of the others are scaled from those.
TEST_F(StampsOnAGpu, ShareOutTheTimeOfReplaysThatHaveTheirEndsOnly) {
  constexpr int kRuns = 41;
  const KernelCounts of_one = stamped_kernels(record(1));
  const profile::Trace trace = record(kRuns);
  const std::int64_t ends_only = count(trace, SpanKind::replay), full = kRuns - ends_only;
  EXPECT_GE(full, 4);
  EXPECT_LE(full, kRuns / 4 + 4);
  EXPECT_EQ(stamped_kernels(trace), times(of_one, full)) << report_;
  EXPECT_TRUE(has(report_, fmt::format("scaled from the {} of {} replays", full, kRuns))) << report_;

  const profile::Measures m = profile::measure(trace);
  double rows = 0, on_gpu = 0;
  for (const profile::Section& section : m.per_thread) {
    for (const profile::Row& row : section.rows) {
      if (row.depth == 0) rows += row.gpu;
      if (row.name == "matmul") {
        EXPECT_EQ(row.calls, 4u * kRuns);
      }
      if (row.name == "sort") {
        EXPECT_EQ(row.calls, 1u * kRuns);
      }
      if (row.gpu > 0) {
        EXPECT_GT(row.scaled, 0) << row.name;
      }
      EXPECT_LE(row.ratio, 1.0) << row.name;
    }
  }
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.on_gpu(i)) on_gpu += static_cast<double>(trace.duration(i));
  }
  EXPECT_NEAR(rows, on_gpu, 1e-6 * on_gpu) << report_;
}

TEST_F(StampsOnAGpu, LieWhereTheHostLaunchedAndWaited) {
  const std::int64_t before = std::chrono::steady_clock::now().time_since_epoch().count();
  const profile::Trace trace = record(12);
  const std::int64_t after = std::chrono::steady_clock::now().time_since_epoch().count();
  int kernels = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i)) continue;
    ++kernels;
    EXPECT_GE(trace.start(i), before - 200'000) << trace.name(i);  // the pretended kernel answers late
    EXPECT_LE(trace.end(i), after + 200'000) << trace.name(i);
    ASSERT_NE(trace.cause(i), profile::kNone);
    EXPECT_GE(trace.start(i), trace.start(trace.cause(i)) - 200'000);
  }
  EXPECT_GE(kernels, 12) << "one a run";
}

TEST_F(StampsOnAGpu, EndWithTheRecording) {
  record(6);
  program_->run();
  pretend_gpu().forget_calls();
  for (int i = 0; i < 3; ++i) program_->run();
  program_->wait();
  const std::size_t kernels_before = pretend_gpu().kernels_run();
  program_->run();
  program_->wait();
  const std::size_t each = pretend_gpu().kernels_run() - kernels_before;
  EXPECT_EQ(stamped_calls_of("cuGraphLaunch"), 3u + 1u);
  EXPECT_EQ(stamped_calls_of("cuLaunchKernel") + stamped_calls_of("cuLaunchKernelEx"), 0u);
  const KernelCounts of_one = stamped_kernels(record(1));
  std::int64_t launches = 0;
  for (const auto& [name, of] : of_one) launches += of;
  EXPECT_EQ(static_cast<std::int64_t>(each), launches) << "a stamp's kernel runs though nothing is recorded";
}

TEST_F(StampsOnAGpu, HaveNoPartOfRunsFromBeforeTheRecording) {
  program_->run();
  EXPECT_EQ(count(record(1), SpanKind::run), 1);
  const KernelCounts of_one = stamped_kernels(record(1));
  program_->run();
  program_->run();
  EXPECT_EQ(stamped_kernels(record(1)), of_one);
}

// Nothing fails: the runs go on without stamps, and the recording says so.
TEST_F(StampsOnAGpu, DoWithoutWhereMemoryHasRunOut) {
  pretend_gpu().set_memory(pretend_gpu().bytes_in_use());
  record(3);
  pretend_gpu().set_memory(std::size_t{1} << 30);
  EXPECT_TRUE(has(report_, "kernels of a graph that got no stamps")) << report_;
  EXPECT_EQ(program_->run(feeds_).at("sorted").to_doubles(), wanted_);
  EXPECT_FALSE(stamped_kernels(record(1)).empty());
}

TEST_F(StampsOnAGpu, KeepProgramsApart) {
  Graph other_graph;
  other_graph.fetch("y", exp(other_graph.input("x", f32, {7})));
  Program other(other_graph, on_gpu());
  other.run(to_tensors(other_graph, make_feeds(other_graph, 6)));
  const KernelCounts of_one = stamped_kernels(record(1));
  Profiler seen;
  for (int i = 0; i < 10; ++i) {
    program_->run();
    if (i % 2 == 0) other.run();
  }
  program_->wait(), other.wait();
  const std::string report = seen.stop();
  const profile::Measures m = profile::measure(seen.trace());
  std::map<std::string, std::uint64_t> calls;
  for (const profile::Section& section : m.per_thread) {
    for (const profile::Row& row : section.rows) calls[row.name] += row.calls;
  }
  EXPECT_EQ(calls["sort"], 10u) << report;
  EXPECT_EQ(calls["exp"], 5u) << report;
}

// A program that ends while it is recorded is in the recording.
TEST_F(StampsOnAGpu, OutliveTheirProgram) {
  const KernelCounts of_one = stamped_kernels(record(1));
  Profiler seen;
  program_->run();
  program_.reset();
  seen.end();
  EXPECT_EQ(stamped_kernels(seen.trace()), of_one);
}

// Feeds, which go together when the run begins, and a fetch; the host does not wait for feeds, whose times stamps tell,
// and for the fetch it does.
TEST_F(StampsOnAGpu, SeeCopiesThatTheHostWaitsForAndOthers) {
  Profiler seen;
  for (const auto& [name, tensor] : feeds_) program_->set_input(program_->input_index(name), tensor);
  program_->run();
  (void)program_->fetch(0);
  seen.end();
  const profile::Measures m = profile::measure(seen.trace());
  EXPECT_EQ(m.async_copies.calls, 1u);
  EXPECT_EQ(m.sync_copies.calls, 1u);
  const profile::Trace& trace = seen.trace();
  std::map<profile::Copy, int> on_gpu;
  std::int64_t fetched_ns = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.kind(i) != SpanKind::memcpy) continue;
    ++on_gpu[trace.site(i).copy];
    ASSERT_NE(trace.cause(i), profile::kNone);
    EXPECT_EQ(trace.kind(trace.cause(i)), SpanKind::memcpy);
    EXPECT_GT(trace.duration(i), 0);
    if (trace.site(i).copy != profile::Copy::device_to_host) continue;
    EXPECT_EQ(trace.kind(trace.parent(trace.cause(i))), SpanKind::fetch);
    fetched_ns = trace.duration(i);
  }
  EXPECT_EQ(on_gpu,
            (std::map<profile::Copy, int>{{profile::Copy::host_to_device, 1}, {profile::Copy::device_to_host, 1}}));
  // Nothing else kept the GPU meanwhile.
  for (const profile::Budget& budget : m.budgets) {
    if (budget.device < 0) continue;
    const auto copies = std::ranges::find(budget.parts, "exposed copies", &profile::BudgetPart::name);
    ASSERT_NE(copies, budget.parts.end());
    EXPECT_GE(copies->ns, fetched_ns);
  }
  // They flow to the launch, which caused the kernels.
  ASSERT_EQ(trace.flows().size(), feeds_.size());
  for (const profile::Flow& flow : trace.flows()) {
    EXPECT_EQ(trace.kind(flow.from), SpanKind::feed);
    EXPECT_EQ(trace.kind(flow.to), SpanKind::launch);
    EXPECT_EQ(trace.run(flow.from), trace.run(flow.to));
  }
  int caused = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    const bool is_of_launch = trace.cause(i) == trace.flows()[0].to;
    caused += is_of_launch && trace.on_gpu(i) && trace.kind(i) != SpanKind::memcpy ? 1 : 0;
  }
  EXPECT_GT(caused, 0);
}

// A short run that has too little time for them: most of its replays are as ever.
TEST_F(StampsOnAGpu, AreFewInRunsThatTheyWouldSlowDown) {
  Graph small;
  small.fetch("y", exp(small.input("x", f32, {7})));
  Program program(small, on_gpu());
  program.run(to_tensors(small, make_feeds(small, 6)));
  const int runs = 200;
  Profiler seen;
  for (int i = 0; i < runs; ++i) program.run(), program.wait();
  const std::string report = seen.stop();
  const profile::Measures m = profile::measure(seen.trace());
  EXPECT_EQ(m.replays, static_cast<std::uint64_t>(runs)) << report;
  EXPECT_GT(m.estimated_replays, 100u) << report;
  EXPECT_TRUE(has(report, "are taken to be as long as others")) << report;
  std::uint64_t calls = 0;
  for (const profile::Row& row : m.per_thread.at(0).rows) calls += row.name == "exp" ? row.calls : 0;
  EXPECT_EQ(calls, static_cast<std::uint64_t>(runs)) << report;
  std::int64_t before = 0;
  for (profile::SpanId i = 0; i < seen.trace().size(); ++i) {
    // A span that took no time begins with the one after it, and may stand on either side.
    if (!seen.trace().on_gpu(i) || seen.trace().duration(i) == 0) continue;
    EXPECT_GE(seen.trace().start(i), before) << "two at once in one stream";
    before = seen.trace().end(i);
  }
}

// More than are told at once: replays that a reading of the clock has placed are told over the launches after it.
TEST_F(StampsOnAGpu, AreToldWholeHoweverManyLieBetweenTwoReadingsOfTheClock) {
  Graph small;
  small.fetch("y", exp(small.input("x", f32, {7})));
  Program program(small, on_gpu());
  program.run(to_tensors(small, make_feeds(small, 6)));
  std::uint64_t runs = 0;
  Profiler seen;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2300);
       runs <= 6000 || std::chrono::steady_clock::now() < end; ++runs) {  // fewer are told at once
    program.run(), program.wait();
  }
  const std::string report = seen.stop();
  const profile::Measures m = profile::measure(seen.trace());
  EXPECT_EQ(m.replays, runs) << report;
  std::uint64_t calls = 0;
  for (const profile::Row& row : m.per_thread.at(0).rows) calls += row.name == "exp" ? row.calls : 0;
  EXPECT_EQ(calls, runs) << report;
  // A host that is busy may find the clocks apart, which is said too.
  const bool is_all_seen = std::ranges::all_of(
      m.notes, [](const profile::Note& note) { return has(note.text, "that the clocks of GPU and host were apart"); });
  EXPECT_TRUE(is_all_seen) << report;
}

// Recorded runs are captured once more, when a smaller program of the same source has asked for its shared memory.
TEST_F(StampsOnAGpu, AreLeftByLaunchesThatNeedMoreSharedMemoryThanOthersOfTheirText) {
  const auto make = [](std::int64_t count) {
    Graph g;
    g.fetch("sums", scatter_add(g.input("ids", i64, {count}), g.input("x", f32, {count, 4}), 0, 3));
    auto program = std::make_unique<Program>(g, on_gpu());
    Tensors feeds = to_tensors(g, make_feeds(g, 2));
    feeds["ids"] = Tensor::from(i64, {count}, Dense(static_cast<std::size_t>(count), 1.0));
    program->run(feeds);
    program->wait();
    return program;
  };
  const auto large = make(9'000), small = make(5'000);
  Profiler seen;
  large->run(), large->wait();
  const std::string report = seen.stop();
  EXPECT_TRUE(misses_nothing(report)) << report;
}

TEST_F(StampsOnAGpu, StandAThousandRecordings) {
  const KernelCounts of_one = stamped_kernels(record(1));
  const std::size_t bytes = pretend_gpu().bytes_in_use();
  for (int i = 0; i < 1000; ++i) {
    Profiler seen;
    if (i % 100 == 0) program_->run(), program_->wait();
    seen.end();
  }
  program_->run(), program_->wait();
  EXPECT_LE(pretend_gpu().bytes_in_use(), bytes);
  EXPECT_EQ(stamped_kernels(record(1)), of_one);
}

// Only the GPU knows which branch ran and how many turns: the kernels that ran have stamps.
TEST(StampsOfControlFlow, OnAGpuAreOfTheTurnsThatWereTaken) {
  Graph g;
  const Value n = g.input("n", i32, {}), x = g.input("x", f32, {3});
  const Value y = while_loop(
      {x, full(g, {}, 0, i32)}, [&](const Values& v) { return less(v[1], n); },
      [&](const Values& v) {
        const Value is_third = equal(v[1], full(g, {}, 2, i32));
        return Values{cond(
                          is_third, [&] { return sort(v[0] * 2.0).values; }, [&] { return v[0] + x; }),
                      v[1] + 1};
      })[0];
  g.fetch("y", exp(y));
  Program program(g, on_gpu());
  for (const int turns : {0, 1, 5}) {
    Tensors feeds = to_tensors(g, make_feeds(g, 4));
    feeds["n"] = Tensor::from(i32, {}, Dense{double(turns)});
    program.run(feeds);
    if (gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
    KernelCounts seen_by[2];
    for (const bool by_cupti : {true, false}) {
      ::setenv("PAODING_CUPTI", by_cupti ? "1" : "0", 1);
      Profiler seen;
      program.run();
      program.wait();
      seen.end();
      seen_by[by_cupti] = stamped_kernels(seen.trace());
    }
    ::unsetenv("PAODING_CUPTI");
    EXPECT_EQ(seen_by[0], seen_by[1]) << turns;
  }
}

}  // namespace
}  // namespace paoding::testing_program
