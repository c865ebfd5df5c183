// SPDX-License-Identifier: Apache-2.0
// Attention on the GPU that is here, against float64: random shapes, rows that see nothing, NaNs behind the lengths,
// scores near -120, the same bits in every run.
#include <random>

#include "ops/attention/gpu/attention_cases.h"
#include "tests/gpu/emulated_cases.h"

namespace paoding::testing_program {
namespace {

// Random numbers differ from library to library but for the engine's own.
std::int64_t pick(std::mt19937* random, std::initializer_list<std::int64_t> all) {
  return all.begin()[(*random)() % all.size()];
}

AttentionCase random_case(std::mt19937* random) {
  AttentionCase c;
  c.batch = pick(random, {1, 2, 5});
  c.key_heads = pick(random, {1, 2});
  c.heads = c.key_heads * pick(random, {1, 1, 3});
  c.queries = pick(random, {1, 7, 50, 64, 65, 128, 130, 192, 320, 513});
  c.keys = pick(random, {0, 0, 0, 1, 33, 64, 129, 192, 448});
  if (c.keys == 0) c.keys = c.queries;
  c.width = pick(random, {64, 64, 128, 8, 40, 72, 96});
  c.value_width = pick(random, {0, 0, 64, 120});
  if (c.value_width == 0) c.value_width = c.width;
  c.dtype = (*random)() % 3 == 0 ? f16 : bf16;
  c.right = pick(random, {-1, 0, 0, 17});
  c.left = pick(random, {-1, -1, -1, 70});
  c.bottom_right = (*random)() % 2 == 0 && c.queries >= c.keys;
  c.has_lengths = (*random)() % 3 == 0;
  c.is_transposed = (*random)() % 3 == 0;
  return c;
}

// The tensor cores cut sums off, which the model of errors rounds.
constexpr double kTimes = 2, kFewRoundings = 4;

TEST(AttentionGpu, OfRandomShapesIsRight) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  std::mt19937 random(7);
  CasesOnGpu cases;
  for (int i = 0; i < 60; ++i) {
    const AttentionCase c = random_case(&random);
    auto graph = graph_of(c, true);
    const Feeds feeds = feeds_of(c, *graph, static_cast<unsigned>(i));
    cases.add(to_string(c), std::move(graph), feeds, {}, kTimes);
  }
  cases.check(kFewRoundings);
}

// Runs of one program with feeds that `change` has changed.
Tensors run(const AttentionCase& c, const std::function<void(Feeds*)>& change, int runs = 1) {
  const auto graph = graph_of(c, true);
  Feeds feeds = feeds_of(c, *graph);
  change(&feeds);
  CompileOptions options;
  options.device = Device::best();
  Program program(*graph, options);
  const Tensors tensors = to_tensors(*graph, feeds), first = program.run(tensors);
  for (int i = 1; i < runs; ++i) expect_same_bits(first, program.run(tensors));
  return first;
}

TEST(AttentionGpu, HasTheSameBitsInEveryRun) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  const AttentionCase c{.batch = 3, .heads = 8, .key_heads = 4, .queries = 700, .keys = 700, .right = 0};
  EXPECT_FALSE(run(c, [](Feeds*) {}, 20).empty());
}

TEST(AttentionGpu, DoesNotSeeNaNsBehindTheLengths) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  for (const std::int64_t rows : {50, 100, 320}) {
    const AttentionCase c{
        .batch = 3, .heads = 2, .key_heads = 2, .queries = rows, .keys = rows, .right = 0, .has_lengths = true};
    const Tensors expected = run(c, [](Feeds*) {});
    const Tensors got = run(c, [&](Feeds* feeds) {
      for (const char* name : {"k", "v"}) {
        Dense& values = feeds->at(name);
        const auto keys = static_cast<std::size_t>(c.keys), width = static_cast<std::size_t>(c.width);
        for (std::size_t row = 0; row < values.size() / width; ++row) {
          if (static_cast<double>(row % keys) < feeds->at("lengths")[row / keys / 2]) continue;
          for (std::size_t i = 0; i < width; ++i) values[row * width + i] = std::numeric_limits<double>::quiet_NaN();
        }
      }
    });
    expect_same_bits(expected, got);
  }
}

TEST(AttentionGpu, TakesScoresFarFromZero) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  for (const double of_q : {4.0, -4.0}) {
    AttentionCase c{.queries = 192, .keys = 192, .right = 0};  // 192 = 128 + 64
    c.scale = 0.5;
    const Tensors got = run(c, [&](Feeds* feeds) {
      for (double& value : feeds->at("q")) value = of_q + value / 8;
      for (double& value : feeds->at("k")) value = -1 + value / 64;
    });
    for (const auto& [name, tensor] : got) {
      for (const double value : tensor.to_doubles()) ASSERT_TRUE(std::isfinite(value)) << name;
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
