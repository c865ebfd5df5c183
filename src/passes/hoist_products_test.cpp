// SPDX-License-Identifier: Apache-2.0
// Which products hoist_products takes out of a loop, which it leaves there and why.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/scan/scan.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

const Graph& body_of(const Graph& graph) { return *only(graph, "scan").bodies[0]; }

// h = tanh(x w + h u) over 5 steps; `made` makes the factor that w is multiplied with.
void scan_products(Graph& g, const std::function<Value(const Value& x)>& made) {
  const Value xs = g.input("xs", f32, {5, 2, 3}), h0 = g.input("h0", f32, {2, 4}), w = g.input("w", f32, {3, 4}),
              u = g.input("u", f32, {4, 4});
  const StepResult result = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
    const Value h = tanh(matmul(made(element[0]), w) + matmul(carry[0], u));
    return step({h}, {h});
  });
  g.fetch("hs", result.outputs[0]);
}

TEST(HoistProducts, MultipliesTheInputsOfAllStepsAtOnce) {
  Graph g;
  scan_products(g, [](const Value& x) { return x; });
  run_and_compare(g, {hoist_products});
  EXPECT_EQ(count_here(g, "matmul"), 1);
  EXPECT_EQ(count_here(body_of(g), "matmul"), 1);  // h u
  EXPECT_EQ(only(g, "matmul").types[0].shape.elements(), 5 * 2 * 4);
}

TEST(HoistProducts, TakesAlongWhatTheProductNeeds) {
  Graph g;
  scan_products(g, [](const Value& x) { return tanh(x * 2.0); });
  run_and_compare(g, {hoist_products});
  EXPECT_EQ(count_here(g, "tanh"), 1);
  EXPECT_EQ(count_here(body_of(g), "matmul"), 1);
}

TEST(HoistProducts, LeavesElementwiseWorkThatNoProductNeeds) {
  Graph g;
  const Value xs = g.input("xs", f32, {5, 3}), h0 = g.input("h0", f32, {3});
  g.fetch("h", scan({h0}, {xs}, [](const Values& carry, const Values& element) {
                 return step({carry[0] + tanh(element[0])}, {});
               }).carries[0]);
  run_and_compare(g, {hoist_products});
  EXPECT_EQ(count_here(g, "tanh"), 0);
  EXPECT_EQ(count_here(body_of(g), "tanh"), 1);
}

TEST(HoistProducts, MakesAProductOfConstantsOnce) {
  Graph g;
  const Value xs = g.input("xs", f32, {5, 3, 3}), a = g.input("a", f32, {3, 3}), h0 = g.input("h0", f32, {3, 3});
  g.fetch("h", scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
                 return step({tanh(carry[0] + element[0] + matmul(element[0].graph().capture(a), a))}, {});
               }).carries[0]);
  run_and_compare(g, {hoist_products});
  EXPECT_EQ(count_here(body_of(g), "matmul"), 0);
  EXPECT_EQ(only(g, "matmul").types[0].shape, Shape({3, 3}));
}

TEST(HoistProducts, KnowsWhatEarlierLoopsBecame) {
  Graph g;
  Value xs = g.input("xs", f32, {5, 2, 4});
  const Value h0 = g.input("h0", f32, {2, 4}), w = g.input("w", f32, {4, 4});
  for (int i = 0; i < 4; ++i) {
    xs = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
           const Value h = tanh(carry[0] + matmul(element[0], w));
           return step({h}, {h});
         }).outputs[0];
  }
  g.fetch("hs", xs);
  run_and_compare(g, {hoist_products});
  EXPECT_EQ(count_here(g, "matmul"), 4);
  EXPECT_EQ(count_here(g, "scan"), 4);
}

TEST(HoistProducts, TakesManyProductsOfOneBody) {
  Graph g;
  constexpr int kProducts = 40;
  const Value xs = g.input("xs", f32, {3, 2, 4}), h0 = g.input("h0", f32, {2, 4});
  Values weights;
  for (int i = 0; i < kProducts; ++i) weights.push_back(g.input("w" + std::to_string(i), f32, {4, 4}));
  g.fetch("h", scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
                 Value h = carry[0];
                 for (const Value& w : weights) h = tanh(h + matmul(element[0], w));
                 return step({h}, {});
               }).carries[0]);
  run_and_compare(g, {hoist_products});
  EXPECT_EQ(count_here(g, "matmul"), kProducts);
  EXPECT_EQ(count_here(body_of(g), "matmul"), 0);
}

}  // namespace
}  // namespace paoding
