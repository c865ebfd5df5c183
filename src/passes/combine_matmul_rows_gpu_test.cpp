// SPDX-License-Identifier: Apache-2.0
// Launches of a recurrent training step that has the weights' gradients of each layer as one product.
#include <gtest/gtest.h>

#include "tests/gpu/emulated_program.h"
#include "tests/gpu/enqueued_runs.h"

namespace paoding::testing_program {
namespace {

struct Size {
  std::int64_t steps, rows, hidden;
  DType dtype;
  bool has_both = false;
};

// Two LSTM layers over time with all of their gradients.
void build_training(Graph& g, const Size& s) {
  const Value xs = g.input("xs", s.dtype, {s.steps, s.rows, s.hidden});
  std::vector<RecurrentParameters> parameters;
  Values wanted = {xs};
  const int directions = s.has_both ? 2 : 1;
  for (int pass = 0; pass < 2 * directions; ++pass) {
    const auto weight = [&](const char* name, const Shape& shape) {
      return wanted.emplace_back(g.input(name + std::to_string(pass), s.dtype, shape));
    };
    const std::int64_t features = pass < directions ? s.hidden : directions * s.hidden;
    const Value w = weight("w", {features, 4 * s.hidden}), u = weight("u", {s.hidden, 4 * s.hidden});
    parameters.push_back({w, u, weight("b", {4 * s.hidden})});
  }
  RecurrentOptions options;
  options.bidirectional = s.has_both;
  const Values outputs = {lstm(xs, parameters, options).outputs};
  const Values seeds = {g.input("dys", s.dtype, outputs[0].shape())};
  const Values grads = gradients(outputs, wanted, seeds);
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("d" + std::to_string(i), grads[i]);
}

Plan training_plan(std::int64_t steps, std::int64_t rows, std::int64_t hidden, DType dtype) {
  Graph g;
  build_training(g, {steps, rows, hidden, dtype});
  CompileOptions options;
  options.allow_tf32 = true;
  return compile_plan(g, options, std::make_shared<const Target>(named_target("h200"))).plan;
}

std::string launches_of(const Plan& plan) {
  std::string launches;
  for (const Step& step : plan.steps) {
    const std::string& label = step.label.op;
    const std::string op =
        step.kind == Step::Kind::kernel ? step.call.op->name : label.substr(label.find_last_of('/') + 1);
    launches += (launches.empty() ? "" : " ") + op;
    if (op == "matmul") launches += to_string(step.call.outputs[0].type.shape);
  }
  return launches;
}

TEST(CombineMatmulRows, OfALayerIn16BitsCopiesItsInputWhereThatPays) {
  for (const DType dtype : {bf16, f16}) {
    EXPECT_EQ(launches_of(training_plan(100, 64, 256, dtype)),
              "matmul[6400, 1024] lstm_recurrence matmul[6400, 1024] lstm_recurrence "
              "lstm_recurrence_grad matmul[6400, 256] concat matmul[2, 256, 1024] "
              "lstm_recurrence_grad matmul[6400, 256] matmul[2, 256, 1024]");
    EXPECT_EQ(launches_of(training_plan(50, 128, 512, dtype)),
              "matmul[6400, 2048] lstm_recurrence matmul[6400, 2048] lstm_recurrence "
              "lstm_recurrence_grad matmul[6400, 512] matmul[2, 512, 2048] "
              "lstm_recurrence_grad matmul[512, 2048] matmul[6400, 512] matmul[512, 2048]");
  }
}

TEST(CombineMatmulRows, OfTwoLayersInTf32TurnsFourFactorsForTwoProducts) {
  EXPECT_EQ(launches_of(training_plan(50, 128, 512, f32)),
            "matmul[6400, 2048] lstm_recurrence matmul[6400, 2048] lstm_recurrence "
            "lstm_recurrence_grad matmul[6400, 512] concat concat matmul[1024, 2048] "
            "lstm_recurrence_grad matmul[6400, 512] concat concat matmul[1024, 2048]");
}

TEST(CombineMatmulRows, LeavesAFactorAsAnotherProductReadsItAndHasOthersWrittenTransposed) {
  Graph g;
  const Value x = tanh(g.input("x", f32, {6400, 512})), h = tanh(g.input("h", f32, {6400, 512}));
  const Value d = g.input("d", f32, {6400, 2048});
  g.fetch("y", matmul(x, g.input("w", f32, {512, 2048})));
  g.fetch("dw", matmul(x, d, true)), g.fetch("du", matmul(h, d, true));
  CompileOptions options;
  options.allow_tf32 = true;
  const Plan plan = compile_plan(g, options, std::make_shared<const Target>(named_target("h200"))).plan;
  ASSERT_EQ(plan.steps.size(), 5U) << to_string(plan);
  for (const Step& step : plan.steps) {
    if (step.kind != Step::Kind::kernel) continue;
    const bool is_combined = step.call.outputs[0].type.shape[0] == 1024;
    EXPECT_TRUE(step.operands[0].layout.is_dense()) << "of the product of both as of the forward one";
    EXPECT_EQ(step.operands[0].layout.type.shape, is_combined ? (Shape{1024, 6400}) : (Shape{6400, 512}));
  }
}

TEST(CombineMatmulRows, IsRightOnAGpu) {
  PD_SKIP_WITHOUT_A_GPU();
  for (const Size& s : {Size{6, 8, 128, bf16}, {6, 8, 128, f16}, {5, 16, 64, bf16, true}, {100, 32, 256, f32}}) {
    Graph g;
    build_training(g, s);
    Feeds feeds = make_feeds(g, 5);
    for (auto& [name, values] : feeds) {
      for (double& value : values) value *= name == "xs" || name == "dys" ? 0.5 : 0.05;
    }
    const Tensors tensors = to_tensors(g, feeds);
    CompileOptions options = on_gpu();
    options.allow_tf32 = true;
    Program program(g, options);
    const Tensors got = program.run(tensors), want = Program(g).run(tensors);
    for (const auto& [name, tensor] : want) {
      expect_close(name, got.at(name).to_doubles(), tensor.to_doubles(), s.dtype == f32 ? 5e-3 : 3e-2);
    }
    for (int i = 0; i < 3; ++i) expect_same_bits(got, program.run(tensors));
  }
}

}  // namespace
}  // namespace paoding::testing_program
