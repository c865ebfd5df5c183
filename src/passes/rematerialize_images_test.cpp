// SPDX-License-Identifier: Apache-2.0
// Values that readers make again: of a product, of a sum that is stored for others, of rows' means; and those that
// stay.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

const Shape kImage{256, 256};

// Results of that shape that groups give before and after the pass, whose values stay the same.
std::array<int, 2> images_written(Graph& g, const char* chip = "h200") {
  const auto feeds = random_feeds(g, 5);
  const auto before = evaluate_graph(g, feeds);
  const auto written = [&] {
    int count = 0;
    for (NodeId id = 0; id < g.size(); ++id) {
      if (!g.node(id).op->is_fusion_group()) continue;
      for (const Type& type : g.node(id).types) count += type.shape == kImage ? 1 : 0;
    }
    return count;
  };
  PassNotes notes(std::make_shared<const Target>(named_target(chip)));
  for (const auto& pass : {merge_duplicates, fold_identities, simplify_views, keep_reduced_axes, simplify_views,
                           merge_duplicates, drop_unused, fuse_groups}) {
    pass(g, notes);
  }
  const int first = written();
  rematerialize_images(g, notes);
  verify(g, "rematerialize_images");
  const auto after = evaluate_graph(g, feeds);
  for (const auto& [name, values] : before) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(after.at(name)[i], values[i], 1e-9 * (1 + std::abs(values[i]))) << name << " element " << i;
      if (testing::Test::HasFailure()) return {};
    }
  }
  return {first, written()};
}

// f of a product with a bias, its product with v, and the gradient of the first product.
void build_activated(Graph& g) {
  const Value a = g.input("a", f32, {256, 4}), w = g.input("w", f32, {4, 256}), v = g.input("v", f32, {256, 4});
  const Value product = matmul(a, w), y = matmul(silu(product + g.input("bias", f32, {256})), v);
  g.fetch("y", y);
  g.fetch("dproduct", gradients(std::array{sum(y * y)}, std::array{product})[0]);
}

TEST(RematerializeImages, OfAProductAreMadeByTheGradientToo) {
  Graph g, cpu, read;
  build_activated(g), build_activated(cpu), build_activated(read);
  EXPECT_EQ(images_written(g), (std::array{3, 2})) << to_text(g);
  EXPECT_EQ(images_written(cpu, "avx512"), (std::array{3, 3})) << "there the pass does nothing";
  // Where an op that is no group reads it too, it has to be in memory.
  NodeId sum = -1;
  for (NodeId id = read.size(); id-- > 0;) sum = read.node(id).op->name == "add" ? id : sum;
  read.fetch("argument", read.value({sum, 0}));
  EXPECT_EQ(images_written(read), (std::array{3, 3})) << to_text(read);
}

// A sum is stored for who adds to it later; of its norm the gradient reads means of rows, not differences from them.
TEST(RematerializeImages, OfASumThatIsStoredAreMadeWithTheMeansOfItsRows) {
  Graph g;
  const Value x = g.input("a", f32, kImage) + g.input("b", f32, kImage);
  const std::vector<std::int64_t> last{-1};
  const Value difference = x - mean(x, last, true);
  const Value norm =
      difference * rsqrt(mean(difference * difference, last, true) + 1e-5) * g.input("gamma", f32, {256});
  const Value y = x + matmul(norm, g.input("w", f32, {256, 256}));
  g.fetch("y", y);
  g.fetch("dx", gradients(std::array{sum(y * y)}, std::array{x})[0]);
  const auto [before, after] = images_written(g);
  EXPECT_EQ(before - after, 1) << to_text(g);
}

// Two images are more to read than the one value that follows from them, and a wider one is no less.
TEST(RematerializeImages, LeaveWhatFollowsFromTwoImagesOrFromAWiderOne) {
  for (const bool is_wider : {false, true}) {
    Graph g;
    const Value a = g.input("a", f32, kImage), w = g.input("w", f32, {256, 256});
    const Value b = is_wider ? Value() : g.input("b", f32, kImage);
    const Value made = is_wider ? cast(a * 2.0, f16) : a * b;
    const Value product = matmul(sigmoid(cast(made, f32)), w);
    g.fetch("late", product * cast(made, f32));
    const auto [before, after] = images_written(g);
    EXPECT_EQ(before, after) << to_text(g);
  }
}

}  // namespace
}  // namespace paoding
