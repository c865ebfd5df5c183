// SPDX-License-Identifier: Apache-2.0
// attention and its gradient, by the kernel and by the composition, against loops in float64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "cpu/parallel.h"
#include "ops/kernel.h"
#include "paoding/paoding.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A call, its inputs as they are after rounding to the dtype, and their results in float64.
struct Attention {
  std::int64_t B = 1, H = 1, K = 1, T = 1, S = 1, E = 1, F = 1;
  DType dtype = f32;
  std::int64_t left = -1, right = -1;
  bool bottom_right = false;
  double scale = 0.3;
  Dense q = {}, k = {}, v = {}, dresult = {};
  Dense bias = {}, mask = {};  // [B, H, T, S]; empty: absent
  Dense lengths = {};          // [B]
  Dense slopes = {};           // [H]
  Dense result = {}, logs = {}, dq = {}, dk = {}, dv = {};
};

Dense random_numbers(std::int64_t count, DType dtype, double size, std::mt19937& random) {
  std::normal_distribution<double> normal(0, size);
  Dense made(static_cast<std::size_t>(count));
  for (double& number : made) number = normal(random);
  return Tensor::from(dtype, {count}, made).to_doubles();
}

void fill(Attention& a, std::mt19937& random, double size = 1) {
  a.q = random_numbers(a.B * a.H * a.T * a.E, a.dtype, size, random);
  a.k = random_numbers(a.B * a.K * a.S * a.E, a.dtype, size, random);
  a.v = random_numbers(a.B * a.K * a.S * a.F, a.dtype, 1, random);
  a.dresult = random_numbers(a.B * a.H * a.T * a.F, a.dtype, 1, random);
}

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Forward and backward, row by row; keys that are not seen are never read.
void compute(Attention& a) {
  a.result.assign(at(a.B * a.H * a.T * a.F), 0), a.logs.assign(at(a.B * a.H * a.T), -kInfinity);
  a.dq.assign(a.q.size(), 0), a.dk.assign(a.k.size(), 0), a.dv.assign(a.v.size(), 0);
  for (std::int64_t row = 0; row < a.B * a.H * a.T; ++row) {
    const std::int64_t t = row % a.T, h = row / a.T % a.H, b = row / a.T / a.H;
    const std::int64_t first = (b * a.K + h / (a.H / a.K)) * a.S;  // of the keys
    const std::int64_t position = t + (a.bottom_right ? a.S - a.T : 0);
    std::vector<std::int64_t> seen;
    Dense scores;
    for (std::int64_t j = 0; j < a.S; ++j) {
      if (a.left >= 0 && j < position - a.left) continue;
      if (a.right >= 0 && j > position + a.right) continue;
      if (!a.mask.empty() && a.mask[at(row * a.S + j)] == 0) continue;
      if (!a.lengths.empty() && static_cast<double>(j) >= a.lengths[at(b)]) continue;
      double score = 0;
      for (std::int64_t e = 0; e < a.E; ++e) score += a.q[at(row * a.E + e)] * a.k[at((first + j) * a.E + e)];
      score *= a.scale;
      if (!a.bias.empty()) score += a.bias[at(row * a.S + j)];
      if (!a.slopes.empty()) score -= a.slopes[at(h)] * std::fabs(static_cast<double>(position - j));
      if (score == -kInfinity) continue;
      seen.push_back(j), scores.push_back(score);
    }
    if (seen.empty()) continue;
    double most = -kInfinity, total = 0, shared = 0;
    for (const double score : scores) most = std::max(most, score);
    for (const double score : scores) total += std::exp(score - most);
    a.logs[at(row)] = most + std::log(total);
    Dense dp(seen.size(), 0);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const double p = std::exp(scores[i] - a.logs[at(row)]);
      for (std::int64_t f = 0; f < a.F; ++f) {
        const double g = a.dresult[at(row * a.F + f)], value = a.v[at((first + seen[i]) * a.F + f)];
        a.result[at(row * a.F + f)] += p * value;
        a.dv[at((first + seen[i]) * a.F + f)] += p * g;
        dp[i] += g * value;
      }
      shared += p * dp[i];
    }
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const double ds = std::exp(scores[i] - a.logs[at(row)]) * (dp[i] - shared) * a.scale;
      for (std::int64_t e = 0; e < a.E; ++e) {
        a.dq[at(row * a.E + e)] += ds * a.k[at((first + seen[i]) * a.E + e)];
        a.dk[at((first + seen[i]) * a.E + e)] += ds * a.q[at(row * a.E + e)];
      }
    }
  }
}

