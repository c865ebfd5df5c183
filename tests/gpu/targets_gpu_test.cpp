// SPDX-License-Identifier: Apache-2.0
// Programs planned, and their kernels compiled, for GPUs that are not there.
#include <gtest/gtest.h>

#include <array>

#include "gpu/driver/kernel_cache.h"
#include "gpu/driver/nvrtc.h"
#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "tests/gpu/kernel_texts.h"

namespace paoding::testing_program {
namespace {

// A training step with all that sources are made for: products, convolution, pool, softmax, gather, sort, an optimizer.
std::unique_ptr<Graph> training_step() {
  auto graph = std::make_unique<Graph>();
  Graph& g = *graph;
  const Value ids = g.input("ids", i64, {6, 8}), labels = g.input("labels", i32, {8});
  const nn::Embedding embedding(g, "embedding", 100, 32);
  const nn::Lstm lstm(g, "lstm", 32, 48);
  const nn::Linear out(g, "out", 48, 10);
  const Value loss = cross_entropy(out(layer_norm(lstm(embedding(ids)).last_h[0])), labels);
  g.fetch("loss", loss);
  minimize(loss, Adam{});
  const Value x = g.input("x", f32, {4, 3, 16, 16});
  g.fetch("pooled", max_pool2d(relu(conv2d(x, g.input("w", f32, {8, 3, 3, 3}), g.input("b", f32, {8}))), {}));
  g.fetch("sorted", sort(g.input("y", bf16, {5, 300})).values);
  return graph;
}

class Targets : public testing::TestWithParam<const char*> {};

TEST_P(Targets, CompileEveryKernelOfATrainingStep) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::nvrtc_problem();
  const Target& target = named_target(GetParam());
  const Plan plan = plan_for_gpu(*training_step(), {}, target.name);
  EXPECT_EQ(plan.target->name, target.name);
  std::vector<gpu::KernelSource> sources;
  const std::function<void(const std::vector<Step>&)> collect = [&](const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (const auto* body : step.bodies()) collect(*body);
      if (step.text == nullptr) continue;
      for (const gpu::TextLaunch& launch : step.text->launches) {
        EXPECT_LE(launch.shared_bytes, target.shared_bytes) << launch.why;
        sources.push_back(launch.source);
      }
    }
  };
  collect(plan.steps);
  EXPECT_GT(sources.size(), 10u);
  EXPECT_NO_THROW(gpu::KernelCache::shared().compile_all(sources, target.arch()));
}

INSTANTIATE_TEST_SUITE_P(Gpus, Targets, testing::Values("t4", "a100", "l40s", "h200", "b200"),
                         [](const auto& info) { return std::string(info.param); });

// A chip of fewer multiprocessors is given fewer CTAs: nothing below the command line has a chip of its own.
TEST(Targets, PlansDependOnTheChip) {
  Graph g;
  const Value x = g.input("x", f32, {100'000, 2048});
  g.fetch("s", sum(x, std::array<std::int64_t, 1>{0}));
  const auto first_grid = [&](const char* target) {
    const Plan plan = plan_for_gpu(g, {}, target);
    return plan.steps.at(0).text->launches.at(0).grid[0];
  };
  EXPECT_LT(first_grid("t4"), first_grid("h200"));
}

// The workspace of partial sums is a slot like any other: the arena has room for it.
TEST(Targets, ArenasHoldTheWorkspacesOfKernels) {
  Graph g;
  const Value x = g.input("x", f32, {100'000, 2048});
  g.fetch("s", sum(x, std::array<std::int64_t, 1>{0}));
  const Plan plan = plan_for_gpu(g);
  const Step& step = plan.steps.at(0);
  ASSERT_GE(step.workspace, 0);
  ASSERT_GE(step.state, 0);
  const Slot& workspace = plan.slots[static_cast<std::size_t>(step.workspace)];
  EXPECT_EQ(workspace.bytes, step.text->workspace_bytes);
  EXPECT_LE(workspace.offset + workspace.bytes, plan.arena_bytes);
  EXPECT_EQ(plan.slots[static_cast<std::size_t>(step.state)].kind, SlotKind::state);
}

// An error of too little memory names these slots.
TEST(Targets, TheLargestSlotsOfAPlanAreNamed) {
  Graph g;
  const Value x = g.input("x", f32, {64, 512});
  const Scope scope(g, "wide");
  g.fetch("y", sum(matmul(x, g.input("w", f32, {512, 4096}))));
  const std::string text = largest_slots(plan_for_gpu(g), 1);
  EXPECT_EQ(text.find("matmul workspace (16777216 bytes, steps 0..0)"), 0u) << text;
  EXPECT_EQ(text.find(", ", text.find(')')), std::string::npos) << text;
  const std::string more = largest_slots(plan_for_gpu(g), 2);
  EXPECT_TRUE(has(more, "), w (8388608 bytes, an input)")) << more;
}

}  // namespace
}  // namespace paoding::testing_program
