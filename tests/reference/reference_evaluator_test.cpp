// SPDX-License-Identifier: Apache-2.0
// The oracle against numbers worked out by hand.
#include "tests/reference/reference_evaluator.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "paoding/ops.h"

namespace paoding {
namespace {

using Dense = std::vector<double>;
using Ints = std::vector<std::int64_t>;

TEST(ReferenceEvaluator, BroadcastsFormulas) {
  Graph g;
  const Value a = g.input("a", f32, {2, 1}), b = g.input("b", f32, {3});
  g.fetch("y", a * b + 1.0);
  EXPECT_EQ(evaluate_graph(g, {{"a", {2, 3}}, {"b", {1, 10, 100}}}).at("y"), (Dense{3, 21, 201, 4, 31, 301}));
}

TEST(ReferenceEvaluator, MovesElementsAsViewsSay) {
  Graph g;
  const Value a = g.input("a", f32, {2, 3});
  g.fetch("slice", slice(a, 1, 1, 3));
  g.fetch("pad", pad(a, Ints{0, 1}, Ints{1, 0}));
  g.fetch("concat", concat(std::array{a, slice(a, 1, 0, 1)}, -1));
  g.fetch("expand", expand(slice(a, 0, 1, 2), {2, 2, 3}));
  g.fetch("reshape", reshape(a, Ints{3, 2}));
  const auto y = evaluate_graph(g, {{"a", {1, 2, 3, 4, 5, 6}}});
  EXPECT_EQ(y.at("slice"), (Dense{2, 3, 5, 6}));
  EXPECT_EQ(y.at("pad"), (Dense{0, 1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0}));
  EXPECT_EQ(y.at("concat"), (Dense{1, 2, 3, 1, 4, 5, 6, 4}));
  EXPECT_EQ(y.at("expand"), (Dense{4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(y.at("reshape"), (Dense{1, 2, 3, 4, 5, 6}));
}

TEST(ReferenceEvaluator, SumsOverAxes) {
  Graph g;
  const Value a = g.input("a", f32, {2, 3});
  g.fetch("all", sum(a));
  g.fetch("rows", sum(a, Ints{0}));
  g.fetch("columns", sum(a, Ints{-1}, true));
  const auto y = evaluate_graph(g, {{"a", {1, 2, 3, 4, 5, 6}}});
  EXPECT_EQ(y.at("all"), Dense{21});
  EXPECT_EQ(y.at("rows"), (Dense{5, 7, 9}));
  EXPECT_EQ(y.at("columns"), (Dense{6, 15}));
}

TEST(ReferenceEvaluator, MultipliesTransposedAndBroadcastMatrices) {
  Graph g;
  const Value a = g.input("a", f32, {2, 2}), b = g.input("b", f32, {2, 2, 2});
  g.fetch("plain", matmul(a, slice(b, 0, 0, 1)));
  g.fetch("ta", matmul(a, a, true, false));
  g.fetch("tb", matmul(a, a, false, true));
  g.fetch("batch", matmul(a, b));
  const auto y = evaluate_graph(g, {{"a", {1, 2, 3, 4}}, {"b", {1, 0, 0, 1, 0, 1, 1, 0}}});
  EXPECT_EQ(y.at("plain"), (Dense{1, 2, 3, 4}));
  EXPECT_EQ(y.at("ta"), (Dense{10, 14, 14, 20}));
  EXPECT_EQ(y.at("tb"), (Dense{5, 11, 11, 25}));
  EXPECT_EQ(y.at("batch"), (Dense{1, 2, 3, 4, 2, 1, 4, 3}));
}

TEST(ReferenceEvaluator, ScansForwardsAndBackwards) {
  for (const bool reverse : {false, true}) {
    Graph g;
    const Value h0 = g.input("h0", f32, {2}), xs = g.input("xs", f32, {3, 2}), w = g.input("w", f32, {});
    const StepResult made = scan(
        {h0}, {xs},
        [&](const Values& carry, const Values& x) {
          const Value h = carry[0] * w + x[0];
          return step({h}, {h});
        },
        reverse);
    g.fetch("last", made.carries[0]);
    g.fetch("all", made.outputs[0]);
    const auto y = evaluate_graph(g, {{"h0", {1, 0}}, {"xs", {1, 2, 3, 4, 5, 6}}, {"w", {10}}});
    if (reverse) {
      EXPECT_EQ(y.at("all"), (Dense{1531, 642, 153, 64, 15, 6}));
      EXPECT_EQ(y.at("last"), (Dense{1531, 642}));
    } else {
      EXPECT_EQ(y.at("all"), (Dense{11, 2, 113, 24, 1135, 246}));
      EXPECT_EQ(y.at("last"), (Dense{1135, 246}));
    }
  }
}

TEST(ReferenceEvaluator, RoundsOnlyWhereCastSays) {
  Graph g;
  const Value a = g.input("a", f32, {1});
  g.fetch("bf16", cast(a, bf16));
  g.fetch("i32", cast(a * 10.0, i32));
  const auto y = evaluate_graph(g, {{"a", {1.001}}});
  EXPECT_EQ(y.at("bf16"), Dense{1});
  EXPECT_EQ(y.at("i32"), Dense{10});
}

TEST(ReferenceEvaluator, HandlesEmptyValues) {
  Graph g;
  const Value a = g.input("a", f32, {2, 0});
  g.fetch("y", a + 1.0);
  g.fetch("sum", sum(a, Ints{1}));
  const auto y = evaluate_graph(g, {{"a", {}}});
  EXPECT_TRUE(y.at("y").empty());
  EXPECT_EQ(y.at("sum"), (Dense{0, 0}));
}

TEST(ReferenceEvaluator, RefusesMissingAndMisshapenFeeds) {
  Graph g;
  g.fetch("y", g.input("a", f32, {2}) * g.parameter("p", f32, {}));
  EXPECT_THROW(evaluate_graph(g, {{"a", {1, 2}}}), std::invalid_argument);
  EXPECT_THROW(evaluate_graph(g, {{"a", {1}}, {"p", {1}}}), std::invalid_argument);
  EXPECT_EQ(evaluate_graph(g, {{"a", {1, 2}}, {"p", {3}}}).at("y"), (Dense{3, 6}));
}

}  // namespace
}  // namespace paoding