struct Built {
  Graph graph;
  Tensors feeds;
};

void build(const Attention& a, Built* built) {
  Graph& g = built->graph;
  const auto input = [&](const char* name, DType dtype, const Shape& shape, const Dense& values) {
    built->feeds[name] = Tensor::from(dtype, shape, values);
    return g.input(name, dtype, shape);
  };
  const Value q = input("q", a.dtype, {a.B, a.H, a.T, a.E}, a.q), k = input("k", a.dtype, {a.B, a.K, a.S, a.E}, a.k);
  const Value v = input("v", a.dtype, {a.B, a.K, a.S, a.F}, a.v);
  const Value dresult = input("dresult", a.dtype, {a.B, a.H, a.T, a.F}, a.dresult);
  AttentionOptions options{.scale = a.scale, .bottom_right = a.bottom_right, .left = a.left, .right = a.right};
  const Shape scores{a.B, a.H, a.T, a.S};
  if (!a.bias.empty()) options.bias = input("bias", f32, scores, a.bias);
  if (!a.mask.empty()) options.mask = input("mask", boolean, scores, a.mask);
  if (!a.lengths.empty()) options.lengths = input("lengths", i32, {a.B}, a.lengths);
  if (!a.slopes.empty()) options.slopes = input("slopes", f32, {a.H}, a.slopes);
  const Value result = scaled_dot_product_attention(q, k, v, options);
  g.fetch("result", result);
  const Values made = gradients(std::array{result}, std::array{q, k, v}, std::array{dresult});
  g.fetch("dq", made[0]), g.fetch("dk", made[1]), g.fetch("dv", made[2]);
}

CompileOptions composed() {
  CompileOptions options;
  options.disabled_passes = {"claim_composed"};
  return options;
}

bool has_claimed(const Program& program) { return program.plan_text().find("(tiles)") != std::string::npos; }

void expect_near(const Tensors& got, const Attention& a, const std::string& what) {
  double most = 0;  // log-sum-exp is as exact as an f32 of its size
  for (const double number : a.logs) most = std::isinf(number) ? most : std::max(most, std::fabs(number));
  const double step = a.dtype == f32 ? 2e-6 + 1e-7 * most : a.dtype == f16 ? 2e-3 : 1.6e-2;
  for (const auto& [name, expected] : {std::pair{"result", &a.result}, {"dq", &a.dq}, {"dk", &a.dk}, {"dv", &a.dv}}) {
    const Dense values = got.at(name).to_doubles();
    ASSERT_EQ(values.size(), expected->size());
    double largest = 0.1;
    for (const double number : *expected) largest = std::max(largest, std::fabs(number));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], (*expected)[i], step * (largest + 4 * std::fabs((*expected)[i])))
          << what << ": element " << i << " of " << name;
    }
  }
}

// The op's kernel for the CPU, of shapes too that it declines because others are faster there.
std::vector<Tensor> run_kernel(const Graph& graph, const char* op, const std::vector<Tensor>& inputs,
                               const std::vector<Type>& results) {
  KernelCall call;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op->name == op) call.op = graph.node(id).op, call.attrs = graph.node(id).attrs;
  }
  std::vector<Tensor> made;
  for (const Type& type : results) made.emplace_back(type);
  std::vector<void*> operands;
  for (const Tensor& input : inputs) {
    call.inputs.push_back(Layout::dense(input.type()));
    operands.push_back(const_cast<std::byte*>(input.bytes()));
  }
  for (Tensor& result : made) {
    call.outputs.push_back(Layout::dense(result.type()));
    operands.push_back(result.bytes());
  }
  const auto kernel = kernels_of(*call.op, DeviceKind::cpu).at(0)->prepare(call, Device::cpu()).take();
  std::vector<std::byte> scratch(static_cast<std::size_t>(kernel->scratch_bytes()) + 64);
  kernel->run({.operands = operands.data(), .scratch = scratch.data(), .stream = nullptr});
  return made;
}

