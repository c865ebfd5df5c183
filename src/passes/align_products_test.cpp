// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "paoding/ops.h"
#include "paoding/program.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

using testing_program::Dense, testing_program::Tensors, testing_program::to_tensors;

std::vector<std::string> align_on_h200(Graph& graph, bool allow_tf32 = false) {
  PassNotes notes(std::make_shared<const Target>(named_target("h200")), f32, allow_tf32);
  align_products(graph, notes);
  verify(graph, "align_products");
  return notes.list();
}

// A product with the gradients of both factors, of rows of `words` words.
void output_layer(Graph& g, DType dtype, std::int64_t rows, std::int64_t words) {
  const Value x = g.input("x", dtype, {rows, 512}), w = g.parameter("w", dtype, {512, words});
  const Value y = matmul(tanh(x), w);
  const Value dy = exp(y);
  g.fetch("sum", sum(dy, std::vector<std::int64_t>{1}));
  g.fetch("dx", tanh(matmul(dy, w, false, true)));
  g.fetch("dw", tanh(matmul(tanh(x), dy, true, false)));
}

TEST(AlignProducts, PadsRowsOf16BitsToEightElementsAndSharesThePads) {
  for (const DType dtype : {bf16, f16}) {
    Graph g;
    output_layer(g, dtype, 6400, 7709);
    align_on_h200(g);
    EXPECT_EQ(count_here(g, "matmul"), 3);
    EXPECT_EQ(count_here(g, "pad"), 2) << "one of the weights, one of the gradient, for both products each";
    EXPECT_EQ(count_here(g, "slice"), 2) << "of the result and of the weights' gradient";
    for (NodeId id = 0; id < g.size(); ++id) {
      if (g.node(id).op->name != "pad") continue;
      EXPECT_EQ(g.node(id).types[0].shape[1], 7712);
    }
  }
}

TEST(AlignProducts, PadsRowsOfTf32ToFourAndLeavesOtherF32) {
  Graph exact;
  output_layer(exact, f32, 6400, 7709);
  EXPECT_TRUE(align_on_h200(exact).empty());
  EXPECT_EQ(count_here(exact, "pad"), 0);
  Graph even;
  output_layer(even, f32, 6400, 7708);
  EXPECT_TRUE(align_on_h200(even, true).empty()) << "such rows are aligned";
  Graph padded;
  output_layer(padded, f32, 6400, 7709);
  EXPECT_EQ(align_on_h200(padded, true).size(), 3U);
  EXPECT_EQ(count_here(padded, "pad"), 2);
}

TEST(AlignProducts, SaysWhyItLeavesSmallProducts) {
  Graph g;
  output_layer(g, bf16, 16, 7709);
  const auto notes = align_on_h200(g);
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_NE(notes[0].find("not aligned"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("copies would take"), std::string::npos) << notes[0];
  EXPECT_EQ(count_here(g, "pad"), 0);
}

TEST(AlignProducts, LeavesTheCpuAlone) {
  Graph g;
  output_layer(g, bf16, 6400, 7709);
  PassNotes notes;
  align_products(g, notes);
  EXPECT_EQ(count_here(g, "pad"), 0);
}

TEST(AlignProducts, ChangesNoValue) {
  // Large enough to pay, so a program computes it, on the CPU, with the graph as it was made and as it is for the H200.
  for (const bool is_a_transposed : {false, true}) {
    for (const bool is_b_transposed : {false, true}) {
      const std::int64_t m = 1021, k = 1203, n = 1303;
      const Shape a_shape = is_a_transposed ? Shape{k, m} : Shape{m, k},
                  b_shape = is_b_transposed ? Shape{n, k} : Shape{k, n};
      const auto build = [&](Graph& g) {
        const Value a = g.input("a", f32, a_shape), b = g.input("b", f32, b_shape);
        g.fetch("y", matmul(tanh(a), exp(b), is_a_transposed, is_b_transposed) * 0.5);
      };
      Graph plain, aligned;
      build(plain), build(aligned);
      align_on_h200(aligned, true);
      EXPECT_EQ(count_here(aligned, "pad"), 2);
      EXPECT_EQ(count_here(aligned, "slice"), 1);
      const auto random = random_feeds(plain, 5);
      const Tensors feeds = to_tensors(plain, random);
      const Dense want = Program(plain).run(feeds).at("y").to_doubles();
      const Dense got = Program(aligned).run(feeds).at("y").to_doubles();
      ASSERT_EQ(got.size(), want.size());
      // Sums of k products of at most e in f32, in another order.
      for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-3) << i;
    }
  }
}

TEST(AlignProducts, PadsMatricesOfABatchAndWideSums) {
  Graph g;
  const Value a = g.input("a", bf16, {64, 1001, 513}), b = g.input("b", bf16, {64, 513, 1001});
  g.fetch("y", sum(call("matmul_wide", {exp(a), exp(b)}), std::vector<std::int64_t>{2}));
  align_on_h200(g);
  EXPECT_EQ(only(g, "matmul_wide").types[0], (Type{f32, {64, 1001, 1008}}));
  EXPECT_EQ(only(g, "slice").types[0], (Type{f32, {64, 1001, 1001}}));
}

}  // namespace
}  // namespace paoding
