// SPDX-License-Identifier: Apache-2.0
// Where guards and polls stand in a run on a GPU, and which launches ask whether they are called off. Plans for an
// H200, which need not be here.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "plan/step_work.h"
#include "schedule/schedule.h"
#include "tests/gpu/kernel_texts.h"

namespace paoding::testing_program {
namespace {

struct Planned {
  explicit Planned(const Graph& g, int repeats = 1, Execution execution = Execution::captured)
      : plan(plan_for_gpu(g)),
        schedule(make_schedule(plan, {.execution = execution, .repeats = repeats, .fuses_launches = false})) {}
  std::size_t commit() const {
    const auto is_commit = [](const Launch& launch) { return launch.is_commit; };
    return static_cast<std::size_t>(std::ranges::find_if(launches, is_commit) - launches.begin());
  }
  Plan plan;
  Schedule schedule;
  const std::vector<Launch>& launches = schedule.launches;
  const GuardPlan& guards = schedule.guards;
};

// A graph that writes w with the result of `steps` steps over so many elements.
void build(Graph& g, std::int64_t steps, std::int64_t elements) {
  const Value w = g.parameter("w", f32, {elements}), x = g.input("x", f32, {elements});
  const StepResult made = scan({w * 2.0}, {g.input("xs", f32, {steps})},
                               [&](const Values& c, const Values& e) { return step({sin(c[0]) * e[0] + x}, {}); });
  assign(w, made.carries[0] + x);
}

TEST(GuardPlan, HasNothingForAShortRunThatCannotFail) {
  Graph g;
  build(g, 1000, 1000);
  const Planned made(g);
  EXPECT_FALSE(made.guards.has_guard());
  EXPECT_TRUE(made.guards.polls.empty());
  EXPECT_EQ(made.schedule.entries.size(), made.launches.size());
}

TEST(GuardPlan, PollsEveryFewLongLaunchesWhichReadTheWord) {
  Graph g;
  build(g, 2000, 1 << 26);
  for (const int repeats : {1, 3}) {
    const Planned made(g, repeats);
    ASSERT_LT(made.launches.size(), static_cast<std::size_t>(kManyLaunches));
    EXPECT_GT(made.guards.expected_us, kLongRunUs);
    ASSERT_EQ(made.guards.guards.size(), static_cast<std::size_t>(repeats));
    EXPECT_EQ(made.guards.guards[0] + 1, made.commit());
    ASSERT_FALSE(made.guards.polls.empty());
    EXPECT_EQ(made.guards.polls[0], 0u);
    const double each = expected_us(*made.launches[made.launches.size() / 2].step, *made.plan.target);
    const auto apart = static_cast<double>(made.guards.polls[2] - made.guards.polls[1]);
    EXPECT_LT(apart * each, 50'000);
    EXPECT_GT(apart * each, 15'000);
    for (std::size_t i = 0; i < made.launches.size(); ++i) {
      EXPECT_EQ(made.guards.asks[i] != 0, made.guards.writes[i] == 0) << i;
    }
    std::size_t at = 0;  // everything comes once, launches in their order
    for (const LaunchEntry& started : made.schedule.entries) {
      if (started.kind == LaunchEntry::Kind::guard) {
        EXPECT_EQ(at, started.launch + 1);
      } else {
        EXPECT_EQ(at, started.launch);
      }
      at += started.kind == LaunchEntry::Kind::launch ? 1 : 0;
    }
    EXPECT_EQ(at, made.launches.size());
  }
}

TEST(GuardPlan, LetsEveryLaunchOfVeryManyAsk) {
  Graph g;
  build(g, 20'000, 16);
  const Planned made(g), stepwise(g, 1, Execution::stepwise);
  ASSERT_GT(made.launches.size(), static_cast<std::size_t>(kManyLaunches));
  EXPECT_LT(made.guards.expected_us, kLongRunUs);
  EXPECT_GT(made.guards.polls.size(), 15u);
  EXPECT_EQ(std::ranges::count(made.guards.asks, 0), std::ranges::count(made.guards.writes, 1));
  EXPECT_TRUE(stepwise.guards.polls.empty());
  EXPECT_FALSE(stepwise.guards.has_guard());
}

// A library's kernel cannot ask whether the run is called off: written in place, its result would be there either way.
TEST(GuardPlan, HasWhatALibraryMakesCopiedInALongRun) {
  for (const std::int64_t steps : {10, 20'000}) {
    Graph g;
    const Value a = g.input("a", f32, {2048, 2048});
    const StepResult made = scan({a}, {g.input("xs", f32, {steps})},
                                 [&](const Values& c, const Values& e) { return step({tanh(c[0]) * e[0]}, {}); });
    assign(g.parameter("w", f32, {2048, 2048}), matmul(made.carries[0], a));
    const Planned planned(g);
    const std::string notes = fmt::format("{}", fmt::join(planned.plan.notes, "\n"));
    const bool is_copied =
        has(notes,
            "'w' is written by a copy at the end: a library's kernel makes it, which runs also when the run is "
            "called off");
    EXPECT_EQ(is_copied, steps == 20'000) << notes;
    EXPECT_EQ(planned.guards.has_guard(), steps == 20'000);
  }
}

// That its repeats are many is not the plan's.
TEST(GuardPlan, CallsNoRunOffWhoseParametersALibraryWrites) {
  Graph g;
  const Value a = g.input("a", f64, {64, 64});
  assign(g.parameter("w", f64, {64, 64}), matmul(exp(a), a));
  EXPECT_FALSE(Planned(g, 20'000).guards.has_guard());
}

// A run that only writes its own inputs back has nothing to call off: it is its own commit.
TEST(GuardPlan, HasNothingForARunThatIsACommit) {
  Graph g;
  const Value w = g.parameter("w", f32, {std::int64_t{1} << 32});
  assign(w, w + 1.0);
  const Planned made(g, 500);
  EXPECT_GT(made.guards.expected_us, kLongRunUs);
  EXPECT_FALSE(made.guards.has_guard());
  EXPECT_TRUE(made.guards.polls.empty());
}

TEST(GuardPlan, StandsInFrontOfEveryCommitOfRunsThatMayFail) {
  Graph g;
  const Value w = g.parameter("w", f32, {3}), x = g.input("x", f32, {3});
  assign(w, w + x);
  g.fetch("x", gather(x, g.input("id", i32, {})));
  const Planned made(g, 4);
  EXPECT_EQ(made.guards.guards.size(), 4u);
  EXPECT_TRUE(made.guards.polls.empty());
  EXPECT_EQ(std::ranges::count(made.guards.asks, 1), 0);
}

}  // namespace
}  // namespace paoding::testing_program
