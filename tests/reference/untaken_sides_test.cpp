// SPDX-License-Identifier: Apache-2.0
// Gradients of sides that select, maximum and the like did not take, where the slope of the ops that made them is
// infinite or NaN: 0, against slopes written down.
#include <numeric>

#include "paoding/io.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

const double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  std::function<Value(const Value&)> of;  // of x, element by element
  Dense x, slope;                         // of the sum
};

Value zero(const Value& x) { return full(x.graph(), {}, 0, x.dtype()); }
Value if_positive(const Value& x, const Value& y) { return where(greater(x, 0.0), y, 0.0); }

// The op of a user's own that chooses within its formula.
const OpDef& root_or_nothing() {
  static const OpDef& op =
      register_op({.name = "test_root_or_nothing",
                   .summary = "sqrt(a) where a is above 0, else 0",
                   .kind = OpKind::formula,
                   .inputs = {"a"},
                   .formula = formula([](Scalar a) { return select(a > 0.0, sqrt(a) * log(a), a.constant(0)); })});
  return op;
}

std::vector<Case> cases() {
  const Dense x{-1, 0, 4};
  const double root = std::sqrt(1.5), e = std::exp(1.0);
  return {
      {"root", [](const Value& v) { return if_positive(v, sqrt(v)); }, x, {0, 0, 0.25}},
      {"log", [](const Value& v) { return if_positive(v, log(v)); }, x, {0, 0, 0.25}},
      {"rsqrt", [](const Value& v) { return if_positive(v, rsqrt(v)); }, x, {0, 0, -1.0 / 16}},
      {"reciprocal", [](const Value& v) { return if_positive(v, reciprocal(v)); }, x, {0, 0, -1.0 / 16}},
      {"quotient", [](const Value& v) { return if_positive(v, 3.0 / (v * v)); }, x, {0, 0, -6.0 / 64}},
      {"power", [](const Value& v) { return if_positive(v, pow(v, expand(zero(v) + 1.5, v.shape()))); }, x, {0, 0, 3}},
      {"the other side", [](const Value& v) { return where(less_equal(v, 0.0), 0.0, sqrt(v)); }, x, {0, 0, 0.25}},
      {"x log x", [](const Value& v) { return if_positive(v, v * log(v)); }, x, {0, 0, std::log(4.0) + 1}},
      {"one after the other",
       [](const Value& v) { return if_positive(v, tanh(sqrt(v)) * 2.0); },
       x,
       {0, 0, 2 * (1 - std::tanh(2.0) * std::tanh(2.0)) / 4}},
      {"both uses are chosen",
       [](const Value& v) {
         const Value s = sqrt(v);
         return if_positive(v, s) + if_positive(v, s * s);
       },
       x,
       {0, 0, 1.25}},
      {"overflow", [](const Value& v) { return where(less(v, 100.0), exp(v), 0.0); }, {1000, 1}, {0, e}},
      {"maximum", [](const Value& v) { return maximum(sqrt(v * v), zero(v) + 1e-10); }, x, {-1, 0, 1}},
      {"clamp", [](const Value& v) { return clamp(log(v), -1, 1); }, {0, 1.5, 100}, {0, 1 / 1.5, 0}},
      {"relu", [](const Value& v) { return relu(log(v)); }, {0, 0.5, 4}, {0, 0, 0.25}},
      {"within a formula",
       [](const Value& v) { return call(root_or_nothing(), std::array{v})[0]; },
       {-1, 0, 1.5},
       {0, 0, std::log(1.5) / (2 * root) + root / 1.5}},
      {"casts", [](const Value& v) { return if_positive(v, cast(sqrt(cast(v, f64)), v.dtype())); }, x, {0, 0, 0.25}},
      {"views",
       [](const Value& v) {
         const Value s = reshape(sqrt(v), {v.shape()[0], 1});
         return if_positive(v, reshape(slice(concat(std::array{s, s}, 1), 1, 0, 1), v.shape()));
       },
       x,
       {0, 0, 0.25}},
      {"a gradient",
       [](const Value& v) { return gradients(sum(if_positive(v, sqrt(v))), {v})[0]; },
       x,
       {0, 0, -1.0 / 32}},
  };
}

