// SPDX-License-Identifier: Apache-2.0
// Parts of a concatenation are written where they belong, also those of a kernel that makes all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "paoding/autodiff.h"
#include "paoding/nn.h"
#include "plan/plan.h"
#include "runtime/compile.h"

namespace paoding {
namespace {

TEST(Concatenations, GradientsOfHeadsAreWrittenSideBySide) {
  Graph g;
  const Value x = g.input("x", f32, {2, 256, 128}), dy = g.input("dy", f32, {2, 256, 128});
  const nn::MultiHeadAttention attention(g, "a", 128, 2);
  const Value y = attention(x, {.causal = true});
  const Values made = gradients(std::array{y}, std::array{x, attention.weight}, std::array{dy});
  g.fetch("dx", made[0]);
  g.fetch("dw", made[1]);
  CompileOptions options;
  options.device = Device::cuda();
  options.precision = bf16;
  const Plan plan = compile_plan(g, options, std::make_shared<const Target>(named_target("h200"))).plan;
  const auto steps_of = [&](std::string_view op) {
    return std::ranges::count_if(plan.steps,
                                 [&](const Step& step) { return step.label.op.find(op) != std::string::npos; });
  };
  EXPECT_EQ(steps_of("attention_grad"), 1) << to_string(plan);
  EXPECT_EQ(steps_of("concat"), 0) << to_string(plan);
}

}  // namespace
}  // namespace paoding
