// SPDX-License-Identifier: Apache-2.0
// Calls that another thread calls off: they end soon, with an error of their own kind, and leave nothing half done.
#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include <thread>

#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "tests/support/allocation_count.h"
#include "tests/support/devices_here.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// The calling thread's time on a processor, not the wall clock's: others may use the machine.
class OwnSeconds {
 public:
  OwnSeconds() { pthread_getcpuclockid(pthread_self(), &clock_); }
  double operator()() const {
    timespec at{};
    clock_gettime(clock_, &at);
    return static_cast<double>(at.tv_sec) + 1e-9 * static_cast<double>(at.tv_nsec);
  }

 private:
  clockid_t clock_{};
};

// Calls `work` in a scope that another thread calls off once `is_under_way`, and says how long it went on after that.
template <class Work>
double seconds_after_cancelling(const std::atomic<bool>& is_under_way, const Work& work) {
  const Cancellation stop;
  const OwnSeconds seconds;
  double cancelled = 0;
  std::thread other([&] {
    while (!is_under_way) std::this_thread::yield();
    cancelled = seconds();
    stop.cancel();
  });
  ErrorKind kind = ErrorKind::argument;
  try {
    const CancelScope scope(stop);
    work();
  } catch (const Error& error) {
    kind = error.kind();
  }
  other.join();
  EXPECT_EQ(kind, ErrorKind::cancelled);
  return seconds() - cancelled;
}

TEST(Cancellation, EndsALoopWithoutAnEndAndNothingIsWritten) {
  Graph g;
  const Value w = g.parameter("w", f32, {64}), x = g.input("x", f32, {64});
  const Values made = while_loop(
      {w}, [&](const Values& v) { return less(sum(v[0] * 0.0), 1); },
      [&](const Values& v) { return Values{v[0] + x}; });
  print(x, "begun");
  assign(w, made[0] + 1.0);
  g.fetch("loop", made[0]);
  for (const Device& device : devices_here()) {
    for (const Execution execution : {Execution::captured, Execution::stepwise}) {
      std::atomic<bool> is_under_way{false};
      CompileOptions options;
      options.device = device;
      options.execution = execution;
      options.on_print = [&](const Printed&) { is_under_way = true; };
      Parameters parameters(g, device);
      Program program(g, options, &parameters);
      const Tensors feeds{{"x", Tensor::from(f32, {64}, Dense(64, 1.0))}};
      // The print may stand after the loop, or be handed over after it: then the run is called off when it begins.
      const std::string plan = program.plan_text();
      is_under_way = device.kind != DeviceKind::cpu || plan.find("print") > plan.find("repeat");
      EXPECT_LT(seconds_after_cancelling(is_under_way, [&] { program.run(feeds); }), 1);
      EXPECT_EQ(parameters.get("w").to_doubles(), Dense(64, 0.0));
      EXPECT_TRUE(has(message_of([&] { program.fetch(0); }), "fetch: 'loop' is not there"));
    }
  }
}

TEST(Cancellation, BeforeARunEndsItBeforeAnythingIsDone) {
  Graph g;
  const Value w = g.parameter("w", f32, {3});
  assign(w, w + 1.0);
  Parameters parameters(g, Device::cpu());
  Program program(g, {}, &parameters);
  const Cancellation stop, copy = stop;
  {
    const CancelScope scope(stop);
    program.run();
    copy.cancel();
    EXPECT_EQ(message_of([&] { program.run(); }), "cancelled: it was called off before it was done");
  }
  EXPECT_EQ(parameters.get("w").to_doubles(), Dense(3, 1.0));
  program.run();  // outside of the scope
  EXPECT_EQ(parameters.get("w").to_doubles(), Dense(3, 2.0));
}

TEST(Cancellation, OfAnOuterScopeEndsWhatIsCalledInAnInnerOne) {
  const Cancellation outer, inner;
  const CancelScope around(outer);
  {
    const CancelScope scope(inner);
    CancelScope::poll();
    outer.cancel();
    EXPECT_EQ(message_of([] { CancelScope::poll(); }), "cancelled: it was called off before it was done");
    outer.reset();
    inner.cancel();
    EXPECT_NE(message_of([] { CancelScope::poll(); }), "no error");
  }
  CancelScope::poll();
  std::thread([&] {
    outer.cancel();
    CancelScope::poll();  // another thread has scopes of its own
  }).join();
  EXPECT_NE(message_of([] { CancelScope::poll(); }), "no error");
}

// A graph that takes long to compile; building it tells how long.
void build_long(Graph& g, int layers) {
  Value h = g.input("x", f32, {8, 8});
  for (int i = 0; i < layers; ++i) h = tanh(matmul(h, h) + static_cast<double>(i));
  g.fetch("h", h);
}

TEST(Cancellation, EndsCompilingBuildingAndGradients) {
  Graph g;
  build_long(g, 3000);
  const std::atomic<bool> at_once{true};
  std::atomic<bool> has_begun{false};
  CompileOptions options;
  options.after_pass = [&](const std::string&, const Graph&) { has_begun = true; };
  EXPECT_LT(seconds_after_cancelling(has_begun, [&] { Program program(g, options); }), 1);
  EXPECT_LT(seconds_after_cancelling(at_once,
                                     [] {
                                       Graph endless;
                                       build_long(endless, 100'000'000);
                                     }),
            1);
  const Graph::Fetch& fetch = g.fetches()[0];
  EXPECT_LT(seconds_after_cancelling(at_once,
                                     [&] {
                                       while (true) gradients(sum(g.value(fetch.ref)), {g.find("x")});
                                     }),
            1);
}

TEST(Cancellation, EndsASearchForWhatIsNotFinite) {
  Graph g;
  const Value x = g.input("x", f32, {4});
  const Values made = while_loop(
      {x}, [&](const Values& v) { return less(sum(v[0] * 0.0), 1); }, [&](const Values& v) { return Values{v[0]}; });
  g.fetch("y", made[0]);
  const Parameters parameters(g, Device::cpu());
  const std::atomic<bool> at_once{true};
  EXPECT_LT(seconds_after_cancelling(at_once,
                                     [&] {
                                       find_nonfinite(g, parameters, {{"x", Tensor::from(f32, {4}, Dense(4, 0.0))}});
                                     }),
            5);
}

TEST(Cancellation, EndsPrefetchingAndWaitingForIt) {
  std::atomic<bool> has_begun{false};
  EXPECT_LT(seconds_after_cancelling(has_begun,
                                     [&] {
                                       data::Prefetch<int> endless(1, [&](std::int64_t) {
                                         has_begun = true;
                                         while (true) CancelScope::poll();
                                         return 0;
                                       });
                                       endless.next();
                                     }),
            1);
}

TEST(Cancellation, CostsARunNoAllocation) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: this build has an allocator of its own";
  Graph g;
  const Value x = g.input("x", f32, {16});
  g.fetch("y", tanh(x) * 2.0);
  Program program(g);
  const Cancellation stop;
  const CancelScope scope(stop);
  program.set_input(0, Tensor::from(f32, {16}, Dense(16, 0.0)));
  program.run();
  const AllocationCount allocations;
  for (int i = 0; i < 10; ++i) program.run();
  EXPECT_EQ(allocations.count(), 0);
}

}  // namespace
}  // namespace paoding::testing_program
