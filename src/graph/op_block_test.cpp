// SPDX-License-Identifier: Apache-2.0
// Faulty op blocks: an error when they are registered, or when the faulty part is called. Never a crash, and never
// "paoding bug", which is for faults that no user can cause.
#include <gtest/gtest.h>

#include <array>

#include "paoding/autodiff.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/program.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

using testing_program::Dense;
using testing_program::has;
using testing_program::message_of;

std::string unused_name() {
  static int count = 0;
  return "test_block" + std::to_string(count++);
}

std::vector<std::string> names(int count) {
  std::vector<std::string> list;
  for (int i = 0; i < count; ++i) list.push_back("a" + std::to_string(i));
  return list;
}

// A formula op of so many inputs, called with f32[3] for each; then its gradient, and a run.
std::string message_of_formula(int inputs, Formula formula) {
  return message_of([&] {
    const OpDef& op = register_op({.name = unused_name(),
                                   .summary = "wrong",
                                   .kind = OpKind::formula,
                                   .inputs = names(inputs),
                                   .attrs = {{.name = "k", .example = 2.0}},
                                   .formula = std::move(formula)});
    Graph graph;
    Values given;
    for (int i = 0; i < inputs; ++i) given.push_back(graph.input("x" + std::to_string(i), f32, {3}));
    const Value y = call(op, given).front();
    graph.fetch("d", gradients(sum(y), {given[0]})[0]);
    Program program(graph);
  });
}

TEST(OpBlock, OfAFormulaThatTakesMoreOrLessThanTheInputsIsRefused) {
  const auto two = formula([](Scalar a, Scalar b) { return a + b; });
  const auto four = formula([](Scalar a, Scalar b, Scalar c, Scalar d) { return a + b * c - d; });
  EXPECT_TRUE(has(message_of_formula(1, two), "the formula takes 2 values, the op has 1 inputs"));
  EXPECT_TRUE(has(message_of_formula(1, four), "the formula takes 4 values, the op has 1 inputs"));
  EXPECT_TRUE(has(message_of_formula(3, two), "the formula takes 2 values, the op has 3 inputs"));
  EXPECT_TRUE(has(message_of_formula(2, formula([](Scalar a) { return a; })), "takes 1 values, the op has 2 inputs"));
  EXPECT_EQ(message_of_formula(2, two), "no error");
  const Formula reads_on = [](std::span<const Scalar> in, const Attrs&) { return in[0] + in.data()[1]; };
  EXPECT_TRUE(has(message_of_formula(1, reads_on), "a Scalar that was never given a value"));
  EXPECT_EQ(message_of_formula(2, reads_on), "no error");
}

TEST(OpBlock, OfAFormulaThatComputesWithNoScalarIsRefused) {
  const char* never = "a Scalar that was never given a value";
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar a) { return a + Scalar(); })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar a) { return Scalar() * a; })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar) { return exp(Scalar()); })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar) { return Scalar() + 1.0; })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar) { return Scalar() < 2.0; })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar a) { return select(Scalar(), a, a); })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar a) { return select(a < 1.0, a, Scalar()); })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar) { return convert(Scalar(), f64); })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar) { return Scalar().constant(1); })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar) { return Scalar(); })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar a) { return random_bits(Scalar(), a, a); })), never));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar) { return make_constant(nullptr, 1.0, f32); })),
                  "made for no formula"));
}

TEST(OpBlock, OfAFormulaThatComputesWithAnotherFormulasScalarIsRefused) {
  Expr other;
  const Scalar stranger = make_constant(&other, 3.0, f32), beyond(&other, 7);
  EXPECT_TRUE(has(message_of_formula(1, formula([&](Scalar a) { return a * stranger; })), "Scalars of two formulas"));
  EXPECT_TRUE(has(message_of_formula(1, formula([&](Scalar) { return stranger; })), "a Scalar of another formula"));
  EXPECT_TRUE(has(message_of_formula(1, formula([&](Scalar a) { return a + beyond; })), "a Scalar of another one"));
  EXPECT_TRUE(has(message_of_formula(1, formula([](Scalar a) { return Scalar(a.expr(), 99); })),
                  "a Scalar of another formula"));
}

