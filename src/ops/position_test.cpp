// SPDX-License-Identifier: Apache-2.0
// Positions and group norms against their formulas, written out in double.
#include "paoding/ops/position.h"

#include "paoding/ops/group_norm.h"
#include "paoding/ops/lists.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

TEST(Positions, AreSinesAndCosinesOfWavelengths) {
  Graph g;
  g.fetch("y", sinusoidal_positions(g.input("p", i64, {3}), 6, 100, f64));
  const Dense positions{0, 7, 250};
  const Dense got = Program(g).run({{"p", Tensor::from(i64, {3}, positions)}}).at("y").to_doubles();
  for (std::size_t p = 0; p < 3; ++p) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double angle = positions[p] / std::pow(100, 2.0 * static_cast<double>(i) / 6);
      EXPECT_NEAR(got[p * 6 + 2 * i], std::sin(angle), 1e-12);
      EXPECT_NEAR(got[p * 6 + 2 * i + 1], std::cos(angle), 1e-12);
    }
  }
}

TEST(Positions, TurnPairsSoThatProductsDependOnDistanceAlone) {
  for (const bool interleaved : {false, true}) {
    Graph g;
    const Value x = g.input("x", f64, {2, 3, 8}), at = g.input("at", i64, {3});
    const Value y = rotary_embedding(x, at, 50, interleaved), later = rotary_embedding(x, at + 11.0, 50, interleaved);
    g.fetch("y", y);
    g.fetch("products", matmul(y, y, false, true));
    g.fetch("later", matmul(later, later, false, true));
    const Feeds feeds = make_feeds(g, 8);
    const Tensors got = Program(g).run(to_tensors(g, feeds));
    const Dense &in = feeds.at("x"), out = got.at("y").to_doubles();
    for (std::size_t row = 0; row < 6; ++row) {
      for (std::size_t i = 0; i < 4; ++i) {
        const double angle = feeds.at("at")[row % 3] * std::pow(50, -2.0 * static_cast<double>(i) / 8);
        const std::size_t first = row * 8 + (interleaved ? 2 * i : i), second = first + (interleaved ? 1 : 4);
        EXPECT_NEAR(out[first], in[first] * std::cos(angle) - in[second] * std::sin(angle), 1e-13);
        EXPECT_NEAR(out[second], in[second] * std::cos(angle) + in[first] * std::sin(angle), 1e-13);
      }
    }
    expect_close("products", got.at("later").to_doubles(), got.at("products").to_doubles(), 1e-12);
  }
}

TEST(GroupNorm, TakesMeanAndVarianceOfEachGroupOfEachImage) {
  Graph g;
  const std::int64_t N = 2, C = 6, P = 5, G = 3;
  const Value x = g.input("x", f64, {N, C, P}), gamma = g.input("gamma", f64, {C}), beta = g.input("beta", f64, {C});
  g.fetch("y", group_norm(x, G, gamma, beta, 1e-3));
  g.fetch("plain", group_norm(x, G));
  const Feeds feeds = make_feeds(g, 9);
  const Tensors got = Program(g).run(to_tensors(g, feeds));
  const Dense &in = feeds.at("x"), y = got.at("y").to_doubles(), plain = got.at("plain").to_doubles();
  const auto row = static_cast<std::size_t>(C / G * P);
  for (std::size_t start = 0; start < in.size(); start += row) {
    double mean = 0, variance = 0;
    for (std::size_t i = start; i < start + row; ++i) mean += in[i] / static_cast<double>(row);
    for (std::size_t i = start; i < start + row; ++i)
      variance += (in[i] - mean) * (in[i] - mean) / static_cast<double>(row);
    for (std::size_t i = start; i < start + row; ++i) {
      const std::size_t channel = i / static_cast<std::size_t>(P) % static_cast<std::size_t>(C);
      EXPECT_NEAR(y[i],
                  (in[i] - mean) / std::sqrt(variance + 1e-3) * feeds.at("gamma")[channel] + feeds.at("beta")[channel],
                  1e-12);
      EXPECT_NEAR(plain[i], (in[i] - mean) / std::sqrt(variance + 1e-5), 1e-12);
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
