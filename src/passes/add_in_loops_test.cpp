// SPDX-License-Identifier: Apache-2.0
// Terms that are added in the steps of a loop instead of in front of it.
#include <gtest/gtest.h>

#include "ops/scan/scan.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

// h = tanh(element + h u), and its input: `made` of a product [5, 2, 4].
Value recur(Graph& g, const std::function<Value(const Value& product)>& made) {
  const Value xs = g.input("xs", f32, {5, 2, 3}), w = g.input("w", f32, {3, 4}), u = g.input("u", f32, {4, 4});
  const Value given = made(matmul(xs, w));
  const StepResult result =
      scan({g.input("h0", f32, {2, 4})}, {given}, [&](const Values& carry, const Values& element) {
        const Value h = tanh(element[0] + matmul(carry[0], u));
        return step({h}, {h});
      });
  g.fetch("hs", result.outputs[0]);
  return given;
}

int adds_in_loop(const Graph& g) { return count_here(*only(g, "scan").bodies[0], "add"); }

TEST(AddInLoops, TheBiasOfAProduct) {
  for (const Shape& shape : {Shape{4}, Shape{2, 4}, Shape{1, 1, 4}, Shape{}}) {
    Graph g;
    const Value b = g.input("b", f32, shape);
    recur(g, [&](const Value& product) { return b + product; });
    run_and_compare(g, {add_in_loops});
    EXPECT_EQ(count_here(g, "add"), 0);
    EXPECT_EQ(adds_in_loop(g), 2);
  }
}

TEST(AddInLoops, NotWhatDiffersFromStepToStep) {
  Graph g;
  const Value b = g.input("b", f32, {5, 1, 4});
  recur(g, [&](const Value& product) { return product + b; });
  run_and_compare(g, {add_in_loops});
  EXPECT_EQ(count_here(g, "add"), 1);
}

TEST(AddInLoops, NotWhatIsReadElsewhereToo) {
  Graph g;
  const Value b = g.input("b", f32, {4});
  g.fetch("xw", recur(g, [&](const Value& product) { return product + b; }));
  run_and_compare(g, {add_in_loops});
  EXPECT_EQ(count_here(g, "add"), 1);
}

// It would be a kernel of its own in every step.
TEST(AddInLoops, NotWhatAProductOfTheStepsReads) {
  Graph g;
  const Value xs = g.input("xs", f32, {5, 2, 3}), w = g.input("w", f32, {3, 3}), b = g.input("b", f32, {3});
  const StepResult made =
      scan({g.input("h0", f32, {3, 3})}, {matmul(xs, w) + b}, [](const Values& carry, const Values& element) {
        return step({tanh(carry[0] + matmul(element[0], element[0], true))}, {});
      });
  g.fetch("h", made.carries[0]);
  run_and_compare(g, {add_in_loops});
  EXPECT_EQ(count_here(g, "add"), 1);
}

}  // namespace
}  // namespace paoding
