// SPDX-License-Identifier: Apache-2.0
// How many threads steps get: none enters a parallel region for less than it costs, so that a small program does not
// get slower with more threads.
#include <gtest/gtest.h>

#include "cpu/parallel.h"
#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "profile/recorder.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// Spans of parallel regions in a run: the work of other threads, and waiting for them.
int region_spans(Graph& g) {
  Parameters parameters(g, Device::cpu(), {.seed = 1});
  Program program(g, {}, &parameters);
  for (const auto& [name, value] : to_tensors(g, make_feeds(g, 1))) {
    program.set_input(program.input_index(name), value);
  }
  program.run();
  profile::Recorder::start({.state = State::cpu});
  program.run();
  const profile::Trace trace = profile::Recorder::stop();
  int spans = 0;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    spans += trace.kind(i) == profile::SpanKind::work || trace.kind(i) == profile::SpanKind::wait;
  }
  return spans;
}

void build_training(Graph& g, std::int64_t rows) {
  const Value x = g.input("x", f32, {rows, 16}), y = g.input("y", f32, {rows, 4});
  const nn::Linear hidden(g, "hidden", 16, 16), out(g, "out", 16, 4);
  const Value loss =
      mean(square(out(relu(layer_norm(hidden(x), g.input("gamma", f32, {16}), g.input("beta", f32, {16})))) - y));
  minimize(loss, Adam{});
  g.fetch("loss", loss);
}

TEST(SmallProgramThreads, ATrainingStepOfFewRowsHasOne) {
  if (max_threads() < 2) GTEST_SKIP() << "NOT CHECKED: needs two threads";
  Graph small, large;
  build_training(small, 8);
  build_training(large, 65536);
  EXPECT_EQ(region_spans(small), 0);
  EXPECT_GT(region_spans(large), 0) << "what a region leaves is seen";
}

TEST(SmallProgramThreads, AStepOfAnLstmHasOne) {
  if (max_threads() < 2) GTEST_SKIP() << "NOT CHECKED: needs two threads";
  Graph g;
  build_lstm(g, {});
  EXPECT_EQ(region_spans(g), 0);
}

}  // namespace
}  // namespace paoding::testing_program
