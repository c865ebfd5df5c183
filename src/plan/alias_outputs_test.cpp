// SPDX-License-Identifier: Apache-2.0
// Results that alias an input (output-to-input aliasing): when they are, and when something still reads that.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <stdexcept>

#include "paoding/ops.h"
#include "plan/plan.h"
#include "runtime/compile.h"
#include "tests/support/program_check.h"

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
      std::ranges::count_if(plan.notes, [](const std::string& note) { return has(note, "aliases input"); }));
}

const Step& step_of(const Plan& plan, std::string_view op) {
  const auto found = std::ranges::find_if(
      plan.steps, [&](const Step& step) { return step.kind == Step::Kind::kernel && step.call.op->name == op; });
  if (found == plan.steps.end()) throw std::runtime_error("no step of " + std::string(op) + "\n" + to_string(plan));
  return *found;
}

Plan plan_of(const Graph& g) { return std::move(compile_plan(g, {}, target_of(Device::cpu())).plan); }

TEST(AliasOutputs, GatesLieWhereTheInputsProductDidAndTheirGradientsWhereTheyDid) {
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

// Whether the gates of the only layer lie where its input's product did.
bool is_aliased(const Graph& g) {
  const Plan plan = plan_of(g);
  const Step& forward = step_of(plan, "lstm_recurrence");
  return forward.operands[forward.reads + 2].slot == forward.operands[0].slot;
}

using More = std::function<void(Graph& g, const Layer& layer)>;

// Fetches a gradient of a layer, and `more`.
void build_training(Graph& g, const More& more) {
  const Layer layer = build_layer(g);
  g.fetch("w", gradients(std::array{layer.loss}, layer.inputs)[1]);
  if (more) more(g, layer);
}

bool is_aliased(const More& more) {
  Graph g;
  build_training(g, more);
  return is_aliased(g);
}

TEST(AliasOutputs, LeavesWhatIsReadLaterOrFetched) {
  EXPECT_TRUE(is_aliased(More()));
  EXPECT_FALSE(is_aliased([](Graph& g, const Layer& layer) { g.fetch("xw", layer.xw); }));
  EXPECT_FALSE(is_aliased([](Graph& g, const Layer& layer) { g.fetch("y", layer.xw * layer.loss); }));
  EXPECT_FALSE(is_aliased([](Graph& g, const Layer& layer) {  // by a loop
    const auto turn = [&](const Values& carry, const Values& x) { return step({carry[0] + sum(x[0])}, {}); };
    g.fetch("y", scan({layer.loss}, {layer.xw}, turn).carries[0]);
  }));
}

TEST(AliasOutputs, LeavesWhatIsAPartOfAnother) {
  const std::int64_t T = 3, B = 4, H = 8;
  Graph g;
  const Value x = g.input("x", f32, {T, B, 5}), w = g.input("w", f32, {5, 4 * H}), u = g.input("u", f32, {H, 4 * H});
  const Value xw = slice(matmul(concat(std::array{x, x}, 0), w), 0, T, 2 * T);
  const LstmRecurrence made = lstm_recurrence(xw, u, g.input("h0", f32, {B, H}), g.input("c0", f32, {B, H}));
  g.fetch("u", gradients(sum(made.states), {u})[0]);
  EXPECT_FALSE(is_aliased(g));
}

#if PAODING_WITH_CUDA
TEST(AliasOutputs, IsOfTheCpuOnly) {
  Graph g;
  build_training(g, {});
  EXPECT_EQ(notes_of(compile_plan(g, {}, std::make_shared<const Target>(named_target("h200"))).plan), 0);
}
#endif

TEST(AliasOutputs, LeavesWhatIsFed) {
  const std::int64_t T = 3, B = 4, H = 8;
  Graph g;
  const Value xw = g.input("xw", f32, {T, B, 4 * H}), u = g.input("u", f32, {H, 4 * H});
  const LstmRecurrence made = lstm_recurrence(xw, u, g.input("h0", f32, {B, H}), g.input("c0", f32, {B, H}), {}, false);
  g.fetch("xw", gradients(sum(made.states), {xw})[0]);
  EXPECT_EQ(notes_of(plan_of(g)), 0) << "neither is an input's memory written, nor what is fetched moved";
}

}  // namespace
}  // namespace paoding::testing_program
