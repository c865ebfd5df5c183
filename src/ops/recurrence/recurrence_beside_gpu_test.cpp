// SPDX-License-Identifier: Apache-2.0
// Recurrent layers whose input is multiplied beside their steps: emulated and on a GPU, against float64; which layers
// have it so, and why others do not.
#include <gtest/gtest.h>

#include <cstdlib>

#include "gpu/nvrtc.h"
#include "tests/emulated_layers.h"
#include "tests/enqueued_runs.h"
#include "tests/recurrence_layer.h"

namespace paoding::testing_program {
namespace {

struct ProductCase {
  LayerCase layer;
  std::int64_t features;
  std::string text() const { return fmt::format("{}, {} features", layer.text(), features); }
};

double tolerance_of(const ProductCase& c) { return tolerance_of(c.layer); }

std::unique_ptr<Graph> graph_of(const ProductCase& c) {
  auto graph = std::make_unique<Graph>();
  const LayerCase& l = c.layer;
  const std::int64_t gates = l.cell == lstm ? 4 : l.cell == gru ? 3 : 1, N = gates * l.hidden;
  const Value x = graph->input("x", l.dtype, {l.steps, l.batch, c.features});
  const Value w = graph->input("w", l.dtype, {c.features, N}), u = graph->input("u", l.dtype, {l.hidden, N});
  const Value small_w = w * (1 / std::sqrt(static_cast<double>(c.features)));
  const Value small_u = u * (1 / std::sqrt(static_cast<double>(l.hidden)));
  const Value product = matmul(reshape(x, Shape{l.steps * l.batch, c.features}), small_w);
  Values inputs = {reshape(product, Shape{l.steps, l.batch, N}), small_u};
  if (l.cell == gru) inputs.push_back(graph->input("bm", l.dtype, {l.hidden}));
  inputs.push_back(graph->input("h0", l.dtype, {l.batch, l.hidden}));
  if (l.cell == lstm) inputs.push_back(graph->input("c0", f32, {l.batch, l.hidden}));
  if (l.has_lengths) inputs.push_back(graph->input("lengths", i32, {l.batch}));
  if (l.has_bias) inputs.push_back(graph->input("bias", l.dtype, {N}));
  const Values made = call(*find_op(l.op()), inputs, {{"reverse", l.is_reverse}, {"bias", l.has_bias}});
  graph->fetch("states", made[0]), graph->fetch("last", made.back());
  if (l.is_training && l.cell != rnn) graph->fetch("saved", made[l.cell == lstm ? 2 : 1]);
  return graph;
}

// What is left of the chip beside a cluster makes most of the product.
Target small_chip(int multiprocessors) {
  Target target = named_target("h200");
  target.sm_count = multiprocessors;
  return target;
}

// Several row tiles and a part of one, columns that fill no tile, K that fills no stage; rows in either order.
const std::vector<ProductCase>& small_cases() {
  static const std::vector<ProductCase> cases = {
      {{bf16, false, 9, 20, 72, false, false, false}, 40},
      {{f16, false, 5, 64, 40, false, true, true}, 136},
      {{bf16, false, 7, 40, 80, true, true, false, lstm, true}, 24},
      {{bf16, false, 6, 48, 88, true, false, true, gru}, 72},
      {{f16, false, 11, 24, 136, false, false, false, rnn, true}, 16},
  };
  return cases;
}

// From the second run of a program on CTAs of the product leave early.
TEST(RecurrenceBeside, IsRightInTheEmulationUnderEverySchedule) {
  std::vector<EmulatedLayer<ProductCase>> all;
  for (const ProductCase& c : small_cases()) {
    auto graph = graph_of(c);
    setenv("PAODING_BESIDE", "always", 1);
    const Plan plan = plan_for_gpu(*graph, small_chip(3), {}, false);
    unsetenv("PAODING_BESIDE");
    EXPECT_TRUE(has_kernel(plan, "the input's product, beside", "")) << c.text();
    const std::array<Feeds, 2> feeds = {feeds_of(c.layer, *graph), feeds_of(c.layer, *graph, 6)};
    all.push_back({c, std::move(graph), std::make_unique<EmulatedProgram>(plan), feeds});
  }
  expect_right_under_schedules(all, 4);
}

TEST(RecurrenceBeside, CompilesForHopper) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << gpu::nvrtc_problem();
  setenv("PAODING_BESIDE", "always", 1);
  for (const ProductCase& c : small_cases()) {
    const Plan plan = plan_for_gpu(*graph_of(c));
    for (const Step& step : plan.steps) {
      if (step.text == nullptr || step.kind != Step::Kind::kernel) continue;
      for (const gpu::TextLaunch& launch : step.text->launches) {
        EXPECT_FALSE(gpu::compile(launch.source, "beside.cu", named_target("h200").arch()).empty()) << c.text();
      }
    }
  }
  unsetenv("PAODING_BESIDE");
}

bool has_product(const ProductCase& c, const Target& target, std::string* notes) {
  CompileOptions options;
  options.allow_tf32 = c.layer.is_tf32;
  const Plan plan = compile_plan(*graph_of(c), options, std::make_shared<const Target>(target)).plan;
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::kernel && step.call.op->name == c.layer.op()) {
      if (notes != nullptr) *notes = step.text->launches[0].why;
      return step.call.attrs.get_bool("product");
    }
  }
  ADD_FAILURE() << "no recurrence: " << c.text();
  return false;
}

