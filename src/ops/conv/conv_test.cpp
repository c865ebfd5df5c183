// SPDX-License-Identifier: Apache-2.0
// Convolutions and pools beyond the sweep's cases: larger extents against float64, gradients of gradients, one axis,
// NaN, and the same bits on every run.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

void expect_right(Graph& g, double tolerance, unsigned seed = 3) {
  const Feeds feeds = make_feeds(g, seed);
  const Feeds expected = evaluate_graph(g, feeds);
  Program program(g);
  const Tensors got = program.run(to_tensors(g, feeds));
  for (const auto& [name, values] : expected) expect_close(name, got.at(name).to_doubles(), values, tolerance);
  expect_same_bits(got, program.run(to_tensors(g, feeds)));
}

// Extents that fill vectors and leave rests, for every kind of convolution at once.
TEST(Convolution, OfManyExtentsIsRight) {
  struct Case {
    Shape x, w;
    Conv2dOptions options;
  };
  const Case cases[] = {{{3, 16, 13, 11}, {33, 16, 3, 3}, {.padding = {1, 1, 1, 1}}},
                        {{2, 32, 9, 9}, {32, 32, 5, 5}, {.stride = {2, 2}, .padding = {2, 2, 2, 2}}},
                        {{2, 17, 10, 12}, {19, 17, 3, 3}, {.dilation = {2, 3}}},
                        {{2, 32, 8, 8}, {32, 1, 3, 3}, {.padding = {1, 1, 1, 1}, .groups = 32}},
                        {{2, 32, 8, 8}, {64, 16, 3, 3}, {.padding = {0, 1, 1, 0}, .groups = 2}},
                        {{2, 64, 7, 7}, {48, 64, 1, 1}, {.stride = {2, 1}}},
                        {{1, 1, 32, 32}, {8, 1, 7, 7}, {.stride = {4, 4}, .padding = {3, 3, 3, 3}}}};
  for (const DType dtype : {f32, bf16, f16}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(to_string(c.x) + " with " + to_string(c.w) + " in " + std::string(to_string(dtype)));
      Graph g;
      const Value x = g.input("x", dtype, c.x), w = g.input("w", dtype, c.w), b = g.input("b", dtype, {c.w[0]});
      const Value y = conv2d(x, w, b, c.options);
      g.fetch("y", y);
      const Value seed = g.input("seed", dtype, y.shape());
      const Values grads = gradients(std::array{y}, std::array{x, w, b}, std::array{seed});
      for (std::size_t i = 0; i < 3; ++i) g.fetch("d" + std::to_string(i), grads[i]);
      expect_right(g, dtype == f32 ? 1e-5 : 3 * epsilon(dtype));
    }
  }
}

TEST(Convolution, HasGradientsOfItsGradients) {
  Graph g;
  const Value x = g.input("x", f64, {2, 2, 5, 4}), w = g.input("w", f64, {3, 2, 3, 2}), b = g.input("b", f64, {3});
  const Value y =
      max_pool2d(conv2d(x, w, b, {.stride = {1, 2}, .padding = {1, 0, 1, 1}, .activation = Activation::tanh}),
                 {.kernel = {2, 2}, .stride = {1, 1}});
  const Value loss = sum(y * y * g.input("seed", f64, y.shape()));
  const Values first = gradients(loss, {x, w});
  const Value penalty = sum(first[0] * first[0]) + sum(first[1] * first[1]);
  const Values second = gradients(penalty, {x, w, b});
  g.fetch("penalty", penalty);
  const char* names[] = {"x", "w", "b"};
  for (std::size_t i = 0; i < 3; ++i) g.fetch(names[i], second[i]);
  const Feeds feeds = make_feeds(g, 9);
  Program program(g);
  const Tensors got = program.run(to_tensors(g, feeds));
  const double step = 1e-5;
  for (const char* name : names) {
    const Dense gradient = got.at(name).to_doubles();
    for (std::size_t i = 0; i < gradient.size(); i += 3) {
      Feeds up = feeds, down = feeds;
      up[name][i] += step;
      down[name][i] -= step;
      const double expected =
          (evaluate_graph(g, up).at("penalty")[0] - evaluate_graph(g, down).at("penalty")[0]) / (2 * step);
      EXPECT_NEAR(gradient[i], expected, 1e-6 * (1 + largest(gradient))) << name << " " << i;
    }
  }
}

TEST(Convolution, OverOneAxisIsThatOfImagesOfHeightOne) {
  Graph g;
  const Value x = g.input("x", f32, {2, 4, 11}), w = g.input("w", f32, {6, 2, 3}), b = g.input("b", f32, {6});
  const Value y = conv1d(x, w, b, {.stride = 2, .padding = {1, 2}, .dilation = 2, .groups = 2});
  EXPECT_EQ(y.shape(), (Shape{2, 6, 5}));
  g.fetch("y", y);
  g.fetch("dw", gradients(sum(y * y), {w})[0]);
  expect_right(g, 1e-5);
  EXPECT_THROW(conv1d(x, g.input("w2", f32, {6, 2, 3, 1})), Error);
}

TEST(Convolution, RunsInALoopWithWeightsOfItsOwnPerStep) {
  Graph g;
  const Value x = g.input("x", f32, {3, 2, 4, 5, 5}), w = g.input("w", f32, {3, 4, 4, 3, 3});
  const StepResult made = scan(
      {}, {x, w}, [&](const Values&, const Values& element) { return step({}, {conv2d(element[0], element[1])}); });
  g.fetch("y", made.outputs[0]);
  expect_right(g, 1e-5);
}

TEST(MaxPool, KeepsNan) {
  Graph g;
  const auto [y, index] = max_pool2d_with_index(g.input("x", f32, {1, 16, 2, 4}));
  g.fetch("y", y);
  g.fetch("index", index);
  Feeds feeds = make_feeds(g, 1);
  feeds["x"][1] = NAN;  // channel 0, window 0, second element
  const Feeds expected = evaluate_graph(g, feeds);
  Program program(g);
  const Tensors got = program.run(to_tensors(g, feeds));
  EXPECT_TRUE(std::isnan(got.at("y").to_doubles()[0]));
  EXPECT_EQ(got.at("index").to_doubles(), expected.at("index"));
}

TEST(MaxPool, GivesTheGradientToTheFirstOfEqualElements) {
  Graph g;
  const Value x = g.input("x", f32, {1, 16, 4, 4});
  const Value y = max_pool2d(x, {.kernel = {2, 2}, .stride = {1, 1}});
  g.fetch("dx", gradients(sum(y), {x})[0]);
  Program program(g);
  const Dense dx = program.run({{"x", Tensor::from(f32, x.shape(), Dense(256, 1.0))}}).at("dx").to_doubles();
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(dx[i], i % 4 < 3 && i / 4 < 3 ? 1 : 0) << i;
}

TEST(AvgPool, OfTheWholeImageIsItsMean) {
  Graph g;
  const Value x = g.input("x", f32, {3, 20, 5, 7});
  const Value a = global_avg_pool(x), b = avg_pool2d(x, {.kernel = {5, 7}});
  g.fetch("difference", a - reshape(b, a.shape()));
  const Feeds feeds = make_feeds(g, 2);
  Program program(g);
  EXPECT_LT(largest(program.run(to_tensors(g, feeds)).at("difference").to_doubles()), 1e-6);
}

}  // namespace
}  // namespace paoding::testing_program
