// SPDX-License-Identifier: Apache-2.0
// Recurrent layers whose CTAs keep the weights: emulated under several schedules, and on a GPU, against float64; which
// layers are claimed, and what the text of each kind compiles to.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu/nvrtc.h"
#include "tests/emulated_program.h"
#include "tests/enqueued_runs.h"
#include "tests/reference_evaluator.h"

namespace paoding::testing_program {
namespace {

struct LayerCase {
  DType dtype;
  bool is_tf32;
  std::int64_t steps, batch, hidden;
  bool has_lengths = false, is_reverse = false, is_training = true;

  std::string text() const {
    return fmt::format("{}{} T {} B {} H {}{}{}{}", to_string(dtype), is_tf32 ? " as TF32" : "", steps, batch, hidden,
                       has_lengths ? ", lengths" : "", is_reverse ? ", reverse" : "", is_training ? "" : ", forward");
  }
};

// Its weights are of a size that keeps the gates where they work.
// Without the gradient for the weights, a library's product over all steps, it is all kernels of our own.
std::unique_ptr<Graph> graph_of(const LayerCase& c, bool has_weight_gradient = false) {
  auto graph = std::make_unique<Graph>();
  const DType cell = c.dtype == f64 ? f64 : f32;
  const Value xw = graph->input("xw", c.dtype, {c.steps, c.batch, 4 * c.hidden});
  const Value u = graph->input("u", c.dtype, {c.hidden, 4 * c.hidden});
  const Value scaled = u * (1 / std::sqrt(static_cast<double>(c.hidden)));
  const Value h0 = graph->input("h0", c.dtype, {c.batch, c.hidden}), c0 = graph->input("c0", cell, {c.batch, c.hidden});
  const Value lengths = c.has_lengths ? graph->input("lengths", i32, {c.batch}) : Value();
  const LstmRecurrence made = lstm_recurrence(xw, scaled, h0, c0, lengths, c.is_reverse);
  graph->fetch("states", made.states), graph->fetch("last_h", made.last_h), graph->fetch("last_c", made.last_c);
  if (!c.is_training) return graph;
  const Values results = {made.states, made.last_c}, wanted = {xw, h0, c0, scaled};
  const Values seeds = {graph->input("dstates", c.dtype, {c.steps + 1, c.batch, c.hidden}),
                        graph->input("dlast_c", cell, {c.batch, c.hidden})};
  const Values grads = gradients(results, wanted, seeds);
  const char* names[] = {"dxw", "dh0", "dc0", "du"};
  for (std::size_t i = 0; i < (has_weight_gradient ? 4 : 3); ++i) graph->fetch(names[i], grads[i]);
  return graph;
}

// Of the size of what is compared: sums over a step's rounded products, carried on.
double tolerance_of(const LayerCase& c) {
  if (c.dtype == bf16) return 3e-2;
  return c.dtype == f16 || c.is_tf32 ? 4e-3 : 2e-6;
}

void expect_near(const LayerCase& c, const Tensors& got, const Feeds& feeds) {
  for (const auto& [name, want] : evaluate_graph(*graph_of(c, got.contains("du")), feeds)) {
    const std::vector<double> values = got.at(name).to_doubles();
    double error = 0, size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      error += (values[i] - want[i]) * (values[i] - want[i]);
      size += want[i] * want[i];
    }
    EXPECT_LE(std::sqrt(error), tolerance_of(c) * std::sqrt(size) + 1e-12) << c.text() << ": " << name;
  }
}

Feeds feeds_of(const LayerCase& c) {
  const auto graph = graph_of(c);
  Feeds feeds = make_feeds(*graph, 5);
  if (c.has_lengths) {
    auto& lengths = feeds.at("lengths");
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      lengths[i] = i == 0 ? 0 : static_cast<double>(1 + (i * 7) % static_cast<std::size_t>(c.steps));
    }
  }
  // As the device rounds them.
  for (const auto& [name, tensor] : to_tensors(*graph, feeds)) feeds.at(name) = tensor.to_doubles();
  return feeds;
}

// One CTA and teams of several, weights in registers and in shared memory, odd extents, more rows than a tile has.
const std::vector<LayerCase>& small_cases() {
  static const std::vector<LayerCase> cases = {
      {f32, true, 4, 6, 40, true, true},
      {bf16, false, 4, 3, 37, true},
      {f16, false, 2, 40, 24},
      {f32, false, 3, 2, 45, true, false, false},
      {f16, false, 1, 1, 1},
      {f32, true, 3, 2, 130, true, true},
      {bf16, false, 2, 20, 100},
  };
  return cases;
}

