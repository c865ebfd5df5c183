// SPDX-License-Identifier: Apache-2.0
// Ops from outside the tree: registered by a user's own source file, they get shape checks, promotion, fusion,
// gradients, graph text and reports like any other.
#include <gtest/gtest.h>

#include <cmath>

#include "paoding/paoding.h"

namespace paoding {
namespace {

// A formula with a gradient that is derived from it, and one composed of it.
void register_my_ops() {
  static const bool once = [] {
    register_op({.name = "my_swish",
                 .summary = "a * sigmoid(scale * a)",
                 .kind = OpKind::formula,
                 .inputs = {"a", "scale"},
                 .formula = formula([](Scalar a, Scalar scale) { return a * sigmoid(scale * a); }),
                 .cases = {{.shapes = {{4, 3}, {}}}}});
    register_op({.name = "my_gated_sum",
                 .summary = "sum over the last axis of my_swish(a, 2) * b",
                 .kind = OpKind::composed,
                 .inputs = {"a", "b"},
                 .compose =
                     [](std::span<const Value> in, const Attrs&) {
                       const Value gated = call("my_swish", {in[0], full(in[0].graph(), {}, 2, in[0].dtype())}) * in[1];
                       return Values{sum(gated, std::array<std::int64_t, 1>{-1})};
                     },
                 .cases = {{.shapes = {{4, 3}, {3}}}}});
    return true;
  }();
  (void)once;
}

double swish(double a, double scale) { return a / (1 + std::exp(-scale * a)); }

TEST(CustomOp, IsComputedFusedAndDifferentiatedLikeOneOfTheTree) {
  register_my_ops();
  Graph g;
  const Value a = g.input("a", f64, {2, 3}), b = g.input("b", f64, {3});
  const Value y = call("my_gated_sum", {a, b});
  const Value da = gradients(std::array{sum(y)}, std::array{a})[0];
  g.fetch("y", y);
  g.fetch("da", da);
  Program program(g);
  const std::vector<double> as{-1.5, -0.2, 0, 0.3, 1, 2.5}, bs{0.5, -1, 2};
  const auto got = program.run({{"a", Tensor::from(f64, {2, 3}, as)}, {"b", Tensor::from(f64, {3}, bs)}});
  for (std::size_t row = 0; row < 2; ++row) {
    double expected = 0;
    for (std::size_t k = 0; k < 3; ++k) expected += swish(as[row * 3 + k], 2) * bs[k];
    EXPECT_NEAR(got.at("y").to_doubles()[row], expected, 1e-14);
  }
  for (std::size_t i = 0; i < 6; ++i) {
    const double h = 1e-6;
    const double slope = (swish(as[i] + h, 2) - swish(as[i] - h, 2)) / (2 * h) * bs[i % 3];
    EXPECT_NEAR(got.at("da").to_doubles()[i], slope, 1e-8);
  }
  EXPECT_LE(program.report().launches, 2);
  EXPECT_NE(program.plan_text().find("my_gated_sum"), std::string::npos);
}

TEST(CustomOp, StandsInGraphTextAndInTheTable) {
  register_my_ops();
  const auto graph = parse_graph("paoding graph 1\nx = input f32[4]\ny = my_swish(x, x)\nfetch y\n");
  EXPECT_EQ(to_text(*parse_graph(to_text(*graph))), to_text(*graph));
  EXPECT_NE(find_op("my_swish"), nullptr);
}

TEST(CustomOp, IsRefusedUnderATakenNameOrWithoutItsFormula) {
  EXPECT_THROW(register_op({.name = "add",
                            .summary = "another",
                            .kind = OpKind::formula,
                            .inputs = {"a"},
                            .formula = formula([](Scalar a) { return a; })}),
               Error);
  EXPECT_THROW(register_op({.name = "my_empty", .summary = "nothing", .kind = OpKind::formula, .inputs = {"a"}}),
               Error);
}

}  // namespace
}  // namespace paoding