Tensors run_kernels(const Attention& a, const Built& built) {
  std::vector<Tensor> inputs, optional;
  for (const char* name : {"q", "k", "v"}) inputs.push_back(built.feeds.at(name));
  for (const char* name : {"bias", "mask", "lengths", "slopes"}) {
    if (!built.feeds.contains(name)) continue;
    optional.push_back(built.feeds.at(name));
    if (std::string_view(name) == "lengths") optional.back() = Tensor::from(i32, {a.B, 1}, a.lengths);
  }
  std::vector<Tensor> forward = inputs;
  forward.insert(forward.end(), optional.begin(), optional.end());
  const Type q{a.dtype, {a.B, a.H, a.T, a.E}}, k{a.dtype, {a.B, a.K, a.S, a.E}}, v{a.dtype, {a.B, a.K, a.S, a.F}};
  const std::vector<Tensor> seen =
      run_kernel(built.graph, "attention", forward, {{a.dtype, {a.B, a.H, a.T, a.F}}, {f32, {a.B, a.H, a.T}}});
  std::vector<Tensor> backward = inputs;
  backward.insert(backward.end(), {seen[0], built.feeds.at("dresult"), seen[1]});
  backward.insert(backward.end(), optional.begin(), optional.end());
  std::vector<Type> wanted{q, k, v};
  if (!a.bias.empty()) wanted.push_back({f32, {0}});  // nobody reads it
  const std::vector<Tensor> made = run_kernel(built.graph, "attention_grad", backward, wanted);
  const Dense logs = seen[1].to_doubles();
  for (std::size_t i = 0; i < logs.size(); ++i) {
    if (std::isinf(a.logs[i])) {
      EXPECT_EQ(logs[i], a.logs[i]);
    } else {
      EXPECT_NEAR(logs[i], a.logs[i], 1e-5 * (1 + std::fabs(a.logs[i])));
    }
  }
  return {{"result", seen[0]}, {"dq", made[0]}, {"dk", made[1]}, {"dv", made[2]}};
}

// Compares the kernel and the composition with float64.
void check(Attention& a, const std::string& what) {
  compute(a);
  Built built;
  build(a, &built);
  expect_near(run_kernels(a, built), a, what + ", kernel");
  Program composition(built.graph, composed());
  EXPECT_FALSE(has_claimed(composition));
  expect_near(composition.run(built.feeds), a, what + ", composition");
}

Attention random_attention(std::mt19937& random) {
  const auto up_to = [&](std::int64_t most) { return 1 + static_cast<std::int64_t>(random()) % most; };
  Attention a;
  constexpr DType kDtypes[] = {f32, f32, bf16, f16};
  a.dtype = kDtypes[random() % 4];
  a.K = up_to(3), a.H = a.K * up_to(3), a.B = up_to(random() % 4 == 0 ? 9 : 2);
  const bool is_long = random() % 4 == 0;
  a.T = up_to(is_long ? 300 : 80), a.S = random() % 2 == 0 ? a.T : up_to(is_long ? 400 : 80);
  if (is_long) a.K = 1, a.H = up_to(2), a.B = 1;
  a.E = up_to(random() % 4 == 0 ? 256 : 80), a.F = random() % 2 == 0 ? a.E : up_to(70);
  a.scale = 1 / std::sqrt(static_cast<double>(a.E));
  if (random() % 2 == 0) a.right = random() % 2 == 0 ? 0 : up_to(20);
  if (random() % 3 == 0) a.left = up_to(40);
  a.bottom_right = random() % 3 == 0;
  fill(a, random);
  if (random() % 4 == 0) a.bias = random_numbers(a.B * a.H * a.T * a.S, f32, 1, random);
  for (double& number : a.bias) {
    if (random() % 8 == 0) number = -kInfinity;
  }
  if (random() % 4 == 0) {
    for (std::int64_t i = 0; i < a.B * a.H * a.T * a.S; ++i) a.mask.push_back(random() % 3 == 0 ? 0 : 1);
  }
  if (random() % 3 == 0) {
    for (std::int64_t b = 0; b < a.B; ++b) a.lengths.push_back(static_cast<double>(up_to(a.S + 1) - 1));
  }
  if (random() % 4 == 0) {
    for (std::int64_t h = 0; h < a.H; ++h) a.slopes.push_back(0.25 / static_cast<double>(h + 1));
  }
  return a;
}

