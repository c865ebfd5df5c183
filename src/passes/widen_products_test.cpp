// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "paoding/ops.h"
#include "paoding/program.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

DType widened_dtype_of(const Graph& graph, const char* op) { return only(graph, op).types[0].dtype; }

TEST(WidenProducts, ComputesHalfPrecisionInSinglePrecisionAndGivesItBack) {
  Graph g;
  const Value x = g.input("x", DType::f16, {2, 5}), w = g.input("w", DType::f16, {5, 3});
  g.fetch("y", matmul(x, w));
  PassNotes notes;
  widen_products(g, notes);
  EXPECT_EQ(widened_dtype_of(g, "matmul"), f32);
  EXPECT_EQ(g.type(g.fetches()[0].ref).dtype, DType::f16);
  EXPECT_EQ(count_here(g, "cast"), 3);
  EXPECT_FALSE(notes.list().empty());
}

TEST(WidenProducts, LeavesOtherDtypesAndTheGpuAlone) {
  for (const DType dtype : {f32, DType::bf16}) {
    Graph g;
    g.fetch("y", matmul(g.input("x", dtype, {20, 5}), g.input("w", dtype, {5, 3})));
    PassNotes notes(std::make_shared<const Target>(named_target("avx512")));
    widen_products(g, notes);
    EXPECT_EQ(widened_dtype_of(g, "matmul"), dtype);
  }
  Graph g;
  g.fetch("y", matmul(g.input("x", DType::f16, {2, 5}), g.input("w", DType::f16, {5, 3})));
  PassNotes gpu(std::make_shared<const Target>(named_target("h200")));
  widen_products(g, gpu);
  EXPECT_EQ(widened_dtype_of(g, "matmul"), DType::f16);
}

TEST(WidenProducts, WidensBf16WithoutAvx512UnlessRowsAreFew) {
  for (const char* name : {"avx2", "neon"}) {
    for (const std::int64_t rows : {4, 20}) {
      Graph g;
      const Value x = g.input("x", bf16, {rows, 5}), w = g.input("w", bf16, {5, 3});
      g.fetch("y", matmul(x, w));
      g.fetch("z", call("matmul_wide", {x, w}));
      PassNotes notes(std::make_shared<const Target>(named_target(name)));
      widen_products(g, notes);
      EXPECT_EQ(g.type(g.fetches()[0].ref).dtype, bf16) << name;
      EXPECT_EQ(g.type(g.fetches()[1].ref).dtype, f32) << name;
      EXPECT_EQ(count_here(g, "matmul_wide"), 0) << name;
      EXPECT_EQ(count_here(g, "cast"), rows == 4 ? 2 : 5) << name;
    }
  }
}

TEST(WidenProducts, WidensConvolutionsAndProductsInLoops) {
  Graph g;
  const Value x = g.input("x", DType::f16, {1, 2, 6, 6}), k = g.input("k", DType::f16, {3, 2, 3, 3});
  g.fetch("image", conv2d(x, k));
  const Value w = g.input("w", DType::f16, {4, 4}), xs = g.input("xs", DType::f16, {5, 2, 4});
  const StepResult loop = scan({g.input("h", DType::f16, {2, 4})}, {xs}, [&](const Values& carries, const Values& in) {
    const Value h = tanh(matmul(carries[0], w) + in[0]);
    return step({h}, {h});
  });
  g.fetch("y", loop.outputs[0]);
  PassNotes notes;
  widen_products(g, notes);
  EXPECT_EQ(widened_dtype_of(g, "conv2d"), f32);
  EXPECT_EQ(widened_dtype_of(*only(g, "scan").bodies[0], "matmul"), f32);
}

TEST(WidenProducts, RoundsOnceAsTheLoopsOverHalfPrecisionDo) {
  std::vector<std::vector<double>> results;
  for (const bool is_widened : {true, false}) {
    Graph g;
    g.fetch("y", matmul(g.input("x", DType::f16, {3, 64}), g.input("w", DType::f16, {64, 40})));
    CompileOptions options;
    if (!is_widened) options.disabled_passes = {"widen_products"};
    Program program(g, options);
    for (const char* name : {"x", "w"}) {
      const Shape shape = name[0] == 'x' ? Shape{3, 64} : Shape{64, 40};
      std::vector<double> values;
      for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(std::sin(double(i * 13 % 97) + name[0]));
      program.set_input(program.input_index(name), Tensor::from(DType::f16, shape, values));
    }
    program.run();
    results.push_back(program.fetch(program.fetch_index("y")).to_doubles());
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_NEAR(results[0][i], results[1][i],
                1e-3 * std::abs(results[1][i]) + 1e-4);  // a sum's order, then one rounding
  }
}

}  // namespace
}  // namespace paoding
