// SPDX-License-Identifier: Apache-2.0
// Products on the CPU: every implementation over extents and strides that fill its blocks and leave rests, against
// float64, and that the fast ones are the ones that run.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu/this_cpu.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

struct ProductCase {
  Shape a, b;
  bool transpose_a = false, transpose_b = false;
};

// "vector", "onednn" ..: the implementations in the plan, without doubles.
std::set<std::string> kernels_of(const Program& program) {
  std::set<std::string> found;
  const std::string text = program.plan_text();
  for (const char* name : {"vector", "onednn", "blocked", "loops"}) {
    if (text.find("(" + std::string(name) + ")") != std::string::npos) found.insert(name);
  }
  return found;
}

void expect_right(const Graph& g, const std::string& kernel, double tolerance) {
  const Feeds feeds = make_feeds(g, 3);
  const Feeds expected = evaluate_graph(g, feeds);
  Program program(g);
  EXPECT_EQ(kernels_of(program), std::set<std::string>{kernel}) << program.plan_text();
  const Tensors got = program.run(to_tensors(g, feeds));
  for (const auto& [name, values] : expected) expect_close(name, got.at(name).to_doubles(), values, tolerance);
  expect_same_bits(got, program.run(to_tensors(g, feeds)));
}

void build(Graph& g, const ProductCase& c, DType dtype) {
  const Value a = g.input("a", dtype, c.a), b = g.input("b", dtype, c.b);
  g.fetch("y", call("matmul", {a, b}, {{"transpose_a", c.transpose_a}, {"transpose_b", c.transpose_b}}));
}

// Around the extents from which on oneDNN's sgemm takes the place of its primitive.
TEST(MatmulOnTheCpu, OfManyRowsIsRightByBothRoutinesOfTheLibrary) {
  const ProductCase cases[] = {{{1537, 130}, {130, 1025}},
                               {{131, 1600}, {131, 1024}, true, false},
                               {{1536, 130}, {1025, 130}, false, true},
                               {{1535, 130}, {130, 1024}},
                               {{2, 1536, 130}, {2, 130, 1024}}};
  for (const ProductCase& c : cases) {
    SCOPED_TRACE(to_string(c.a) + " " + to_string(c.b));
    Graph g;
    build(g, c, f32);
    expect_right(g, "onednn", 1e-5);
  }
}

// Rows and columns that fill no tile or panel, and a depth of several blocks.
TEST(MatmulOnTheCpu, OfColumnsWithRowsIsRightInBlocks) {
  if (this_cpu().isa != VectorIsa::avx512 || this_cpu().threads > 2)
    GTEST_SKIP() << "NOT CHECKED: needs AVX-512 and one or two threads, elsewhere the library does these";
  const ProductCase cases[] = {{{512, 256}, {512, 1024}, true, false},
                               {{520, 259}, {520, 1061}, true, false},
                               {{1300, 530}, {1300, 1090}, true, false}};
  for (const ProductCase& c : cases) {
    SCOPED_TRACE(to_string(c.a) + " " + to_string(c.b));
    Graph g;
    build(g, c, f32);
    expect_right(g, "blocked", 1e-5);
  }
}

TEST(MatmulOnTheCpu, OfFewRowsOrColumnsReadsTheMatrixOnce) {
  const ProductCase cases[] = {{{1, 300}, {300, 515}},
                               {{1, 300}, {515, 300}, false, true},
                               {{4, 37}, {37, 9}},
                               {{3, 37}, {9, 37}, false, true},
                               {{2, 64, 1, 50}, {2, 64, 50, 33}},
                               {{6, 1, 50}, {6, 33, 50}, false, true},
                               {{6, 33, 50}, {6, 50, 1}},
                               {{50, 300}, {300, 2}, false, false},
                               {{50, 300}, {1, 300}, false, true},
                               {{5, 7, 1, 20}, {7, 20, 40}},
                               {{2, 5000}, {5000, 3}}};
  for (const ProductCase& c : cases) {
    SCOPED_TRACE(to_string(c.a) + " " + to_string(c.b));
    Graph g;
    build(g, c, f32);
    // Two columns whose other operand has no contiguous columns are oneDNN's.
    const bool is_vector = c.a[c.a.rank() - 2] <= 4 || c.b.rank() > 2 || c.transpose_b;
    expect_right(g, is_vector ? "vector" : "onednn", 1e-5);
    if (!is_vector) continue;
    Graph half;
    build(half, c, bf16);
    expect_right(half, "vector", 0.004 * std::sqrt(static_cast<double>(c.a[c.a.rank() - 1])));  // is rounded once
  }
}

