// SPDX-License-Identifier: Apache-2.0
// Running products and their gradients against loops written out, also where elements are 0.
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// result[i] of one row, and d(sum result * seed) / d a[j], both by definition.
Dense products(const Dense& a, bool exclusive, bool reverse, std::size_t without) {
  Dense result(a.size());
  double product = 1;
  bool has = without == a.size();
  for (std::size_t k = 0; k < a.size(); ++k) {
    const std::size_t i = reverse ? a.size() - 1 - k : k;
    const double before = has ? product : 0;
    has |= i == without;
    product *= i == without ? 1 : a[i];
    result[i] = exclusive ? before : has ? product : 0;
  }
  return result;
}

Dense gradient(const Dense& a, const Dense& seed, bool exclusive, bool reverse) {
  Dense result(a.size());
  for (std::size_t j = 0; j < a.size(); ++j) {
    const Dense parts = products(a, exclusive, reverse, j);
    for (std::size_t i = 0; i < a.size(); ++i) result[j] += parts[i] * seed[i];
  }
  return result;
}

TEST(Cumprod, AndItsGradientAreRightWhereElementsAre0) {
  const std::vector<Dense> rows = {
      {}, {2}, {0}, {2, -3}, {2, 0, 3, 4, 5}, {0, 2, 0, 4, 5, 6, 7}, {1, 2, 0, 4, 5, 6, 7, 0}};
  for (const Dense& a : rows) {
    for (const bool exclusive : {false, true}) {
      for (const bool reverse : {false, true}) {
        Graph g;
        const Shape shape{static_cast<std::int64_t>(a.size())};
        const Value x = g.input("x", f64, shape), seed = g.input("seed", f64, shape);
        const Value y = cumprod(x, 0, exclusive, reverse);
        g.fetch("y", y);
        g.fetch("dx", gradients(std::array{y}, std::array{x}, std::array{seed})[0]);
        Dense weights;
        for (std::size_t i = 0; i < a.size(); ++i) weights.push_back(1 + 0.5 * static_cast<double>(i));
        Program program(g);
        const Tensors got =
            program.run({{"x", Tensor::from(f64, shape, a)}, {"seed", Tensor::from(f64, shape, weights)}});
        expect_close("y", got.at("y").to_doubles(), products(a, exclusive, reverse, a.size()), 1e-14);
        expect_close("dx", got.at("dx").to_doubles(), gradient(a, weights, exclusive, reverse), 1e-14);
      }
    }
  }
}

TEST(Cumprod, OfLongRowsIsAsExactAsItsDtype) {
  Graph g;
  const Value x = g.input("x", f32, {2, 1000});
  g.fetch("y", cumprod(x, -1));
  Dense a(2000);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 2 == 0 ? 1.25 : 0.80078125);
  Program program(g);
  const Dense got = program.run({{"x", Tensor::from(f32, {2, 1000}, a)}}).at("y").to_doubles();
  double product = 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product = (i % 1000 == 0 ? 1 : product) * a[i];
    ASSERT_NEAR(got[i], product, 1e-5 * product) << i;
  }
}

TEST(Cumprod, OfIntegersWraps) {
  Graph g;
  const Value x = g.input("x", i32, {3});
  g.fetch("y", cumprod(x));
  Program program(g);
  EXPECT_EQ(program.run({{"x", Tensor::from(i32, {3}, Dense{65536, 65536, 5})}}).at("y").to_doubles(),
            (Dense{65536, 0, 0}));
}

}  // namespace
}  // namespace paoding::testing_program
