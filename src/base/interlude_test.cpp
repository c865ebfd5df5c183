// SPDX-License-Identifier: Apache-2.0
#include "paoding/interlude.h"

#include <gtest/gtest.h>

#include <thread>

#include "paoding/cancellation.h"
#include "paoding/error.h"
#include "paoding/ops.h"
#include "paoding/program.h"

namespace paoding {
namespace {

using std::chrono::milliseconds;

struct Seen {
  int calls = 0;
  Cancellation stop;
};
void count(void* seen) { ++static_cast<Seen*>(seen)->calls; }
void cancel(void* seen) {
  count(seen);
  static_cast<Seen*>(seen)->stop.cancel();
}

TEST(Interlude, IsCalledWhenItsTimeHasComeAndOnlyThen) {
  Seen seen;
  {
    const Interlude interlude(milliseconds(30), count, &seen);
    Interlude::poll();
    EXPECT_EQ(seen.calls, 0);
    std::this_thread::sleep_for(milliseconds(60));
    Interlude::poll();
    Interlude::poll();
    EXPECT_EQ(seen.calls, 1);
    std::this_thread::sleep_for(milliseconds(60));
    std::thread([] { Interlude::poll(); }).join();  // another thread has none
    EXPECT_EQ(seen.calls, 1);
    CancelScope::poll();
    EXPECT_EQ(seen.calls, 2);
  }
  std::this_thread::sleep_for(milliseconds(40));
  Interlude::poll();
  EXPECT_EQ(seen.calls, 2);
}

TEST(Interlude, TheInnermostAloneIsCalledAndNotWithinItself) {
  Seen outer, inner;
  const Interlude around(milliseconds(0), count, &outer);
  {
    const auto polls = [](void* seen) {
      count(seen);
      Interlude::poll();
    };
    const Interlude within(milliseconds(0), polls, &inner);
    Interlude::poll();
    EXPECT_EQ(inner.calls, 1);
    EXPECT_EQ(outer.calls, 0);
  }
  Interlude::poll();
  EXPECT_EQ(outer.calls, 1);
}

TEST(Interlude, IsCalledWithinARunAndMayEndIt) {
  Graph graph;
  const Value x = graph.input("x", f32, {300, 300});
  const auto step = [&](const Values& carry, const Values&) { return StepResult{{tanh(matmul(carry[0], x))}, {}}; };
  graph.fetch("y", scan({x}, {arange(graph, 0, 3000)}, step).carries[0]);
  Program program(graph);
  Tensor ones(f32, {300, 300});
  for (float& each : ones.values<float>()) each = 1;
  Seen seen;
  {
    const CancelScope scope(seen.stop);
    const Interlude interlude(milliseconds(10), cancel, &seen);
    try {
      program.run({{"x", ones}});
      FAIL() << "it was not called off";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::cancelled);
    }
  }
  EXPECT_EQ(seen.calls, 1);
}

}  // namespace
}  // namespace paoding
