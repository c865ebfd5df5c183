// SPDX-License-Identifier: Apache-2.0
// How mixed_precision changes products, loops and parameters; that nothing else changes; random graphs.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"
#include "paoding/program.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"
#include "tests/support/random_graph.h"

namespace paoding {
namespace {

void in_bf16(Graph& graph, PassNotes&) {
  PassNotes notes(std::make_shared<const Target>(), bf16);
  mixed_precision(graph, notes);
}
void in_f16(Graph& graph, PassNotes&) {
  PassNotes notes(std::make_shared<const Target>(), f16);
  mixed_precision(graph, notes);
}

DType dtype_of(const Graph& graph, const char* op) { return only(graph, op).types[0].dtype; }
DType input_of(const Graph& graph, const char* op, std::size_t i = 0) {
  return graph.type(only(graph, op).inputs.at(i)).dtype;
}

TEST(MixedPrecision, ProductsReadSixteenBitsAndReductionsAreF32) {
  Graph g;
  const Value x = g.input("x", f32, {4, 6}), w = g.input("w", f32, {6, 5}), u = g.input("u", f32, {5, 3});
  const Value h = tanh(matmul(x, w));
  g.fetch("y", sum(matmul(h, u)));
  run_and_compare(g, {in_bf16});
  for (NodeId id = 0; id < g.size(); ++id) {
    if (g.node(id).op->name == "matmul") {
      EXPECT_EQ(g.node(id).types[0].dtype, bf16);
    }
  }
  EXPECT_EQ(dtype_of(g, "tanh"), bf16);
  EXPECT_EQ(dtype_of(g, "sum"), f32);
  EXPECT_EQ(input_of(g, "sum"), f32);
}

TEST(MixedPrecision, WhatIsFetchedKeepsItsTypeAndComesFromSumsAsTheyAre) {
  Graph g;
  g.fetch("y", matmul(g.input("x", f32, {4, 6}), g.input("w", f32, {6, 5})) + 1.0);
  run_and_compare(g, {in_f16});
  EXPECT_EQ(dtype_of(g, "matmul_wide"), f32);
  EXPECT_EQ(input_of(g, "matmul_wide"), f16);
}

TEST(MixedPrecision, LeavesOtherDtypesAndGraphsWithoutProductsAlone) {
  Graph g;
  g.fetch("a", matmul(g.input("x", f64, {4, 6}), g.input("w", f64, {6, 5})));
  g.fetch("b", matmul(g.input("h", bf16, {4, 6}), g.input("u", bf16, {6, 5})));
  g.fetch("c", tanh(g.input("z", f32, {7})));
  const std::string before = to_text(g);
  run_and_compare(g, {in_bf16});
  EXPECT_EQ(to_text(g), before);
}

// An LSTM: h is read by products alone, c is a sum over the steps.
TEST(MixedPrecision, WhatALoopAddsUpIsF32AndWhatProductsReadIsNot) {
  Graph g;
  const Value xs = g.input("xs", f32, {5, 2, 4}), w = g.input("w", f32, {4, 16}), u = g.input("u", f32, {4, 16});
  const Value h0 = g.input("h0", f32, {2, 4}), c0 = g.input("c0", f32, {2, 4}), b = g.input("b", f32, {16});
  const StepResult loop = scan({h0, c0}, {xs}, [&](const Values& carry, const Values& x) {
    const auto [h, c] = lstm_cell(x[0], carry[0], carry[1], w, u, b);
    return step({h, c}, {h});
  });
  g.fetch("ys", loop.outputs[0]);
  g.fetch("c", loop.carries[1]);
  run_and_compare(g, {hoist_products, in_bf16});
  const Node& scan = only(g, "scan");
  ASSERT_EQ(scan.attrs.get_int("carries"), 2);
  EXPECT_EQ(g.type(scan.inputs[0]).dtype, bf16) << "h";
  EXPECT_EQ(g.type(scan.inputs[1]).dtype, f32) << "c";
  EXPECT_EQ(only(*scan.bodies[0], "matmul").types[0].dtype, bf16);
}

TEST(MixedPrecision, WhatIsCarriedIsThereInBothWhereBothAreRead) {
  Graph g;
  const Value w = g.input("w", f32, {4, 4}), h0 = g.input("h0", f32, {2, 4});
  const StepResult loop = scan({h0}, {g.input("xs", f32, {5, 2, 4})}, [&](const Values& carry, const Values& x) {
    const Value h = carry[0] * 0.5 + tanh(matmul(carry[0], w) + x[0]);
    return step({h}, {});
  });
  g.fetch("h", loop.carries[0]);
  run_and_compare(g, {in_bf16});
  const Node& scan = only(g, "scan");
  ASSERT_EQ(scan.attrs.get_int("carries"), 2);
  EXPECT_EQ(g.type(scan.inputs[0]).dtype, f32);
  EXPECT_EQ(g.type(scan.inputs[1]).dtype, bf16);
}

TEST(MixedPrecision, GradientsOfParametersAreF32) {
  Graph g;
  const Value w = g.input("w", f32, {6, 5}), u = g.input("u", f32, {5, 3}), x = g.input("x", f32, {4, 6});
  const Value loss = sum(square(matmul(tanh(matmul(x, w)), u)));
  const Values made = gradients(std::array{loss}, std::array{w, u});
  g.fetch("dw", made[0]);
  g.fetch("du", made[1]);
  run_and_compare(g, {in_bf16});
  EXPECT_EQ(count_here(g, "matmul_wide"), 2);
  EXPECT_EQ(count_here(g, "matmul"), 3);
}

TEST(MixedPrecision, GradientsOfTheWeightsOfConvolutionsAreF32) {
  for (void (*narrow)(Graph&, PassNotes&) : {in_bf16, in_f16}) {
    Graph g;
    const Value x = g.input("x", f32, {2, 3, 6, 6}), w = g.input("w", f32, {4, 3, 3, 3});
    const Value u = g.input("u", f32, {2, 4, 3, 3});
    const Value loss = sum(square(conv2d(tanh(conv2d(x, w)), u)));
    const Values made = gradients(std::array{loss}, std::array{w, u});
    g.fetch("dw", made[0]);
    g.fetch("du", made[1]);
    run_and_compare(g, {narrow});
    EXPECT_EQ(count_here(g, "conv2d_grad_weight_wide"), 2);
    EXPECT_EQ(count_here(g, "conv2d_grad_weight"), 0);
  }
}

// ---- shadows ----

struct Trained {
  Graph g;
  Value loss;
  explicit Trained(bool trains = true) {
    const Value x = g.input("x", f32, {4, 6});
    loss = sum(square(matmul(x, g.parameter("w", f32, {6, 5})) + g.parameter("b", f32, {5})));
    if (trains) minimize(loss, Sgd{.learning_rate = 0.01});
    g.fetch("loss", loss);
  }
};

TEST(MixedPrecision, WhoUpdatesAParameterUpdatesItsShadow) {
  Trained model;
  PassNotes notes(std::make_shared<const Target>(), bf16);
  mixed_precision(model.g, notes);
  std::vector<std::string> assigned;
  for (NodeId id : model.g.assigns()) assigned.push_back(model.g.node(model.g.node(id).inputs[0].node).name.str());
  EXPECT_EQ(assigned, (std::vector<std::string>{"optimizer/step", "b", "w", "shadow/bf16/w"}));
  EXPECT_EQ(only(model.g, "matmul").inputs[1], model.g.find("shadow/bf16/w").ref());
}

CompileOptions in(DType precision) {
  CompileOptions options;
  options.precision = precision;
  return options;
}

// 1 + 2^-10 is 1 in bf16 and itself in f32.
TEST(MixedPrecision, AShadowIsMadeAnewWhenSomethingElseWritesTheParameter) {
  const Trained model, evaluated(false);
  Parameters parameters(model.g, Device::cpu());
  const Tensor x = Tensor::from(f32, {4, 6}, std::vector<double>(24, 1));
  const auto set = [&](double value) {
    parameters.set("w", Tensor::from(f32, {6, 5}, std::vector<double>(30, value)));
  };
  const auto loss_of = [&](Program& program) { return program.run({{"x", x}}).at("loss").to_doubles()[0]; };
  Program rounded(evaluated.g, in(bf16), &parameters), exact(model.g, in(f32), &parameters);
  set(1);
  EXPECT_EQ(loss_of(rounded), 720);
  set(2);
  EXPECT_EQ(loss_of(rounded), 2880);
  const double before = loss_of(exact);  // and an update in f32
  EXPECT_EQ(before, 2880);
  const double now = loss_of(rounded);
  EXPECT_LT(now, before);
  EXPECT_NEAR(now, loss_of(exact), 0.02 * now);
  EXPECT_EQ(parameters.names(), (std::vector<std::string>{"b", "w", "optimizer/step"}));
}

TEST(MixedPrecision, TrainingGoesOnFromTheValueInF32) {
  for (const DType precision : {bf16, f16}) {
    const Trained model;
    Parameters in_f32(model.g, Device::cpu()), mixed(model.g, Device::cpu());
    Program exact(model.g, in(f32), &in_f32), program(model.g, in(precision), &mixed);
    std::vector<double> values(24);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
    const Tensor start = Tensor::from(f32, {6, 5}, std::vector<double>(30, 0.7));
    in_f32.set("w", start);
    mixed.set("w", start);
    double first = 0;
    for (int run = 0; run < 20; ++run) {
      const Tensor x = Tensor::from(f32, {4, 6}, values);
      const double wanted = exact.run({{"x", x}}).at("loss").to_doubles()[0];
      const double got = program.run({{"x", x}}).at("loss").to_doubles()[0];
      if (run == 0) first = wanted;
      EXPECT_NEAR(got, wanted, 0.03 * first) << "run " << run << " in " << to_string(precision);
    }
  }
}

TEST(MixedPrecision, RefusesOtherDtypes) {
  const Trained model(false);
  const Parameters parameters(model.g, Device::cpu());
  try {
    Program(model.g, in(f64), &parameters);
    FAIL() << "f64 is no precision of products";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    EXPECT_NE(std::string(error.what()).find("precision is f64; it must be f32, bf16 or f16"), std::string::npos);
  }
}

// In float64, where nothing is rounded, the rewritten graph has the same values as before.
TEST(MixedPrecision, RandomGraphsMeanWhatTheyDid) {
  int products = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    Graph g;
    testing_program::RandomGraph(g, seed, nullptr, f32);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + to_text(g));
    PassNotes notes;
    expand_composed_ops(g, notes);
    run_and_compare(g, {seed % 2 == 0 ? in_bf16 : in_f16});
    products += count_here(g, "matmul") + count_here(g, "matmul_wide");
  }
  EXPECT_GT(products, 100);
}

}  // namespace
}  // namespace paoding
