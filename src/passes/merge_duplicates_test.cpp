// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

TEST(MergeDuplicates, MakesOneOfEqualChains) {
  Graph g;
  const Value x = g.input("x", f32, {3}), y = g.input("y", f32, {3});
  g.fetch("z", exp(tanh(x)) + exp(tanh(x)) * exp(tanh(y)));
  run_and_compare(g, {merge_duplicates});
  EXPECT_EQ(count_here(g, "tanh"), 2);
  EXPECT_EQ(count_here(g, "exp"), 2);
}

TEST(MergeDuplicates, KeepsNodesThatDifferInAttributesOnly) {
  Graph g;
  const Value x = g.input("x", f32, {4});
  g.fetch("a", slice(x, 0, 0, 2));
  g.fetch("b", slice(x, 0, 1, 3));
  g.fetch("c", slice(x, 0, 0, 2));
  run_and_compare(g, {merge_duplicates});
  EXPECT_EQ(count_here(g, "slice"), 2);
  EXPECT_EQ(g.fetches()[0].ref, g.fetches()[2].ref);
}

TEST(MergeDuplicates, TellsZeroFromMinusZero) {
  Graph g;
  for (const double value : {0.0, -0.0, 0.0}) g.fetch("f" + std::to_string(g.size()), full(g, {2}, value));
  run_and_compare(g, {merge_duplicates});
  EXPECT_EQ(count_here(g, "full"), 2);
}

TEST(MergeDuplicates, KeepsTheFirstWithItsScope) {
  Graph g;
  const Value x = g.input("x", f32, {4});
  Value first, second;
  {
    const Scope scope(g, "first");
    first = exp(x);
  }
  {
    const Scope scope(g, "second");
    second = exp(x);
  }
  g.fetch("y", first + second);
  run_and_compare(g, {merge_duplicates});
  EXPECT_EQ(only(g, "exp").scope.str(), "first");
}

TEST(MergeDuplicates, WorksInBodiesAndKeepsTheirInputs) {
  Graph g;
  const Value x = g.input("x", f32, {3, 2}), h = g.input("h", f32, {2});
  const StepResult made = scan({h, h}, {x, x}, [](const Values& carry, const Values& in) {
    return step({tanh(carry[0] + in[0]), tanh(carry[0] + in[0])}, {in[1] * carry[1]});
  });
  g.fetch("y", made.outputs[0]);
  g.fetch("h2", made.carries[1]);
  run_and_compare(g, {merge_duplicates});
  const Graph& body = *only(g, "scan").bodies[0];
  EXPECT_EQ(count_here(body, "tanh"), 1);
  EXPECT_EQ(body.inputs().size(), 4u);
}

}  // namespace
}  // namespace paoding
