// SPDX-License-Identifier: Apache-2.0
// Layouts: between convolutions nothing is converted, and images with their channels last are read back in the right
// order.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// Two blocks of convolution, bias, ReLU and pool, a dense layer, and the gradients of all weights.
void build_net(Graph& g, DType dtype, std::int64_t image_channels) {
  const Value x = g.input("x", dtype, {3, image_channels, 9, 10});
  const Value w1 = g.input("w1", dtype, {18, image_channels, 3, 3}), b1 = g.input("b1", dtype, {18});
  const Value w2 = g.input("w2", dtype, {7, 18, 3, 3}), b2 = g.input("b2", dtype, {7});
  const Value w3 = g.input("w3", dtype, {7 * 2 * 2, 5});
  const Conv2dOptions same{.padding = {1, 1, 1, 1}, .activation = Activation::relu};
  const Value h1 = max_pool2d(conv2d(x, w1, b1, same));
  const Value h2 = avg_pool2d(conv2d(h1 * h1, w2, b2, same));
  const Value y = matmul(reshape(h2, Shape{3, 7 * 2 * 2}), w3);
  g.fetch("h1", h1);
  g.fetch("y", y);
  const Values grads = gradients(sum(y * g.input("seed", dtype, y.shape())), {x, w1, b1, w2, b2, w3});
  const char* names[] = {"dx", "dw1", "db1", "dw2", "db2", "dw3"};
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch(names[i], grads[i]);
}

Tensors run_net(DType dtype, const std::vector<std::string>& disabled, Feeds* expected) {
  Graph g;
  build_net(g, dtype, 3);
  const Feeds feeds = make_feeds(g, 11);
  *expected = evaluate_graph(g, feeds);
  CompileOptions options;
  options.disabled_passes = disabled;
  Program program(g, options);
  return program.run(to_tensors(g, feeds));
}

TEST(Layouts, ChangeNoValue) {
  for (const DType dtype : {f32, f64}) {
    for (const std::vector<std::string>& disabled :
         {std::vector<std::string>{}, {"choose_layouts"}, {"fuse_convolutions"}, {"fuse_groups"}, pass_names()}) {
      Feeds expected;
      const Tensors got = run_net(dtype, disabled, &expected);
      for (const auto& [name, values] : expected) {
        expect_close(name, got.at(name).to_doubles(), values, 3000 * epsilon(dtype));
      }
    }
  }
}

TEST(Layouts, AreKeptBetweenConvolutions) {
  Graph g;
  build_net(g, f32, 1);
  run_passes(g, {});
  const Plan plan = make_plan(g, {});
  for (const Step& step : plan.steps) {
    for (const Operand& operand : step.operands) {
      const Layout& layout = operand.layout;
      const bool is_image = layout.type.shape.rank() == 4 && layout.type.shape[0] == 3 && step.label.op != "copy_fetch";
      if (is_image && step.kind == Step::Kind::kernel) {
        EXPECT_TRUE(is_channels_last(layout)) << to_string(plan);
      }
    }
  }
  // The images that dense layers and callers see are copied, and the gradient that comes from the dense layer.
  std::vector<std::string> copies;
  for (const std::string& note : plan.notes) {
    if (note.find("copies") != std::string::npos) copies.push_back(note);
  }
  EXPECT_LE(copies.size(), 3u) << to_string(plan);
}

TEST(Layouts, OfAnImageThatIsOnlyFetchedAreDense) {
  Graph g;
  g.fetch("y", conv2d(g.input("x", f32, {2, 3, 8, 8}), g.input("w", f32, {4, 3, 3, 3})));
  run_passes(g, {});
  const Plan plan = make_plan(g, {});
  EXPECT_TRUE(plan.steps.back().operands.back().layout.is_dense()) << to_string(plan);
  EXPECT_NE(plan.steps.back().label.op, "copy_fetch");
}

TEST(Layouts, ConvertAnImageOnceForAllThatReadIt) {
  Graph g;
  const Value x = g.input("x", f32, {2, 3, 8, 8}), w = g.input("w", f32, {4, 3, 3, 3});
  const Value y = conv2d(x, w);
  g.fetch("dw", gradients(sum(y * y), {w})[0]);
  run_passes(g, {});
  int conversions = 0;
  for (const std::string& note : make_plan(g, {}).notes)
    conversions += note.starts_with("channels_last: copies") ? 1 : 0;
  EXPECT_EQ(conversions, 1);
}

TEST(Layouts, HoldInsideAScanToo) {
  Graph g;
  const Value x = g.input("x", f32, {4, 2, 3, 6, 6}), w = g.input("w", f32, {3, 3, 3, 3}),
              h0 = g.input("h0", f32, {2, 3, 6, 6});
  const StepResult made = scan({h0}, {x}, [&](const Values& carry, const Values& element) {
    const Value h = conv2d(carry[0] + element[0], w, {.padding = {1, 1, 1, 1}, .activation = Activation::relu});
    return step({max_pool2d(h, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1, 1, 1}}) * 0.2}, {h});
  });
  g.fetch("y", made.outputs[0]);
  g.fetch("dw", gradients(sum(made.outputs[0] * made.outputs[0]), {w})[0]);
  const Feeds feeds = make_feeds(g, 5);
  const Feeds expected = evaluate_graph(g, feeds);
  Program program(g);
  const Tensors got = program.run(to_tensors(g, feeds));
  for (const auto& [name, values] : expected) expect_close(name, got.at(name).to_doubles(), values, 1e-4);
}

// Weights' gradients: x and d lie by rows, and are summed over them.
Plan weight_gradient_plan(std::int64_t rows, bool allow_tf32, const char* chip) {
  Graph g;
  const Value x = g.input("x", f32, {rows, 512}), d = g.input("d", f32, {rows, 2048});
  g.fetch("dw", matmul(x, d, true));
  const auto target = std::make_shared<const Target>(named_target(chip));
  PassOptions passes;
  passes.target = target;
  run_passes(g, passes);
  return make_plan(g, {.target = target, .allow_tf32 = allow_tf32});
}

TEST(Layouts, OfTheSmallerFactorAreTransposedForTf32WhereThatSavesMoreThanItTakes) {
  const Plan plan = weight_gradient_plan(6400, true, "h200");
  ASSERT_EQ(plan.steps.size(), 2u) << to_string(plan);
  EXPECT_EQ(plan.steps[0].label.op, "copy_transposed");
  const Layout& transposed = plan.steps[1].operands[0].layout;
  EXPECT_EQ(transposed.type.shape, (Shape{6400, 512}));
  EXPECT_EQ(transposed.strides[0], 1);
  EXPECT_EQ(transposed.strides[1], 6400);
  EXPECT_EQ(weight_gradient_plan(640, true, "h200").steps.size(), 1u) << "too little is saved";
  EXPECT_EQ(weight_gradient_plan(6400, false, "h200").steps.size(), 1u) << "not rounded";
  EXPECT_EQ(weight_gradient_plan(6400, true, "a100").steps.size(), 1u) << "its tensor cores take either";
}

}  // namespace
}  // namespace paoding::testing_program
