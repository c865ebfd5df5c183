// SPDX-License-Identifier: Apache-2.0
// Recording on a GPU: a captured run is one graph launch, and every kernel in it is seen under the op that it is, by
// CUPTI and by stamps.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "gpu/driver/driver.h"
#include "paoding/paoding.h"
#include "profile/recorder_state.h"
#include "profile/report.h"
#include "profile/trace.h"
#include "tests/support/misses_nothing.h"

namespace paoding {
namespace {

constexpr int kSteps = 9;

// tests/gpu/pretend_gpu
bool is_pretended() {
  char name[128] = "";
  gpu::required_driver().cuDeviceGetName(name, sizeof(name), Device::best().index);
  return std::string(name).find("pretended") != std::string::npos;
}

class ProfilerOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
    Graph g;
    const Value x = g.input("x", f32, {kSteps, 3, 16}), h0 = g.input("h0", f32, {3, 16}),
                u = g.input("u", f32, {16, 16});
    // No cell that a kernel claims as a whole.
    const StepResult steps = scan({h0}, {x}, [&](const Values& carries, const Values& elements) {
      const Value h = carries[0] + tanh(matmul(carries[0], u) * elements[0]);
      return step({h}, {h});
    });
    g.fetch("y", steps.outputs[0]);
    program_ = std::make_unique<Program>(g, CompileOptions{.device = Device::best()});
    Program& program = *program_;
    for (std::size_t i = 0; i < program.input_names().size(); ++i) {
      const Type& type = program.input_type(static_cast<int>(i));
      program.set_input(static_cast<int>(i),
                        Tensor::from(type.dtype, type.shape,
                                     std::vector<double>(static_cast<std::size_t>(type.shape.elements()), 0.5)));
    }
    program.run();
    program.wait();
  }
  void TearDown() override { ::unsetenv("PAODING_CUPTI"); }

  struct Seen {
    std::map<std::string, int> kernels;  // by op
    double us = 0;                       // of kernels
    std::string report;
    profile::Measures measures;
  };
  Seen record(int runs) {
    Profiler seen;
    for (int i = 0; i < runs; ++i) program_->run();
    program_->wait();
    Seen made;
    made.report = seen.stop();
    const profile::Trace& trace = seen.trace();
    for (profile::SpanId i = 0; i < trace.size(); ++i) {
      if (trace.kind(i) != profile::SpanKind::kernel || !trace.on_gpu(i)) continue;
      ++made.kernels[std::string(trace.text(trace.site(i).op))];
      made.us += static_cast<double>(trace.duration(i)) / 1e3;
      EXPECT_GE(trace.duration(i), 0);
      EXPECT_NE(trace.cause(i), profile::kNone);
      if (std::getenv("PAODING_CUPTI") == nullptr && trace.cause(i) != profile::kNone) {  // CUPTI's clock is its own
        EXPECT_GE(trace.start(i), trace.start(trace.cause(i))) << "a kernel before its launch";
      }
    }
    made.measures = profile::measure(trace);
    return made;
  }

  std::unique_ptr<Program> program_;
};

TEST_F(ProfilerOnGpu, SeesEveryKernelOfAGraphLaunchUnderItsOp) {
  ::setenv("PAODING_CUPTI", "1", 1);
  constexpr int kRuns = 4;
  const Seen seen = record(kRuns);
  // One fused kernel per step and run; the product may be several kernels of the library, but never none.
  const auto of = [&](const char* op) { return seen.kernels.contains(op) ? seen.kernels.at(op) : 0; };
  EXPECT_EQ(of("group"), kSteps * kRuns) << seen.report;
  EXPECT_GE(of("matmul"), kSteps * kRuns) << seen.report;
  EXPECT_EQ(seen.report.find(", left out"), std::string::npos) << seen.report;
}

