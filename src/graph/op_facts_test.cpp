// SPDX-License-Identifier: Apache-2.0
// Facts that ops declare and that formulas show: those of the library's own ops agree with each other, and an op from
// outside has the facts of its formula, whatever it is called.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "graph/primitive_form.h"
#include "ops/recurrence/cell.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "scalar/primitive.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

using testing_program::has;
using testing_program::message_of;

const PrimitiveForm& form(const char* op) { return find_op(op)->primitive; }

TEST(OpFacts, AFormulaShowsWhichPrimitiveItIs) {
  using Argument = PrimitiveForm::Argument;
  const auto expect = [](const char* op, Prim prim, std::array<Argument, 3> arguments) {
    EXPECT_EQ(form(op), (PrimitiveForm{prim, arguments})) << op;
  };
  const Argument a{.input = 0}, b{.input = 1}, c{.input = 2}, zero{.number = 0}, one{.number = 1};
  expect("add", Prim::add, {a, b});
  expect("mul", Prim::mul, {a, b});
  expect("square", Prim::mul, {a, a});
  expect("reciprocal", Prim::div, {one, a});
  expect("relu", Prim::maximum, {zero, a});
  expect("greater", Prim::less, {b, a});
  expect("greater_equal", Prim::less_equal, {b, a});
  expect("select", Prim::select, {a, b, c});
  expect("logical_not", Prim::logical_not, {a});
  expect("stop_gradient", Prim::input, {a});
  for (const char* op : {"gelu", "silu", "lerp", "softplus", "hardtanh", "add_n", "cast", "matmul", "full"}) {
    EXPECT_EQ(form(op).prim, Prim::constant) << op;
  }
}

TEST(OpFacts, AUsersFormulaShowsItToo) {
  const auto registered = [](const char* name, Formula formula) -> const OpDef& {
    return register_op({.name = name,
                        .summary = "a formula",
                        .kind = OpKind::formula,
                        .inputs = {"a", "b"},
                        .formula = std::move(formula)});
  };
  using Argument = PrimitiveForm::Argument;
  const OpDef& from = registered("test_taken_from", formula([](Scalar a, Scalar b) { return b - a; }));
  EXPECT_EQ(from.primitive, (PrimitiveForm{Prim::sub, {Argument{.input = 1}, Argument{.input = 0}}}));
  // Another primitive where the inputs are integers: none that holds for every call.
  const OpDef& either = registered("test_of_dtype", [](std::span<const Scalar> in, const Attrs&) {
    return is_float(in[0].dtype()) ? in[0] * in[1] : in[0] + in[1];
  });
  EXPECT_EQ(either.primitive, PrimitiveForm{});
  const OpDef& wrong = registered("test_throws", [](std::span<const Scalar>, const Attrs&) -> Scalar {
    throw std::runtime_error("a formula of no use");
  });
  EXPECT_EQ(wrong.primitive, PrimitiveForm{});
}

TEST(OpFacts, AFormulaShowsTheLimitsThatItKeeps) {
  Graph g;
  const Value x = g.input("x", f32, {3});
  const auto limits = [&](const Value& value) { return limits_of(g, g.node(value.ref().node)); };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(limits(hardtanh(x, 0, 6)), (std::pair{0.0, 6.0}));
  EXPECT_EQ(limits(clamp(x, 0.0, 6.0)), (std::pair{0.0, 6.0}));
  EXPECT_EQ(limits(relu(x)), (std::pair{0.0, infinity}));
  EXPECT_EQ(limits(clamp(x, -infinity, 2.0)), (std::pair{-infinity, 2.0}));
  EXPECT_EQ(limits(hardswish(x)), std::nullopt);
  EXPECT_EQ(limits(x * x), std::nullopt);
}

// Against the formula's values: 0 in, 0 out, also beside NaN and infinity.
TEST(OpFacts, AFormulaShowsWhetherItIsZeroWithAnInput) {
  Graph g;
  const Value condition = g.input("condition", boolean, {3}), x = g.input("x", f32, {3}), y = g.input("y", f32, {3});
  const auto is_zero_with = [&](const Value& value, const std::vector<Ref>& zeros) {
    const Node& node = g.node(value.ref().node);
    return is_zero_with_inputs(g, node,
                               [&](std::size_t k) { return std::ranges::find(zeros, node.inputs[k]) != zeros.end(); });
  };
  EXPECT_TRUE(is_zero_with(cast(x, f64), {x.ref()}));
  EXPECT_TRUE(is_zero_with(call("store_as", {x}, {{"dtype", bf16}}), {x.ref()}));
  EXPECT_TRUE(is_zero_with(select(condition, x, y), {x.ref(), y.ref()}));
  EXPECT_FALSE(is_zero_with(select(condition, x, y), {x.ref()}));
  EXPECT_TRUE(is_zero_with(dropout(x, 0.5, true), {x.ref()}));
  EXPECT_FALSE(is_zero_with(x * y, {x.ref()})) << "0 times infinity is NaN";
  EXPECT_FALSE(is_zero_with(x + 1.0, {x.ref()}));
}

