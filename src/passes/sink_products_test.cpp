// SPDX-License-Identifier: Apache-2.0
// Which products sink_products moves after a loop, which it leaves there and why.
#include <gtest/gtest.h>

#include <algorithm>

#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

const Graph& sunk_body_of(const Graph& graph) { return *only(graph, "scan").bodies[0]; }

struct SunkRecurrence {
  Graph g;
  Value xs = g.input("xs", f32, {5, 2, 4}), h0 = g.input("h0", f32, {2, 4}), w = g.input("w", f32, {4, 3});
  void run(const std::function<Values(const Value& h)>& outputs) {
    const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
      const Value h = tanh(carry[0] + element[0]);
      return step({h}, outputs(h));
    });
    g.fetch("h", made.carries[0]);
    for (std::size_t i = 0; i < made.outputs.size(); ++i) g.fetch("y" + std::to_string(i), made.outputs[i]);
  }
};

TEST(SinkProducts, MultipliesStackedValuesAtOnce) {
  SunkRecurrence r;
  r.run([&](const Value& h) { return Values{matmul(h, r.w)}; });
  run_and_compare(r.g, {sink_products});
  EXPECT_EQ(count_here(sunk_body_of(r.g), "matmul"), 0);
  EXPECT_EQ(only(r.g, "matmul").types[0].shape.elements(), 5 * 2 * 3);
}

TEST(SinkProducts, TakesAlongWhatIsMadeFromTheProduct) {
  SunkRecurrence r;
  r.run([&](const Value& h) { return Values{tanh(matmul(h, r.w)) * 2.0}; });
  run_and_compare(r.g, {sink_products});
  EXPECT_EQ(count_here(sunk_body_of(r.g), "matmul"), 0);
  EXPECT_EQ(count_here(sunk_body_of(r.g), "mul"), 0);
  EXPECT_EQ(count_here(r.g, "tanh"), 1);
}

// A step of one sums over few rows, however many its result has; with many of its own it stays.
TEST(SinkProducts, MakesOneOfAWeightsGradientOfManyRows) {
  SunkRecurrence few;
  const Value wide = few.g.input("wide", f32, {4, 1024});
  few.run([&](const Value& h) { return Values{matmul(matmul(h, wide), h, true)}; });
  run_and_compare(few.g, {sink_products});
  EXPECT_EQ(count_here(sunk_body_of(few.g), "matmul"), 0);

  Graph g;
  const Value xs = g.input("xs", f32, {3, 1024, 4}), h0 = g.input("h0", f32, {1024, 4});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
    const Value h = tanh(carry[0] + element[0]);
    return step({h}, {matmul(h, element[0], true)});
  });
  g.fetch("dw", made.outputs[0]);
  run_and_compare(g, {sink_products});
  EXPECT_EQ(count_here(sunk_body_of(g), "matmul"), 1);
}

TEST(SinkProducts, LeavesAProductThatACarryNeeds) {
  Graph g;
  const Value xs = g.input("xs", f32, {5, 2, 4}), h0 = g.input("h0", f32, {2, 4}), w = g.input("w", f32, {4, 4});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
    const Value h = tanh(matmul(carry[0], w) + element[0]);
    return step({h}, {h});
  });
  g.fetch("hs", made.outputs[0]);
  run_and_compare(g, {sink_products});
  EXPECT_EQ(count_here(g, "matmul"), 0);
  EXPECT_EQ(count_here(sunk_body_of(g), "matmul"), 1);
}

TEST(SinkProducts, StacksOneOperandOnceForAllProductsOfIt) {
  constexpr int kProducts = 30;
  SunkRecurrence r;
  r.run([&](const Value& h) {
    Values outputs;
    for (int i = 0; i < kProducts; ++i) outputs.push_back(matmul(h, r.w * static_cast<double>(i + 2)));
    return outputs;
  });
  run_and_compare(r.g, {sink_products});
  EXPECT_EQ(count_here(r.g, "matmul"), kProducts);
  EXPECT_EQ(count_here(sunk_body_of(r.g), "matmul"), 0);
  EXPECT_LE(sunk_body_of(r.g).fetches().size(), 2u);  // the carry's next value, and h stacked
}

TEST(SinkProducts, KnowsWhatEarlierLoopsBecame) {
  Graph g;
  Value xs = g.input("xs", f32, {5, 2, 4});
  const Value h0 = g.input("h0", f32, {2, 4}), w = g.input("w", f32, {4, 4});
  for (int i = 0; i < 4; ++i) {
    xs = scan({h0}, {xs}, [&](const Values& carry, const Values& element) {
           const Value h = tanh(carry[0] + element[0]);
           return step({h}, {matmul(h, w)});
         }).outputs[0];
  }
  g.fetch("ys", xs);
  run_and_compare(g, {sink_products});
  EXPECT_EQ(count_here(g, "matmul"), 4);
}

}  // namespace
}  // namespace paoding