// Others on the GPU make runs under one of the two longer now and then, but not in three turns of three.
TEST_F(ProfilerOnGpu, StampsSayOfAllReplaysWhatCuptiSaysOfItsOwn) {
  constexpr int kRuns = 200, kCuptiRuns = 20, kTurns = 3;
  bool are_near = false;
  std::string reports;
  for (int turn = 0; turn < kTurns && !are_near; ++turn) {
    ::unsetenv("PAODING_CUPTI");
    const Seen by_stamps = record(kRuns);
    EXPECT_TRUE(testing_program::misses_nothing(by_stamps.report)) << by_stamps.report;
    std::map<std::string, std::uint64_t> calls;
    double us_by_stamps = 0;  // of a run
    for (const profile::Section& section : by_stamps.measures.per_thread) {
      for (const profile::Row& row : section.rows) {
        calls[row.name.substr(0, row.name.find(':'))] += row.calls;
        if (row.depth == 0) us_by_stamps += row.gpu / 1e3 / kRuns;
      }
    }
    EXPECT_EQ(calls["group"], static_cast<std::uint64_t>(kSteps) * kRuns) << by_stamps.report;
    EXPECT_EQ(calls["matmul"], static_cast<std::uint64_t>(kSteps) * kRuns) << by_stamps.report;
    ::setenv("PAODING_CUPTI", "1", 1);
    const Seen by_cupti = record(kCuptiRuns);
    const double us_by_cupti = by_cupti.us / kCuptiRuns;
    RecordProperty("us_a_run_by_stamps", std::to_string(us_by_stamps));
    RecordProperty("us_a_run_by_cupti", std::to_string(us_by_cupti));
    if (is_pretended()) return;  // its times are those of whoever else has the cores
    are_near = std::abs(us_by_stamps - us_by_cupti) <= 0.2 * us_by_cupti;
    reports += by_stamps.report + by_cupti.report;
  }
  EXPECT_TRUE(are_near) << reports;
}

// Nodes of bodies are numbered after all others, of which only the GPU knows which run: both see the same.
TEST_F(ProfilerOnGpu, SeesBodiesOfLoopsAndBranchesByBoth) {
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
  program_ = std::make_unique<Program>(g, CompileOptions{.device = Device::best()});
  program_->set_input(program_->input_index("x"), Tensor::from(f32, {3}, std::vector<double>{3, 1, 2}));
  for (const int turns : {0, 1, 5}) {
    program_->set_input(program_->input_index("n"), Tensor::from(i32, {}, std::vector<double>{double(turns)}));
    program_->run();
    program_->wait();
    const Seen by_stamps = record(1);
    ::setenv("PAODING_CUPTI", "1", 1);
    const Seen by_cupti = record(1);
    ::unsetenv("PAODING_CUPTI");
    EXPECT_EQ(by_stamps.kernels, by_cupti.kernels) << turns << by_stamps.report << by_cupti.report;
  }
}

// The thread that stops it has no context of the GPU's: work that other threads have launched is waited for and told.
TEST_F(ProfilerOnGpu, IsStoppedByAThreadThatNeverUsedTheGpu) {
  for (const char* by_cupti : {"0", "1"}) {
    ::setenv("PAODING_CUPTI", by_cupti, 1);
    constexpr int kRuns = 3;
    const Seen here = record(kRuns);
    Profiler seen;
    for (int i = 0; i < kRuns; ++i) program_->run();
    std::string report;
    std::thread([&] { report = seen.stop(); }).join();
    std::map<std::string, int> kernels;
    const profile::Trace& trace = seen.trace();
    for (profile::SpanId i = 0; i < trace.size(); ++i) {
      if (trace.kind(i) != profile::SpanKind::kernel || !trace.on_gpu(i)) continue;
      ++kernels[std::string(trace.text(trace.site(i).op))];
    }
    EXPECT_EQ(kernels, here.kernels) << report;
    EXPECT_EQ(report.find("GPU spans"), std::string::npos) << report;
    program_->wait();
  }
}

