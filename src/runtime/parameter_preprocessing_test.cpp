// SPDX-License-Identifier: Apache-2.0
// Values that follow from parameters alone are made once, and again when a parameter was written, by whomever.
#include "runtime/parameter_preprocessing.h"

#include <gtest/gtest.h>

#include "paoding/ops.h"
#include "paoding/program.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kRows = 3, kColumns = 48;

// y = x (w w^T), whose second product is the parameter's own.
void build(Graph& g, std::int64_t rows = kRows) {
  const Value x = g.input("x", f32, {rows, kColumns}), w = g.parameter("w", f32, {kColumns, kColumns});
  g.fetch("y", matmul(x, matmul(w, transpose(w, std::array<std::int64_t, 2>{1, 0})) * 0.5));
}

Tensor filled(const Shape& shape, double number) {
  return Tensor::from(f32, shape, std::vector<double>(static_cast<std::size_t>(shape.elements()), number));
}
// The result where all elements of x and of w are equal.
double expected(double x, double w) { return x * kColumns * w * w * kColumns * 0.5; }

CompileOptions here(std::vector<std::string> disabled = {}) {
  CompileOptions options;
  options.device = Device::best();
  options.disabled_passes = std::move(disabled);
  return options;
}

double run(Program& program, double x, std::int64_t rows = kRows) {
  const Tensors made = program.run({{"x", filled({rows, kColumns}, x)}});
  const std::vector<double> values = made.at("y").to_doubles();
  for (const double value : values) EXPECT_EQ(value, values[0]);
  return values[0];
}

TEST(PreprocessedParameters, AreMadeAgainWhenAParameterIsSet) {
  Graph g;
  build(g);
  Parameters parameters(g, Device::best());
  Program program(g, here(), &parameters), in_every_run(g, here({"preprocess_parameters"}), &parameters);
  EXPECT_LT(program.report().launches, in_every_run.report().launches);
  for (const double w : {1.0, 3.0, -2.0}) {
    parameters.set("w", filled({kColumns, kColumns}, w));
    EXPECT_EQ(run(program, 1), expected(1, w));
    EXPECT_EQ(run(program, 2), expected(2, w));
    EXPECT_EQ(run(in_every_run, 2), expected(2, w));
  }
}

TEST(PreprocessedParameters, AreMadeAgainAfterARunThatWritesAParameter) {
  Graph g, writing;
  build(g);
  const Value w = writing.parameter("w", f32, {kColumns, kColumns});
  writing.assign(w, w + 1.0);
  Parameters parameters(g, Device::best());
  Program program(g, here(), &parameters), writer(writing, here(), &parameters);
  EXPECT_EQ(run(program, 1), 0);
  for (double w_now = 1; w_now < 4; ++w_now) {
    writer.run();
    EXPECT_EQ(run(program, 1), expected(1, w_now));
  }
  writer.run(), writer.run();
  EXPECT_EQ(run(program, 1), expected(1, 5));
}

TEST(PreprocessedParameters, AreSharedByProgramsOfOneStore) {
  Graph g, larger;
  build(g), build(larger, 7);
  Parameters parameters(g, Device::best());
  parameters.set("w", filled({kColumns, kColumns}, 2));
  Program program(g, here(), &parameters);
  Program bound = program.bind(larger);
  EXPECT_EQ(run(bound, 1, 7), expected(1, 2));
  EXPECT_EQ(run(program, 1), expected(1, 2));
  parameters.set("w", filled({kColumns, kColumns}, 1));
  EXPECT_EQ(run(program, 1), expected(1, 1));
  EXPECT_EQ(run(bound, 1, 7), expected(1, 1));
}

TEST(PreprocessedParameters, FollowShadowsInMixedPrecision) {
  Graph g;
  build(g);
  CompileOptions options = here();
  options.precision = bf16;
  Parameters parameters(g, Device::best());
  Program program(g, options, &parameters);
  for (const double w : {1.0, 0.5}) {
    parameters.set("w", filled({kColumns, kColumns}, w));
    EXPECT_EQ(run(program, 1), expected(1, w));
  }
}

// A graph that is fed nothing would have nothing left; a graph that writes parameters makes all values in every run; a
// value much larger than its operands is made where it is read.
TEST(PreprocessedParameters, AreNotTakenOutWhereThatDoesNotPay) {
  const auto names = [](const std::function<void(Graph&)>& make) {
    Graph g;
    make(g);
    const KernelSetting kernels{.target = std::make_shared<const Target>(named_target("avx512"))};
    return take_preprocessing(&g, kernels).names.size();
  };
  const Shape square{kColumns, kColumns};
  EXPECT_EQ(names([&](Graph& g) { build(g); }), 1U);
  EXPECT_EQ(names([&](Graph& g) { g.fetch("y", exp(g.parameter("w", f32, square))); }), 0U);
  EXPECT_EQ(names([&](Graph& g) {
              build(g);
              g.assign(g.find("w"), g.find("w") * 2.0);
            }),
            0U);
  EXPECT_EQ(names([&](Graph& g) {
              const Value w = g.parameter("w", f32, {kColumns});
              const Value outer = exp(expand(w, Shape{1000, kColumns}));
              g.fetch("y", outer + g.input("x", f32, {1000, kColumns}));
            }),
            0U);
  EXPECT_EQ(names([&](Graph& g) {  // views alone cost nothing
              g.fetch("y", matmul(g.input("x", f32, square),
                                  transpose(g.parameter("w", f32, square), std::array<std::int64_t, 2>{1, 0})));
            }),
            0U);
}

}  // namespace
}  // namespace paoding::testing_program
