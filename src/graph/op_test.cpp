// SPDX-License-Identifier: Apache-2.0
// call() and register_op(): which calls they refuse, and that a refusal leaves no name in the graph.
#include "paoding/op.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

using testing_program::has;
using testing_program::message_of;

TEST(Call, OfAComposedOpThatFailsLeavesNoOrigin) {
  Graph graph;
  const Value x = graph.input("x", f32, {3, 5}), h = graph.input("h", f32, {3, 4});
  const Value w = graph.input("w", f32, {5, 16}), u = graph.input("u", f32, {4, 12}), b = graph.input("b", f32, {16});
  EXPECT_THROW(lstm_cell(x, h, h, w, u, b), Error);
  EXPECT_EQ(graph.node(tanh(x).ref().node).title(), "tanh");
}

TEST(Call, OfAGradientThatFailsLeavesNoOriginAndNoScope) {
  const OpDef& rough = register_op(
      {.name = "test_rough", .summary = "has no gradient", .inputs = {"a"}, .infer = [](const OpCall& call) {
         return std::vector{call.inputs[0]};
       }});
  Graph graph;
  const Value x = graph.input("x", f32, {3});
  Value y;
  {
    const Scope scope(graph, "encoder");
    y = call(rough, std::array{x}).front();
  }
  const Value loss = sum(y);
  const std::string message = message_of([&] { gradients(loss, {x}); });
  EXPECT_TRUE(has(message, "test_rough: has no gradient, but one is needed (in encoder)")) << message;
  const Node& after = graph.node(tanh(x).ref().node);
  EXPECT_EQ(after.title(), "tanh");
  EXPECT_EQ(after.scope.str(), "");
}

TEST(Gradients, HaveTheDtypeOfTheirInputWhateverTheRuleGives) {
  const OpDef& wide = register_op({.name = "test_wide",
                                   .summary = "its gradient is f32",
                                   .inputs = {"a"},
                                   .infer = [](const OpCall& call) { return std::vector{call.inputs[0]}; },
                                   .gradient = [](const GradCall& call) { return Values{cast(call.grads[0], f32)}; }});
  Graph graph;
  const Value x = graph.input("x", bf16, {3});
  const Value loss = sum(call(wide, std::array{x}).front());
  EXPECT_EQ(gradients(loss, {x})[0].type(), (Type{bf16, {3}}));
}

TEST(RegisterOp, RefusesAFormulaWithoutAnInputThatGivesTheDtype) {
  const Formula first = [](std::span<const Scalar> in, const Attrs&) { return in[0]; };
  const auto register_with = [&](std::vector<std::string> inputs, int conditions) {
    return message_of([&] {
      register_op({.name = "test_untyped",
                   .summary = "nothing to take a dtype from",
                   .kind = OpKind::formula,
                   .inputs = inputs,
                   .conditions = conditions,
                   .formula = first});
    });
  };
  EXPECT_TRUE(has(register_with({}, 0), "without an input that gives the result its dtype"));
  EXPECT_TRUE(has(register_with({"condition"}, 1), "without an input that gives the result its dtype"));
}

TEST(Call, RefusesAFormulaThatReturnsNoScalar) {
  const OpDef& nothing = register_op({.name = "test_nothing",
                                      .summary = "forgets its result",
                                      .kind = OpKind::formula,
                                      .inputs = {"a"},
                                      .formula = [](std::span<const Scalar>, const Attrs&) { return Scalar(); }});
  Graph graph;
  const Value x = graph.input("x", f32, {3});
  const std::string message = message_of([&] { call(nothing, std::array{x}); });
  EXPECT_TRUE(has(message, "its formula returned a Scalar that was never given a value")) << message;
}

TEST(Full, RefusesWhatAnIntegerCannotHold) {
  Graph graph;
  EXPECT_TRUE(has(message_of([&] { full(graph, {}, 3e9, i32); }), "full: value = 3000000000, which i32 cannot hold"));
  EXPECT_THROW(full(graph, {}, -2147483649.0, i32), Error);
  EXPECT_THROW(full(graph, {}, 0x1p63, i64), Error);
  EXPECT_THROW(full(graph, {}, 256, u8), Error);
  EXPECT_THROW(full(graph, {}, -1, u8), Error);
  EXPECT_THROW(full(graph, {}, std::nan(""), i32), Error);
  EXPECT_NO_THROW(full(graph, {}, -2147483648.0, i32));
  EXPECT_NO_THROW(full(graph, {}, -0x1p63, i64));
  EXPECT_NO_THROW(full(graph, {}, 255, u8));
  EXPECT_NO_THROW(full(graph, {}, std::nan(""), f32));
}

TEST(Scan, NamesAResultThatHasNoNode) {
  Graph graph;
  const Value xs = graph.input("xs", f32, {2, 3}), h = graph.input("h", f32, {3});
  const std::string message = message_of([&] {
    scan({h}, {xs}, [](const Values&, const Values&) { return StepResult{{Value()}, {}}; });
  });
  EXPECT_TRUE(has(message, "this Value was never given a node")) << message;
}

TEST(ScanGradients, DoNotMindTheNamesOfTheBodysFetches) {
  const auto graph = parse_graph(R"(paoding graph 1
xs = input f32[4,2]
h0 = input f32[2]
h, s = scan(h0, xs) {carries=1, sequences=1, length=4} [
  h = input f32[2]
  x = input f32[2]
  n = mul(h, x)
  fetch saved1 = n
  fetch g0 = x
]
loss = sum(h)
d = gradients(loss) by (xs)
fetch d
)");
  EXPECT_EQ(graph->type(graph->fetches()[0].ref), (Type{f32, {4, 2}}));
}

}  // namespace
}  // namespace paoding
