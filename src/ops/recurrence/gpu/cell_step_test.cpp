// SPDX-License-Identifier: Apache-2.0
// One step of a recurrent layer as one launch: emulated under several schedules against float64, and which cells are
// claimed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/gpu/emulated_program.h"
#include "tests/gpu/enqueued_runs.h"
#include "tests/reference/reference_evaluator.h"

namespace paoding::testing_program {
namespace {

struct CellCase {
  const char* op;
  DType dtype;
  std::int64_t rows, features, hidden;
  bool is_relu = false, is_tf32 = false;

  std::string text() const {
    return fmt::format("{} of {} B {} I {} H {}", op, to_string(dtype), rows, features, hidden);
  }
};

// Weights of a size that keeps the gates where they work. `times` is more than 1 where one cell follows the other.
std::unique_ptr<Graph> graph_of(const CellCase& c, int times = 1) {
  auto graph = std::make_unique<Graph>();
  const bool is_lstm = std::string_view(c.op) == "lstm_cell", is_gru = std::string_view(c.op) == "gru_cell";
  const std::int64_t gates = is_lstm ? 4 : is_gru ? 3 : 1, biases = is_gru ? 4 : gates;
  const auto weights = [&](const char* name, std::int64_t rows) {
    return graph->input(name, c.dtype, {rows, gates * c.hidden}) * (1 / std::sqrt(static_cast<double>(rows)));
  };
  const Value x = graph->input("x", c.dtype, {c.rows, c.features}), w = weights("w", c.features);
  const Value u = weights("u", c.hidden), b = graph->input("b", c.dtype, {biases * c.hidden});
  Value h = graph->input("h", c.dtype, {c.rows, c.hidden});
  Value cell = is_lstm ? graph->input("c", c.dtype, {c.rows, c.hidden}) : Value();
  for (int i = 0; i < times; ++i) {
    if (is_lstm)
      std::tie(h, cell) = lstm_cell(x, h, cell, w, u, b);
    else
      h = is_gru ? gru_cell(x, h, w, u, b) : rnn_cell(x, h, w, u, b, c.is_relu);
  }
  graph->fetch("h", h);
  if (is_lstm) graph->fetch("c", cell);
  return graph;
}

double tolerance_of(const CellCase& c) { return c.dtype == bf16 ? 2e-2 : c.dtype == f16 ? 3e-3 : 2e-6; }

Feeds feeds_of(const CellCase& c) {
  const auto graph = graph_of(c);
  Feeds feeds = make_feeds(*graph, 3);
  for (const auto& [name, tensor] : to_tensors(*graph, feeds)) feeds.at(name) = tensor.to_doubles();  // as stored
  return feeds;
}

void expect_near(const CellCase& c, const Tensors& got, const Feeds& feeds, int times) {
  for (const auto& [name, want] : evaluate_graph(*graph_of(c, times), feeds)) {
    const std::vector<double> values = got.at(name).to_doubles();
    ASSERT_EQ(values.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_LE(std::abs(values[i] - want[i]), tolerance_of(c) * std::max(1.0, std::abs(want[i])))
          << c.text() << ": " << name << " at " << i;
    }
  }
}

// Every kind and dtype; rows that several CTAs finish; more depth than a chunk; units that fill no cluster; weights
// whose rows begin anywhere.
const std::vector<CellCase>& cell_cases() {
  static const std::vector<CellCase> all = {
      {"lstm_cell", f32, 1, 40, 64},   {"lstm_cell", bf16, 3, 64, 40}, {"lstm_cell", f16, 8, 530, 24},
      {"lstm_cell", f32, 2, 5, 33},    {"gru_cell", f32, 8, 24, 36},   {"gru_cell", bf16, 7, 1030, 16},
      {"gru_cell", f16, 1, 3, 21},     {"rnn_cell", f32, 5, 40, 70},   {"rnn_cell", f32, 3, 16, 32, true},
      {"rnn_cell", bf16, 1, 520, 104}, {"lstm_cell", f32, 4, 1, 1},
  };
  return all;
}

TEST(CellStep, IsRightInTheEmulationUnderEverySchedule) {
  std::vector<std::unique_ptr<EmulatedProgram>> programs;
  std::vector<const gpu::TextLaunch*> kernels;
  for (const CellCase& c : cell_cases()) {
    programs.push_back(std::make_unique<EmulatedProgram>(plan_for_gpu(*graph_of(c))));
    for (const gpu::TextLaunch* kernel : programs.back()->kernels()) kernels.push_back(kernel);
  }
  const gpu::EmulatedKernels compiled(kernels);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const CellCase& c = cell_cases()[i];
    ASSERT_EQ(programs[i]->library_op(), "") << c.text();
    const Feeds feeds = feeds_of(c);
    const Tensors tensors = to_tensors(*graph_of(c), feeds);
    const std::vector<unsigned> seeds = schedules(3);
    const Tensors first = programs[i]->run(compiled, tensors, seeds[0]);
    expect_near(c, first, feeds, 1);
    for (std::size_t s = 1; s < seeds.size(); ++s) {
      expect_same_bits(first, programs[i]->run(compiled, tensors, seeds[s]));
    }
  }
}

// Three of them, each of which reads the results of the one in front.
TEST(CellStep, IsRightOnAGpu) {
  PD_SKIP_WITHOUT_A_GPU();
  for (const CellCase& c : cell_cases()) {
    SCOPED_TRACE(c.text());
    const Feeds feeds = feeds_of(c);
    Program program(*graph_of(c, 3), on_gpu());
    expect_near(c, program.run(to_tensors(*graph_of(c), feeds)), feeds, 3);
  }
}

std::string claimant_of(const CellCase& c, const char* target = "h200") {
  for (const Step& step : plan_for_gpu(*graph_of(c), {}, target, c.is_tf32).steps) {
    if (step.kind == Step::Kind::kernel && step.call.op->name == c.op) return step.kernel->name;
  }
  return "";
}

TEST(CellStep, RunsFewRowsWhereCtasMaySendEachOtherSums) {
  EXPECT_EQ(claimant_of({"lstm_cell", f32, 8, 40, 64}), "step");
  EXPECT_EQ(claimant_of({"gru_cell", bf16, 1, 40, 64}), "step");
  EXPECT_EQ(claimant_of({"rnn_cell", f16, 1, 40, 64}), "step");
  EXPECT_EQ(claimant_of({"lstm_cell", f32, 9, 40, 64}), "") << "more rows";
  EXPECT_EQ(claimant_of({"lstm_cell", f64, 1, 40, 64}), "") << "f64";
  EXPECT_EQ(claimant_of({"lstm_cell", f32, 1, 40, 64}, "a100"), "") << "a GPU without clusters";
}

// A state that is kept between runs: the cell's is written where it is read; every CTA reads the whole of h.
TEST(CellStep, WritesItsCellStateInPlace) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 16}), w = graph.parameter("w", f32, {16, 64});
  const Value u = graph.parameter("u", f32, {16, 64}), b = graph.parameter("b", f32, {64});
  const Value h = graph.parameter("h", f32, {2, 16}), c = graph.parameter("c", f32, {2, 16});
  const auto [next_h, next_c] = lstm_cell(x, h, c, w, u, b);
  graph.assign(h, next_h), graph.assign(c, next_c);
  graph.fetch("y", next_h);
  const Plan plan = plan_for_gpu(graph);
  ASSERT_EQ(plan.steps.size(), 2u);
  const std::vector<Operand>& operands = plan.steps[0].operands;
  EXPECT_EQ(operands.back().slot, operands[2].slot) << "c";
  EXPECT_NE(operands[operands.size() - 2].slot, operands[1].slot) << "h";
}

