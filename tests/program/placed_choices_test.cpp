// SPDX-License-Identifier: Apache-2.0
// Branches and loops without a length in graphs on the caller's memory, on the CPU: compared with programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "paoding/cancellation.h"
#include "paoding/placed.h"
#include "paoding/profile.h"
#include "profile/trace.h"
#include "tests/support/choice_graphs.h"
#include "tests/support/placed_run.h"
#include "tests/support/random_graph.h"

namespace paoding::testing_program {
namespace {

TEST(PlacedChoices, NestLoopsAndBranches) {
  Graph g;
  build_nested(g);
  PlacedGraph placed(g, Device::cpu());
  PlacedRun run(placed);
  for (const double p : {1, 0, 1}) {
    for (const double n : {0, 1, 2, 5}) {
      const Tensors feeds{
          {"p", number(boolean, p)}, {"n", number(i32, n)}, {"x", Tensor::from(f32, {3}, Dense{1, 2, 3})}};
      Dense wanted{0, 1, 2};
      if (p != 0) {
        const double factor = n < 3 ? n + 1 : 2 * 3 + (n - 3);  // the third turn doubles, others add x
        wanted = {factor, 2 * factor, 3 * factor};
      }
      EXPECT_EQ(run.run(feeds).at("y").to_doubles(), wanted) << p << " " << n;
    }
  }
}

TEST(PlacedChoices, GiveTheBitsOfProgramsInRandomGraphs) {
  int with_choices = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    Graph g;
    const RandomGraph made(g, seed, nullptr, f32, RandomGraph::Choices::some);
    const Tensors feeds = to_tensors(g, make_feeds(g, seed));
    Program captured(g);
    CompileOptions options;
    options.execution = Execution::stepwise;
    options.on_step = [](const StepSeen&) {};
    Program stepwise(g, options);
    PlacedGraph placed(g, Device::cpu());
    PlacedRun run(placed);
    const Tensors wanted = captured.run(feeds);
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, to_text(g)));
    expect_same_bits(wanted, stepwise.run(feeds));
    for (int again = 0; again < 2; ++again) expect_same_bits(wanted, run.run(feeds));
    const std::string plan = captured.plan_text();
    with_choices += has(plan, "branch") || has(plan, "repeat") ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GE(with_choices, 20) << "random graphs are meant to have choices";
}

// The choice's span has those of the body that ran inside.
TEST(PlacedChoices, AreSeenInRecordingsAsAProgramsAre) {
  Graph g;
  build_nested(g);
  const Tensors feeds{{"p", number(boolean, 1)}, {"n", number(i32, 4)}, {"x", Tensor::from(f32, {3}, Dense{1, 2, 3})}};
  Program program(g);
  PlacedGraph placed(g, Device::cpu());
  PlacedRun placed_run(placed);
  program.run(feeds);
  const auto ops_of = [&](const auto& run) {
    Profiler seen(State::cpu);
    run();
    seen.end();
    const profile::Trace& trace = seen.trace();
    std::map<std::pair<std::string, std::string>, int> ops;  // with the op around
    for (profile::SpanId i = 0; i < trace.size(); ++i) {
      if (trace.kind(i) != profile::SpanKind::op) continue;
      const profile::SpanId parent = trace.parent(i);
      const bool is_inside = trace.kind(parent) == profile::SpanKind::op;
      ++ops[{std::string(trace.text(trace.site(i).instance)),
             is_inside ? std::string(trace.text(trace.site(parent).instance)) : "run"}];
    }
    return ops;
  };
  const auto of_program = ops_of([&] { program.run(); });
  const auto of_placed = ops_of([&] { placed_run.run(feeds); });
  EXPECT_GE(of_program.size(), 4u);
  EXPECT_EQ(of_placed, of_program);
}

TEST(PlacedChoices, CallsOffALoopThatNeverEnds) {
  Graph g;
  const Value step = g.input("step", f32, {});
  g.fetch("y", while_loop(
                   {full(g, {}, 0, f32)}, [&](const Values& v) { return less(v[0], 10.0); },
                   [&](const Values& v) { return Values{v[0] + step}; })[0]);
  PlacedGraph placed(g, Device::cpu());
  PlacedRun run(placed);
  const Cancellation stop;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.cancel();
  });
  {
    const CancelScope scope(stop);
    EXPECT_EQ(message_of([&] {
                run.run({{"step", number(f32, 0)}});
              }),
              "cancelled: it was called off before it was done");
  }
  later.join();
  EXPECT_EQ(run.run({{"step", number(f32, 4)}}).at("y").to_doubles(), Dense{12});
}

TEST(PlacedChoices, RefusesPrintsWithTheirScope) {
  Graph g;
  const Value x = g.input("x", f32, {2});
  const Scope scope(g, "encoder");
  g.fetch("y", print(x * 2.0, "seen") * 3.0);
  const std::string message = message_of([&] { PlacedGraph(g, Device::cpu()); });
  EXPECT_TRUE(has(message, "print 'seen' (in encoder)") && has(message, "hint: fetch the value")) << message;
}

}  // namespace
}  // namespace paoding::testing_program
