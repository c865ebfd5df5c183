// SPDX-License-Identifier: Apache-2.0
// Schedules of programs for the CPU; those for a GPU are in guards_gpu_test.cpp and choice_gpu_test.cpp.
#include "schedule/schedule.h"

#include <gtest/gtest.h>

#include <map>

#include "cpu/parallel.h"
#include "runtime/compile.h"
#include "tests/support/program_check.h"
#include "tests/support/random_graph.h"

namespace paoding::testing_program {
namespace {

Plan cpu_plan(const Graph& g) { return compile_plan(g, {}, target_of(Device::cpu())).plan; }

// How often each launch of the plan is started by an entry; the condition of a loop stands in front of it and in its
// body.
std::map<std::size_t, int> starts_of(const Schedule& schedule) {
  std::map<std::size_t, int> starts;
  for (const LaunchEntry& entry : schedule.entries) {
    for (const std::size_t i : schedule.members(entry)) ++starts[i];
  }
  return starts;
}

TEST(Schedule, StartsEveryLaunchOfARandomGraphOnceAndInItsSegment) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    Graph graph;
    const RandomGraph made(graph, seed);
    const Plan plan = cpu_plan(graph);
    for (const bool batches : {false, true}) {
      const Schedule schedule = make_schedule(plan, {.repeats = 2, .batches_groups = batches});
      const std::map<std::size_t, int> starts = starts_of(schedule);
      for (std::size_t i = 0; i < schedule.launches.size(); ++i) {
        const Launch& launch = schedule.launches[i];
        if (launch.kind != Launch::Kind::run) continue;
        EXPECT_GE(starts.contains(i) ? starts.at(i) : 0, 1) << seed << ": " << i;
      }
      std::size_t covered = 0;  // segments cut the entries without a gap
      for (const Segment& segment : schedule.segments) {
        EXPECT_EQ(segment.first, covered) << seed;
        covered = segment.end;
      }
      EXPECT_EQ(covered, schedule.entries.size()) << seed;
      for (const Choice& choice : schedule.choices) {
        for (const auto& [begin, end] : choice.bodies) EXPECT_LE(begin, end);
        EXPECT_EQ(choice.bodies.back().second, choice.end) << seed;
      }
    }
  }
}

// Thirty updates that depend on nothing but their own parameters and one rate.
void build_updates(Graph& g) {
  const Value rate = g.input("rate", f32, {});
  for (int i = 0; i < 30; ++i) {
    const Value w = g.input("w" + std::to_string(i), f32, {64, 257});
    g.fetch("next" + std::to_string(i), w - tanh(w * (1.0 + i)) * rate);
  }
}

TEST(Schedule, StartsGroupsThatShareAParallelRegionAsOne) {
  Graph g;
  build_updates(g);
  const Plan plan = cpu_plan(g);
  EXPECT_EQ(make_schedule(plan).entries.size(), 30u) << "that of any CPU";
  const Schedule schedule = make_schedule(plan, {.batches_groups = true});
  const bool has_threads = max_threads() > 1;
  ASSERT_EQ(schedule.entries.size(), has_threads ? 1u : 30u) << to_string(schedule);
  EXPECT_EQ(schedule.members(schedule.entries[0]).size(), has_threads ? 30u : 1u);
}

TEST(Schedule, HasTheHostChooseOnACpu) {
  Graph g;
  const Value x = g.input("x", f32, {4}), limit = g.input("limit", f32, {});
  g.fetch("y", while_loop(
                   {x}, [&](const Values& v) { return less(sum(v[0]), limit); },
                   [&](const Values& v) { return Values{v[0] * 2.0}; })[0]);
  const Plan plan = cpu_plan(g);
  const Schedule schedule = make_schedule(plan);
  ASSERT_EQ(schedule.choices.size(), 1u);
  const Choice& loop = schedule.choices[0];
  EXPECT_TRUE(loop.is_loop);
  ASSERT_EQ(loop.bodies.size(), 1u);
  // A turn is the body and the condition of the next.
  EXPECT_EQ(loop.bodies[0].second - loop.bodies[0].first, 2u) << to_string(schedule);
  for (std::size_t k = loop.bodies[0].first; k < loop.end; ++k) EXPECT_EQ(schedule.entries[k].body_of, 0);
  EXPECT_TRUE(has(to_string(schedule), "repeats what follows while it holds"));
}

}  // namespace
}  // namespace paoding::testing_program
