// SPDX-License-Identifier: Apache-2.0
// Numbers beside values, in constants, in graph text and in formulas: numbers that an integer or a bool cannot be are
// refused at every door, held against a list of the numbers that each dtype holds.
#include "paoding/ops/number.h"

#include <fmt/format.h>

#include "paoding/can_hold.h"
#include "paoding/nn.h"
#include "paoding/op.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

const double kNumberNan = std::nan(""), kNumberInfinity = std::numeric_limits<double>::infinity();

struct Held {
  DType dtype;
  Dense yes, no;
};
const std::vector<Held>& all_held() {
  static const std::vector<Held> all{
      {boolean, {0, 1, -0.0}, {0.5, 2, -1, kNumberNan, kNumberInfinity}},
      {u8, {0, 1, 255}, {0.5, -0.5, -1, 255.5, 256, 300, 1e300, kNumberNan, kNumberInfinity, -kNumberInfinity}},
      {i32,
       {0, -1, 0x1p31 - 1, -0x1p31},
       {0.5, -1.5, 0x1p31, -0x1p31 - 1, 1e300, kNumberNan, kNumberInfinity, -kNumberInfinity}},
      {i64,
       {0, -1, 0x1p62, -0x1p63},
       {0.5, -1.5, 0x1p63, -0x1p64, 1e300, kNumberNan, kNumberInfinity, -kNumberInfinity}},
  };
  return all;
}

TEST(CanHold, IsTrueOfValuesThatAnElementCanHave) {
  for (const Held& each : all_held()) {
    for (const double value : each.yes) EXPECT_TRUE(can_hold(each.dtype, value)) << value;
    for (const double value : each.no) EXPECT_FALSE(can_hold(each.dtype, value)) << value;
  }
  for (const double value : {0.1, 1e300, kNumberNan, kNumberInfinity}) EXPECT_TRUE(can_hold(f16, value));
}

using WithNumber = std::function<Value(const Value&, Number)>;
const std::vector<std::pair<std::string, WithNumber>>& doors() {
  static const std::vector<std::pair<std::string, WithNumber>> all{
      {"add", [](const Value& a, Number n) { return a + n; }},
      {"add", [](const Value& a, Number n) { return n + a; }},
      {"sub", [](const Value& a, Number n) { return a - n; }},
      {"sub", [](const Value& a, Number n) { return n - a; }},
      {"mul", [](const Value& a, Number n) { return a * n; }},
      {"mul", [](const Value& a, Number n) { return n * a; }},
      {"div", [](const Value& a, Number n) { return a / n; }},
      {"div", [](const Value& a, Number n) { return n / a; }},
      {"floor_divide", [](const Value& a, Number n) { return floor_divide(a, n); }},
      {"remainder", [](const Value& a, Number n) { return remainder(a, n); }},
      {"minimum", [](const Value& a, Number n) { return minimum(a, n); }},
      {"maximum", [](const Value& a, Number n) { return maximum(a, n); }},
      {"less", [](const Value& a, Number n) { return less(a, n); }},
      {"less_equal", [](const Value& a, Number n) { return less_equal(a, n); }},
      {"greater", [](const Value& a, Number n) { return greater(a, n); }},
      {"greater_equal", [](const Value& a, Number n) { return greater_equal(a, n); }},
      {"equal", [](const Value& a, Number n) { return equal(a, n); }},
      {"not_equal", [](const Value& a, Number n) { return not_equal(a, n); }},
      {"select", [](const Value& a, Number n) { return select(a.graph().find("which"), a, n); }},
      {"select", [](const Value& a, Number n) { return where(a.graph().find("which"), n, a); }},
      {"lerp", [](const Value& a, Number n) { return constant_like("lerp", a, n); }},
  };
  return all;
}

TEST(NumberBesideIntegers, IsThatNumberOrRefused) {
  for (const Held& each : all_held()) {
    if (each.dtype == boolean) continue;
    for (const auto& [op, call] : doors()) {
      Graph g;
      g.input("which", boolean, {3});
      const Value a = g.input("a", each.dtype, {3});
      const Scope scope(g, "decoder");
      if (op != "div") {
        for (const double value : each.yes) EXPECT_NO_THROW(call(a, value)) << op << " " << value;
      }
      for (const double value : each.no) {
        const std::string expected =
            fmt::format("{}: the number {} stands beside {}[3], and no {} is that (in decoder)\nhint: cast(a, f32)", op,
                        value, to_string(each.dtype), to_string(each.dtype));
        try {
          call(a, value);
          ADD_FAILURE() << op << " " << value;
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::dtype);
          EXPECT_TRUE(has(error.what(), expected)) << error.what();
        }
      }
    }
  }
}

