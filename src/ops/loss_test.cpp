// SPDX-License-Identifier: Apache-2.0
// Losses where numerics matter, and labels that are no classes.
#include <fmt/format.h>

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

const double kLossInfinity = std::numeric_limits<double>::infinity();

// The loss and its slopes, in f64 and without differences.
TEST(BinaryCrossEntropy, KeepsTheDigitsOfSmallLossesAndOfInfiniteLogits) {
  const Dense x{-kLossInfinity,
                kLossInfinity,
                -kLossInfinity,
                kLossInfinity,
                1e4,
                -1e4,
                10,
                -10,
                16,
                -16,
                20,
                5,
                -5,
                0,
                0,
                -88,
                10,
                -10,
                2,
                -2,
                1e-4,
                -1e-4};
  const Dense t{0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 0, 0.5, 0, 0.75, 0.125, 0.25, 0.5, 1, 1};
  const auto count = static_cast<std::int64_t>(x.size());
  for (const DType dtype : {f64, f32, bf16, f16}) {
    for (const auto& disabled : {std::vector<std::string>{}, pass_names()}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + (disabled.empty() ? "" : " without passes"));
      Graph g;
      const Value logits = g.input("x", dtype, {count}), target = g.input("t", dtype, {count});
      const Value losses = binary_cross_entropy_with_logits(logits, target, LossReduction::none);
      const Value mean = binary_cross_entropy_with_logits(logits, target);
      g.fetch("loss", losses);
      g.fetch("slope", gradients(sum(losses), {logits})[0]);
      g.fetch("by_target", gradients(sum(losses), {target})[0]);
      g.fetch("of_mean", gradients(mean, {logits})[0]);
      Program program(g, {.device = Device::cpu(), .disabled_passes = disabled});
      const Tensor fed = Tensor::from(dtype, {count}, x);
      auto got = program.run({{"x", fed}, {"t", Tensor::from(dtype, {count}, t)}});
      const Dense seen = fed.to_doubles();
      const double relative = dtype == f64 ? 1e-14 : dtype == f32 ? 3e-7 : dtype == f16 ? 3e-3 : 2e-2;
      const double least = dtype == f16 ? 0x1p-23 : 0;  // below the values that f16 holds with all digits
      for (std::size_t i = 0; i < x.size(); ++i) {
        SCOPED_TRACE(fmt::format("logit {}, target {}", seen[i], t[i]));
        const double right = std::log1p(std::exp(-std::fabs(seen[i])));  // of the side that is likely
        const double share = seen[i] > 0 ? 1 - t[i] : t[i];
        const double loss = (share == 0 ? 0 : share * std::fabs(seen[i])) + right;
        const double up = 1 / (1 + std::exp(-seen[i])), down = 1 / (1 + std::exp(seen[i]));
        const double slope = (1 - t[i]) * up - t[i] * down;
        const auto near = [&](const char* name, double want) {
          const double number = got.at(name).to_doubles()[i];
          if (std::isinf(want)) {
            EXPECT_EQ(number, want) << name;
          } else {
            EXPECT_NEAR(number, want, relative * std::fabs(want) + least) << name;
          }
        };
        near("loss", loss), near("by_target", -seen[i]);
        const bool is_difference = t[i] != 0 && t[i] != 1;
        if (!is_difference) near("slope", slope);
        EXPECT_NEAR(got.at("slope").to_doubles()[i], slope, relative);
        EXPECT_NEAR(got.at("of_mean").to_doubles()[i], slope / static_cast<double>(count), relative);
      }
    }
  }
}

// Where the parts that the loss is written in meet, at 0, too.
TEST(BinaryCrossEntropy, HasSecondSlopes) {
  Graph g;
  const Value x = g.input("x", f64, {4}), t = g.input("t", f64, {4});
  const Value first = gradients(sum(binary_cross_entropy_with_logits(x, t, LossReduction::none)), {x})[0];
  g.fetch("second", gradients(sum(first), {x})[0]);
  const Dense at{-2, 0, 0, 3};
  const Dense got = Program(g)
                        .run({{"x", Tensor::from(f64, {4}, at)}, {"t", Tensor::from(f64, {4}, Dense{0, 1, 0, 0.25})}})
                        .at("second")
                        .to_doubles();
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double s = 1 / (1 + std::exp(-at[i]));
    EXPECT_NEAR(got[i], s * (1 - s), 1e-14) << at[i];
  }
}

// Beside it a parameter is written, which such a run must not do.
TEST(CrossEntropy, OfALabelThatIsNoClassFailsTheRunAndWritesNothing) {
  for (const DType dtype : {u8, i32, i64}) {
    for (const bool is_trained : {false, true}) {
      Graph g;
      const Value labels = g.input("labels", dtype, {4}), w = g.parameter("w", f32, {4, 3});
      Value loss;
      {
        const Scope scope(g, "head");
        loss = cross_entropy(w, labels);
      }
      if (is_trained) {  // the fetched value does not need the loss
        const Value slope = gradients(loss, {w})[0];
        g.assign(w, w - slope);
        g.fetch("slope", slope);
      } else {
        g.fetch("loss", loss);
      }
      Parameters parameters(g);
      const Dense start{0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0};
      parameters.set("w", Tensor::from(f32, {4, 3}, start));
      Program program(g, {}, &parameters);
      const auto run = [&](const Dense& values) { program.run({{"labels", Tensor::from(dtype, {4}, values)}}); };
      EXPECT_EQ(message_of([&] {
                  run({0, 1, 3, 7});
                }),
                "cross_entropy: labels[2] = 3, but from 0 to 2 are legal, and negative numbers for what does not count "
                "(in head)");
      EXPECT_EQ(parameters.get("w").to_doubles(), start);
      run({0, 1, 2, 0});
      EXPECT_EQ(parameters.get("w").to_doubles() == start, !is_trained);
      if (dtype != u8) run({0, -1, -100, 2});
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