TEST(Attention, RandomShapesGiveTheResultsAndGradientsOfFloat64) {
  std::mt19937 random(11);
  for (int turn = 0; turn < 60; ++turn) {
    Attention a = random_attention(random);
    SCOPED_TRACE(fmt::format("turn {}: B {} H {} K {} T {} S {} E {} F {} {} left {} right {} {}{}{}{}{}", turn, a.B,
                             a.H, a.K, a.T, a.S, a.E, a.F, to_string(a.dtype), a.left, a.right,
                             a.bottom_right ? "bottom right" : "", a.bias.empty() ? "" : " bias",
                             a.mask.empty() ? "" : " mask", a.lengths.empty() ? "" : " lengths",
                             a.slopes.empty() ? "" : " slopes"));
    check(a, "random");
    if (HasFatalFailure()) return;
  }
}

TEST(Attention, AKernelClaimsItAndItsGradient) {
  std::mt19937 random(1);
  Attention a{.B = 2, .H = 2, .K = 2, .T = 128, .S = 128, .E = 64, .F = 64, .right = 0};
  fill(a, random);
  Built built;
  build(a, &built);
  const Program program(built.graph);
  EXPECT_TRUE(has_claimed(program)) << program.plan_text();
  EXPECT_EQ(program.report().launches, 2) << program.plan_text();
}

TEST(Attention, InMixedPrecisionItReads16Bits) {
  std::mt19937 random(12);
  Attention a{.B = 1, .H = 2, .K = 2, .T = 256, .S = 256, .E = 32, .F = 32, .right = 0};
  fill(a, random);
  compute(a);
  Built built;
  build(a, &built);
  CompileOptions options;
  options.precision = bf16;
  Program program(built.graph, options);
  EXPECT_TRUE(has_claimed(program)) << program.plan_text();
  const std::string plan = program.plan_text(), line = plan.substr(plan.find("attention s"), 40);
  EXPECT_NE(line.find(":bf16[1,2,256,32]"), std::string::npos) << plan;
  Tensors got = program.run(built.feeds);
  a.dtype = bf16;  // for its tolerance
  expect_near(got, a, "mixed precision");
}

TEST(Attention, NoMatrixOfScoresIsKept) {
  std::mt19937 random(1);
  Attention a{.B = 1, .H = 1, .K = 1, .T = 4096, .S = 4096, .E = 16, .F = 16, .right = 0};
  fill(a, random);
  Built built;
  build(a, &built);
  EXPECT_LT(Program(built.graph).report().arena_bytes, a.T * a.S);  // a quarter of the scores
}

TEST(Attention, ARowThatSeesNoKeyGivesZerosAndGetsNone) {
  std::mt19937 random(2);
  for (const DType dtype : {f32, bf16}) {
    Attention a{.B = 2, .H = 2, .K = 2, .T = 70, .S = 70, .E = 64, .F = 64, .dtype = dtype};
    fill(a, random);
    a.mask.assign(at(a.B * a.H * a.T * a.S), 1);
    for (std::int64_t row = 0; row < a.B * a.H * a.T; row += 3) std::fill_n(a.mask.begin() + row * a.S, a.S, 0.0);
    a.lengths = {70, 0};
    check(a, "mask");
    EXPECT_EQ(a.result[0], 0);
  }
  // The first queries stand in front of the first key.
  Attention a{.B = 1, .H = 2, .K = 1, .T = 90, .S = 40, .E = 32, .F = 32, .right = 0, .bottom_right = true};
  fill(a, random);
  check(a, "bottom right");
}

