// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

TEST(MergeProducts, PutsTheSummedBatchIntoTheInnerExtent) {
  for (const bool keepdims : {false, true}) {
    Graph g;
    const Value a = g.input("a", f32, {5, 2, 3}), b = g.input("b", f32, {5, 2, 4});
    g.fetch("dw", sum(matmul(a, b, true, false), Ints{0}, keepdims));
    run_and_compare(g, {merge_products});
    EXPECT_EQ(count_here(g, "sum"), 0);
    EXPECT_EQ(g.type(only(g, "matmul").inputs[0]).shape, Shape({10, 3}));
  }
}

TEST(MergeProducts, TakesSeveralBatchAxes) {
  Graph g;
  const Value a = g.input("a", f32, {5, 2, 2, 3}), b = g.input("b", f32, {5, 2, 2, 4});
  g.fetch("dw", sum(matmul(a, b, true, false), Ints{0, 1}));
  run_and_compare(g, {merge_products});
  EXPECT_EQ(count_here(g, "sum"), 0);
  EXPECT_EQ(g.type(only(g, "matmul").inputs[1]).shape, Shape({20, 4}));
}

TEST(MergeProducts, WorksWithoutElements) {
  Graph g;
  const Value a = g.input("a", f32, {0, 2, 3}), b = g.input("b", f32, {0, 2, 4});
  g.fetch("dw", sum(matmul(a, b, true, false), Ints{0}));
  run_and_compare(g, {merge_products});
  EXPECT_EQ(count_here(g, "sum"), 0);
}

struct Declined {
  const char* name;
  Shape a, b;
  bool transpose_a, transpose_b;
  Ints axes;
  const char* why;
};

class MergeProductsDeclines : public testing::TestWithParam<Declined> {};

TEST_P(MergeProductsDeclines, WithAReason) {
  Graph g;
  const Declined& p = GetParam();
  const Value a = g.input("a", f32, p.a), b = g.input("b", f32, p.b);
  g.fetch("y", sum(matmul(a, b, p.transpose_a, p.transpose_b), p.axes));
  const auto notes = run_and_compare(g, {merge_products});
  EXPECT_EQ(count_here(g, "sum"), 1);
  ASSERT_FALSE(notes.empty());
  EXPECT_NE(notes.back().find(p.why), std::string::npos) << notes.back();
}

INSTANTIATE_TEST_SUITE_P(
    All, MergeProductsDeclines,
    testing::Values(Declined{"PlainOperands", {5, 3, 2}, {5, 2, 4}, false, false, {0}, "not next to the batch axes"},
                    Declined{"SumOverRowsToo", {5, 2, 3}, {5, 2, 4}, true, false, {0, 1}, "exactly the batch axes"},
                    Declined{"SomeBatchAxes", {5, 2, 2, 3}, {5, 2, 2, 4}, true, false, {0}, "exactly the batch axes"},
                    Declined{"AxisAndRows", {5, 2, 2, 3}, {5, 2, 2, 4}, true, false, {0, 2}, "exactly the batch"},
                    Declined{"Broadcasts", {5, 2, 3}, {1, 2, 4}, true, false, {0}, "broadcasts over the batch"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(MergeProducts, KeepsAProductThatIsReadTwice) {
  Graph g;
  const Value a = g.input("a", f32, {5, 2, 3}), b = g.input("b", f32, {5, 2, 4});
  const Value product = matmul(a, b, true, false);
  g.fetch("product", product);
  g.fetch("dw", sum(product, Ints{0}));
  run_and_compare(g, {merge_products});
  EXPECT_EQ(count_here(g, "sum"), 1);
  EXPECT_EQ(count_here(g, "matmul"), 1);
}

TEST(MergeProducts, MakesOneProductOfABatchWithOneMatrix) {
  for (const bool transpose_b : {false, true}) {
    for (const bool single : {false, true}) {
      Graph g;
      const Value a = g.input("a", f32, {5, 2, 3}), w = g.input("w", f32, transpose_b ? Shape{4, 3} : Shape{3, 4});
      const Value batch = single ? reshape(w, w.shape().with_inserted(0, 1)) : expand(w, w.shape().with_inserted(0, 5));
      g.fetch("y", matmul(a, batch, false, transpose_b));
      run_and_compare(g, {merge_products});
      EXPECT_EQ(g.type(only(g, "matmul").inputs[0]).shape, Shape({10, 3}));
      EXPECT_EQ(count_here(g, "expand"), 0);
    }
  }
}

TEST(MergeProducts, KeepsBatchesOfMatricesAndBatchesOfTheSecondOperand) {
  Graph g;
  const Value a = g.input("a", f32, {5, 2, 3}), many = g.input("many", f32, {5, 3, 4}),
              one = g.input("one", f32, {1, 2, 3}), row = g.input("row", f32, {1, 4});
  g.fetch("y", matmul(a, many));
  g.fetch("z", matmul(one, many));
  g.fetch("w", matmul(a, expand(row, {5, 3, 4})));
  run_and_compare(g, {merge_products});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(fetched(g, i).op->name, "matmul");
}

}  // namespace
}  // namespace paoding
