// SPDX-License-Identifier: Apache-2.0
// Records of CUPTI that come out of order, twice, backwards, of graphs that nobody made, or not at all; and programs of
// equal kernels on two threads.
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <thread>

#include "gpu/profile/cupti_library.h"
#include "paoding/profile.h"
#include "profile/intervals.h"
#include "profile/report.h"
#include "profile/trace.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

using Counts = std::map<std::string, int>;  // kernels by instance and run, runs numbered from 0

Counts kernels(const profile::Trace& trace) {
  std::map<std::uint32_t, std::size_t> numbers;
  for (const profile::SpanId run : trace.runs()) numbers.emplace(trace.run(run), numbers.size());
  Counts counts;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != profile::SpanKind::kernel || !trace.on_gpu(i)) continue;
    const std::string run = numbers.contains(trace.run(i)) ? std::to_string(numbers[trace.run(i)]) : "?";
    ++counts[std::string(trace.text(trace.site(i).instance)) + " " + run];
  }
  return counts;
}

class HostileCupti : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
    ::setenv("PAODING_CUPTI", "1", 1);
    build_loop(graph_);
    program_.emplace(graph_, on_gpu());
    program_->run(feeds_of_loop(graph_));
  }
  void TearDown() override {
    pretend_gpu().spoil_records({});
    ::unsetenv("PAODING_CUPTI");
  }

  profile::Trace record(int runs) {
    Profiler seen;
    for (int i = 0; i < runs; ++i) program_->run();
    program_->wait();
    report_ = seen.stop();
    return std::move(const_cast<profile::Trace&>(seen.trace()));
  }

  Graph graph_;
  std::optional<Program> program_;
  std::string report_;
};

TEST_F(HostileCupti, RecordsInAnyOrderAreThoseOfTheirRuns) {
  const Counts in_order = kernels(record(4));
  ASSERT_GE(in_order.size(), 4u * 4);
  for (unsigned seed = 1; seed <= 10; ++seed) {
    pretend_gpu().spoil_records({.shuffled = seed});
    EXPECT_EQ(kernels(record(4)), in_order) << seed << report_;
  }
}

TEST_F(HostileCupti, WhatIsSpoiltIsCountedAndTheRestIsSound) {
  const std::size_t all = record(6).size();
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const auto every = [&](unsigned of) { return seed % of == 0 ? of + 2 : 0; };
    pretend_gpu().spoil_records({.shuffled = seed % 2 == 0 ? seed : 0,
                                 .lost_every = every(2),
                                 .doubled_every = every(3),
                                 .backwards_every = every(4),
                                 .foreign_every = every(5)});
    const profile::Trace trace = record(6);
    const profile::Measures m = profile::measure(trace);
    EXPECT_LE(trace.size(), 2 * all) << report_;
    EXPECT_EQ(m.records.dropped > 0, every(2) != 0) << report_;
    EXPECT_TRUE(every(4) == 0 || m.records.timeless > 0) << report_;
    EXPECT_TRUE(every(5) == 0 || has(report_, ", left out")) << report_;
    EXPECT_EQ(m.computation + m.framework + m.recording + m.compile + m.unseen + m.yours, m.wall);
    for (const profile::Budget& budget : m.budgets) {
      std::int64_t sum = 0;
      for (const profile::BudgetPart& part : budget.parts) sum += part.ns;
      EXPECT_EQ(sum, trace.wall_ns()) << budget.of;
    }
    for (profile::SpanId i = 0; i < trace.size(); ++i) EXPECT_GE(trace.duration(i), 0);
  }
}

// Kernels that begin while the one in front of them still runs: each has its own time, and the GPU is busy once.
TEST_F(HostileCupti, KernelsThatOverlapAreCountedOnce) {
  const Counts apart = kernels(record(3));
  pretend_gpu().spoil_records({.overlapping_every = 2});
  const profile::Trace trace = record(3);
  EXPECT_EQ(kernels(trace), apart) << report_;
  std::vector<profile::Interval> busy;
  double sum = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.kind(i) != profile::SpanKind::kernel) continue;
    EXPECT_NE(trace.cause(i), profile::kNone);
    busy.push_back({trace.start(i), trace.end(i)});
    sum += static_cast<double>(trace.duration(i));
  }
  const double united = profile::united_length(std::move(busy));
  ASSERT_GT(sum, united);
  const profile::Measures m = profile::measure(trace);
  bool is_seen = false;
  for (const profile::Budget& budget : m.budgets) {
    std::int64_t all = 0;
    for (const profile::BudgetPart& part : budget.parts) {
      all += part.ns;
      if (part.name != "kernels") continue;
      is_seen = true;
      EXPECT_EQ(static_cast<double>(part.ns), united);
    }
    EXPECT_EQ(all, trace.wall_ns());
  }
  EXPECT_TRUE(is_seen) << report_;
}

// CUPTI's clock is the system's: spans that were recorded while a time server set it are known to no better than that.
TEST_F(HostileCupti, WhoseClockIsSetMeanwhileIsSaidSo) {
  Profiler seen;
  program_->run();
  program_->wait();
  pretend_gpu().spoil_records({.clock_step_ns = 50'000'000});
  const std::string report = seen.stop();
  EXPECT_TRUE(has(report, "clock was set while CUPTI looked")) << report;
  pretend_gpu().spoil_records({});
  record(1);
  EXPECT_FALSE(has(report_, "clock was set while CUPTI looked")) << report_;
}

// Another tool has it, or it has broken: stamps tell the kernels, and the report says why.
TEST_F(HostileCupti, ThatRefusesIsNamedAndDoneWithout) {
  const Counts seen = kernels(record(1));
  ::setenv("CUDA_INJECTION64_PATH", "/opt/other/libtool.so", 1);
  for (const int error : {39, 999}) {
    pretend_gpu().spoil_records({.refusal = error});
    EXPECT_EQ(kernels(record(1)), seen) << report_;
    EXPECT_TRUE(has(report_, fmt::format("CUPTI error {}", error))) << report_;
    EXPECT_TRUE(has(report_, "another tool looks at this process: /opt/other/libtool.so")) << report_;
  }
  ::unsetenv("CUDA_INJECTION64_PATH");
}

// Two threads launch as many kernels in the same order, in turns that nobody knows.
TEST_F(HostileCupti, EqualProgramsOfTwoThreadsAreToldApart) {
  Program other(graph_, on_gpu());
  other.run(feeds_of_loop(graph_));
  const Counts alone = kernels(record(1));
  constexpr int kRuns = 5;
  Profiler seen;
  const auto run = [](Program& program) {
    for (int i = 0; i < kRuns; ++i) program.run(), program.wait();
  };
  std::thread beside([&] { run(other); });
  run(*program_);
  beside.join();
  const std::string report = seen.stop();
  EXPECT_FALSE(has(report, ", left out")) << report;
  const Counts counts = kernels(seen.trace());
  EXPECT_EQ(counts.size(), 2 * kRuns * alone.size()) << report;
  for (const auto& [name, count] : counts) {
    const std::string op = name.substr(0, name.rfind(' '));
    EXPECT_TRUE(alone.contains(op + " 0")) << name;
    EXPECT_EQ(count, alone.at(op + " 0")) << name << report;
  }
}

}  // namespace
}  // namespace paoding::testing_program
