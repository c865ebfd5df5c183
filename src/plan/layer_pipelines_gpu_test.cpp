// SPDX-License-Identifier: Apache-2.0
// Pipelines are of recurrent layers alone: another composed op that a kernel runs as a whole, a library's above all, is
// planned like any step.
#include "paoding/nn.h"
#include "runtime/target.h"
#include "tests/gpu/kernel_texts.h"

namespace paoding::testing_program {
namespace {

// Composed, with a gradient rule, and claimed by a kernel that has no source, as a library's has none.
const OpDef& claimed_by_a_library() {
  static const OpDef& op = [&]() -> const OpDef& {
    const OpDef& made =
        register_op({.name = "test_claimed_by_a_library",
                     .summary = "2 a",
                     .kind = OpKind::composed,
                     .inputs = {"a"},
                     .gradient = [](const GradCall& call) { return Values{call.grads[0] * 2.0}; },
                     .compose = [](std::span<const Value> in, const Attrs&) { return Values{in[0] * 2.0}; }});
    register_kernel(made.name,
                    {.name = "a_library",
                     .device = DeviceKind::cuda,
                     .refusal = [](const KernelCall&) { return std::string(); },
                     .prepare = [](const KernelCall&, const Device&) { return Preparation::declined("no GPU"); }});
    return made;
  }();
  return op;
}

Value claimed(const Value& a) { return call(claimed_by_a_library(), std::array{a}).front(); }

TEST(LayerPipelines, HaveNoOtherComposedOpsWithProductsBetween) {
  Graph g;
  const Value x = g.input("x", f32, {6, 4, 8}), w = g.input("w", f32, {8, 8});
  g.fetch("y", claimed(matmul(claimed(matmul(claimed(x), w)), w)));
  const Plan plan = plan_for_gpu(g);
  int claims = 0;
  for (const Step& step : plan.steps) {
    claims += step.kernel != nullptr && step.kernel->name == "a_library";
    EXPECT_EQ(step.pipeline, -1) << step.label.op;
  }
  EXPECT_EQ(claims, 3) << to_string(plan);
}

TEST(LayerPipelines, BringOtherComposedOpsTogetherThatDoNotDependOnEachOther) {
  Graph g;
  const Value x = g.input("x", f32, {4, 8}), y = g.input("y", f32, {4, 8});
  const Value of_x = matmul(claimed(x), x, false, true);
  g.fetch("sum", of_x + matmul(claimed(y), y, false, true));
  const Plan plan = plan_for_gpu(g);
  std::vector<std::int64_t> together;
  for (const Step& step : plan.steps) {
    if (step.kernel != nullptr && step.kernel->name == "a_library") together.push_back(step.call.together);
  }
  EXPECT_EQ(together, (std::vector<std::int64_t>{2, 2})) << to_string(plan);
}

// A layer of a pipeline whose kernel turns out to be a library's is none: it has no launch of ours to be in.
TEST(LayerPipelines, LeaveOutALayerThatALibraryRuns) {
  Graph g;
  const Value x = g.input("x", f32, {32, 4, 64});
  g.fetch("y", nn::Lstm(g, "lstm", 64, 64, {.layers = 2})(x).outputs);
  const Plan plan = plan_for_gpu(g);
  const auto layer = std::ranges::find_if(plan.steps, [](const Step& step) { return step.call.pipelined_layers > 1; });
  ASSERT_NE(layer, plan.steps.end()) << to_string(plan);
  const KernelImplementation library{
      .name = "a_library", .device = DeviceKind::cuda, .refusal = [](const KernelCall&) { return std::string(); }};
  Step step = *layer;
  step.pipeline = 0;
  step.kernel = &library;
  lower_for_gpu(step, *plan.target);
  EXPECT_EQ(step.text, nullptr);
  EXPECT_EQ(step.pipeline, -1);
}

}  // namespace
}  // namespace paoding::testing_program
