// SPDX-License-Identifier: Apache-2.0
// Programs of named extents: random families of graphs at random sizes, beside programs compiled for one size alone;
// and the memory that many sizes take.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "base/check.h"
#include "paoding/graph_text.h"
#include "paoding/nn.h"
#include "paoding/ops/lists.h"
#include "paoding/programs.h"
#include "tests/support/program_check.h"
#include "tests/support/random_graph.h"

namespace paoding::testing_program {
namespace {

using Key = Programs::Key;
constexpr std::int64_t kFeatures = 5;

// The same random steps for every size: x [T, B, 5] through products, sums, views, loops and layers, and gradients.
std::unique_ptr<Graph> family(unsigned seed, std::int64_t B, std::int64_t T) {
  std::mt19937 random(seed);
  auto graph = std::make_unique<Graph>();
  Value x = graph->input("x", f32, {T, B, kFeatures});
  const Value lengths = graph->input("lengths", i64, {B});
  const int steps = 2 + static_cast<int>(random() % 5);
  for (int i = 0; i < steps; ++i) {
    const std::string name = "step" + std::to_string(i);
    switch (random() % 9) {
      case 0: x = tanh(x * 0.5 + 0.25); break;
      case 1: x = nn::Linear(*graph, name, kFeatures, kFeatures)(x); break;
      case 2: x = x - mean(x, {-1}, true); break;
      case 3: x = x + sum(x, {0}, true) * 0.1; break;
      case 4: x = softmax(x) * 2.0; break;
      case 5: x = transpose(reshape(transpose(x, {1, 0, 2}), {B, T, kFeatures}), {1, 0, 2}); break;
      case 6: x = slice(concat({x, x * x}, 2), {0, 0, 2}, {T, B, 2 + kFeatures}); break;
      case 7: x = nn::Lstm(*graph, name, kFeatures, kFeatures)(x, {.lengths = lengths}).outputs; break;
      default: x = cumsum(x, 0) * 0.25; break;
    }
  }
  const Value loss = sum(x * x);
  graph->fetch("x", x);
  graph->fetch("loss", loss);
  if (random() % 2 == 0) graph->fetch("dx", gradients(loss, {graph->find("x")})[0]);
  return graph;
}

Tensors feeds_for(std::int64_t B, std::int64_t T, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Dense x(static_cast<std::size_t>(T * B * kFeatures)), lengths(static_cast<std::size_t>(B));
  for (double& value : x) value = normal(random);
  for (double& value : lengths) value = static_cast<double>(random() % static_cast<unsigned>(T + 1));
  return {{"x", Tensor::from(f32, {T, B, kFeatures}, x)}, {"lengths", Tensor::from(i64, {B}, lengths)}};
}

// Sizes about which kernels and buckets change: 0, 1, odd ones, 2^k and its neighbours.
const std::vector<std::int64_t> kBatches{0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33},
    kTimes{0, 1, 2, 3, 7, 8, 9, 13, 15, 16, 17, 24, 25};

TEST(ShapeClass, GivesAtEverySizeWhatAProgramOfThatSizeGives) {
  std::int64_t compared = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    const Parameters parameters(*family(seed, 1, 1), Device::cpu(), {.seed = seed});
    const auto build = [&](const Key& sizes) { return family(seed, sizes[0], sizes[1]); };
    Programs programs({{"batch", 0, 33}, {"time", 0, 25}}, build, {}, &parameters);
    std::mt19937 random(seed + 100);
    for (int i = 0; i < 10; ++i) {
      const std::int64_t B = kBatches[random() % kBatches.size()], T = kTimes[random() % kTimes.size()];
      SCOPED_TRACE(fmt::format("seed {}, batch {}, time {}", seed, B, T));
      const Tensors feeds = feeds_for(B, T, seed + static_cast<unsigned>(i));
      Program alone(*family(seed, B, T), {}, &parameters);
      expect_same_bits(alone.run(feeds), programs.at({{"time", T}, {"batch", B}}).run(feeds));
      ++compared;
    }
  }
  EXPECT_EQ(compared, 120);
}

// At borders of buckets a size goes to its bucket, and runs as a program of the bucket does.
TEST(ShapeClass, RunsASizeByTheProgramOfItsBucket) {
  const Parameters parameters(*family(3, 1, 1), Device::cpu(), {.seed = 3});
  const auto build = [](const Key& sizes) { return family(3, sizes[0], sizes[1]); };
  Programs programs({{"batch", 1, 33, powers_of_two()}, {"time", 1, 25, multiples_of(8)}}, build, {}, &parameters);
  for (const std::int64_t B : {1, 2, 3, 15, 16, 17, 32, 33}) {
    for (const std::int64_t T : {1, 7, 8, 9, 16, 17, 24, 25}) {
      const Key bucket = programs.bucket_of({{"batch", B}, {"time", T}});
      const Tensors feeds = feeds_for(bucket[0], bucket[1], 1);
      Program alone(*family(3, bucket[0], bucket[1]), {}, &parameters);
      expect_same_bits(alone.run(feeds), programs.at({B, T}).run(feeds));
    }
  }
  EXPECT_EQ(programs.size(), 6 * 4) << "1, 2, 4, 16, 32, 33 by 8, 16, 24, 25";
  EXPECT_EQ(programs.made(), programs.size());
}

// Graphs that have nothing in common share the arena all the same.
TEST(ShapeClass, MayHoldAnyGraphs) {
  const auto build = [](const Key& key) {
    auto graph = std::make_unique<Graph>();
    RandomGraph(*graph, static_cast<unsigned>(key[0]));
    return graph;
  };
  Programs programs({{"seed", 0, 1000}}, build);
  programs.keep_at_most(3);
  std::mt19937 random(5);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t seed = static_cast<std::int64_t>(random() % 8);
    const auto graph = build({seed});
    Tensors feeds;
    for (const NodeId id : graph->inputs()) {
      const Type& type = graph->node(id).types[0];
      Dense values(static_cast<std::size_t>(type.shape.elements()));
      for (double& value : values) value = static_cast<double>(random() % 64) / 32 - 1;
      feeds[graph->node(id).name.str()] = Tensor::from(type.dtype, type.shape, values);
    }
    Program alone(*graph);
    expect_same_bits(alone.run(feeds), programs.at({seed}).run(feeds));
  }
  EXPECT_EQ(programs.size(), 3);
  EXPECT_GT(programs.made(), 8) << "some were dropped and made again";
}