TEST(UntakenSides, HaveGradientZeroWhateverTheSlopeIsThere) {
  for (const Case& c : cases()) {
    for (const DType dtype : {f32, f64}) {
      for (const bool has_passes : {true, false}) {
        Graph g;
        const Value x = g.input("x", dtype, {static_cast<std::int64_t>(c.x.size())});
        g.fetch("slope", gradients(sum(c.of(x)), {x})[0]);
        Program program(g, {.disabled_passes = has_passes ? std::vector<std::string>{} : pass_names()});
        const Dense got = program.run({{"x", Tensor::from(dtype, x.shape(), c.x)}}).at("slope").to_doubles();
        for (std::size_t i = 0; i < c.slope.size(); ++i) {
          EXPECT_NEAR(got[i], c.slope[i], 4e-7 * (1 + std::fabs(c.slope[i])))
              << c.name << " at " << c.x[i] << " in " << to_string(dtype) << (has_passes ? "" : " without passes");
        }
      }
    }
  }
}

// The infinite value is fed, and the gradient is asked for the other factor.
TEST(UntakenSides, HideAnInfiniteInputFromWhatItIsMultipliedWith) {
  Graph g;
  const Value x = g.input("x", f32, {3}), w = g.input("w", f32, {3});
  g.fetch("slope", gradients(sum(where(isfinite(x), x * w, 0.0)), {w})[0]);
  const Tensors feeds{{"x", Tensor::from(f32, {3}, Dense{kInfinity, std::nan(""), 5})},
                      {"w", Tensor::from(f32, {3}, Dense{1, 2, 3})}};
  EXPECT_EQ(Program(g).run(feeds).at("slope").to_doubles(), (Dense{0, 0, 5}));
}

TEST(UntakenSides, LeaveTheSlopeOfATakenSideInfinite) {
  Graph g;
  const Value x = g.input("x", f32, {2});
  g.fetch("slope", gradients(sum(where(greater_equal(x, 0.0), sqrt(x) * 0.5, x)), {x})[0]);
  const Dense got = Program(g).run({{"x", Tensor::from(f32, {2}, Dense{0, -1})}}).at("slope").to_doubles();
  EXPECT_EQ(got, (Dense{kInfinity, 1}));
}

// A choice by a factor of 0 or 1 has the same finite slopes, to the bit.
TEST(UntakenSides, LeaveTheBitsOfFiniteSlopes) {
  const auto slopes = [](bool selects) {
    Graph g;
    const Value x = g.input("x", f32, {500}), y = g.input("y", f32, {500});
    const Value made = tanh(x) * y / (1.5 + x * x), counts = greater(y, 0.0);
    const Value chosen = selects ? where(counts, made, 0.0) : made * cast(counts, f32);
    const Values found = gradients(sum(chosen), {x, y});
    g.fetch("dx", found[0]), g.fetch("dy", found[1]);
    const Tensors got = Program(g).run(to_tensors(g, make_feeds(g, 5)));
    return std::pair(got.at("dx").to_doubles(), got.at("dy").to_doubles());
  };
  EXPECT_EQ(slopes(true), slopes(false));
}

TEST(UntakenSides, CostNothingWhereNothingIsChosen) {
  Graph g;
  const Value x = g.input("x", f32, {5}), w = g.input("w", f32, {5, 5});
  g.fetch("y", gradients(sum(mish(hardswish(sqrt(matmul(reshape(x, {1, 5}), w)))) / x), {x, w})[0]);
  EXPECT_FALSE(has(to_text(g), " = equal(")) << to_text(g);
  const Value chosen = where(greater(x, 0.0), x * 0.5 / 3.0 + 1.0, 0.0);  // linear: 0 stays 0 by itself
  g.fetch("z", gradients(sum(chosen), {x})[0]);
  EXPECT_FALSE(has(to_text(g), " = equal(")) << to_text(g);
}

}  // namespace
}  // namespace paoding::testing_program