TEST(Recurrence, IsRightInTheEmulationUnderEverySchedule) {
  std::vector<std::unique_ptr<EmulatedProgram>> programs;
  std::vector<const gpu::TextLaunch*> kernels;
  for (const LayerCase& c : small_cases()) {
    programs.push_back(std::make_unique<EmulatedProgram>(plan_for_gpu(*graph_of(c), {}, "h200", c.is_tf32)));
    for (const gpu::TextLaunch* kernel : programs.back()->kernels()) kernels.push_back(kernel);
  }
  const gpu::EmulatedKernels compiled(kernels);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const LayerCase& c = small_cases()[i];
    ASSERT_EQ(programs[i]->library_op(), "") << c.text();
    const Feeds feeds = feeds_of(c);
    const Tensors tensors = to_tensors(*graph_of(c), feeds);
    const Tensors first = programs[i]->run(compiled, tensors, 1);
    expect_near(c, first, feeds);
    expect_same_bits(first, programs[i]->run(compiled, tensors, 2));
  }
}

std::string claimant_of(const LayerCase& c, const char* op, const char* target = "h200") {
  const Plan plan = plan_for_gpu(*graph_of(c), {}, target, c.is_tf32);
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::kernel && step.call.op->name == op) return step.kernel->name;
  }
  return "";
}

TEST(Recurrence, IsClaimedWhereItsWeightsFitAChipWithClusters) {
  const LayerCase in_bf16{bf16, false, 64, 1, 512}, exact{f32, false, 64, 1, 256}, in_tf32{f32, true, 64, 32, 512};
  EXPECT_EQ(claimant_of(in_bf16, "lstm_recurrence"), "team");
  EXPECT_EQ(claimant_of(in_bf16, "lstm_recurrence_grad"), "team");
  EXPECT_EQ(claimant_of(in_tf32, "lstm_recurrence_grad"), "team");
  EXPECT_EQ(claimant_of(exact, "lstm_recurrence"), "team");
  EXPECT_EQ(claimant_of(exact, "lstm_recurrence_grad"), "") << "no products that do not round";
  EXPECT_EQ(claimant_of(in_bf16, "lstm_recurrence", "a100"), "") << "no clusters";
  EXPECT_EQ(claimant_of({f64, false, 64, 1, 64}, "lstm_recurrence"), "");
  EXPECT_EQ(claimant_of({bf16, false, 64, 1, 4096}, "lstm_recurrence"), "") << "larger than a cluster";
}

TEST(Recurrence, CompilesForHopper) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << gpu::nvrtc_problem();
  for (const LayerCase& c : {LayerCase{bf16, false, 8, 128, 512, true}, LayerCase{f32, true, 8, 1, 100},
                             LayerCase{f32, false, 8, 1, 512, false, false, false}}) {
    const Plan plan = plan_for_gpu(*graph_of(c), {}, "h200", c.is_tf32);
    for (const Step& step : plan.steps) {
      if (step.text == nullptr || step.kind != Step::Kind::kernel) continue;
      for (const gpu::TextLaunch& launch : step.text->launches) {
        EXPECT_FALSE(gpu::compile(launch.source, "recurrence.cu", "sm_90a").empty()) << c.text();
      }
    }
  }
}

TEST(Recurrence, IsRightOnAGpu) {
  PD_SKIP_WITHOUT_A_GPU();
  std::vector<LayerCase> cases = small_cases();
  cases.insert(cases.end(), {{bf16, false, 3, 2, 512},
                             {f32, false, 3, 1, 300, false, true, false},
                             {f16, false, 3, 20, 200, true, true},
                             {bf16, false, 3, 128, 512},
                             {f32, true, 4, 33, 512, true},
                             {f16, false, 4, 16, 768},
                             {bf16, false, 5, 70, 333, true, true},
                             {f32, false, 8, 1, 512, false, false, false},
                             {bf16, false, 300, 5, 128, true},
                             {f32, true, 20, 8, 256, true, true}});
  for (const LayerCase& c : cases) {
    CompileOptions options = on_gpu();
    options.allow_tf32 = c.is_tf32;
    const auto graph = graph_of(c, true);
    Program program(*graph, options);
    const Feeds feeds = feeds_of(c);
    const Tensors tensors = to_tensors(*graph, feeds);
    const Tensors first = program.run(tensors);
    expect_near(c, first, feeds);
    for (int i = 0; i < 3; ++i) expect_same_bits(first, program.run(tensors));
  }
}

}  // namespace
}  // namespace paoding::testing_program
