// SPDX-License-Identifier: Apache-2.0
// Recording on a GPU: a captured run is one graph launch, and every kernel in it is seen under the op that it is, by
// CUPTI and by stamps.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "paoding/paoding.h"
#include "profile/report.h"
#include "profile/trace.h"

namespace paoding {
namespace {

constexpr int kSteps = 9;

class ProfilerOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "needs a GPU";
    Graph g;
    const Value x = g.input("x", f32, {kSteps, 3, 16}), h0 = g.input("h0", f32, {3, 16}),
                c0 = g.input("c0", f32, {3, 16});
    const Value w = g.input("w", f32, {16, 64}), u = g.input("u", f32, {16, 64}), b = g.input("b", f32, {64});
    const StepResult lstm = scan({h0, c0}, {x}, [&](const Values& carries, const Values& elements) {
      const auto [h, c] = lstm_cell(elements[0], carries[0], carries[1], w, u, b);
      return step({h, c}, {h});
    });
    g.fetch("y", lstm.outputs[0]);
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
  EXPECT_EQ(of("lstm_cell/group"), kSteps * kRuns) << seen.report;
  EXPECT_GE(of("lstm_cell/matmul"), (kSteps + 1) * kRuns) << seen.report;
  EXPECT_EQ(of("2 groups"), kRuns) << seen.report;  // the carries' starts, in one launch
  EXPECT_NE(seen.report.find("lstm_cell/group: "), std::string::npos);
  EXPECT_EQ(seen.report.find("told by their order"), std::string::npos) << seen.report;
  EXPECT_EQ(seen.report.find("left out"), std::string::npos) << seen.report;
}

TEST_F(ProfilerOnGpu, StampsSayOfAllReplaysWhatCuptiSaysOfItsOwn) {
  constexpr int kRuns = 200;
  const Seen by_stamps = record(kRuns);
  EXPECT_NE(by_stamps.report.find("nothing known to be missing"), std::string::npos) << by_stamps.report;
  std::map<std::string, std::uint64_t> calls;
  double scaled_us = 0;
  for (const profile::Section& section : by_stamps.measures.per_thread) {
    for (const profile::Row& row : section.rows) {
      calls[row.name.substr(0, row.name.find(':'))] += row.calls;
      if (row.depth == 0) scaled_us += row.gpu / 1e3;
    }
  }
  EXPECT_EQ(calls["lstm_cell/group"], static_cast<std::uint64_t>(kSteps) * kRuns) << by_stamps.report;
  EXPECT_GE(calls["lstm_cell/matmul"], (kSteps + 1u) * kRuns) << by_stamps.report;
  ::setenv("PAODING_CUPTI", "1", 1);
  const Seen by_cupti = record(20);
  RecordProperty("us_a_run_by_stamps", std::to_string(scaled_us / kRuns));
  RecordProperty("us_a_run_by_cupti", std::to_string(by_cupti.us / 20));
  EXPECT_NEAR(scaled_us / kRuns, by_cupti.us / 20, 0.2 * by_cupti.us / 20) << by_stamps.report << by_cupti.report;
}

}  // namespace
}  // namespace paoding
