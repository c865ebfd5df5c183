// SPDX-License-Identifier: Apache-2.0
// The commit of a plan: where writes of parameters begin, which steps come before them, and when a write may not be
// made in place.
#include <gtest/gtest.h>

#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "plan/plan.h"
#include "runtime/compile.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

CompiledPlan planned(const Graph& graph) { return compile_plan(graph, {}, target_of(Device::cpu())); }

bool has_note(const Plan& plan, std::string_view part) {
  return std::ranges::any_of(plan.notes, [&](const std::string& note) { return has(note, part); });
}

// No step before the commit writes a parameter, and none in it may fail.
void check_commit(const Plan& plan) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (i < plan.commit) {
      EXPECT_FALSE(writes_parameter(plan, plan.steps[i])) << to_string(plan);
    } else {
      EXPECT_FALSE(may_fault(plan.steps[i])) << to_string(plan);
    }
  }
  EXPECT_TRUE(plan.commit == plan.steps.size() || writes_parameter(plan, plan.steps[plan.commit]));
}

TEST(Commit, OfAPlanThatWritesNothingIsEmpty) {
  Graph g;
  const Value w = g.parameter("w", f32, {4}), id = g.input("id", i32, {});
  g.fetch("row", gather(w, id));
  const CompiledPlan made = planned(g);
  EXPECT_EQ(made.plan.commit, made.plan.steps.size());
  EXPECT_FALSE(has(to_string(made.plan), "commit"));
}

TEST(Commit, ComesAfterAGatherThatTheGraphHasAfterTheUpdate) {
  Graph g;
  const Value w = g.parameter("w", f32, {4}), x = g.input("x", f32, {4}), id = g.input("id", i32, {});
  assign(w, w + x);
  g.fetch("row", gather(x, id));
  const CompiledPlan made = planned(g);
  check_commit(made.plan);
  ASSERT_EQ(made.plan.steps.size(), 2u) << "in place, without a copy: " << to_string(made.plan);
  EXPECT_EQ(made.plan.steps[0].label.op, "gather");
  EXPECT_EQ(made.plan.commit, 1u);
  const std::string text = to_string(made.plan);
  EXPECT_LT(text.find("gather"), text.find("commit: from here on")) << text;
  EXPECT_LT(text.find("commit: from here on"), text.find("w:f32[4] <- ")) << text;
}

TEST(Commit, WritesByACopyWhereAGatherReadsTheNewValue) {
  Graph g;
  const Value w = g.parameter("w", f32, {4}), v = g.parameter("v", f32, {4}), x = g.input("x", f32, {4});
  const Value next = w + x;
  assign(w, next);
  assign(v, v * 2.0);
  g.fetch("row", gather(next, g.input("id", i32, {})));
  const CompiledPlan made = planned(g);
  check_commit(made.plan);
  EXPECT_TRUE(has_note(made.plan, "'w' is written by a copy at the end: gather, which may fail, comes after it"))
      << to_string(made.plan);
  EXPECT_FALSE(has_note(made.plan, "'v' is written by a copy")) << to_string(made.plan);
}

TEST(Commit, WritesByACopyWhatAScatterMakes) {
  Graph g;
  const Value w = g.parameter("w", f32, {4});
  assign(w, scatter_add(g.input("ids", i32, {2}), g.input("x", f32, {2}), 0, 4));
  const CompiledPlan made = planned(g);
  check_commit(made.plan);
  EXPECT_TRUE(has_note(made.plan, "'w' is written by a copy at the end: scatter_add, which makes it, may fail"))
      << to_string(made.plan);
}

TEST(Commit, ComesAfterPrintsAndLoopsWithoutALength) {
  Graph g;
  const Value w = g.parameter("w", f32, {4}), v = g.parameter("v", f32, {4}), x = g.input("x", f32, {4});
  assign(w, w + x);
  print(x, "x");
  const Values made = while_loop(
      {v}, [&](const Values& c) { return less(sum(c[0]), 10); }, [&](const Values& c) { return Values{c[0] + x}; });
  assign(v, made[0]);
  const CompiledPlan compiled = planned(g);
  check_commit(compiled.plan);
  EXPECT_FALSE(has_note(compiled.plan, "'w' is written by a copy")) << to_string(compiled.plan);
  EXPECT_TRUE(has_note(compiled.plan, "'v' is written by a copy at the end: while")) << to_string(compiled.plan);
}

// Steps that depend on a waiting step wait too, in the old order; all others stay in place.
TEST(Commit, TakesAlongWhatNeedsItsResults) {
  Graph g;
  const Value w = g.parameter("w", f32, {64, 64}), x = g.input("x", f32, {64, 64}), id = g.input("id", i32, {});
  const Value next = w - 0.5 * x;
  assign(w, next);
  g.fetch("norm", sum(square(next)));
  const Value row = gather(x, id);
  g.fetch("row", row * 2.0);
  const CompiledPlan made = planned(g);
  check_commit(made.plan);
  EXPECT_FALSE(has_note(made.plan, "is written by a copy")) << to_string(made.plan);
  Parameters parameters(g, Device::cpu());
  Program program(g, {}, &parameters);
  const Tensor ones = Tensor::from(f32, {64, 64}, Dense(4096, 1.0));
  const Tensors got = program.run({{"x", ones}, {"id", Tensor::from(i32, {}, Dense{1})}});
  EXPECT_EQ(got.at("norm").to_doubles()[0], 1024);
  EXPECT_EQ(got.at("row").to_doubles(), Dense(64, 2.0));
}

TEST(Commit, LeavesAdamInPlaceWithEmbeddingsAndACrossEntropy) {
  Graph g;
  const Value ids = g.input("ids", i64, {8}), labels = g.input("labels", i64, {8});
  const Value table = g.parameter("table", f32, {50, 16});
  const nn::Linear hidden(g, "hidden", 16, 32), out(g, "out", 32, 50);
  const Value logits = out(tanh(hidden(embedding(table, ids))));
  const Value loss = cross_entropy(logits, labels);
  minimize(loss, Adam{.learning_rate = 1e-3});
  g.fetch("loss", loss);
  const CompiledPlan made = planned(g);
  check_commit(made.plan);
  EXPECT_FALSE(has_note(made.plan, "is written by a copy")) << to_string(made.plan);
  EXPECT_LT(made.plan.commit, made.plan.steps.size());
}

}  // namespace
}  // namespace paoding::testing_program