bool is_whole(const Graph& graph, DType precision = f32) {
  CompileOptions options;
  options.precision = precision;
  const Plan plan = compile_plan(graph, options, std::make_shared<const Target>(named_target("h200"))).plan;
  return std::ranges::any_of(plan.steps, [](const Step& step) { return step.label.op == "lstm_cell"; });
}

// In mixed precision it is the products that are of 16 bits; and the values that a gradient reads are made once.
TEST(CellStep, IsTakenApartForMixedPrecisionAndForItsGradient) {
  const CellCase c{"lstm_cell", f32, 2, 16, 16};
  EXPECT_TRUE(is_whole(*graph_of(c)));
  EXPECT_FALSE(is_whole(*graph_of(c), bf16));
  const auto graph = graph_of(c, 3);
  const Value h = graph->value(graph->fetches()[0].ref), x = graph->value({graph->inputs()[0], 0});
  graph->fetch("dx", gradients(std::array{sum(h * h)}, std::array{x})[0]);
  EXPECT_FALSE(is_whole(*graph));
}

// A loop takes its steps apart: the part that does not depend on the state leaves it.
TEST(CellStep, IsTakenApartInALoop) {
  Graph graph;
  const Value xs = graph.input("xs", f32, {4, 1, 16}), w = graph.parameter("w", f32, {16, 64});
  const Value u = graph.parameter("u", f32, {16, 64}), b = graph.parameter("b", f32, {64});
  const Value zero = graph.input("h", f32, {1, 16});
  const StepResult loop = scan({zero, zero}, {xs}, [&](const Values& carry, const Values& element) {
    const auto [h, c] = lstm_cell(element[0], carry[0], carry[1], w, u, b);
    return step({h, c}, {h});
  });
  graph.fetch("h", loop.outputs[0]);
  const Plan plan = plan_for_gpu(graph);
  EXPECT_TRUE(std::ranges::any_of(plan.steps, [](const Step& step) {
    return step.kind == Step::Kind::kernel && step.call.op->name == "lstm_recurrence";
  }));
}

}  // namespace
}  // namespace paoding::testing_program
