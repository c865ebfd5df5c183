// SPDX-License-Identifier: Apache-2.0
// Results that are written over an input: when they are, and when something still reads that.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "paoding/ops.h"
#include "plan/plan.h"
#include "runtime/compile.h"
#include "tests/program_check.h"

namespace paoding::testing_program {
namespace {

struct Layer {
  Value xw, loss;
  Values inputs;
};

// An LSTM of a product of x, and a loss of its states.
Layer build_layer(Graph& g) {
  const std::int64_t T = 3, B = 4, H = 8;
  const Value x = g.input("x", f32, {T, B, 5}), w = g.input("w", f32, {5, 4 * H}), u = g.input("u", f32, {H, 4 * H});
  const Value xw = matmul(x, w);
  const LstmRecurrence made = lstm_recurrence(xw, u, g.input("h0", f32, {B, H}), g.input("c0", f32, {B, H}), {}, false);
  return {xw, sum(made.states * made.states), {x, w, u}};
}

int notes_of(const Plan& plan) {
  return static_cast<int>(
      std::ranges::count_if(plan.notes, [](const std::string& note) { return has(note, "is written over input"); }));
}

const Step& step_of(const Plan& plan, std::string_view op) {
  const auto found = std::ranges::find_if(
      plan.steps, [&](const Step& step) { return step.kind == Step::Kind::kernel && step.call.op->name == op; });
  EXPECT_NE(found, plan.steps.end()) << to_string(plan);
  return *found;
}

Plan plan_of(const Graph& g) { return std::move(compile_plan(g, {}, target_of(Device::cpu())).plan); }

TEST(WriteOver, GatesLieWhereTheInputsProductDidAndTheirGradientsWhereTheyDid) {
  Graph g;
  const Layer layer = build_layer(g);
  const Values grads = gradients(std::array{layer.loss}, layer.inputs);
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("d" + std::to_string(i), grads[i]);
  const Plan plan = plan_of(g);
  EXPECT_EQ(notes_of(plan), 2) << to_string(plan);
  const Step &forward = step_of(plan, "lstm_recurrence"), &back = step_of(plan, "lstm_recurrence_grad");
  EXPECT_EQ(forward.operands[forward.reads + 2].slot, forward.operands[0].slot);
  EXPECT_EQ(back.operands[1].slot, forward.operands[0].slot);
  EXPECT_EQ(back.operands[back.reads].slot, forward.operands[0].slot);
}

TEST(WriteOver, LeavesWhatIsReadLaterOrFetched) {
  for (const bool is_fetched : {true, false}) {
    Graph g;
    const Layer layer = build_layer(g);
    g.fetch("w", gradients(std::array{layer.loss}, layer.inputs)[1]);
    g.fetch("product", is_fetched ? layer.xw : layer.xw * layer.loss);
    const Plan plan = plan_of(g);
    const Step& forward = step_of(plan, "lstm_recurrence");
    EXPECT_NE(forward.operands[forward.reads + 2].slot, forward.operands[0].slot) << to_string(plan);
  }
}

TEST(WriteOver, LeavesWhatIsFed) {
  const std::int64_t T = 3, B = 4, H = 8;
  Graph g;
  const Value xw = g.input("xw", f32, {T, B, 4 * H}), u = g.input("u", f32, {H, 4 * H});
  const LstmRecurrence made = lstm_recurrence(xw, u, g.input("h0", f32, {B, H}), g.input("c0", f32, {B, H}), {}, false);
  g.fetch("xw", gradients(sum(made.states), {xw})[0]);
  EXPECT_EQ(notes_of(plan_of(g)), 0) << "neither is an input's memory written, nor what is fetched moved";
}

}  // namespace
}  // namespace paoding::testing_program
