// SPDX-License-Identifier: Apache-2.0
// Updates of parameters on a GPU: they come last, side by side, and no old value is kept for later readers.
#include <gtest/gtest.h>

#include <set>

#include "gpu/codegen/text_launch.h"
#include "models/conv_net.h"
#include "paoding/nn.h"
#include "paoding/optimizer.h"
#include "runtime/compile.h"

namespace paoding {
namespace {

Plan gpu_plan_of(const Graph& graph) {
  CompileOptions options;
  options.allow_tf32 = true;
  return std::move(compile_plan(graph, options, std::make_shared<const Target>(named_target("h200"))).plan);
}

void expect_no_copies(const Plan& plan) {
  for (const std::string& note : plan.notes) EXPECT_EQ(note.find("by a copy at the end"), std::string::npos) << note;
}

TEST(Updates, ComeLastAndShareATextOnAGpu) {
  Graph graph;
  const models::ConvNet model(graph, {.channels = {16, 32, 32}});
  const Value scores = model(graph.input("x", f32, {100, 1, 28, 28}));
  minimize(cross_entropy(scores, graph.input("labels", i32, {100})), Adam{});
  const Plan plan = gpu_plan_of(graph);
  constexpr std::size_t kParameters = 8;
  ASSERT_GT(plan.steps.size(), kParameters);
  std::set<gpu::KernelSource> texts;
  for (std::size_t i = plan.steps.size() - kParameters; i < plan.steps.size(); ++i) {
    ASSERT_NE(plan.steps[i].text, nullptr) << plan.steps[i].label.op;
    for (const gpu::TextLaunch& launch : plan.steps[i].text->launches) texts.insert(launch.source);
  }
  EXPECT_EQ(texts.size(), 1u);
  expect_no_copies(plan);
}

// The inputs of an update at the end stay alive until then.
TEST(Updates, OfLargeGradientsComeAtOnce) {
  Graph graph;
  Value x = graph.input("x", f32, {64, 2048});
  for (int i = 0; i < 6; ++i) {
    const nn::Linear layer(graph, "layer" + std::to_string(i), 2048, 2048, {.bias = false});
    x = tanh(layer(x));
  }
  minimize(sum(x), Sgd{.learning_rate = 0.1});
  const Plan plan = gpu_plan_of(graph);
  EXPECT_LT(plan.peak_live_bytes, 4 * (16 << 20)) << "six gradients of 16 MB";
}

// A value that is also read, or fetched, is made where it is needed.
TEST(Updates, ThatOthersReadStayInTheirPlace) {
  Graph graph;
  const Value w = graph.parameter("w", f32, {16, 16}), x = graph.input("x", f32, {16, 16});
  const Value next = w + x;
  assign(w, next);
  graph.fetch("y", matmul(next, x));
  const Plan plan = gpu_plan_of(graph);
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[0].kind, Step::Kind::group);
}

}  // namespace
}  // namespace paoding