// The plan knows that a product is the library's; CUPTI knows which of its kernels it is, and has our own by their
// sources'.
TEST_F(ProfilerOnGpu, NamesTheKernelsThatALibraryChose) {
  Graph g;
  const Value a = g.input("a", f64, {512, 256}), b = g.input("b", f64, {256, 512});  // of which we have no kernel
  g.fetch("y", exp(matmul(a, b)));
  program_ = std::make_unique<Program>(g, CompileOptions{.device = Device::best()});
  for (const auto& [name, shape] : {std::pair("a", Shape{512, 256}), std::pair("b", Shape{256, 512})}) {
    program_->set_input(program_->input_index(name), Tensor(f64, shape));
  }
  program_->run();
  program_->wait();
  const auto kernels_of = [&] {
    std::map<std::string, std::set<std::string>> all;  // by op
    Profiler seen(State::gpu);
    program_->run();
    program_->wait();
    seen.end();
    const profile::Trace& trace = seen.trace();
    for (profile::SpanId i = 0; i < trace.size(); ++i) {
      if (trace.kind(i) != profile::SpanKind::kernel) continue;
      all[std::string(trace.text(trace.site(i).op))].emplace(trace.text(trace.site(i).kernel));
    }
    return all;
  };
  auto by_stamps = kernels_of();
  ::setenv("PAODING_CUPTI", "1", 1);
  auto by_cupti = kernels_of();
  ::unsetenv("PAODING_CUPTI");
  EXPECT_EQ(by_stamps["matmul"], (std::set<std::string>{"cublaslt"}));
  EXPECT_FALSE(by_cupti["matmul"].contains("cublaslt"));
  for (const std::string& name : by_cupti["matmul"]) {
    EXPECT_FALSE(name.empty());
    std::cout << "a product ran as " << name << "\n";
  }
  EXPECT_EQ(by_stamps["exp"], by_cupti["exp"]);
}

// Runs that keep the chip busy, one after the other between two events: their kernels take the time between the
// events, and all of that is some op's.
TEST_F(ProfilerOnGpu, KernelsTakeWhatEventsSayOfThemTogether) {
  if (is_pretended()) GTEST_SKIP() << "NOT CHECKED: needs times of a GPU";
  Graph g;
  const Value a = g.input("a", f32, {2048, 2048}), b = g.input("b", f32, {2048, 2048});
  Value y = a;
  for (int i = 0; i < 12; ++i) y = tanh(matmul(y, b));
  g.fetch("y", y);
  Program program(g, CompileOptions{.device = Device::best()});
  for (const char* name : {"a", "b"}) program.set_input(program.input_index(name), Tensor(f32, {2048, 2048}));
  for (int i = 0; i < 30; ++i) program.run();
  program.wait();
  const gpu::GpuDevice& device = gpu::GpuDevice::get(Device::best().index);
  const auto stream = static_cast<CUstream>(program.stream());
  const gpu::Event begin(device, true), end(device, true);
  Profiler seen(State::gpu);
  for (int i = 0; i < 30; ++i) program.run();  // first of a recording: some are made anew
  program.wait();
  begin.record(stream);
  const std::int64_t from = profile::steady_ns();
  constexpr int kRuns = 100;
  for (int i = 0; i < kRuns; ++i) program.run();
  end.record(stream);
  program.wait();
  seen.end();
  const double by_events = 1e6 * end.milliseconds_since(begin);
  const profile::Trace& trace = seen.trace();
  // Outermost spans of the GPU that began in between.
  double by_kernels = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.start(i) < from || trace.parent(i) != profile::kNone) continue;
    by_kernels += static_cast<double>(trace.duration(i));
  }
  std::cout << kRuns << " runs: " << by_events / 1e3 << " us by events, " << by_kernels / 1e3 << " by kernels\n";
  EXPECT_GT(by_events, 5e6);
  EXPECT_NEAR(by_kernels, by_events, 0.01 * by_events);
  const profile::Records records = profile::measure(trace).records;
  EXPECT_LE(records.unattributed_ns, 0.001 * records.gpu_ns);
}

// CUPTI goes with the recording: captured graphs can be launched, and are as fast as before.
TEST_F(ProfilerOnGpu, LetsGoOfCupti) {
  if (is_pretended()) GTEST_SKIP() << "NOT CHECKED: needs times of a GPU";
  const auto us_a_run = [&] {  // the least of some, as nothing else may be seen in it
    double least = 1e9;
    for (int round = 0; round < 10; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 50; ++i) program_->run(), program_->wait();
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
      least = std::min(least, took.count() / 50);
    }
    return least;
  };
  us_a_run();
  const double before = us_a_run();
  ::setenv("PAODING_CUPTI", "1", 1);
  for (int i = 0; i < 3; ++i) record(5);
  us_a_run();
  const double after = us_a_run();
  RecordProperty("us_a_run_before", std::to_string(before));
  RecordProperty("us_a_run_after", std::to_string(after));
  EXPECT_LT(after, 1.05 * before);
}

}  // namespace
}  // namespace paoding
