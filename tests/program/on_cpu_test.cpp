// SPDX-License-Identifier: Apache-2.0
// Parts that are OnCpu in a program for a GPU: whole loops and branches, and parts of them, which the host then turns.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "paoding/cancellation.h"
#include "tests/support/control_flow_check.h"

namespace paoding::testing_program {
namespace {

// The result of `make`, written into the graph of `value`, to run on the CPU.
Value on_cpu(const Value& value, const std::function<Value()>& make) {
  const OnCpu scope(value.graph());
  return make();
}

TEST(OnCpu, RunsWholeLoopsAndBranches) {
  Graph g;
  const Value xs = g.input("xs", f32, {4, 3}), h = g.input("h", f32, {3}), w = g.input("w", f32, {3, 3});
  const Value before = tanh(xs);  // on a GPU where there is one
  std::optional<OnCpu> scope(g);
  const StepResult made = scan({h}, {before}, [&](const Values& c, const Values& e) {
    const Value next = cond(
        less(sum(e[0]), sum(c[0])),
        [&] {
          return reshape(matmul(reshape(c[0], Shape{1, 3}), w), Shape{3});
        },
        [&] { return c[0] + e[0]; });
    return step({next}, {next * 2.0});
  });
  scope.reset();
  fetch_gradients(g, sum(made.outputs[0] * exp(xs)), {xs, h, w});
  const Feeds feeds = make_feeds(g, 1);
  check_runs(g, {feeds, make_feeds(g, 2)});
  check_gradients(g, feeds);
}

// A scan, a branch and a loop without a length that have parts on either side, and one inside the other.
TEST(OnCpu, RunsPartsOfLoopsAndBranches) {
  Graph g;
  const Value xs = g.input("xs", f32, {4, 3}), h = g.input("h", f32, {3});
  const Value limit = g.input("limit", f32, {});
  const StepResult made = scan({h, full(g, {2, 3}, 0)}, {tanh(xs)}, [&](const Values& c, const Values& e) {
    const Value there = exp(c[0] * 0.1) + e[0];
    const Value here = on_cpu(c[0], [&] { return tanh(there) * sum(c[1]) + there; });
    return step({here * 0.5, c[1] + 0.1 * here}, {here * here});
  });
  g.fetch("scanned", made.outputs[0]);
  g.fetch("carried", made.carries[1]);
  const Value total = sum(made.carries[0]);
  const Value chosen = cond(
      less(total, limit), [&] { return on_cpu(h, [&] { return h * 2.0; }) + total; }, [&] { return exp(h); });
  g.fetch("chosen", chosen);
  const Values looped = while_loop(
      {h, full(g, {}, 0, i32)}, [&](const Values& v) { return less(sum(v[0] * v[0]), limit); },
      [&](const Values& v) {
        const StepResult inner = scan({v[0]}, {xs}, [&](const Values& c, const Values& e) {
          const Value next = cond(
              less(sum(e[0]), sum(c[0])), [&] { return on_cpu(c[0], [&] { return c[0] * 1.25; }) + e[0] * e[0]; },
              [&] { return c[0] + exp(e[0]); });
          return step({next}, {});
        });
        return Values{inner.carries[0], v[1] + 1};
      });
  g.fetch("looped", looped[0]);
  g.fetch("turns", looped[1]);
  check_runs(g, feeds_with(g, "limit", {-1, 3, 100, 10'000}));
}

// Every turn writes entries of a history and reads the one before; the gradient reads values of both devices.
TEST(OnCpu, HasGradientsThroughPartsOfAScan) {
  Graph g;
  const Value xs = g.input("xs", f32, {4, 3}), h = g.input("h", f32, {3}), w = g.input("w", f32, {3, 3});
  const StepResult made = scan({h}, {xs}, [&](const Values& c, const Values& e) {
    const Value product = reshape(matmul(reshape(c[0], Shape{1, 3}), w), Shape{3});
    const Value next = on_cpu(c[0], [&] { return tanh(product + e[0]); });
    return step({next}, {next * e[0]});
  });
  fetch_gradients(g, sum(made.outputs[0]) + sum(made.carries[0]), {xs, h, w});
  const Feeds feeds = make_feeds(g, 1);
  check_runs(g, {feeds, make_feeds(g, 2)});
  check_gradients(g, feeds);
}

TEST(OnCpu, PrintsEveryTurnOfALoopThatTheHostTurns) {
  Graph g;
  const Value n = g.input("n", i32, {});
  const Values made = while_loop(
      {full(g, {}, 1, i32)}, [&](const Values& v) { return less(v[0], n); },
      [&](const Values& v) {
        const Value next = v[0] + on_cpu(v[0], [&] { return v[0] * 2; });
        return Values{print(next, "next")};
      });
  g.fetch("last", made[0]);
  for (const Device& device : devices_here()) {
    CompileOptions options;
    options.device = device;
    options.repeats = 2;
    Program program(g, options);
    EXPECT_EQ(program.run(to_tensors(g, {{"n", {20}}})).at("last").to_doubles(), Dense{27});
    std::string seen;
    for (const Printed& each : program.printed()) seen += std::to_string(int(each.value.to_doubles()[0])) + " ";
    EXPECT_EQ(seen, "3 9 27 3 9 27 ") << to_string(device);
  }
}

// The rows are read by the device, and by the CPU: the loop, which would not end, is over, and nothing is written.
TEST(OnCpu, AFaultEndsALoopThatTheHostTurns) {
  for (const bool is_host : {false, true}) {
    Graph g;
    const Value id = g.input("id", i32, {}), x = g.input("x", f32, {3}), k = g.parameter("k", f32, {});
    const Value y = while_loop(
        {full(g, {}, 0)}, [&](const Values& v) { return less(v[0], 10); },
        [&](const Values& v) {
          const auto read = [&] { return gather(x, id); };
          const Value row = is_host ? on_cpu(x, read) : read();
          return Values{on_cpu(x, [&] { return v[0] * 0.5; }) + row};
        })[0];
    assign(k, k + y);
    for (const Device& device : devices_here()) {
      const Parameters parameters(g, device);
      CompileOptions options;
      options.device = device;
      Program program(g, options, &parameters);
      const auto feeds = [&](double index) { return to_tensors(g, {{"id", {index}}, {"x", {0, 0, 12}}}); };
      EXPECT_TRUE(has(message_of([&] {
                        program.run(feeds(7));
                        program.wait();
                      }),
                      "indices[] = 7"))
          << to_string(device);
      EXPECT_EQ(parameters.get("k").to_doubles(), Dense{0});
      program.run(feeds(2));
      EXPECT_EQ(parameters.get("k").to_doubles(), Dense{12});
    }
  }
}

TEST(OnCpu, ALoopThatTheHostTurnsAndThatNeverEndsIsCalledOff) {
  Graph g;
  const Value k = g.parameter("k", f32, {2}), by = g.input("by", f32, {});
  const Value y = while_loop(
      {full(g, {}, 0)}, [&](const Values& v) { return less(v[0], 10.0); },
      [&](const Values& v) { return Values{on_cpu(v[0], [&] { return v[0] * 0.5; }) + by}; })[0];
  assign(k, k + y);
  for (const Device& device : devices_here()) {
    const Parameters parameters(g, device);
    CompileOptions options;
    options.device = device;
    Program program(g, options, &parameters);
    const Cancellation stop;
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      stop.cancel();
    });
    {
      const CancelScope scope(stop);
      EXPECT_TRUE(has(message_of([&] {
                        program.run(to_tensors(g, {{"by", {0}}}));
                        program.wait();
                      }),
                      "cancelled"))
          << to_string(device);
    }
    later.join();
    EXPECT_EQ(parameters.get("k").to_doubles(), Dense(2, 0.0));
    program.run(to_tensors(g, {{"by", {6}}}));
    EXPECT_EQ(parameters.get("k").to_doubles(), Dense(2, 10.5));
  }
}

TEST(OnCpu, IsShownAndRunsThere) {
  Graph g;
  const Value x = g.input("x", f32, {1}), y = g.input("y", f32, {1});
  Value p;
  {
    const OnCpu scope(g);
    p = less(x, y);
  }
  g.fetch("z", cond(
                   p, [&] { return x; }, [&] { return y; }));
  EXPECT_TRUE(has(to_text(g), "less(x, y) : bool[1] @cpu")) << to_text(g);
  EXPECT_EQ(to_text(*parse_graph(to_text(g))), to_text(g));
  Program program(g);
  EXPECT_TRUE(has(program.plan_text(), "@cpu")) << program.plan_text();
  check_runs(g, {{{"x", {1}}, {"y", {2}}}, {{"x", {3}}, {"y", {2}}}});
}

}  // namespace
}  // namespace paoding::testing_program
