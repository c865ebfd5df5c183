// SPDX-License-Identifier: Apache-2.0
// Integers that no double holds: exact as constants of i64, whatever carries them. The float64 evaluator cannot tell.
#include "paoding/paoding.h"
#include "scalar/primitive.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1, kMost = std::numeric_limits<std::int64_t>::max(),
                       kLeast = std::numeric_limits<std::int64_t>::min();

using Integers = std::vector<std::int64_t>;

// The graph's fetch "y", fused and unfused, and after a trip through text.
Integers run(const Graph& g, const Tensors& feeds = {}) {
  std::vector<Integers> results;
  const auto again = parse_graph(to_text(g));
  EXPECT_EQ(to_text(*again), to_text(g));
  for (const Graph* graph : {&g, static_cast<const Graph*>(again.get())}) {
    for (const bool is_fused : {true, false}) {
      CompileOptions options;
      if (!is_fused) options.disabled_passes = pass_names();
      Program program(*graph, options);
      const Tensor y = program.run(feeds).at("y");
      const std::int64_t* values = y.data<std::int64_t>();
      results.emplace_back(values, values + y.shape().elements());
      EXPECT_EQ(results.back(), results.front());
    }
  }
  return results.front();
}

Tensor integers(const Integers& values) {
  Tensor tensor(i64, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data<std::int64_t>());
  return tensor;
}

TEST(ExactIntegers, FillAValue) {
  for (const std::int64_t value : {kOdd, -kOdd, kMost, kLeast, kLeast + 1, std::int64_t{7}}) {
    Graph g;
    g.fetch("y", full(g, {3}, value, i64));
    EXPECT_EQ(run(g), Integers(3, value));
  }
}

TEST(ExactIntegers, StandBesideAValue) {
  Graph g;
  const Value x = g.input("x", i64, {3});
  g.fetch("y", select(equal(x, kOdd), x - kOdd, kMost - x));
  EXPECT_EQ(run(g, {{"x", integers({kOdd, kOdd - 1, kMost})}}), (Integers{0, kMost - kOdd + 1, 0}));
}

TEST(ExactIntegers, AreElementsOfAConstant) {
  Graph g;
  const Integers values{kOdd, 1, kLeast, kMost, kOdd - 1};
  g.fetch("y", constant(g, {5}, values) + full_like(constant(g, {5}, values), 0));
  EXPECT_EQ(run(g), values);
  Graph same;
  const Integers equal_ones(4, kMost);
  same.fetch("y", constant(same, {2, 2}, equal_ones));
  EXPECT_EQ(run(same), equal_ones);
}

TEST(ExactIntegers, PassThroughViewsAndLoops) {
  Graph g;
  const Value x = g.input("x", i64, {4}), c = full(g, {2, 2}, kOdd, i64);
  const StepResult made = scan({full(g, {}, kOdd, i64)}, {x}, [&](const Values& carry, const Values& element) {
    const Value next = carry[0] + element[0] * (kOdd + 1);
    return step({next}, {next - kOdd});
  });
  g.fetch("y", made.outputs[0] + reshape(c, Shape{4}) - kOdd);
  EXPECT_EQ(run(g, {{"x", integers({1, 0, -1, 2})}}), (Integers{kOdd + 1, kOdd + 1, 0, 2 * (kOdd + 1)}));
}

TEST(ExactIntegers, AreReadFromText) {
  const auto graph = parse_graph(
      "paoding graph 1\na = full() {value=9007199254740993, shape=[2], dtype=i64}\n"
      "b = constant() {values=[-9007199254740993,0], shape=[2], dtype=i64}\ny = add(a, b)\nfetch y\n");
  EXPECT_EQ(run(*graph), (Integers{0, kOdd}));
}

TEST(ExactIntegers, OfOtherDtypesAreRoundedOrRefused) {
  Graph g;
  g.fetch("y", full(g, {1}, kOdd, f64));
  Program program(g);
  EXPECT_EQ(program.run({}).at("y").to_doubles()[0], 0x1p53);
  EXPECT_THROW(full(g, {1}, kOdd, i32), Error);
  EXPECT_THROW(full(g, {1}, std::numeric_limits<std::uint64_t>::max(), i64), Error);
  const Integers values{kOdd};
  EXPECT_THROW(constant(g, {1}, values, u8), Error);
}

TEST(ExactIntegers, AreApartInAFormula) {
  Expr expr;
  const Scalar a = make_constant(&expr, kOdd, i64), b = make_constant(&expr, kOdd - 1, i64);
  EXPECT_NE(a.id(), b.id());
  EXPECT_EQ(make_constant(&expr, 0x1p53, i64).id(), b.id());
  EXPECT_EQ(to_string(expr), "%0 = constant(9007199254740993) i64\n%1 = constant(9007199254740992) i64\n");
}

}  // namespace
}  // namespace paoding::testing_program