TEST(OpBlock, OfAFormulaThatReadsAnAttributeThatIsNotThereIsRefused) {
  const auto reads = [](const char* name, auto read) {
    return message_of_formula(1, [=](std::span<const Scalar> in, const Attrs& attrs) {
      return in[0] * static_cast<double>((attrs.*read)(name));
    });
  };
  EXPECT_TRUE(has(reads("nope", &Attrs::get_float), "attribute 'nope': there is none of this name"));
  EXPECT_TRUE(has(reads("k", &Attrs::get_int), "attribute 'k': it is of another kind"));
  EXPECT_EQ(reads("k", &Attrs::get_float), "no error");
}

// An op y = 2 a of one or two inputs with this gradient rule.
std::string message_of_gradient(int inputs, std::function<Values(const GradCall&)> gradient) {
  return message_of([&] {
    const OpDef& op =
        register_op({.name = unused_name(),
                     .summary = "its gradient is wrong",
                     .kind = OpKind::composed,
                     .inputs = names(inputs),
                     .gradient = std::move(gradient),
                     .compose = [](std::span<const Value> in, const Attrs&) { return Values{in[0] * 2.0}; }});
    Graph graph;
    Values given;
    for (int i = 0; i < inputs; ++i) given.push_back(graph.input("x" + std::to_string(i), f32, {2, 3}));
    const Scope scope(graph, "part");
    graph.fetch("d", gradients(sum(call(op, given).front()), {given[0]})[0]);
    Program program(graph);
  });
}

TEST(OpBlock, OfAGradientThatGivesTooFewOrTooManyValuesIsRefused) {
  const auto gives = [](int inputs, std::size_t count) {
    return message_of_gradient(inputs, [count](const GradCall& call) { return Values(count, call.grads[0]); });
  };
  EXPECT_TRUE(has(gives(2, 1), "its gradient rule gives 1 values, one is needed for each of 2 inputs")) << gives(2, 1);
  EXPECT_TRUE(has(gives(1, 0), "gives 0 values"));
  EXPECT_TRUE(has(gives(1, 3), "gives 3 values"));
  EXPECT_EQ(gives(2, 2), "no error");
  EXPECT_EQ(message_of_gradient(1, [](const GradCall&) { return Values(1); }), "no error") << "it has none: zeros";
}

TEST(OpBlock, OfAGradientThatReadsMoreThanThereIsIsRefused) {
  const std::string needed = "its gradient rule reads more inputs, outputs or gradients than there are: 1, 1 and 1";
  for (const auto list : {&GradCall::inputs, &GradCall::outputs, &GradCall::grads}) {
    for (const std::size_t i : {1, 2, 5}) {
      const std::string given = message_of_gradient(1, [=](const GradCall& call) { return Values{(call.*list)[i]}; });
      EXPECT_TRUE(has(given, needed)) << given;
      const std::string read =
          message_of_gradient(1, [=](const GradCall& call) { return Values{call.grads[0] * (call.*list)[i]}; });
      EXPECT_TRUE(has(read, "is a Value without a node")) << read;
    }
  }
}

TEST(OpBlock, OfAFormulaMayCallOpsButNotItself) {
  const OpDef& op = register_op({.name = unused_name(),
                                 .summary = "twice, after a look at a graph",
                                 .kind = OpKind::formula,
                                 .inputs = {"a"},
                                 .formula = [](std::span<const Scalar> in, const Attrs&) {
                                   Graph graph;
                                   tanh(graph.input("x", f32, {3}));
                                   return in[0] * 2.0;
                                 }});
  Graph graph;
  graph.fetch("y", call(op, std::array{graph.input("x", f32, {3})}).front());
  EXPECT_EQ(Program(graph).run({{"x", Tensor::from(f32, {3}, Dense{1, 2, 3})}}).at("y").to_doubles(), (Dense{2, 4, 6}));
  const std::string name = unused_name();
  register_op({.name = name,
               .summary = "wrong",
               .kind = OpKind::formula,
               .inputs = {"a"},
               .formula = [name](std::span<const Scalar> in, const Attrs&) {
                 Graph inner;
                 call(name, {inner.input("x", f32, {3})});
                 return in[0];
               }});
  EXPECT_TRUE(has(message_of([&] { call(name, {graph.input("z", f32, {3})}); }), "its formula never ends"));
}

TEST(OpBlock, OfALongFormulaHasAGradient) {
  constexpr int kSteps = 50'000;
  const OpDef& op = register_op({.name = unused_name(),
                                 .summary = "a + kSteps / 2",
                                 .kind = OpKind::formula,
                                 .inputs = {"a"},
                                 .formula = [](std::span<const Scalar> in, const Attrs&) {
                                   Scalar s = in[0];
                                   for (int i = 0; i < kSteps; ++i) s = abs(s) + 0.5;
                                   return s;
                                 }});
  Graph graph;
  const Value x = graph.input("x", f64, {});
  const Value gradient = gradients(call(op, std::array{x}).front(), {x})[0];
  EXPECT_EQ(gradient.type(), x.type());
  EXPECT_GT(graph.size(), kSteps) << "an op for every step";
}