TEST(Attention, WhatStandsInKeysThatNobodySeesReachesNothing) {
  std::mt19937 random(3);
  for (const bool is_mask : {false, true}) {
    Attention a{.B = 2, .H = 2, .K = 1, .T = 75, .S = 100, .E = 64, .F = 48};
    fill(a, random);
    const std::int64_t seen = 67;
    if (is_mask) {
      for (std::int64_t i = 0; i < a.B * a.H * a.T * a.S; ++i) a.mask.push_back(i % a.S < seen ? 1 : 0);
    } else {
      a.lengths = {static_cast<double>(seen), static_cast<double>(seen)};
    }
    for (std::int64_t row = 0; row < a.B * a.S; ++row) {
      if (row % a.S < seen) continue;
      std::fill_n(a.k.begin() + row * a.E, a.E, kNan);
      std::fill_n(a.v.begin() + row * a.F, a.F, row % 2 == 0 ? kNan : kInfinity);
    }
    check(a, is_mask ? "mask" : "lengths");
  }
  Attention a{.B = 1, .H = 2, .K = 2, .T = 40, .S = 90, .E = 64, .F = 64, .right = 0};  // causal: the last 50 keys
  fill(a, random);
  for (std::int64_t row = 0; row < 2 * a.S; ++row) {
    if (row % a.S < a.T) continue;
    std::fill_n(a.k.begin() + row * a.E, a.E, kNan);
    std::fill_n(a.v.begin() + row * a.F, a.F, kNan);
  }
  check(a, "causal");
}

TEST(Attention, ScoresFarBelowZeroHaveTheSameWeights) {
  std::mt19937 random(4);
  for (const std::int64_t S : {1, 64, 65, 192}) {
    Attention a{.B = 1, .H = 2, .K = 2, .T = S, .S = S, .E = 64, .F = 64, .right = 0};
    fill(a, random);
    a.bias = random_numbers(a.B * a.H * a.T * a.S, f32, 0.5, random);
    for (double& number : a.bias) number -= 120;
    a.bias = Tensor::from(f32, {static_cast<std::int64_t>(a.bias.size())}, a.bias).to_doubles();
    check(a, fmt::format("{} keys", S));
  }
}

TEST(Attention, LargeLogitsStayFinite) {
  std::mt19937 random(5);
  Attention a{.B = 1, .H = 1, .K = 1, .T = 40, .S = 150, .E = 32, .F = 32, .scale = 1};
  fill(a, random, 1000);
  compute(a);
  Built built;
  build(a, &built);
  for (const double number : run_kernels(a, built).at("result").to_doubles()) {
    ASSERT_TRUE(std::isfinite(number));
  }
}

TEST(Attention, WindowsAsWideAsTheKeysAreNone) {
  std::mt19937 random(6);
  const std::int64_t S = 130;
  for (const std::int64_t left : {S - 2, S - 1, S, S + 1}) {
    Attention a{.B = 1, .H = 1, .K = 1, .T = S, .S = S, .E = 16, .F = 16, .left = left, .right = 0};
    fill(a, random);
    check(a, fmt::format("left {}", left));
    Attention causal = a;
    causal.left = -1;
    compute(causal);
    EXPECT_EQ(causal.result == a.result, left >= S - 1);
  }
}

TEST(Attention, WeightsOfOnesAddUpToOne) {
  std::mt19937 random(7);
  for (const DType dtype : {f32, bf16, f16}) {
    Attention a{.B = 1, .H = 2, .K = 1, .T = 64, .S = 500, .E = 32, .F = 32, .dtype = dtype};
    fill(a, random);
    std::fill(a.v.begin(), a.v.end(), 1.0);
    compute(a);
    Built built;
    build(a, &built);
    for (const double number : run_kernels(a, built).at("result").to_doubles()) {
      ASSERT_NEAR(number, 1, dtype == f32 ? 1e-6 : 0) << to_string(dtype);
    }
  }
}

TEST(Attention, BitsAreThoseOfEveryRunAndOfOneThread) {
  std::mt19937 random(8);
  for (const std::int64_t heads : {1, 6}) {
    Attention a{.B = 1, .H = heads, .K = heads, .T = 700, .S = 700, .E = 64, .F = 64, .right = 0};
    fill(a, random);
    Built built;
    build(a, &built);
    Program program(built.graph);
    const Tensors first = program.run(built.feeds);
    for (int turn = 0; turn < 5; ++turn) expect_same_bits(first, program.run(built.feeds));
    const SerialScope serial(true);
    expect_same_bits(first, program.run(built.feeds));
    expect_same_bits(first, Program(built.graph).run(built.feeds));
  }
}