TEST(MatmulOnTheCpu, InF64IsBlocked) {
  const ProductCase cases[] = {{{1, 1}, {1, 1}},
                               {{7, 13}, {13, 19}},
                               {{100, 300}, {300, 270}},
                               {{300, 100}, {270, 300}, true, true},
                               {{5, 301}, {70, 301}, false, true},
                               {{3, 1, 40, 30}, {2, 30, 50}},
                               {{1, 600}, {600, 1}}};
  for (const ProductCase& c : cases) {
    SCOPED_TRACE(to_string(c.a) + " " + to_string(c.b));
    Graph g;
    build(g, c, f64);
    expect_right(g, "blocked", 1e-13);
  }
}

TEST(MatmulOnTheCpu, TakesAnyStridesByACopyOfItsOwn) {
  Graph g;
  const Value a = g.input("a", f32, {30, 40, 2}), b = g.input("b", f32, {40, 20, 3});
  const std::array<std::int64_t, 3> a0{0, 0, 1}, a1{30, 40, 2}, b0{0, 0, 2}, b1{40, 20, 3};
  const Value strided_a = reshape(slice(a, a0, a1), Shape{30, 40}),
              strided_b = reshape(slice(b, b0, b1), Shape{40, 20});
  g.fetch("y", matmul(strided_a, strided_b));
  g.fetch("z", matmul(strided_b, strided_a, true, true));
  expect_right(g, "onednn", 1e-5);
}

TEST(MatmulOnTheCpu, WritesAResultThatLiesInStrides) {
  Graph g;
  const Value a = g.input("a", f32, {2, 30, 40}), b = g.input("b", f32, {2, 40, 20});
  const Value y = reshape(matmul(a, b), Shape{2, 30, 20, 1});
  g.fetch("y", concat(std::array{y, y * 2.0}, 3));
  const Feeds feeds = make_feeds(g, 3);
  Program program(g);
  const Tensors got = program.run(to_tensors(g, feeds));
  expect_close("y", got.at("y").to_doubles(), evaluate_graph(g, feeds).at("y"), 1e-5);
}

TEST(MatmulOnTheCpu, OfOperandsThatBothRepeatRunsThePrimitivePerTurn) {
  Graph g;
  const Value a = g.input("a", f32, {3, 1, 30, 40}), b = g.input("b", f32, {1, 1, 40, 20});
  g.fetch("y", call("matmul", {expand(a, Shape{3, 4, 30, 40}), expand(b, Shape{3, 4, 40, 20})}));
  expect_right(g, "onednn", 1e-5);
}

TEST(MatmulOnTheCpu, TakesMoreBatchAxesThanAPrimitive) {
  Graph g;
  const Value a = g.input("a", f32, {2, 1, 2, 1, 2, 1, 8, 9}), b = g.input("b", f32, {1, 3, 1, 2, 1, 2, 9, 10});
  g.fetch("y", matmul(a, b));
  expect_right(g, "onednn", 1e-5);
}

// A slice with a step: a row ends after where the next one begins, which oneDNN cannot describe.
TEST(MatmulOnTheCpu, TakesStridesThatInterleave) {
  for (const std::int64_t rows : {2, 9, 60}) {
    for (const std::int64_t columns : {1, 5, 40}) {
      Graph g;
      const Value x = g.input("x", f32, {3, rows, 61}), w = g.input("w", f32, {21, columns});
      const Value picked = slice(x, 2, 0, 61, 3);  // [3, rows, 21], strides (61 rows, 61, 3)
      g.fetch("right", matmul(picked, w));
      g.fetch("left", matmul(slice(picked, 1, 0, 2), slice(picked, 1, rows - 1, rows), false, true));
      g.fetch("first", matmul(reshape(slice(picked, 0, 0, 1), Shape{rows, 21}), w));
      const Feeds feeds = make_feeds(g, 4);
      const Feeds expected = evaluate_graph(g, feeds);
      for (const auto& disabled : {std::vector<std::string>{}, pass_names()}) {
        CompileOptions options;
        options.disabled_passes = disabled;
        const Tensors got = Program(g, options).run(to_tensors(g, feeds));
        for (const auto& [name, values] : expected) expect_close(name, got.at(name).to_doubles(), values, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