TEST(OpBlock, OfAGradientOfAnotherShapeDtypeOrGraphIsRefused) {
  const auto gives = [](const Shape& shape, DType dtype = f32) {
    return message_of_gradient(1, [=](const GradCall& call) { return Values{full(call.graph, shape, 1, dtype)}; });
  };
  EXPECT_TRUE(has(gives({2, 4}), "its gradient rule gives f32[2,4] for input 0, which is f32[2,3]")) << gives({2, 4});
  EXPECT_TRUE(has(gives({3, 2}), "gives f32[3,2]"));
  EXPECT_TRUE(has(gives({6}), "gives f32[6]"));
  EXPECT_TRUE(has(gives({2, 1, 5}), "gives f32[2,1,5]"));
  EXPECT_TRUE(has(gives({2, 3}, i32), "gives i32[2,3]"));
  EXPECT_EQ(gives({4, 2, 3}), "no error") << "summed";
  EXPECT_EQ(gives({}), "no error") << "the same for all";
  EXPECT_EQ(gives({2, 3}, f64), "no error") << "cast";
  Graph other;
  const Value stranger = other.input("x", f32, {2, 3});
  EXPECT_TRUE(has(message_of_gradient(1, [&](const GradCall&) { return Values{stranger}; }), "value of another graph"));
}

TEST(OpBlock, OfACompositionWithoutAValueIsRefused) {
  Graph other;
  const Value stranger = other.input("x", f32, {3});
  const auto composed_of = [](const Values& values, bool has_gradient) {
    return message_of([&] {
      const std::string name = unused_name();
      register_op({.name = name,
                   .summary = "wrong",
                   .kind = OpKind::composed,
                   .inputs = {"a"},
                   .gradient = has_gradient ? [](const GradCall& call) { return Values{call.grads[0]}; }
                                            : std::function<Values(const GradCall&)>(),
                   .compose = [values](std::span<const Value>, const Attrs&) { return values; }});
      Graph graph;
      graph.fetch("y", call(name, {graph.input("x", f32, {3})}));
      Program program(graph);
    });
  };
  for (const bool has_gradient : {false, true}) {
    EXPECT_TRUE(has(composed_of({}, has_gradient), "its composition gives no value"));
    EXPECT_TRUE(has(composed_of({Value()}, has_gradient), "its composition gave a Value without a node"));
    EXPECT_TRUE(has(composed_of({stranger}, has_gradient), "value of another graph"));
  }
}

TEST(OpBlock, OfACompositionThatLeadsToItselfIsRefused) {
  for (const bool has_gradient : {false, true}) {
    const std::string first = unused_name(), second = unused_name();
    for (const auto& [name, other] : {std::pair(first, second), std::pair(second, first)}) {
      register_op({.name = name,
                   .summary = "wrong",
                   .kind = OpKind::composed,
                   .inputs = {"a"},
                   .gradient = has_gradient ? [](const GradCall& call) { return Values{call.grads[0]}; }
                                            : std::function<Values(const GradCall&)>(),
                   .compose = [other = other](std::span<const Value> in, const Attrs&) {
                     return Values{tanh(call(other, {in[0]}))};
                   }});
    }
    Graph graph;
    const Value x = graph.input("x", f32, {3});
    for (int round = 0; round < 2; ++round) {
      EXPECT_TRUE(has(message_of([&] { call(first, {x}); }), "its composition never ends"));
    }
    graph.fetch("y", tanh(x));  // the graph is of use still
    EXPECT_EQ(Program(graph).run({{"x", Tensor::from(f32, {3}, Dense{0, 0, 0})}}).at("y").to_doubles(), Dense(3, 0));
  }
}

