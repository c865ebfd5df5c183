// SPDX-License-Identifier: Apache-2.0
// Costs of steps, against numbers worked out on paper.
#include "plan/step_cost.h"

#include <cstring>
#include <map>

#include "ops/kernel.h"
#include "passes/pass.h"
#include "plan/planner.h"
#include "plan/step_work.h"
#include "tests/support/op_case.h"

namespace paoding::testing_program {
namespace {

// Keyed by the op of each step; a group's key is "group".
std::map<std::string, StepCost> costs_as_it_is(const Graph& graph) {
  std::map<std::string, StepCost> costs;
  for (const Step& step : make_plan(graph, {}).steps) costs[step.label.op] = cost_of(step);
  return costs;
}
std::map<std::string, StepCost> costs_of(const Graph& graph) {
  const auto copy = graph.clone();
  run_passes(*copy, {});
  return costs_as_it_is(*copy);
}

TEST(StepCost, OfProductsGroupsConvolutionsAndGathers) {
  Graph g;
  const Value x = g.input("x", f32, {64, 32}), w = g.input("w", f32, {32, 48});
  g.fetch("product", matmul(x, w));
  g.fetch("line", sum(x * x + 2, Ints{1}));
  const Value image = g.input("image", f32, {2, 3, 8, 8}), taps = g.input("taps", f32, {5, 3, 3, 3});
  g.fetch("conv", conv2d(image, taps));
  g.fetch("rows", gather(g.input("table", f32, {1000, 4}), g.input("ids", i64, {6}), 0));
  const auto costs = costs_of(g);
  const auto at = [&](const std::string& op) { return costs.contains(op) ? costs.at(op) : StepCost{-1, -1}; };
  EXPECT_EQ(at("matmul").flops, 2.0 * 64 * 32 * 48);
  EXPECT_EQ(at("matmul").bytes, 4 * (64 * 32 + 32 * 48 + 64 * 48));
  EXPECT_EQ(at("group").flops, 3.0 * 64 * 32);  // mul, add, and the addition of the sum
  EXPECT_EQ(at("group").bytes, 4 * (64 * 32 + 64));
  EXPECT_EQ(at("conv2d").flops, 2.0 * (2 * 5 * 6 * 6) * (3 * 3 * 3));
  EXPECT_EQ(at("gather").flops, 0);
  EXPECT_EQ(at("gather").bytes, 6 * 8 + 2 * 6 * 4 * 4);  // six rows of a table of a thousand
}

// The pass mixed_precision makes it of products whose result is f32.
TEST(StepCost, OfAProductWithAWideResultIsThatOfAnyOther) {
  Graph g;
  const Value x = g.input("x", bf16, {64, 32}), w = g.input("w", bf16, {32, 48});
  g.fetch("y", call("matmul_wide", {x, w}));
  const auto costs = costs_as_it_is(g);
  ASSERT_TRUE(costs.contains("matmul_wide"));
  EXPECT_EQ(costs.at("matmul_wide").flops, 2.0 * 64 * 32 * 48);
  EXPECT_EQ(costs.at("matmul_wide").unit, Unit::half);
}

// A sum over rows reads the factors of a product of two of them once; alone it would read as much as it does now.
TEST(StepCost, MembersOfAGroupHaveWhatTheyWouldMoveAlone) {
  Graph g;
  const Value x = g.input("x", f32, {100, 10}), bias = g.input("bias", f32, {10});
  g.fetch("y", sum(tanh(x) + bias, Ints{0}));
  const auto copy = g.clone();
  run_passes(*copy, {});
  const Plan plan = make_plan(*copy, {});
  const auto group = std::ranges::find_if(plan.steps, [](const Step& s) { return s.kind == Step::Kind::group; });
  ASSERT_NE(group, plan.steps.end());
  std::map<std::string, std::int64_t> bytes;
  ASSERT_EQ(group->label.members.size(), group->label.member_bytes.size());
  for (std::size_t i = 0; i < group->label.members.size(); ++i) {
    bytes[group->label.members[i]] = group->label.member_bytes[i];
  }
  EXPECT_EQ(bytes["tanh"], 4 * (1000 + 1000));
  EXPECT_EQ(bytes["sum"], 4 * (1000 + 10));
  EXPECT_GE(bytes["add"], 4 * (1000 + 10 + 1000));
}

// A kernel op of a user's, of one input, under a name that begins or ends as one of the library's.
class Copies : public PreparedKernel {
 public:
  void run(const KernelRun& run) const override { std::memcpy(run.operands[1], run.operands[0], 12 * sizeof(float)); }
};
void register_copy(const std::string& name, const std::function<OpCost(const CostCall&)>& cost = {}) {
  if (find_op(name) != nullptr) return;
  register_op({.name = name,
               .summary = "a copy",
               .kind = OpKind::kernel,
               .inputs = {"a"},
               .cost = cost,
               .infer = [](const OpCall& call) { return std::vector<Type>{call.inputs[0]}; }});
  register_kernel(name, {.name = "copy",
                         .device = DeviceKind::cpu,
                         .refusal = [](const KernelCall&) { return std::string(); },
                         .prepare = [](const KernelCall&, const Device&) { return std::make_unique<Copies>(); }});
}

TEST(StepCost, OfAUsersOpIsNotThatOfOneWithAPartOfItsName) {
  for (const std::string name : {"x_recurrence", "my_recurrence", "my_recurrence_grad", "conv2d_of_mine",
                                 "matmul_of_mine", "gather_of_mine", "resort", "copy_of_mine"}) {
    register_copy(name);
    Graph g;
    g.fetch("y", call(name, {g.input("x", f32, {3, 4})}));
    const StepCost cost = costs_of(g).at(name);
    EXPECT_EQ(cost.flops, 12) << name;
    EXPECT_EQ(cost.bytes, 2 * 12 * 4) << name;
    EXPECT_EQ(cost.unit, Unit::f32) << name;
  }
}

TEST(StepCost, IsTheOneThatAUsersOpDeclares) {
  register_copy("my_copy", [](const CostCall& call) {
    const auto elements = static_cast<double>(call.inputs[0].shape.elements());
    return OpCost{.flops = 3 * elements, .bytes = 7, .serial_steps = 4, .is_product = true, .bounds_time = true};
  });
  Graph g;
  g.fetch("y", call("my_copy", {g.input("x", f64, {3, 4})}));
  const StepCost cost = costs_of(g).at("my_copy");
  EXPECT_EQ(cost.flops, 36);
  EXPECT_EQ(cost.bytes, 7);
  EXPECT_EQ(cost.unit, unit_of(f64, false));
  const Plan plan = make_plan(g, {});
  EXPECT_EQ(bytes_of(plan.steps[0]), 7);
  EXPECT_EQ(expected_us(plan.steps[0], named_target("h200")), 4 * 5) << "four steps that wait for each other";
}

}  // namespace
}  // namespace paoding::testing_program
