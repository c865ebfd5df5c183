// SPDX-License-Identifier: Apache-2.0
// PAODING_RUN turns pinned and double-buffered feeds of a GPU on and off, and nothing in the results.
#include <cstdlib>

#include "tests/gpu/enqueued_runs.h"

namespace paoding::testing_program {
namespace {

struct FedRun {
  std::vector<std::string> calls;  // of the driver, by feeding and by the run
  Dense result;
  std::size_t bytes = 0;  // of the device
};

// A feed of 84 KB, which by default is copied in the run's own stream, by way of pinned memory.
FedRun run_with(const char* words) {
  ::setenv("PAODING_RUN", words, 1);
  Graph g;
  const Value d = g.input("d", f32, {70, 300});
  g.fetch("y", sum(d * 2.0, Ints{0}));
  const std::size_t before = pretend_gpu().bytes_in_use();
  FedRun made;
  {
    Program program(g, on_gpu());
    const Tensor fed = Tensor::from(f32, {70, 300}, Dense(21'000, 0.5));
    program.run({{"d", fed}});
    program.wait();
    pretend_gpu().forget_calls();
    program.set_input(0, fed);
    program.run();
    program.wait();
    made.calls = pretend_gpu().calls();
    made.result = program.fetch(0).to_doubles();
    made.bytes = pretend_gpu().bytes_in_use() - before;
  }
  ::unsetenv("PAODING_RUN");
  return made;
}

std::ptrdiff_t count(const FedRun& run, const char* call) { return std::ranges::count(run.calls, call); }

TEST(RunSwitchesOnAGpu, TurnDoubleBufferedFeedsOnAndOff) {
  const FedRun by_default = run_with(""), on = run_with("double_buffered_feeds=1"),
               off = run_with("double_buffered_feeds=0");
  EXPECT_EQ(count(on, "cuMemcpyDtoDAsync"), 1) << "from its second place to its own";
  EXPECT_EQ(count(by_default, "cuMemcpyDtoDAsync"), 0);
  EXPECT_EQ(count(off, "cuMemcpyDtoDAsync"), 0);
  EXPECT_GE(on.bytes, off.bytes + 70 * 300 * 4);
  EXPECT_EQ(on.result, by_default.result);
  EXPECT_EQ(off.result, by_default.result);
}

TEST(RunSwitchesOnAGpu, TurnPinnedFeedsOnAndOff) {
  const FedRun on = run_with("pinned_feeds=1"), off = run_with("pinned_feeds=0");
  EXPECT_EQ(count(off, "cuStreamSynchronize"), count(on, "cuStreamSynchronize") + 1) << "the host waits for the copy";
  EXPECT_EQ(on.result, off.result);
}

}  // namespace
}  // namespace paoding::testing_program
