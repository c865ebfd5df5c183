// SPDX-License-Identifier: Apache-2.0
// Plans made ahead are those that are made when asked for, whichever thread gets to them, and so are their errors.
#include "runtime/plans_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "base/check.h"
#include "paoding/paoding.h"

namespace paoding {
namespace {

std::unique_ptr<Graph> graph_of(std::int64_t rows) {
  auto graph = std::make_unique<Graph>();
  graph->fetch("y", tanh(graph->input("x", f32, {rows, 3})));
  return graph;
}

CompiledPlan plan_of(const Graph& graph) { return compile_plan(graph, {}, std::make_shared<const Target>()); }

TEST(PlansAhead, AreThoseThatAreMadeWhenAskedFor) {
  PlansAhead ahead(plan_of, 3);
  for (std::int64_t rows = 1; rows <= 40; ++rows) ahead.add({rows}, graph_of(rows));
  for (const std::int64_t rows : {40, 1, 17, 3}) {
    EXPECT_TRUE(ahead.has({rows}));
    std::optional<PlansAhead::Taken> taken = ahead.take({rows});
    ASSERT_TRUE(taken.has_value());
    EXPECT_FALSE(ahead.has({rows}));
    if (!taken->plan) taken->plan = plan_of(*taken->graph);
    EXPECT_EQ(to_string(taken->plan->plan), to_string(plan_of(*graph_of(rows)).plan));
    EXPECT_FALSE(ahead.take({rows}).has_value());
  }
  EXPECT_FALSE(ahead.take({41}).has_value());
}

TEST(PlansAhead, ThrowTheirErrorWhereTheyAreTaken) {
  PlansAhead ahead([](const Graph&) -> CompiledPlan { fail(ErrorKind::shape, "not this one"); }, 1);
  ahead.add({1}, graph_of(1));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  // Where the thread has not begun it, the graph comes back: then nothing was tried.
  std::string error;
  while (error.empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    try {
      std::optional<PlansAhead::Taken> taken = ahead.take({1});
      ASSERT_TRUE(taken.has_value() && !taken->plan);
      ahead.add({1}, std::move(taken->graph));
    } catch (const Error& thrown) {
      error = thrown.what();
    }
  }
  EXPECT_NE(error.find("not this one"), std::string::npos);
}

// The plan under way is called off, and those behind it are not begun.
TEST(PlansAhead, EndSoonWhereNobodyWantsThemAnyMore) {
  std::atomic<int> begun{0};
  {
    PlansAhead ahead(
        [&](const Graph&) -> CompiledPlan {
          ++begun;
          for (;;) {
            CancelScope::poll();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        },
        2);
    for (std::int64_t rows = 1; rows <= 10; ++rows) ahead.add({rows}, graph_of(rows));
    while (begun < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(begun, 2);
}

TEST(PlansAhead, StopForTheThreadThatMadeThem) {
  Cancellation stop;
  const CancelScope scope(stop);
  std::atomic<bool> is_called_off{false};
  PlansAhead ahead(
      [&](const Graph&) -> CompiledPlan {
        for (;;) {
          try {
            CancelScope::poll();
          } catch (const Error&) {
            is_called_off = true;
            throw;
          }
        }
      },
      1);
  ahead.add({1}, graph_of(1));
  stop.cancel();
  while (!is_called_off) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(is_called_off);
  stop.reset();
  // Nobody has called off the caller who asks now.
  const std::optional<PlansAhead::Taken> taken = ahead.take({1});
  ASSERT_TRUE(taken.has_value());
  EXPECT_NE(taken->graph, nullptr);
  EXPECT_FALSE(taken->plan.has_value());
}

// Programs that were prepared give the results of those that were not, bit by bit.
TEST(PlansAhead, OfProgramsChangeNoBit) {
  const auto build = [](const Programs::Key& key) {
    auto graph = std::make_unique<Graph>();
    const Value x = graph->input("x", f32, {key[0], 16});
    const Value w = graph->parameter("w", f32, {16, 8});
    graph->fetch("y", softmax(matmul(x, w), 1));
    return graph;
  };
  const Parameters parameters(*build({1}));
  Programs plain(build, {}, &parameters), prepared(build, {}, &parameters);
  std::vector<Programs::Key> keys;
  for (std::int64_t rows = 1; rows <= 24; ++rows) keys.push_back({rows});
  prepared.prepare(keys);
  prepared.prepare(keys);  // nothing is left to prepare
  for (const Programs::Key& key : keys) {
    std::vector<float> values(static_cast<std::size_t>(key[0] * 16));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) / 7;
    const Tensor x = Tensor::from(f32, {key[0], 16}, std::vector<double>(values.begin(), values.end()));
    const Tensor a = plain.at(key).run({{"x", x}}).at("y"), b = prepared.at(key).run({{"x", x}}).at("y");
    ASSERT_EQ(a.type(), b.type());
    EXPECT_EQ(std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.size_bytes())), 0) << key[0];
    EXPECT_EQ(plain.at(key).plan_text(), prepared.at(key).plan_text());
  }
  EXPECT_EQ(prepared.size(), 24);
}

// A shape that cannot be compiled is an error where it is asked for, and others are not disturbed.
TEST(PlansAhead, OfProgramsFailWhereTheyAreAskedFor) {
  const auto build = [](const Programs::Key& key) {
    auto graph = std::make_unique<Graph>();
    const Value x = graph->input("x", f32, {key[0], 4});
    graph->fetch(key[0] == 3 ? "z" : "y", x + x);
    return graph;
  };
  CompileOptions options;
  options.fetches = {"y"};
  Programs programs(build, options);
  programs.prepare(std::vector<Programs::Key>{{2}, {3}, {4}});
  EXPECT_NO_THROW(programs.at({4}));
  EXPECT_THROW(programs.at({3}), Error);
  EXPECT_THROW(programs.at({3}), Error);
  EXPECT_NO_THROW(programs.at({2}));
}

}  // namespace
}  // namespace paoding
