// SPDX-License-Identifier: Apache-2.0
// Convolutions of one tap as products of a library, on the pretended GPU: against sums in f64, in f32 and both types of
// 16 bits, with a bias, with an image that is added, and without; and convolutions that are no such products go
// elsewhere.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/compile.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

Ints size_of(const Shape& shape) { return {shape[2], shape[3]}; }

// All of them between additions, so that images lie as the kernels want them; the last is of 16 bits only.
void build(Graph& g, const Shape& image, const Shape& weights, DType dtype) {
  const Value x = g.input("x", dtype, image), w = g.input("w", dtype, weights), b = g.input("b", dtype, {weights[0]});
  const Value twice = x + x, y = conv2d(twice, w), dy = g.input("dy", dtype, y.shape()), more = dy + dy;
  const Value of_input = call("conv2d_grad_input", {more, w}, {{"size", size_of(image)}});
  const Value of_weight = call("conv2d_grad_weight", {twice, more}, {{"kernel", size_of(weights)}});
  g.fetch("y", y + y), g.fetch("dx", of_input + of_input), g.fetch("dw", of_weight);
  const Value biased = conv2d(twice, g.input("v", dtype, weights), b);
  const Value positive = conv2d(twice, g.input("u", dtype, weights), b, {.activation = Activation::relu});
  g.fetch("biased", biased + biased), g.fetch("positive", positive + positive);
  // The end of a residual block, with negative values and without.
  const Value summed = conv2d(twice, g.input("t", dtype, weights), b) + more;
  const Value block = relu(conv2d(twice, g.input("s", dtype, weights), b) + more);
  g.fetch("summed", summed + summed), g.fetch("block", block + block);
  if (size_bytes(dtype) > 2) return;
  g.fetch("wide dw", call("conv2d_grad_weight_wide", {twice, more}, {{"kernel", size_of(weights)}}));
}

int products(const Graph& g) {
  const Plan plan = compile_plan(g, {}, std::make_shared<const Target>(named_target("h200"))).plan;
  return static_cast<int>(std::ranges::count_if(
      plan.steps, [](const Step& step) { return step.kind == Step::Kind::kernel && step.kernel->name == "cublaslt"; }));
}

// Whole numbers so small that every sum of their products is a 16-bit value.
Feeds small_numbers(const Graph& g) {
  Feeds feeds = make_feeds(g, 5);
  for (auto& [name, numbers] : feeds) {
    for (double& number : numbers) number = std::clamp(std::round(number), -1.0, 1.0);
  }
  return feeds;
}

TEST(ConvProductOnAGpu, GivesWhatSumsInF64Do) {
  for (const DType dtype : {bf16, f16, f32}) {
    for (const auto& [image, outputs] : {std::pair{Shape{2, 16, 24, 22}, 24}, {Shape{1, 40, 1, 1100}, 8}}) {
      SCOPED_TRACE(fmt::format("{} {} to {}", to_string(dtype), to_string(image), outputs));
      Graph g, wide;
      const Shape weights{outputs, image[1], 1, 1};
      build(g, image, weights, dtype), build(wide, image, weights, f64);
      EXPECT_EQ(products(g), dtype == f32 ? 7 : 8);
      const Feeds feeds = small_numbers(g);
      const Tensors got = Program(g, on_gpu()).run(to_tensors(g, feeds));
      for (const auto& [name, expected] : Program(wide).run(to_tensors(wide, feeds))) {
        EXPECT_EQ(got.at(name).to_doubles(), expected.to_doubles()) << name;
      }
      if (dtype == f32) continue;
      EXPECT_EQ(got.at("wide dw").to_doubles(), got.at("dw").to_doubles());
    }
  }
}

TEST(ConvProductOnAGpu, IsNotChosenForWhatIsNoProductOrTooSmall) {
  const auto products_of = [](const Shape& image, const Shape& weights, DType dtype = bf16) {
    Graph g;
    build(g, image, weights, dtype);
    return products(g);
  };
  EXPECT_EQ(products_of({2, 16, 22, 22}, {24, 16, 1, 1}), 0) << "968 pixels";
  EXPECT_EQ(products_of({2, 12, 24, 22}, {24, 12, 1, 1}), 0) << "pixels of 24 bytes";
  EXPECT_EQ(products_of({2, 16, 24, 22}, {24, 16, 1, 3}), 0) << "three taps";
  EXPECT_EQ(products_of({1, 960, 7, 8}, {160, 960, 1, 1}, f32), 0) << "56 pixels";
  EXPECT_EQ(products_of({1, 960, 8, 8}, {160, 960, 1, 1}, f32), 7);
}

}  // namespace
}  // namespace paoding::testing_program
