// SPDX-License-Identifier: Apache-2.0
// add_to_convolutions: residual blocks whose last convolution adds and cuts off: the same results, less memory moved;
// where it is left as it is, and why.
#include <gtest/gtest.h>

#include "cpu/this_cpu.h"
#include "models/image_nets.h"
#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "plan/step_cost.h"
#include "runtime/compile.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

struct Block {
  DType dtype = f32;
  bool is_maximum = false, is_sum_fetched = false, is_conv_fetched = false, is_y_used = true;
};

// relu(conv2d(x, w, b) + x), in either order.
void build(Graph& g, const Block& block, bool is_first) {
  const Value x = g.input("x", block.dtype, {2, 8, 6, 7}), w = g.input("w", block.dtype, {8, 8, 3, 3});
  const Value conv = conv2d(x, w, g.input("b", block.dtype, {8}), {.padding = {1, 1, 1, 1}});
  const Value sum = is_first ? conv + x : x + conv;
  const Value y = block.is_maximum ? maximum(sum, full(g, {}, 0, block.dtype)) : relu(sum);
  g.fetch("y", block.is_y_used ? y * y : y);
  if (block.is_sum_fetched) g.fetch("sum", sum);
  if (block.is_conv_fetched) g.fetch("conv", conv);
}

int count(const Plan& plan, const char* op) {
  int found = 0;
  for (const Step& step : plan.steps) found += step.kind == Step::Kind::kernel && step.call.op->name == op ? 1 : 0;
  return found;
}

TEST(AddToConvolutions, GivesTheSameResultsOnTheCpu) {
  for (const Block& block : {Block{}, {.is_maximum = true}, {.is_sum_fetched = true}, {.dtype = bf16}}) {
    for (const bool is_first : {true, false}) {
      Graph g;
      build(g, block, is_first);
      CompileOptions without;
      without.disabled_passes = {"add_to_convolutions"};
      const Tensors tensors = to_tensors(g, make_feeds(g, 3));
      const auto cpu = std::make_shared<const Target>(this_cpu());
      // Without AVX-512 a convolution of 16 bits is done in f32 (widen_products), before the pass looks for additions.
      const bool is_added = block.dtype == f32 || cpu->isa == VectorIsa::avx512;
      EXPECT_EQ(count(compile_plan(g, {}, cpu).plan, "conv2d_add"), is_added ? 1 : 0);
      const Tensors got = Program(g).run(tensors);
      for (const auto& [name, expected] : Program(g, without).run(tensors)) {
        const Dense values = got.at(name).to_doubles(), others = expected.to_doubles();
        for (std::size_t i = 0; i < values.size(); ++i) {
          EXPECT_NEAR(values[i], others[i], 16 * epsilon(block.dtype) * (1 + std::abs(others[i]))) << name << " " << i;
        }
      }
    }
  }
}

TEST(AddToConvolutions, LeavesWhatIsNeededElsewhere) {
  Graph g;
  build(g, {.is_conv_fetched = true}, true);
  const CompiledPlan made = compile_plan(g, {}, std::make_shared<const Target>(named_target("h200")));
  EXPECT_EQ(count(made.plan, "conv2d_add"), 0);
  std::string notes;
  for (const PassRecord& pass : made.passes) {
    for (const std::string& note : pass.notes) notes += pass.name == std::string("add_to_convolutions") ? note : "";
  }
  EXPECT_TRUE(has(notes, "the convolution is needed elsewhere")) << notes;
}

// The caller reads channels outermost, but the added image has them innermost.
TEST(AddToConvolutions, LeavesWhatIsOnlyFetched) {
  Graph g;
  build(g, {.is_y_used = false}, true);
  EXPECT_EQ(count(compile_plan(g, {}, std::make_shared<const Target>(named_target("h200"))).plan, "conv2d_add"), 0);
}

// Few channels in TF32 are the patch kernel's, which does not add.
TEST(AddToConvolutions, LeavesConvolutionsToTheirKernels) {
  Graph g;
  build(g, {}, true);
  CompileOptions options;
  options.allow_tf32 = true;
  const Plan plan = compile_plan(g, options, std::make_shared<const Target>(named_target("h200"))).plan;
  EXPECT_EQ(count(plan, "conv2d_add"), 0);
  EXPECT_EQ(count(plan, "conv2d_bias"), 1);
}

// (Of a GPU whose convolutions have no other ends.)
TEST(AddToConvolutions, SavesAResNetThePassesOverItsBlocks) {
  Graph g;
  models::ResNetOptions net;
  net.dtype = bf16, net.training = false;
  g.fetch("y", models::resnet(g.input("x", bf16, {64, 3, 224, 224}), net));
  const auto chip = std::make_shared<const Target>(named_target("a100"));
  const auto bytes_of = [](const Plan& plan) {
    double bytes = 0;
    for (const Step& step : plan.steps) bytes += static_cast<double>(cost_of(step).bytes);
    return bytes;
  };
  CompileOptions without;
  without.disabled_passes = {"add_to_convolutions"};
  const Plan plan = compile_plan(g, {}, chip).plan, before = compile_plan(g, without, chip).plan;
  EXPECT_EQ(count(plan, "conv2d_add"), 16);
  // The result of each block's last convolution is neither written nor read; but after the last block the mean over
  // pixels added anyway.
  EXPECT_EQ(before.steps.size() - plan.steps.size(), 15U);
  const double blocks = 2.0 * 64 * (3 * 256 * 56 * 56 + 4 * 512 * 28 * 28 + 6 * 1024 * 14 * 14 + 2 * 2048 * 7 * 7);
  EXPECT_NEAR(bytes_of(before) - bytes_of(plan), 2 * blocks, 0.02 * blocks);
}

}  // namespace
}  // namespace paoding::testing_program
