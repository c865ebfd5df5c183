// SPDX-License-Identifier: Apache-2.0
// The bytes that a training step of the convolutional network moves, by its plan, beside the least: every activation is
// written once and read by those who need it, its gradient too, and bias gradients, ReLUs, masks of pools and, on a CPU
// and in TF32 and 16 bits on a GPU, the pools move nothing of their own.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/conv_net.h"
#include "models/image_nets.h"
#include "paoding/nn.h"
#include "paoding/optimizer.h"
#include "plan/step_cost.h"
#include "runtime/compile.h"

namespace paoding {
namespace {

constexpr std::int64_t kBatch = 64, kSize = 28;
const std::vector<std::int64_t> kChannels = {16, 32, 32};

void build_counted_net(Graph& graph) {
  const models::ConvNet model(graph, {.channels = kChannels});
  const Value scores = model(graph.input("x", f32, {kBatch, 1, kSize, kSize}));
  const Value loss = cross_entropy(scores, graph.input("labels", i32, {kBatch}));
  minimize(loss, Adam{});
  graph.fetch("loss", loss);
}

// Where convolutions pool their windows nothing larger than the pools' results is ever there. `size`: of an element.
double least_bytes_pooled(double size = 4) {
  double total = 0, inputs = 1;
  std::int64_t side = kSize;
  for (std::size_t i = 0; i < kChannels.size(); ++i) {
    const double channels = static_cast<double>(kChannels[i]);
    const double x = size * static_cast<double>(kBatch * side * side) * inputs;
    side /= 2;
    const double windows = static_cast<double>(kBatch * side * side) * channels, y = size * windows;
    total += x + y + windows;               // convolution with bias, ReLU and pool
    total += x + y + windows;               // gradients for the weights and the bias
    total += i == 0 ? 0 : y + windows + x;  // for the image
    inputs = channels;
  }
  return total;
}

// Bytes of f32 images, and of one byte of index for every window of a pool.
double least_bytes() {
  double total = 0, inputs = 1;
  std::int64_t side = kSize;
  for (std::size_t i = 0; i < kChannels.size(); ++i) {
    const double pixels = static_cast<double>(kBatch * side * side), channels = static_cast<double>(kChannels[i]);
    const double x = 4 * pixels * inputs, r = 4 * pixels * channels;  // operand and result of the convolution
    side /= 2;
    const double windows = static_cast<double>(kBatch * side * side) * channels, y = 4 * windows;
    total += x + r;               // convolution with bias and ReLU
    total += r + y + windows;     // pool
    total += 3 * y;               // the pool's gradient, masked by its result, and the bias's gradient
    total += y + windows + r;     // given to the elements
    total += x + r;               // gradient for the weights
    total += i == 0 ? 0 : r + x;  // for the image
    inputs = channels;
  }
  return total;
}

double image_bytes(const Plan& plan) {
  double total = 0;
  for (const Step& step : plan.steps) {
    bool is_of_images = false;
    for (const Operand& operand : step.operands) {
      const Shape& shape = operand.layout.type.shape;
      is_of_images |= shape.rank() == 4 && shape[0] == kBatch;
    }
    if (is_of_images) total += static_cast<double>(cost_of(step).bytes);
  }
  return total;
}

TEST(ConvNetBytes, OfATrainingStepAreWithinATenthOfTheLeast) {
  for (const char* target : {"avx512", "h200"}) {
    for (const bool tf32 : {false, true}) {
      Graph graph;
      build_counted_net(graph);
      CompileOptions options;
      options.allow_tf32 = tf32;
      const Plan plan = compile_plan(graph, options, std::make_shared<const Target>(named_target(target))).plan;
      const bool is_pooled = !plan.target->is_gpu() || tf32;
      const double least = is_pooled ? least_bytes_pooled() : least_bytes(), moved = image_bytes(plan);
      EXPECT_LT(moved, 1.1 * least) << target;
      EXPECT_GE(moved, least) << target;
    }
  }
}

void expect_half(const char* target) {
  Graph graph;
  build_counted_net(graph);
  CompileOptions options;
  options.precision = bf16;
  const Plan plan = compile_plan(graph, options, std::make_shared<const Target>(named_target(target))).plan;
  const auto pools = [](const Step& step) {
    return step.kind == Step::Kind::kernel && step.call.op->name == "conv2d_pool";
  };
  if (std::none_of(plan.steps.begin(), plan.steps.end(), pools)) {
    GTEST_SKIP() << "NOT CHECKED: no oneDNN for bf16 on this CPU";
  }
  // The images are given in f32, and rounded.
  const double rounding = 6 * static_cast<double>(kBatch * kSize * kSize), least = least_bytes_pooled(2) + rounding;
  EXPECT_LT(image_bytes(plan), 1.1 * least);
  EXPECT_GE(image_bytes(plan), least);
}
TEST(ConvNetBytes, OfAMixedStepOnACpuAreHalfOfThat) { expect_half("avx512"); }
TEST(ConvNetBytes, OfAMixedStepOnAGpuAreHalfOfThat) { expect_half("h200"); }

// The results of batch norms on images have one reader each, so they need no place in f32.
TEST(ResidualNetBytes, InMixedPrecisionNoImageLiesInF32) {
  for (const bool is_mobile : {false, true}) {
    Graph graph;
    const Value x = graph.input("x", f32, {4, 3, 64, 64});
    models::ResNetOptions residual;
    residual.blocks = {1, 2}, residual.width = 16, residual.classes = 10;
    models::MobileNetOptions mobile;
    mobile.stages = {{1, 16, 1, 1}, {6, 16, 2, 2}}, mobile.classes = 10;
    const Value scores = is_mobile ? models::mobile_net(x, mobile) : models::resnet(x, residual);
    minimize(cross_entropy(scores, graph.input("labels", i32, {4})), Sgd{.momentum = 0.9});
    // Steps and their operands that are images of f32, other than the one that is given.
    const auto images_in_f32 = [&](DType precision) {
      CompileOptions options;
      options.precision = precision;
      const Plan plan = compile_plan(graph, options, std::make_shared<const Target>(named_target("h200"))).plan;
      std::vector<std::string> found;
      for (const Step& step : plan.steps) {
        for (const Operand& operand : step.operands) {
          const Type& type = operand.layout.type;
          if (type.dtype != f32 || type.shape.rank() != 4 || type.shape[0] != 4 || type.shape[2] == 1) continue;
          const bool is_given = plan.slots[static_cast<std::size_t>(operand.slot)].kind == SlotKind::input;
          if (!is_given) found.push_back(step.label.op + " has " + to_string(type));
        }
      }
      return found;
    };
    EXPECT_EQ(images_in_f32(bf16), std::vector<std::string>{});
    EXPECT_GT(images_in_f32(f32).size(), 20u);
  }
}

}  // namespace
}  // namespace paoding
