// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

// h' = tanh([pieces] w) with every piece either carried ('h') or an element of a sequence ('x').
void build(Graph& g, std::string_view pieces, bool flattened = false, bool transpose_b = false) {
  const std::int64_t width = 3 * static_cast<std::int64_t>(pieces.size());
  const Shape state = flattened ? Shape{2, 2, 3} : Shape{4, 3};
  const Value h0 = g.input("h0", f32, state), w = g.input("w", f32, transpose_b ? Shape{3, width} : Shape{width, 3}),
              xs = g.input("xs", f32, state.with_inserted(0, 5));
  const StepResult made = scan({h0}, {xs}, [&](const Values& h, const Values& x) {
    Values list;
    for (const char piece : pieces) list.push_back(piece == 'h' ? h[0] : x[0]);
    const Value next = tanh(matmul(concat(list, -1), w, false, transpose_b));
    return step({next}, {next});
  });
  g.fetch("y", made.outputs[0]);
}

TEST(SplitProducts, TakesCarriedPiecesApartFromOthers) {
  for (const bool flattened : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      Graph g;
      build(g, "xh", flattened, transpose_b);
      const auto notes = run_and_compare(g, {split_products});
      const Graph& body = *only(g, "scan").bodies[0];
      EXPECT_EQ(count_here(body, "matmul"), 2);
      EXPECT_EQ(count_here(body, "add"), 1);
      EXPECT_EQ(count_here(body, "concat"), 0);
      EXPECT_EQ(notes.size(), 1u);
    }
  }
}

TEST(SplitProducts, KeepsAdjacentPiecesOfOneKindTogether) {
  Graph g;
  build(g, "xxhhx");
  run_and_compare(g, {split_products});
  const Graph& body = *only(g, "scan").bodies[0];
  EXPECT_EQ(count_here(body, "matmul"), 3);
  EXPECT_EQ(count_here(body, "concat"), 2);
  EXPECT_EQ(count_here(body, "add_n"), 1);
}

TEST(SplitProducts, LeavesPiecesOfOneKindAlone) {
  Graph g;
  build(g, "hh");
  const auto notes = run_and_compare(g, {split_products});
  EXPECT_EQ(count_here(*only(g, "scan").bodies[0], "matmul"), 1);
  EXPECT_TRUE(notes.empty());
}

TEST(SplitProducts, LeavesAConcatenationOfRowsAlone) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2, 3}), w = g.input("w", f32, {3, 3}), xs = g.input("xs", f32, {5, 2, 3});
  const StepResult made = scan({h0}, {xs}, [&](const Values& h, const Values& x) {
    return step({slice(matmul(concat(std::array{x[0], h[0]}, 0), w), 0, 1, 3)}, {h[0]});
  });
  g.fetch("y", made.outputs[0]);
  run_and_compare(g, {split_products});
  EXPECT_EQ(count_here(*only(g, "scan").bodies[0], "matmul"), 1);
}

TEST(SplitProducts, SaysWhyItKeepsATransposedConcatenation) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2, 3}), w = g.input("w", f32, {2, 3}), xs = g.input("xs", f32, {5, 2, 3});
  const StepResult made = scan({h0}, {xs}, [&](const Values& h, const Values& x) {
    const Value both = matmul(concat(std::array{x[0], h[0]}, 1), w, true, false);
    return step({tanh(slice(both, 0, 1, 3))}, {h[0]});
  });
  g.fetch("y", made.outputs[0]);
  const auto notes = run_and_compare(g, {split_products});
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("transposed"), std::string::npos);
}

TEST(SplitProducts, SplitsAProductOfWhatItHasSplit) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2, 3}), w = g.input("w", f32, {6, 3}), xs = g.input("xs", f32, {5, 2, 3});
  const StepResult made = scan({h0}, {xs}, [&](const Values& h, const Values& x) {
    const Value once = matmul(concat(std::array{x[0], h[0]}, 1), w);
    return step({matmul(concat(std::array{x[0], once}, 1), w)}, {once});
  });
  g.fetch("y", made.outputs[0]);
  run_and_compare(g, {split_products});
  EXPECT_EQ(count_here(*only(g, "scan").bodies[0], "matmul"), 4);
}

}  // namespace
}  // namespace paoding