TEST(Attention, DropoutDependsOnAWeightsPlaceAlone) {
  std::mt19937 random(9);
  Attention a{.B = 2, .H = 2, .K = 2, .T = 77, .S = 131, .E = 40, .F = 24};
  fill(a, random);
  Graph g;
  const Value q = g.input("q", f32, {a.B, a.H, a.T, a.E}), k = g.input("k", f32, {a.B, a.K, a.S, a.E});
  const Value v = g.input("v", f32, {a.B, a.K, a.S, a.F});
  const Value result = scaled_dot_product_attention(q, k, v, {.causal = true, .dropout = 0.4});
  g.fetch("result", result);
  const Values made = gradients(std::array{sum(result * result)}, std::array{q, k, v});
  for (std::size_t i = 0; i < 3; ++i) g.fetch("d" + std::to_string(i), made[i]);
  const Tensors feeds{{"q", Tensor::from(f32, q.shape(), a.q)},
                      {"k", Tensor::from(f32, k.shape(), a.k)},
                      {"v", Tensor::from(f32, v.shape(), a.v)}};
  Parameters one(g, Device::cpu(), {.seed = 5}), other(g, Device::cpu(), {.seed = 5});
  Program kernel(g, {}, &one), composition(g, composed(), &other);
  for (int turn = 0; turn < 2; ++turn) {  // other numbers in each run
    const Tensors got = kernel.run(feeds), expected = composition.run(feeds);
    for (const auto& [name, tensor] : expected) {
      const Dense x = got.at(name).to_doubles(), y = tensor.to_doubles();
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 2e-4) << name << " " << i;
    }
  }
}

TEST(Attention, HeadsThatLieBetweenOthersAreReadWhereTheyAre) {
  std::mt19937 random(10);
  Attention a{.B = 2, .H = 3, .K = 3, .T = 100, .S = 100, .E = 16, .F = 16, .right = 0};
  fill(a, random);
  compute(a);
  Graph g;
  const auto heads = [&](const char* name) {
    return transpose(g.input(name, f32, {a.B, a.T, a.H, a.E}), std::array<std::int64_t, 4>{0, 2, 1, 3});
  };
  const Value q = heads("q"), k = heads("k"), v = heads("v");
  g.fetch("result", scaled_dot_product_attention(q, k, v, {.causal = true, .scale = a.scale}));
  const auto turned = [&](const Dense& rows) {
    Dense made;
    for (std::int64_t b = 0; b < a.B; ++b) {
      for (std::int64_t t = 0; t < a.T; ++t) {
        for (std::int64_t h = 0; h < a.H; ++h) {
          const auto from = rows.begin() + ((b * a.H + h) * a.T + t) * a.E;
          made.insert(made.end(), from, from + a.E);
        }
      }
    }
    return Tensor::from(f32, {a.B, a.T, a.H, a.E}, made);
  };
  const Dense got =
      Program(g).run({{"q", turned(a.q)}, {"k", turned(a.k)}, {"v", turned(a.v)}}).at("result").to_doubles();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], a.result[i], 1e-5) << i;
}

TEST(Attention, ItsGradientHasAGradient) {
  Graph g;
  const Value q = g.input("q", f64, {1, 2, 3, 4}), k = g.input("k", f64, {1, 1, 5, 4}),
              v = g.input("v", f64, {1, 1, 5, 2});
  const Value loss = sum(square(scaled_dot_product_attention(q, k, v, {.causal = true, .bottom_right = true})));
  const Value dq = gradients(loss, {q})[0], again = gradients(sum(square(dq)), {k})[0];
  g.fetch("sum", sum(square(dq))), g.fetch("again", again);
  const Feeds feeds = make_feeds(g, 3);
  Program program(g);
  const Dense got = program.run(to_tensors(g, feeds)).at("again").to_doubles();
  for (const std::size_t element : {std::size_t{0}, std::size_t{7}, std::size_t{19}}) {
    const auto at_shift = [&](double shift) {
      Feeds moved = feeds;
      moved["k"][element] += shift;
      return program.run(to_tensors(g, moved)).at("sum").to_doubles()[0];
    };
    EXPECT_NEAR(got[element], (at_shift(1e-5) - at_shift(-1e-5)) / 2e-5, 1e-6 * (1 + std::fabs(got[element])));
  }
}

}  // namespace
}  // namespace paoding::testing_program