TEST(NumberBesideIntegers, IsAnI64BeyondWhatADoubleIs) {
  Graph g;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  g.fetch("y", equal(g.input("a", i64, {2}), most));
  Graph narrow;
  EXPECT_THROW(narrow.input("b", i32, {2}) + most, Error);
  Tensor a(i64, {2});
  a.data<std::int64_t>()[0] = most, a.data<std::int64_t>()[1] = most - 1;
  Program program(g);
  EXPECT_EQ(program.run({{"a", a}}).at("y").to_doubles(), (Dense{1, 0}));
}

TEST(NumberBesideFloats, IsRoundedAsBefore) {
  Graph g;
  const Value a = g.input("a", f16, {2});
  g.fetch("y", maximum(a * 0.1, -kNumberInfinity) + 1e300);
  Program program(g);
  EXPECT_EQ(program.run({{"a", Tensor::from(f16, {2}, Dense{1, 2})}}).at("y").to_doubles(),
            (Dense{kNumberInfinity, kNumberInfinity}));
}

TEST(ConstantsInGraphText, AreTheirNumbersOrRefused) {
  const auto message = [](const std::string& statement) {
    return message_of(
        [&] { parse_graph("paoding graph 1\nx = input i64[3]\nids = input i32[2]\ny = " + statement + "\n"); });
  };
  EXPECT_TRUE(
      has(message("full() {value=0.5, shape=[3], dtype=i64}"), "line 4: full: value = 0.5, which i64 cannot hold"));
  EXPECT_TRUE(has(message("full() {value=2, dtype=bool}"), "full: value = 2, which bool cannot hold"));
  EXPECT_TRUE(has(message("full() {value=inf, dtype=i32}"), "full: value = inf, which i32 cannot hold"));
  EXPECT_TRUE(has(message("constant() {values=[1, 0.5], shape=[2], dtype=u8}"),
                  "constant: values[1] = 0.5, which u8 cannot hold"));
  EXPECT_TRUE(has(message("full_like(x) {value=1.5}"), "full_like: value = 1.5, which i64 cannot hold"));
  EXPECT_TRUE(has(message("one_hot(ids) {depth=3, dtype=i32, on=0.5}"), "one_hot: on = 0.5, which i32 cannot hold"));
  EXPECT_TRUE(has(message("pad(x) {before=[1], after=[0], value=nan}"), "pad: value = nan, which i64 cannot hold"));
  EXPECT_TRUE(has(message("clamp(x) {max=1.5}"), "bound 1.5 beside i64, and no i64 is that"));
  EXPECT_EQ(message("full() {value=1.0, shape=[3], dtype=i64}"), "no error");
}

TEST(Arange, RefusesWhatItsDtypeCannotHold) {
  Graph g;
  EXPECT_NO_THROW(arange(g, 0, 256, 1, u8));
  EXPECT_NO_THROW(arange(g, 300, 0, 1, u8));  // of nothing
  EXPECT_TRUE(has(message_of([&] { arange(g, 0, 257, 1, u8); }), "arange: goes from 0 to 256, which u8 cannot hold"));
  EXPECT_TRUE(has(message_of([&] { arange(g, 2, -2, -1, u8); }), "arange: goes from 2 to -1, which u8 cannot hold"));
  EXPECT_THROW(arange(g, 0, 3, 1, boolean), Error);
}

TEST(InitialValuesOfIntegers, AreIntegersOrRefused) {
  EXPECT_EQ(nn::constant(2)({i64, {2}}, 0).to_doubles(), (Dense{2, 2}));
  const std::string message = message_of([] { nn::constant(0.5)({i64, {2}}, 0); });
  EXPECT_TRUE(has(message, "initial value: 0.5 for a parameter of i64[2], and no i64 is that")) << message;
  EXPECT_THROW(nn::uniform(0, 9)({i32, {4}}, 1), Error);
  EXPECT_NO_THROW(nn::uniform(0, 9)({f16, {4}}, 1));
}

TEST(FormulaOfIntegers, RefusesAConstantThatIsNone) {
  const OpDef& half = register_op({.name = "test_half",
                                   .summary = "half of it",
                                   .kind = OpKind::formula,
                                   .inputs = {"a"},
                                   .formula = formula([](Scalar a) { return a * 0.5; })});
  Graph g;
  const std::string message = message_of([&] { call(half, std::array{g.input("a", i64, {2})}); });
  EXPECT_TRUE(has(message, "test_half: ")) << message;
  EXPECT_TRUE(has(message, "the constant 0.5 stands beside i64, and no i64 is that")) << message;
  EXPECT_NO_THROW(call(half, std::array{g.input("b", f32, {2})}));
}

}  // namespace
}  // namespace paoding::testing_program