// To the bit, for numbers of every kind: 0 and -0, NaN, infinite and denormal ones.
TEST(OpFacts, APrimitivesIdentitiesGiveTheOtherArgumentBack) {
  const double infinity = std::numeric_limits<double>::infinity(), least = std::numeric_limits<double>::denorm_min();
  const auto bits = [](double a) { return std::bit_cast<std::uint64_t>(a); };
  int identities = 0, involutions = 0;
  for (int p = 0; p < kPrimCount; ++p) {
    const Primitive& row = primitive(static_cast<Prim>(p));
    for (const double x : {0.0, -0.0, 1.0, -2.5, infinity, -infinity, least, std::nan("")}) {
      for (const std::size_t k : {0, 1}) {
        if (!row.identity[k]) continue;
        const double made = k == 0 ? row.evaluate(*row.identity[k], x, 0) : row.evaluate(x, *row.identity[k], 0);
        EXPECT_EQ(bits(made), bits(x)) << row.name << " of " << x;
        ++identities;
      }
      if (!row.is_involution) continue;
      EXPECT_EQ(bits(row.evaluate(row.evaluate(x, 0, 0), 0, 0)), bits(x)) << row.name << " of " << x;
      ++involutions;
    }
  }
  EXPECT_GE(identities, 4 * 8);
  EXPECT_GE(involutions, 8);
}

TEST(OpFacts, OfTheLibrarysOpsAgree) {
  for (const OpDef* op : all_ops()) {
    EXPECT_EQ(op->kind == OpKind::view, op->view != ViewForm::none) << op->name;
    EXPECT_EQ(op->kind == OpKind::reduction, op->reduces_with.has_value()) << op->name;
    EXPECT_FALSE(op->bodies != BodyUse::none && op->kind != OpKind::structural) << op->name;
    EXPECT_FALSE(op->is_kept && !op->is(OpRole::source)) << op->name;
    EXPECT_FALSE(op->is_uniform && !op->is(OpRole::generated)) << op->name;
    EXPECT_FALSE(op->is_cell_gradient && op->cell == nullptr) << op->name;
    if (op->contracts || op->convolution || op->cell != nullptr) {
      EXPECT_TRUE(static_cast<bool>(op->cost)) << op->name << " is a product without a cost";
    }
    if (!op->wide_form.empty()) {
      const OpDef* wide = find_op(op->wide_form);
      ASSERT_NE(wide, nullptr) << op->name;
      EXPECT_EQ(wide->narrow_form, op->name);
      EXPECT_EQ(wide->inputs, op->inputs);
    }
    if (!op->narrow_form.empty()) {
      EXPECT_EQ(find_op(op->narrow_form)->wide_form, op->name);
    }
  }
}

TEST(OpFacts, OfACellSayWhereItsOpsHaveTheirInputs) {
  for (const OpDef* op : all_ops()) {
    if (op->cell == nullptr) continue;
    const CellDescriptor& cell = *op->cell;
    const OpDef* forward = find_op(cell.op);
    ASSERT_NE(forward, nullptr) << op->name;
    EXPECT_EQ(find_op(std::string(cell.op) + "_grad")->cell, &cell);
    EXPECT_EQ(op->is_cell_gradient, op != forward);
    EXPECT_EQ(forward->inputs[cell.h0], "h0");
    if (cell.c0 != 0) {
      EXPECT_EQ(forward->inputs[cell.c0], "c0");
    }
    if (cell.bm != 0) {
      EXPECT_EQ(forward->inputs[cell.bm], "bm");
    }
    EXPECT_EQ(forward->inputs.size(), cell.inputs + 2) << "lengths and a bias";
  }
  const CellDescriptor& lstm = *find_op("lstm_recurrence")->cell;
  const Attrs all{{"states", true}, {"last_h", true}, {"last_c", true}};
  const std::vector<std::string>& names = find_op("lstm_recurrence_grad")->inputs;
  std::vector<std::string> wide;
  for (const std::size_t input : lstm.wide_inputs(true, all)) wide.push_back(names[input]);
  EXPECT_EQ(wide, (std::vector<std::string>{"cells", "dlast_c"}));
  EXPECT_EQ(lstm.wide_inputs(true, {{"states", false}, {"last_h", true}, {"last_c", true}}),
            (std::vector<std::size_t>{2, 4}));
  EXPECT_EQ(lstm.wide_inputs(true, {{"states", true}, {"last_h", true}, {"last_c", false}}),
            (std::vector<std::size_t>{2}));
  EXPECT_EQ(lstm.wide_inputs(false, {}), (std::vector<std::size_t>{3}));
  EXPECT_TRUE(find_op("gru_recurrence")->cell->wide_inputs(true, {{"states", true}}).empty());
}

TEST(OpFacts, ThatOnlyTheLibrarysOpsHaveAreRefused) {
  const auto error = [](void (*add_fact)(OpDef&)) {
    OpDef op{.name = "test_fact", .summary = "wrong", .kind = OpKind::kernel, .inputs = {"a"}};
    op.infer = [](const OpCall& call) { return std::vector<Type>{call.inputs[0]}; };
    add_fact(op);
    return message_of([&] { register_op(std::move(op)); });
  };
  const char* said = "has a fact that only the library's own ops have";
  EXPECT_TRUE(has(error([](OpDef& op) { op.view = ViewForm::sliced; }), said));
  EXPECT_TRUE(has(error([](OpDef& op) { op.contracts = true; }), said));
  EXPECT_TRUE(has(error([](OpDef& op) { op.convolution = Convolution{}; }), said));
  EXPECT_TRUE(has(error([](OpDef& op) { op.cell = find_op("gru_recurrence")->cell; }), said));
  EXPECT_TRUE(has(error([](OpDef& op) { op.wide_form = "matmul"; }), said));
  EXPECT_TRUE(has(error([](OpDef& op) { op.role = OpRole::check; }), "has a role"));
  const std::string of_formula = message_of([] {
    register_op({.name = "test_fact",
                 .summary = "wrong",
                 .kind = OpKind::formula,
                 .inputs = {"a"},
                 .cost = [](const CostCall&) { return OpCost{}; },
                 .formula = formula([](Scalar a) { return a; })});
  });
  EXPECT_TRUE(has(of_formula, "has a cost, but no kernel runs it"));
}

}  // namespace
}  // namespace paoding
