// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

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

// ---- sums of elementwise products ----

struct Contraction {
  const char* name;
  Shape a, b;
  Ints axes;
  Shape product;
};

class MergeProductsContracts : public testing::TestWithParam<Contraction> {};

TEST_P(MergeProductsContracts, ValuesThatRepeatEachOthersAxes) {
  for (const bool keepdims : {false, true}) {
    for (const bool is_swapped : {false, true}) {
      Graph g;
      const Contraction& p = GetParam();
      const Value a = g.input("a", f32, p.a), b = g.input("b", f32, p.b);
      g.fetch("y", sum(is_swapped ? b * a : a * b, p.axes, keepdims));
      run_and_compare(g, {merge_products});
      EXPECT_EQ(count_here(g, "sum") + count_here(g, "mul"), 0);
      EXPECT_EQ(only(g, "matmul").types[0].shape, p.product);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MergeProductsContracts,
    testing::Values(Contraction{"OverTime", {5, 4, 2, 1}, {5, 1, 2, 6}, {0}, {2, 4, 6}},
                    Contraction{"WithoutABatch", {5, 4, 1}, {5, 1, 6}, {0}, {4, 6}},
                    Contraction{"OverTheInnermostAxis", {4, 1, 5}, {1, 6, 5}, {2}, {4, 6}},
                    Contraction{"OverTwoAxes", {3, 4, 5, 1}, {3, 1, 5, 6}, {0, 2}, {4, 6}},
                    Contraction{"OfSeveralRowsAndBatches", {5, 2, 4, 3, 1, 3}, {5, 1, 1, 3, 7, 3}, {0}, {9, 8, 7}},
                    Contraction{"OfLowerRank", {5, 4, 2, 1}, {2, 6}, {2}, {20, 6}},
                    Contraction{"OfNothing", {0, 4, 2, 1}, {0, 1, 2, 6}, {0}, {2, 4, 6}},
                    Contraction{"WithAxesOfExtentOne", {5, 4, 1, 2, 1}, {5, 1, 1, 2, 6}, {0, 2}, {2, 4, 6}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(MergeProducts, SeesThroughExpandedFactors) {
  Graph g;
  const Value a = g.input("a", f32, {5, 4, 1}), b = g.input("b", f32, {6});
  g.fetch("y", sum(expand(a, {5, 4, 6}) * expand(b, {4, 6}), Ints{0}));
  g.fetch("z", sum(expand(a, {5, 4, 6}) * expand(reshape(b, Ints{1, 6}), {5, 4, 6}), Ints{0}));
  run_and_compare(g, {merge_products});
  EXPECT_EQ(count_here(g, "matmul"), 0) << "b repeats along the summed axis";
}

TEST(MergeProducts, KeepsSumsOfProductsThatAreNoProductOfMatrices) {
  Graph g;
  const Value a = g.input("a", f32, {5, 4, 6}), b = g.input("b", f32, {5, 1, 6}), c = g.input("c", f32, {5, 3, 1}),
              d = g.input("d", f32, {5, 1, 6});
  const Value n = g.input("n", i64, {5, 4, 1}), m = g.input("m", i64, {5, 1, 6});
  g.fetch("vector", sum(a * b, Ints{0}));
  g.fetch("elements", sum(a * a, Ints{0}));
  g.fetch("small", sum(c * d, Ints{0}));
  g.fetch("integers", sum(n * m, Ints{0}));
  const Value read = g.input("e", f32, {5, 4, 1}) * b;
  g.fetch("read", read);
  g.fetch("twice", sum(read, Ints{0}));
  const auto notes = run_and_compare(g, {merge_products});
  EXPECT_EQ(count_here(g, "matmul"), 0);
  ASSERT_FALSE(notes.empty());
  EXPECT_NE(notes.back().find("read elsewhere too"), std::string::npos) << notes.back();
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