TEST(ShapeClass, ReadsGraphTextAtItsSizes) {
  const GraphText text(
      "paoding graph 1\nextent batch = 1..9\nextent time = 0..64 multiples_of(8)\n"
      "x = input f32[time,batch]\nw = parameter f32[]\nxw = mul(x, w)\ny = reshape(xw) {shape=[batch*time]}\nfetch "
      "y\n");
  Parameters parameters(*text.at({1, 8}));
  parameters.set("w", Tensor::from(f32, {}, {3.0}));
  Programs programs(text.extents(), text.build(), {}, &parameters);
  Program& program = programs.at({{"batch", 2}, {"time", 9}});
  EXPECT_EQ(program.input_type(0), (Type{f32, {16, 2}}));
  EXPECT_EQ(program.run({{"x", Tensor::from(f32, {16, 2}, Dense(32, 2.0))}}).at("y").to_doubles(), Dense(32, 6.0));
}

TEST(ShapeClass, NamesExtentsInErrors) {
  Programs programs({{"batch", 1, 256}, {"time", 1, 256, multiples_of(8)}},
                    [](const Key& sizes) { return sizes[1] == 16 ? nullptr : family(1, sizes[0], sizes[1]); });
  EXPECT_EQ(message_of([&] { programs.at({{"batch", 1}, {"time", 300}}); }), "time is 300; this class holds 1 to 256");
  EXPECT_EQ(message_of([&] { programs.at({0, 8}); }), "batch is 0; this class holds 1 to 256");
  EXPECT_TRUE(has(message_of([&] { programs.at({{"batch", 8}}); }), "time has no size; the extents are: batch"));
  EXPECT_TRUE(has(message_of([&] { programs.bucket_of({{"batch", 8}, {"tme", 9}}); }), "there is no extent 'tme'"));
  EXPECT_EQ(message_of([&] { programs.at({3, 9}); }), "programs: the function gave no graph for batch=3, time=16");
  EXPECT_EQ(message_of([&] { programs.keep_at_most(0); }), "programs: keeps at most 0, needed is at least 1");
  EXPECT_EQ(programs.size(), 0);
}

