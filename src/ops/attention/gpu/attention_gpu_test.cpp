// SPDX-License-Identifier: Apache-2.0
// Attention on the best device that is here, a GPU where there is one, against float64: random shapes, rows that see
// nothing, NaNs behind the lengths, scores near -120, the same bits in every run.
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
  c.batch = pick(random, {1, 2});
  c.key_heads = pick(random, {1, 2});
  c.heads = c.key_heads * pick(random, {1, 1, 2});
  c.queries = pick(random, {1, 7, 50, 64, 65, 128, 130, 192, 320});
  c.keys = pick(random, {0, 0, 0, 1, 33, 64, 129, 192, 260});
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
  // With one key the gradients for scores are 0, as differences of a result and the same before it was rounded.
  c.dropout = c.keys > 1 ? pick(random, {0, 0, 1}) * 0.2 : 0;
  return c;
}

CompileOptions on_best_device() {
  CompileOptions options;
  options.device = Device::best();
  return options;
}

// Compared with the largest result; of 16 bits a product's factors and results are rounded some times.
constexpr double kTolerance = 1.6e-2;

void expect_near(const Graph& graph, const Feeds& feeds, const Tensors& got) {
  for (const auto& [name, expected] : evaluate_graph(graph, feeds)) {
    const Dense values = got.at(name).to_doubles();
    ASSERT_EQ(values.size(), expected.size());
    double most = 1e-3, error = 0;
    for (const double value : expected) most = std::max(most, std::fabs(value));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(std::isfinite(values[i])) << name << " " << i;
      error = std::max(error, std::fabs(values[i] - expected[i]));
    }
    EXPECT_LE(error, kTolerance * most) << name;
  }
}

TEST(AttentionGpu, OfRandomShapesIsRight) {
  std::mt19937 random(7);
  for (unsigned i = 0; i < 30; ++i) {
    const AttentionCase c = random_case(&random);
    SCOPED_TRACE(to_string(c));
    const auto graph = graph_of(c, true);
    const Feeds feeds = feeds_of(c, *graph, i);
    Parameters store(*graph, Device::best());
    Program program(*graph, on_best_device(), &store);
    const Tensors tensors = to_tensors(*graph, feeds), parameters = parameter_tensors(*graph, feeds);
    const auto run = [&] {  // random numbers follow from a parameter that counts runs
      for (const auto& [name, value] : parameters) store.set(name, value);
      return program.run(tensors);
    };
    const Tensors got = run();
    expect_near(*graph, feeds, got);
    expect_same_bits(got, run());
    if (testing::Test::HasFailure()) return;
  }
}

// Runs of one program with feeds that `change` has changed.
Tensors run(const AttentionCase& c, const std::function<void(Feeds*)>& change, int runs = 1) {
  const auto graph = graph_of(c, true);
  Feeds feeds = feeds_of(c, *graph);
  change(&feeds);
  Program program(*graph, on_best_device());
  const Tensors tensors = to_tensors(*graph, feeds), first = program.run(tensors);
  for (int i = 1; i < runs; ++i) expect_same_bits(first, program.run(tensors));
  return first;
}

TEST(AttentionGpu, HasTheSameBitsInEveryRun) {
  const AttentionCase c{.batch = 3, .heads = 8, .key_heads = 4, .queries = 700, .keys = 700, .right = 0};
  EXPECT_FALSE(run(
                   c, [](Feeds*) {}, 20)
                   .empty());
}

TEST(AttentionGpu, DoesNotSeeNaNsBehindTheLengths) {
  for (const std::int64_t rows : {50, 100, 320}) {
    const AttentionCase c{
        .batch = 3, .heads = 2, .key_heads = 2, .queries = rows, .keys = rows, .right = 0, .has_lengths = true};
    const Tensors expected = run(c, [](Feeds*) {});
    const Tensors got = run(c, [&](Feeds* feeds) { put_nans_behind_lengths(c, feeds); });
    expect_same_bits(expected, got);
  }
}

TEST(AttentionGpu, TakesScoresFarFromZero) {
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
