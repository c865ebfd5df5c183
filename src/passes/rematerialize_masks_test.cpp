// SPDX-License-Identifier: Apache-2.0
// rematerialize_masks: the gradient of a ReLU after a batch norm, masked where it is read: the same results, and less
// memory moved.
#include <gtest/gtest.h>

#include <random>

#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "plan/step_cost.h"
#include "runtime/compile.h"

namespace paoding {
namespace {

// Convolution, batch norm, perhaps a residual, ReLU, convolution; the gradients of all weights.
void build(Graph& g, DType dtype, bool is_residual, bool fetches_gradient = false, std::int64_t batch = 4) {
  const Shape image{batch, 8, 12, 12};
  const Value x = g.input("x", dtype, image), w = g.input("w", dtype, {8, 8, 3, 3}),
              v = g.input("v", dtype, {8, 8, 3, 3});
  const Value gamma = g.input("gamma", dtype, {8, 1, 1}), beta = g.input("beta", dtype, {8, 1, 1});
  const Conv2dOptions padded{.padding = {1, 1, 1, 1}};
  const Value normed = call(*find_op("batch_norm"), std::array{conv2d(x, w, padded), gamma, beta},
                            {{"axes", std::vector<std::int64_t>{0, 2, 3}}})[0];
  const Value y = relu(is_residual ? normed + x : normed);
  const Value loss = sum(square(conv2d(y, v, padded)));
  Values wanted{w, v, gamma, beta};
  if (fetches_gradient) wanted.push_back(normed);
  const Values made = gradients(std::array{loss}, wanted);
  for (std::size_t i = 0; i < made.size(); ++i) g.fetch("d" + std::to_string(i), made[i]);
}

std::string notes_of(const Graph& g, const char* target) {
  const CompiledPlan made = compile_plan(g, {}, std::make_shared<const Target>(named_target(target)));
  std::string notes;
  for (const PassRecord& pass : made.passes) {
    if (pass.name != "rematerialize_masks") continue;
    for (const std::string& note : pass.notes) notes += note;
  }
  return notes;
}

double bytes_of(const Graph& g, const std::vector<std::string>& disabled) {
  CompileOptions options;
  options.disabled_passes = disabled;
  double bytes = 0;
  const CompiledPlan made = compile_plan(g, options, std::make_shared<const Target>(named_target("h200")));
  for (const Step& step : made.plan.steps) bytes += static_cast<double>(cost_of(step).bytes);
  return bytes;
}

TEST(RematerializeMasks, GivesTheSameResults) {
  for (const bool is_residual : {false, true}) {
    Graph g;
    build(g, f64, is_residual);
    std::map<std::string, Tensor> feeds;
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (const NodeId id : g.inputs()) {
      const Node& node = g.node(id);
      std::vector<double> values(static_cast<std::size_t>(node.types[0].shape.elements()));
      for (double& value : values) value = normal(random);
      feeds.emplace(node.name.str(), Tensor::from(f64, node.types[0].shape, values));
    }
    CompileOptions without;
    without.disabled_passes = {"rematerialize_masks"};
    Program with(g), plain(g, without);
    const auto got = with.run(feeds), expected = plain.run(feeds);
    for (const auto& [name, tensor] : expected) {
      const std::vector<double> a = got.at(name).to_doubles(), b = tensor.to_doubles();
      double largest = 0;
      for (const double value : b) largest = std::max(largest, std::abs(value));
      for (std::size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12 * largest) << name << " " << i;
    }
  }
}

TEST(RematerializeMasks, IsDoneWhereTheReluFollowsFromWhatIsReadAnyway) {
  const auto notes = [](bool is_residual, bool fetches_gradient) {
    Graph g;
    build(g, f32, is_residual, fetches_gradient);
    return notes_of(g, "h200");
  };
  EXPECT_EQ(notes(false, false), "1 masked gradients are made again where they are read");
  EXPECT_EQ(notes(true, false), "") << "the ReLU is given two images";
  EXPECT_EQ(notes(false, true), "") << "the masked gradient is fetched";
}

// Neither the mask nor the masked gradient is written, where they are too large for one kernel to keep.
TEST(RematerializeMasks, SavesWhatItLeavesOut) {
  constexpr std::int64_t kBatch = 4096;
  Graph g;
  build(g, f32, false, false, kBatch);
  const double image = 4.0 * kBatch * 8 * 12 * 12;
  EXPECT_LE(bytes_of(g, {}), bytes_of(g, {"rematerialize_masks"}) - image);
}

}  // namespace
}  // namespace paoding