TEST(ShapeClass, DropsWhatWasNotAskedForForLongest) {
  const auto build = [](const Key& sizes) {
    auto graph = std::make_unique<Graph>();
    graph->fetch("y", graph->input("x", f32, {sizes[0]}) * 2.0);
    return graph;
  };
  Programs programs({{"n", 1}}, build);
  programs.keep_at_most(3);
  for (const std::int64_t n : {1, 2, 3, 1, 4}) programs.at({n});  // 2 is the oldest
  EXPECT_EQ(programs.size(), 3);
  EXPECT_EQ(programs.made(), 4);
  for (const std::int64_t n : {1, 3, 4}) programs.at({n});
  EXPECT_EQ(programs.made(), 4);
  programs.at({2});
  EXPECT_EQ(programs.made(), 5);
  programs.keep_at_most(1);
  EXPECT_EQ(programs.size(), 1);
  programs.at({2});
  EXPECT_EQ(programs.made(), 5) << "the last one stays";
  const std::vector<Key> ahead{{7}, {8}};
  programs.keep_at_most(2);
  programs.prepare(ahead);
  EXPECT_EQ(programs.at({8}).run({{"x", Tensor::from(f32, {8}, Dense(8, 1.5))}}).at("y").to_doubles(), Dense(8, 3.0));
}

// Bytes of this process in memory.
std::int64_t resident_bytes() {
  malloc_trim(0);
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Binds sizes in random order, few of which are kept; the bytes by which memory grew for each. Few: fewer than 3000
// sizes fitted in.
std::int64_t bytes_a_size(std::int64_t* count) {
  const auto build = [](const Key& sizes) {
    auto graph = std::make_unique<Graph>();
    const Value x = graph->input("x", f32, {sizes[0], 4});
    const Value w = graph->parameter("w", f32, {4, 4});
    graph->fetch("y", tanh(matmul(x, w) + 1.0));
    return graph;
  };
  const Parameters parameters(*build({1}));
  Programs programs({{"rows", 1, 20000}}, build, {}, &parameters);
  programs.keep_at_most(16);
  std::mt19937 random(1);
  const auto run = [&](std::int64_t rows) {
    programs.at({rows}).run({{"x", Tensor::from(f32, {rows, 4}, Dense(static_cast<std::size_t>(rows) * 4, 0.5))}});
  };
  run(20000);  // the arena of the largest
  constexpr std::int64_t kWarm = 1500, kFewest = 3000, kAll = 10000;
  const auto start = std::chrono::steady_clock::now();
  std::int64_t before = 0;
  for (*count = 0; *count < kAll; ++*count) {
    if (*count == kWarm) before = resident_bytes();
    run(1 + static_cast<std::int64_t>(random() % 20000));
    if (*count > kFewest && std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) break;
  }
  const std::int64_t grown = resident_bytes() - before;
  if (programs.size() != 16 || programs.made() < *count / 2) *count = 0;
  return grown / std::max<std::int64_t>(1, *count - kWarm);
}

// Nothing of those that were dropped stays. In a process of its own: where something has been recorded, the names of
// steps stay.
TEST(ShapeClassDeathTest, TakesNoMoreMemoryForTenThousandSizes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto measure = [] {
    // oneDNN keeps the last 1,024 products that it was asked for, each of another size: 5 MB until that is full.
    setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16", 1);
    std::int64_t count = 0;
    const std::int64_t bytes = bytes_a_size(&count);
    fmt::print(stderr, "{} sizes, {} bytes for each\n", count, bytes);
    std::_Exit(count > 2000 && bytes < 300 ? 0 : 1);
  };
  EXPECT_EXIT(measure(), testing::ExitedWithCode(0), "bytes for each");
}

}  // namespace
}  // namespace paoding::testing_program
