// SPDX-License-Identifier: Apache-2.0
// keep_reduced_axes: values computed from a reduction of the last axis keep that axis as extent 1.
#include <gtest/gtest.h>

#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

TEST(KeepReducedAxes, KeepsTheAxisOfWhatBroadcastsBack) {
  Graph g;
  const Value x = g.input("x", f32, {8, 10}), y = g.input("y", f32, {8});
  const Value most = max(x, Ints{1});
  g.fetch("z", x * reshape(y - most, Shape{8, 1}));
  run_and_compare(g, {keep_reduced_axes, simplify_views});
  EXPECT_EQ(only(g, "max").types[0].shape, Shape({8, 1}));
  EXPECT_EQ(only(g, "sub").types[0].shape, Shape({8, 1}));
  EXPECT_EQ(g.type(fetched(g).inputs[1]).shape, Shape({8, 1}));
}

TEST(KeepReducedAxes, LeavesAReductionThatNoFormulaReads) {
  Graph g;
  const Value x = g.input("x", f32, {8, 10}), w = g.input("w", f32, {8, 3});
  g.fetch("z", matmul(reshape(sum(x, Ints{1}), Shape{1, 8}), w));
  run_and_compare(g, {keep_reduced_axes});
  EXPECT_FALSE(only(g, "sum").attrs.get_bool("keepdims"));
}

TEST(KeepReducedAxes, LeavesReductionsOfOtherAxes) {
  Graph g;
  const Value x = g.input("x", f32, {8, 10});
  g.fetch("z", tanh(sum(x, Ints{0})));
  run_and_compare(g, {keep_reduced_axes});
  EXPECT_FALSE(only(g, "sum").attrs.get_bool("keepdims"));
}

TEST(KeepReducedAxes, MovesAReshapeInFrontOfTheOpsThatOnlyItNeeds) {
  Graph g;
  const Value x = g.input("x", f32, {8, 10}), scale = g.input("scale", f32, {8});
  g.fetch("z", x * reshape(tanh(exp(scale)), Shape{8, 1}));
  run_and_compare(g, {keep_reduced_axes});
  EXPECT_EQ(only(g, "tanh").types[0].shape, Shape({8, 1}));
  EXPECT_EQ(only(g, "exp").types[0].shape, Shape({8, 1}));
}

TEST(KeepReducedAxes, LeavesAnOpThatIsNeededAsItIsToo) {
  Graph g;
  const Value x = g.input("x", f32, {8, 10}), scale = tanh(g.input("scale", f32, {8}));
  g.fetch("z", x * reshape(scale, Shape{8, 1}));
  g.fetch("scale", scale);
  run_and_compare(g, {keep_reduced_axes});
  EXPECT_EQ(only(g, "tanh").types[0].shape, Shape({8}));
}

TEST(KeepReducedAxes, SeesThroughSeveralOpsInALoop) {
  Graph g;
  const Value xs = g.input("xs", f32, {3, 4, 6}), h0 = g.input("h0", f32, {4, 6});
  g.fetch("h", scan({h0}, {xs}, [](const Values& carry, const Values& element) {
                 const Value row = exp(sum(carry[0] + element[0], Ints{1}) * 0.1);
                 return step({carry[0] / reshape(row + 1.0, Shape{4, 1})}, {});
               }).carries[0]);
  run_and_compare(g, {keep_reduced_axes});
  const Graph& body = *only(g, "scan").bodies[0];
  EXPECT_EQ(only(body, "sum").types[0].shape, Shape({4, 1}));
  EXPECT_EQ(only(body, "exp").types[0].shape, Shape({4, 1}));
}

}  // namespace
}  // namespace paoding
