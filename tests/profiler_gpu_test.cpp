// SPDX-License-Identifier: Apache-2.0
// Recording on a GPU: a captured run is one graph launch, and every kernel in it is seen under the op that it is.
#include <gtest/gtest.h>

#include <map>

#include "paoding/paoding.h"
#include "profile/trace.h"

namespace paoding {
namespace {

TEST(ProfilerOnGpu, SeesEveryKernelOfAGraphLaunchUnderItsOp) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "needs a GPU";
  constexpr int kSteps = 9, kRuns = 4;
  Graph g;
  const Value x = g.input("x", f32, {kSteps, 3, 16}), h0 = g.input("h0", f32, {3, 16}),
              c0 = g.input("c0", f32, {3, 16});
  const Value w = g.input("w", f32, {16, 64}), u = g.input("u", f32, {16, 64}), b = g.input("b", f32, {64});
  const StepResult lstm = scan({h0, c0}, {x}, [&](const Values& carries, const Values& elements) {
    const auto [h, c] = lstm_cell(elements[0], carries[0], carries[1], w, u, b);
    return step({h, c}, {h});
  });
  g.fetch("y", lstm.outputs[0]);
  Program program(g, {.device = Device::best()});
  for (std::size_t i = 0; i < program.input_names().size(); ++i) {
    const Type& type = program.input_type(static_cast<int>(i));
    program.set_input(static_cast<int>(i),
                      Tensor::from(type.dtype, type.shape,
                                   std::vector<double>(static_cast<std::size_t>(type.shape.elements()), 0.5)));
  }
  program.run();
  program.wait();

  Profiler seen;
  for (int i = 0; i < kRuns; ++i) program.run();
  program.wait();
  const std::string report = seen.stop();
  const profile::Trace& trace = seen.trace();
  std::map<std::string, int> kernels;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == profile::SpanKind::kernel && trace.on_gpu(i)) {
      ++kernels[std::string(trace.text(trace.site(i).op))];
      EXPECT_GE(trace.duration(i), 0);
    }
  }
  // One fused kernel per step and run; the product may be several kernels of the library, but never none.
  EXPECT_EQ(kernels["lstm_cell/group"], kSteps * kRuns) << report;
  EXPECT_GE(kernels["lstm_cell/matmul"], (kSteps + 1) * kRuns) << report;
  EXPECT_EQ(kernels["2 groups"], kRuns) << report;  // the carries' starts, in one launch
  EXPECT_NE(report.find("lstm_cell/group: "), std::string::npos);
  EXPECT_EQ(report.find("told by their order"), std::string::npos) << report;
  EXPECT_EQ(report.find("left out"), std::string::npos) << report;
}

}  // namespace
}  // namespace paoding