TEST(RecurrenceBeside, IsChosenWhereClustersFillTheChipAndTheProductTakesLong) {
  const Target h200 = named_target("h200");
  std::string why;
  EXPECT_TRUE(has_product({{bf16, false, 100, 64, 512, false, false, false}, 512}, h200, &why));
  EXPECT_TRUE(has(why, "1 of each CTA before it")) << why;
  EXPECT_TRUE(has_product({{bf16, false, 100, 64, 512, true, false, false}, 512}, h200, nullptr));
  EXPECT_TRUE(has_product({{f16, false, 1024, 16, 768, false, false, true}, 768}, h200, nullptr));
  // Where what is left over of the chip takes longer than the steps; in f32; of few rows, which leave room for another
  // layer; of few features; without clusters.
  EXPECT_FALSE(has_product({{bf16, false, 50, 128, 512, false, false, true}, 512}, h200, nullptr));
  EXPECT_FALSE(has_product({{f32, true, 100, 64, 512, false, false, false}, 512}, h200, nullptr));
  EXPECT_FALSE(has_product({{bf16, false, 100, 4, 512, false, false, false}, 512}, h200, nullptr));
  EXPECT_FALSE(has_product({{bf16, false, 100, 64, 512, false, false, false}, 8}, h200, nullptr));
  EXPECT_FALSE(has_product({{bf16, false, 100, 64, 512, false, false, false}, 512}, named_target("a100"), nullptr));
}

// Of the size of a chip, in several portions; CTAs of the product leave from the second run on.
TEST(RecurrenceBeside, IsRightOnAGpu) {
  PD_SKIP_WITHOUT_A_GPU();
  std::vector<ProductCase> cases = small_cases();
  cases.insert(cases.end(), {{{bf16, false, 40, 64, 256, false, false, false}, 512},
                             {{f16, false, 24, 128, 256, false, true, true}, 200},
                             {{bf16, false, 60, 64, 256, true, false, false}, 256},
                             {{bf16, false, 30, 48, 256, true, true, true, gru}, 320},
                             {{f16, false, 40, 100, 320, false, false, false, rnn, true}, 264}});
  for (const ProductCase& c : cases) {
    SCOPED_TRACE(c.text());
    setenv("PAODING_BESIDE", "always", 1);
    const auto graph = graph_of(c);
    Program program(*graph, on_gpu());
    unsetenv("PAODING_BESIDE");
    const Feeds feeds = feeds_of(c.layer, *graph);
    const Tensors tensors = to_tensors(*graph, feeds);
    const Tensors first = program.run(tensors);
    expect_near(c, *graph, first, feeds);
    for (int i = 0; i < 20; ++i) expect_same_bits(first, program.run(tensors));
  }
}

}  // namespace
}  // namespace paoding::testing_program
