// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

Value seeded_sum(Graph& g, const Value& y) { return sum(y * g.input("seed", y.dtype(), y.shape())); }

TEST(FuseConvolutions, TakesInBiasAndReluAndMasksByTheResult) {
  Graph g;
  const Value x = g.input("x", f64, {2, 3, 5, 6}), w = g.input("w", f64, {4, 3, 3, 3}), b = g.input("b", f64, {4});
  const Value y = conv2d(x, w, b, {.padding = {1, 1, 1, 1}, .activation = Activation::relu});
  const Values grads = gradients(seeded_sum(g, y), {x, w, b});
  g.fetch("y", y);
  for (std::size_t i = 0; i < 3; ++i) g.fetch("d" + std::to_string(i), grads[i]);
  const auto notes = run_and_compare(g, {merge_duplicates, simplify_views, fuse_convolutions});
  EXPECT_EQ(count_here(g, "conv2d"), 0);
  EXPECT_EQ(count_here(g, "maximum"), 0);
  EXPECT_EQ(std::get<std::string>(*only(g, "conv2d_bias").attrs.find("activation")), "relu");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "1 convolutions took in their bias, 1 of them a relu too");
}

// ReLU6; a library's products, which convolutions of one tap mostly are, have no limit.
TEST(FuseConvolutions, TakesInALimitWhereItIsNoProduct) {
  for (const auto& [groups, taps] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 3}, {4, 1}, {4, 3}}) {
    const bool is_product = groups * taps == 1;
    Graph g;
    const Value x = g.input("x", f64, {2, 4, 5, 6}) * 9.0;
    const auto convolved = [&](const std::string& name) {
      const Value w = g.input("w_" + name, f64, {4, 4 / groups, taps, taps});
      return conv2d(x, w, g.input("b_" + name, f64, {4}), {.groups = groups});
    };
    g.fetch("y", hardtanh(convolved("y"), 0, 6));
    g.fetch("z", hardtanh(convolved("z"), 0, 5));
    run_and_compare(g, {merge_duplicates, simplify_views, fuse_convolutions});
    EXPECT_EQ(count_here(g, "hardtanh"), is_product ? 2 : 1);
    int limits = 0;
    for (NodeId id = 0; id < g.size(); ++id) {
      const Node& node = g.node(id);
      if (node.op->name != "conv2d_bias") continue;
      limits += std::get<std::string>(*node.attrs.find("activation")) == "relu6" ? 1 : 0;
    }
    EXPECT_EQ(limits, is_product ? 0 : 1);
  }
}

// Checks a ReLU that is an op, and one that is a maximum.
TEST(FuseConvolutions, AsksAMaxPoolsGradientBeforeItIsScattered) {
  for (const bool is_op : {false, true}) {
    Graph g;
    const Value x = g.input("x", f64, {2, 3, 7, 6}), w = g.input("w", f64, {4, 3, 3, 3}), b = g.input("b", f64, {4});
    const Value r = is_op ? relu(conv2d(x, w, b)) : conv2d(x, w, b, {.activation = Activation::relu});
    const Value y = max_pool2d(r, {.kernel = {3, 2}, .stride = {1, 1}, .padding = {1, 1, 0, 1}});
    const Shape pooled = y.shape();
    const Values grads = gradients(seeded_sum(g, y), {w, b});
    for (std::size_t i = 0; i < 2; ++i) g.fetch("d" + std::to_string(i), grads[i]);
    run_and_compare(g, {merge_duplicates, simplify_views, fuse_convolutions});
    const Node& masked = only(g, "select");
    EXPECT_EQ(masked.types[0].shape, pooled) << "the mask is as small as the pool's result";
    const Node& total = g.node(g.node(only(g, "conv2d_grad_weight").inputs[1].node).inputs[0].node);
    EXPECT_EQ(total.op->name, "select");
    for (NodeId id = 0; id < g.size(); ++id) {
      if (g.node(id).op->name != "sum" || g.node(id).types[0].shape.rank() == 0) continue;
      EXPECT_EQ(g.type(g.node(id).inputs[0]).shape, pooled) << "the bias gradient is summed over windows";
    }
  }
}

TEST(FuseConvolutions, LeavesAConvolutionThatIsNeededWithoutItsBias) {
  Graph g;
  const Value x = g.input("x", f64, {1, 2, 4, 4}), w = g.input("w", f64, {3, 2, 3, 3}), b = g.input("b", f64, {3});
  const Value c = conv2d(x, w);
  g.fetch("c", c);
  g.fetch("y", c + reshape(b, Shape{3, 1, 1}));
  const auto notes = run_and_compare(g, {fuse_convolutions});
  EXPECT_EQ(count_here(g, "conv2d"), 1);
  EXPECT_EQ(count_here(g, "conv2d_bias"), 0);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("needed elsewhere"), std::string::npos);
}

TEST(FuseConvolutions, LeavesAReluWhoseArgumentIsNeeded) {
  Graph g;
  const Value x = g.input("x", f64, {1, 2, 4, 4}), w = g.input("w", f64, {3, 2, 3, 3}), b = g.input("b", f64, {3});
  const Value c = conv2d(x, w, b);
  g.fetch("c", c);
  g.fetch("y", maximum(full(g, {}, 0, f64), c));
  run_and_compare(g, {fuse_convolutions});
  EXPECT_EQ(std::get<std::string>(*only(g, "conv2d_bias").attrs.find("activation")), "none");
  EXPECT_EQ(count_here(g, "maximum"), 1);
}

TEST(FuseConvolutions, LeavesASumThatIsNoBias) {
  Graph g;
  const Value x = g.input("x", f64, {1, 2, 4, 4}), w = g.input("w", f64, {2, 2, 3, 3}), row = g.input("r", f64, {2});
  g.fetch("y", conv2d(x, w) + row);  // along the width, which is 2 as well
  g.fetch("z", conv2d(x, w) + g.input("image", f64, {1, 2, 2, 2}));
  run_and_compare(g, {fuse_convolutions});
  EXPECT_EQ(count_here(g, "conv2d_bias"), 0);
}

TEST(FuseConvolutions, MasksOnlyByTheImageThatWasPooled) {
  Graph g;
  const Value x = g.input("x", f64, {1, 2, 4, 4}), other = g.input("other", f64, {1, 2, 4, 4});
  const auto [y, index] = max_pool2d_with_index(x);
  const Value zero = full(g, {}, 0, f64);
  const Value scattered = call("max_pool2d_grad", {g.input("dy", f64, y.shape()), index},
                               {{"kernel", std::vector<std::int64_t>{2, 2}},
                                {"stride", std::vector<std::int64_t>{2, 2}},
                                {"size", std::vector<std::int64_t>{4, 4}}});
  g.fetch("masked", select(less_equal(other, zero), zero, scattered));
  run_and_compare(g, {fuse_convolutions});
  EXPECT_EQ(only(g, "select").types[0].shape, (Shape{1, 2, 4, 4}));
}

}  // namespace
}  // namespace paoding