TEST(OpBlock, WithoutWhatItsKindNeedsIsRefusedWhenItIsRegistered) {
  const auto with = [](OpDef op) { return message_of([&] { register_op(std::move(op)); }); };
  const auto infer = [](const OpCall& call) { return std::vector{call.inputs[0]}; };
  EXPECT_TRUE(has(with({.name = unused_name(), .summary = "wrong", .kind = OpKind::formula, .inputs = {"a"}}),
                  "without a formula"));
  EXPECT_TRUE(has(with({.name = unused_name(), .summary = "wrong", .kind = OpKind::composed, .inputs = {"a"}}),
                  "without a composition"));
  EXPECT_TRUE(has(with({.name = unused_name(), .summary = "wrong", .kind = OpKind::kernel, .inputs = {"a"}}),
                  "has no shape rule"));
  for (const int version : {0, -5}) {
    EXPECT_TRUE(
        has(with({.name = unused_name(), .summary = "wrong", .version = version, .inputs = {"a"}, .infer = infer}),
            "has a version below 1"));
  }
  EXPECT_TRUE(has(with({.name = unused_name(), .summary = "wrong", .inputs = {"a", "a"}, .infer = infer}),
                  "two inputs of one name"));
  EXPECT_TRUE(has(with({.name = unused_name(), .summary = "wrong", .inputs = {""}, .infer = infer}),
                  "one whose name is no word"));
  for (const char* name : {"a b", "\x1b[31m", "1a", "\xc3\xa9"}) {
    EXPECT_TRUE(has(with({.name = name, .summary = "wrong", .inputs = {"a"}, .infer = infer}), "no word of letters"));
  }
  EXPECT_TRUE(has(with({.name = unused_name(),
                        .summary = "wrong",
                        .inputs = {"a"},
                        .attrs = {{.name = "k", .example = 1.0}, {.name = "k", .example = 1.0}},
                        .infer = infer}),
                  "two attributes of one name"));
  for (const OpKind kind : {OpKind::view, OpKind::reduction, OpKind::structural}) {
    EXPECT_TRUE(has(with({.name = unused_name(), .summary = "wrong", .kind = kind, .inputs = {"a"}, .infer = infer}),
                    "as only the library's own are"));
  }
}

TEST(OpBlock, OfAShapeRuleThatGivesNoTypeIsRefused) {
  const std::string name = unused_name();
  register_op(
      {.name = name, .summary = "wrong", .inputs = {"a"}, .infer = [](const OpCall&) { return std::vector<Type>(); }});
  Graph graph;
  const Value x = graph.input("x", f32, {3});
  EXPECT_TRUE(has(message_of([&] { call(name, {x}); }), "its shape rule gives no type"));
}

TEST(OpBlock, OfAnOpWithoutInputsNeedsAGraph) {
  const OpDef& op =
      register_op({.name = unused_name(), .summary = "a kernel that nobody has written", .infer = [](const OpCall&) {
                     return std::vector{Type{f32, {}}};
                   }});
  EXPECT_TRUE(has(message_of([&] { call(op, {}); }), "has no inputs, so it needs the graph"));
  Graph graph;
  graph.fetch("y", call(op, {}, {}, {}, &graph).front());
  EXPECT_TRUE(has(message_of([&] { Program program(graph); }), "no kernel for f32[] on this device"));
}

TEST(OpBlock, OfALiftRuleThatGivesSomethingElseIsRefused) {
  const auto message = [](std::function<Values(const LiftCall&)> lift) {
    return message_of([&] {
      const OpDef& op = register_op({.name = unused_name(),
                                     .summary = "its lift is wrong",
                                     .kind = OpKind::kernel,
                                     .inputs = {"a"},
                                     .infer = [](const OpCall& call) { return std::vector{call.inputs[0]}; },
                                     .lift = std::move(lift)});
      Graph graph;
      const Value xs = graph.input("xs", f32, {5, 2, 3}), h = graph.input("h", f32, {2, 2});
      const Value w = graph.input("w", f32, {3, 2});
      const StepResult made = scan({h}, {xs}, [&](const Values& c, const Values& e) {
        return step({tanh(c[0] + matmul(call(op, std::array{e[0]}).front(), w))}, {});
      });
      graph.fetch("h", made.carries[0]);
      Program program(graph);
    });
  };
  const auto twice = [](const LiftCall& call) { return Values{call.inputs[0], call.inputs[0]}; };
  const auto first = [](const LiftCall& call) { return Values{slice(call.inputs[0], 0, 0, 1)}; };
  EXPECT_TRUE(has(message(twice), "its lift rule gives 2 values")) << message(twice);
  EXPECT_TRUE(has(message(first), "its lift rule gives f32[1,2,3], needed is f32[5,2,3]")) << message(first);
  EXPECT_TRUE(has(message([](const LiftCall&) { return Values(); }), "no kernel for")) << "it declines";
}

}  // namespace
}  // namespace paoding
