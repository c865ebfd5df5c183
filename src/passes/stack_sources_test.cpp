// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "ops/scan/scan.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

const Node& body_fetch(const Graph& body, std::size_t i) { return body.node(body.fetches().at(i).ref.node); }

TEST(StackSources, StacksAndCarriesAProductWhoseParts) {
  for (const bool reverse : {false, true}) {
    Graph g;
    const Value h0 = g.input("h0", f32, {2, 3}), w = g.input("w", f32, {3, 8}), xs = g.input("xs", f32, {5, 2, 3});
    const StepResult r = scan(
        {h0}, {xs},
        [&](const Values& state, const Values& x) {
          const Value p = matmul(state[0] + x[0], w);
          return step({slice(p, 1, 4, 7)}, {slice(p, 1, 0, 4)});
        },
        reverse);
    g.fetch("ys", r.outputs[0]);
    g.fetch("last", r.carries[0]);
    const auto notes = run_and_compare(g, {stack_sources});
    const ScanView view(only(g, "scan"));
    EXPECT_EQ(body_fetch(view.body, 0).op->name, "matmul");
    EXPECT_EQ(body_fetch(view.body, 1).op->name, "matmul");
    EXPECT_EQ(view.carries, 1);
    ASSERT_EQ(notes.size(), 2u);
  }
}

TEST(StackSources, TwoPartsOfOneProductAreOneCarry) {
  Graph g;
  const Value a = g.input("a", f32, {2, 3}), b = g.input("b", f32, {2, 4}), w = g.input("w", f32, {7, 9});
  const Value xs = g.input("xs", f32, {4, 2, 7});
  const StepResult r = scan({a, b}, {xs}, [&](const Values& state, const Values& x) {
    const Value p = matmul(concat(std::array{state[0], state[1]}, 1) + x[0], w);
    return step({slice(p, 1, 5, 8), slice(p, 1, 1, 5)}, {state[1]});
  });
  g.fetch("a_last", r.carries[0]);
  g.fetch("b_last", r.carries[1]);
  g.fetch("bs", r.outputs[0]);
  run_and_compare(g, {stack_sources});
  EXPECT_EQ(ScanView(only(g, "scan")).carries, 1);
}

TEST(StackSources, LeavesASmallPartOfALargeProductAlone) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2, 3}), w = g.input("w", f32, {3, 100});
  const StepResult r = scan({h0}, {g.input("xs", f32, {5, 2, 3})}, [&](const Values& state, const Values& x) {
    return step({slice(matmul(state[0] + x[0], w), 1, 0, 3)}, {});
  });
  g.fetch("last", r.carries[0]);
  run_and_compare(g, {stack_sources});
  EXPECT_EQ(g.node(only(g, "scan").inputs[0].node).op->name, "input");
}

TEST(StackSources, KeepsAllOfWhatIsCarriedForAThirdOfItOnAGpu) {
  for (const bool is_gpu : {false, true}) {
    Graph g;
    const Value h0 = g.input("h0", f32, {2, 6}), w = g.input("w", f32, {6, 9});
    const StepResult r = scan({h0}, {g.input("xs", f32, {5, 2, 6})}, [&](const Values& state, const Values& x) {
      const Value p = matmul(state[0] + x[0], w);
      return step({slice(p, 1, 3, 9)}, {slice(p, 1, 0, 3)});
    });
    g.fetch("ys", r.outputs[0]), g.fetch("last", r.carries[0]);
    const auto feeds = random_feeds(g, 3);
    const auto before = evaluate_graph(g, feeds);
    PassNotes notes(std::make_shared<const Target>(is_gpu ? named_target("h200") : Target()));
    stack_sources(g, notes);
    verify(g, "stack_sources");
    EXPECT_EQ(evaluate_graph(g, feeds), before);
    const ScanView view(only(g, "scan"));
    EXPECT_EQ(body_fetch(view.body, 0).op->name, "matmul") << "the carry";
    EXPECT_EQ(body_fetch(view.body, 1).op->name, is_gpu ? "matmul" : "slice") << "what is stacked";
  }
}

TEST(StackSources, ConcatenatesSequencesAndCarriesAfterTheLoop) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2, 3}), xs = g.input("xs", f32, {5, 2, 4});
  const StepResult r = scan({h0}, {xs}, [&](const Values& state, const Values& x) {
    return step({tanh(state[0]) + sum(x[0])}, {concat(std::array{x[0], state[0]}, 1)});
  });
  g.fetch("ys", r.outputs[0]);
  run_and_compare(g, {stack_sources});
  EXPECT_EQ(count_here(g, "concat"), 1);
  EXPECT_EQ(count_here(ScanView(only(g, "scan")).body, "concat"), 0);
}

TEST(StackSources, AValueIsStackedOnceInTheConcatenationOfIt) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2, 3}), w = g.input("w", f32, {6, 3});
  const StepResult r = scan({h0}, {g.input("xs", f32, {5, 2, 3})}, [&](const Values& state, const Values& x) {
    const Value h = tanh(state[0]), concatenated = concat(std::array{sin(x[0]), h}, 1);
    return step({matmul(concatenated, w)}, {reshape(h, Shape{1, 2, 3}), concatenated, h});
  });
  for (std::size_t i = 0; i < 3; ++i) g.fetch(std::to_string(i), r.outputs[i]);
  run_and_compare(g, {stack_sources});
  EXPECT_EQ(ScanView(only(g, "scan")).outputs, 1);
}

TEST(StackSources, GradientsStayTheSame) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2, 3}), w = g.input("w", f32, {7, 12}), xs = g.input("xs", f32, {4, 2, 4});
  const StepResult r = scan({h0}, {xs}, [&](const Values& state, const Values& x) {
    const Value p = matmul(concat(std::array{x[0], state[0]}, 1), w);
    const Value h = tanh(slice(p, 1, 0, 3)) * sigmoid(slice(p, 1, 3, 6));
    return step({h}, {h});
  });
  const Value loss = sum(r.outputs[0] * r.outputs[0]);
  const Values made = gradients(std::array{loss}, std::array{h0, w, xs});
  for (std::size_t i = 0; i < made.size(); ++i) g.fetch(std::to_string(i), made[i]);
  run_and_compare(g, {split_products, sum_gradients, sum_over_time, sink_products, stack_sources, drop_unused});
}

}  // namespace
}  // namespace paoding
