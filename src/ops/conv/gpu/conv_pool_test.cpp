// SPDX-License-Identifier: Apache-2.0
// Convolutions that pool their windows, and gradients that are spread where they are read: run by the emulation against
// float64, for pools that end within rows, tiles and pieces; which of them are made; that the sources compile.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gpu/driver/nvrtc.h"
#include "paoding/nn.h"
#include "tests/gpu/emulated_cases.h"

namespace paoding::testing_program {
namespace {

struct PoolEndCase {
  Shape x, w;
  std::array<std::int64_t, 2> pool = {2, 2};
  Conv2dOptions options = {};
  bool has_relu = true;
};

const std::vector<PoolEndCase>& pool_end_cases() {
  static const std::vector<PoolEndCase> all = {
      {{3, 1, 9, 10}, {16, 1, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}}},
      {{5, 16, 14, 14}, {32, 16, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}}},
      {{3, 32, 7, 7}, {33, 32, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}}},
      {{2, 3, 11, 9}, {7, 3, 5, 5}, {2, 2}, {.padding = {2, 2, 2, 2}}, false},
      {{2, 6, 12, 19}, {9, 6, 3, 3}, {1, 4}, {.dilation = {2, 1}}},
      {{2, 8, 9, 17}, {8, 8, 3, 1}, {2, 8}, {}, false},
      {{1, 24, 8, 6}, {40, 24, 2, 3}, {2, 1}, {.padding = {0, 1, 2, 1}}},
      {{2, 4, 13, 30}, {12, 4, 3, 3}, {2, 2}, {.stride = {2, 3}, .padding = {1, 1, 1, 1}}},
      {{1, 2, 40, 3}, {3, 2, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 0}}},
  };
  return all;
}

std::string to_string(const PoolEndCase& c) {
  return fmt::format("{} with {}, pool {} x {}, stride {}", paoding::to_string(c.x), paoding::to_string(c.w), c.pool[0],
                     c.pool[1], c.options.stride[0]);
}

// The result, and the gradients of all inputs for the gradient that is given for it.
void build(Graph& g, const PoolEndCase& c, DType dtype = f32) {
  const Value x = g.input("x", dtype, c.x), w = g.input("w", dtype, c.w), b = g.input("b", dtype, {c.w[0]});
  Conv2dOptions options = c.options;
  options.activation = c.has_relu ? Activation::relu : Activation::none;
  const Value y = max_pool2d(conv2d(x, w, b, options), {.kernel = c.pool});
  const Value dy = g.input("dy", dtype, y.shape());
  const Values made = gradients(std::array{sum(y * dy)}, std::array{x, w, b});
  g.fetch("y", y), g.fetch("dx", made[0]), g.fetch("dw", made[1]), g.fetch("db", made[2]);
}

CompileOptions in_tf32() {
  CompileOptions options;
  options.allow_tf32 = true;
  return options;
}

// A plan for a chip so small that a CTA has several tiles, or for the whole one.
Plan plan_of(const Graph& g, bool is_small, const CompileOptions& options = in_tf32(), const char* name = "h200") {
  Target chip = named_target(name);
  if (is_small) chip.sm_count = 1;
  return std::move(compile_plan(g, options, std::make_shared<const Target>(chip)).plan);
}

std::multiset<std::string> ops_of(const Plan& plan) {
  std::multiset<std::string> ops;
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::kernel) ops.insert(step.call.op->name);
  }
  return ops;
}

const std::multiset<std::string> kPooled{"conv2d_pool", "conv2d_pool_grad_input", "conv2d_pool_grad_weight"};

// A gradient for an image whose windows are apart is not spread by its reader.
const std::multiset<std::string> kWithStride{"conv2d_grad_input", "conv2d_pool", "conv2d_pool_grad_weight",
                                             "max_pool2d_grad"};

Feeds feeds_of(const Graph& graph, unsigned seed) {
  Feeds feeds = make_feeds(graph, seed);
  for (auto& [name, values] : feeds) {
    for (double& value : values) value = name == "b" ? value : to_tf32(static_cast<float>(value));
  }
  return feeds;
}

constexpr double kPoolRoundings = 8;  // partial sums may be larger than a sum is in the end

TEST(ConvPool, IsRightInTheEmulation) {
  EmulatedCases made;
  unsigned seed = 0;
  for (const PoolEndCase& c : pool_end_cases()) {
    for (const bool is_small : {false, true}) {
      for (const char* unused : {"", "choose_layouts"}) {
        if (*unused != 0 && is_small) continue;
        auto g = std::make_unique<Graph>();
        build(*g, c);
        CompileOptions options = in_tf32();
        if (*unused != 0) options.disabled_passes = {unused};
        Plan plan = plan_of(*g, is_small, options);
        EXPECT_EQ(ops_of(plan), c.options.stride[0] == 1 ? kPooled : kWithStride) << to_string(c);
        Feeds feeds = feeds_of(*g, ++seed);
        made.add(to_string(c) + (*unused != 0 ? ", channels outermost" : ""), std::move(g), std::move(feeds),
                 std::move(plan));
      }
    }
  }
  made.check(kPoolRoundings);
}

// The chip has no TMA tiles to take cases of more channels.
void check_in_emulation(DType dtype) {
  EmulatedCases made;
  unsigned seed = 0;
  for (const PoolEndCase& c : pool_end_cases()) {
    auto g = std::make_unique<Graph>();
    build(*g, c, dtype);
    Plan plan = plan_of(*g, true, {}, "a100");
    EXPECT_EQ(ops_of(plan), c.options.stride[0] == 1 ? kPooled : kWithStride) << to_string(c);
    Feeds feeds = make_feeds(*g, ++seed);
    made.add(to_string(c), std::move(g), std::move(feeds), std::move(plan));
  }
  made.check(kPoolRoundings);
}
// The index alone may be read; whole numbers, so that no rounding chooses another window.
TEST(ConvPool, GivesItsIndexWhereNobodyReadsItsResult) {
  EmulatedCases made;
  for (const DType dtype : {f32, bf16}) {
    auto g = std::make_unique<Graph>();
    const Value x = g->input("x", dtype, {2, 4, 6, 8}), w = g->input("w", dtype, {8, 4, 3, 3}),
                b = g->input("b", dtype, {8});
    const Attrs attrs{{"padding", Ints{1, 1, 1, 1}}, {"activation", std::string("relu")}};
    g->fetch("index", call(*find_op("conv2d_pool"), std::array{x, w, b}, attrs)[1]);
    Plan plan = plan_of(*g, true, in_tf32(), "a100");
    EXPECT_EQ(ops_of(plan).count("conv2d_pool"), 1U);
    Feeds feeds = make_feeds(*g, 7);
    for (auto& [name, values] : feeds) {
      for (double& value : values) value = std::round(value * 4);
    }
    made.add(std::string("index in ") + to_string(dtype).data(), std::move(g), std::move(feeds), std::move(plan));
  }
  made.check(0);
}
TEST(ConvPool, IsRightInBf16) { check_in_emulation(bf16); }
TEST(ConvPool, IsRightInF16) { check_in_emulation(f16); }

TEST(ConvPool, IsRightOnAGpu) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  CasesOnGpu made;
  for (const PoolEndCase& c : pool_end_cases()) {
    for (const DType dtype : {f32, bf16, f16}) {
      auto g = std::make_unique<Graph>();
      build(*g, c, dtype);
      Feeds feeds = dtype == f32 ? feeds_of(*g, 5) : make_feeds(*g, 5);
      made.add(to_string(c) + " in " + std::string(paoding::to_string(dtype)), std::move(g), std::move(feeds),
               in_tf32(), 2);
    }
  }
  made.check(kPoolRoundings);
}

// NaN, equal numbers and results of which none is above 0: as the pool after a convolution has it.
TEST(ConvPool, TakesTheFirstOfEqualWindowsAndNoneWhereTheReluGivesZero) {
  Graph g;
  const Value x = g.input("x", f32, {1, 1, 2, 8}), w = g.input("w", f32, {1, 1, 1, 1}), b = g.input("b", f32, {1});
  const auto made = max_pool2d_with_index(conv2d(x, w, b, {.activation = Activation::none}), {});
  const Value masked = max_pool2d(conv2d(x, w, b, {.activation = Activation::relu}));
  g.fetch("y", made.first);
  g.fetch("dx", gradients(std::array{sum(masked)}, std::array{x})[0]);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> pixels{3, 3, -1, -2, 0, 0, 1, nan, 3, 1, -4, -1, 0, -1, nan, 2};
  const Tensors feeds{{"x", Tensor::from(f32, {1, 1, 2, 8}, pixels)},
                      {"w", Tensor::from(f32, {1, 1, 1, 1}, std::vector<double>{1})},
                      {"b", Tensor::from(f32, {1}, std::vector<double>{0})}};
  EmulatedProgram program(plan_of(g, false));
  const gpu::EmulatedKernels compiled(program.kernels());
  const Tensors got = program.run(compiled, feeds, 1);
  const std::vector<double> y = got.at("y").to_doubles();
  EXPECT_EQ(std::vector<double>(y.begin(), y.begin() + 3), (std::vector<double>{3, -1, 0}));
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_EQ(got.at("dx").to_doubles(), (std::vector<double>{1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(ConvPool, IsMadeOnlyWhereNobodyElseWantsWhatItLeavesOut) {
  const auto ops = [](const std::function<void(Graph&)>& build, const CompileOptions& options = in_tf32(),
                      const char* target = "h200") {
    Graph g;
    build(g);
    return ops_of(plan_of(g, false, options, target));
  };
  const PoolEndCase plain = pool_end_cases()[1];
  const auto whole = [&](Graph& g) { build(g, plain); };
  const std::multiset<std::string> apart{"conv2d_bias", "conv2d_grad_input", "conv2d_grad_weight", "max_pool2d",
                                         "max_pool2d_grad"};
  EXPECT_EQ(ops(whole), kPooled);
  EXPECT_EQ(ops(whole, in_tf32(), "a100"), kPooled);
  for (const char* chip : {"h200", "a100"}) {
    EXPECT_EQ(ops([&](Graph& g) { build(g, plain, bf16); }, {}, chip), kPooled) << "16 bits";
  }
  EXPECT_EQ(ops([&](Graph& g) { build(g, pool_end_cases()[2], bf16); }, {}, "a100"), kPooled);
  EXPECT_EQ(ops([&](Graph& g) { build(g, pool_end_cases()[2], bf16); }, {}), apart) << "TMA tiles are as fast";
  EXPECT_EQ(ops(whole, in_tf32(), "t4"), apart) << "no copies beside other work";
  EXPECT_EQ(ops(whole, {}), apart) << "f32 that is not to be rounded";
  CompileOptions without = in_tf32();
  without.disabled_passes = {"pool_convolutions"};
  EXPECT_EQ(ops(whole, without), apart);

  const auto forward = [&](Graph& g, std::array<std::int64_t, 2> pool, std::array<std::int64_t, 2> stride) {
    Conv2dOptions options;
    options.activation = Activation::relu;
    const Value r = conv2d(g.input("x", f32, {2, 16, 14, 14}), g.parameter("w", f32, {32, 16, 3, 3}),
                           g.parameter("b", f32, {32}), options);
    g.fetch("y", max_pool2d(r, {.kernel = pool, .stride = stride}));
    return r;
  };
  const std::multiset<std::string> pooled{"conv2d_pool"}, behind{"conv2d_bias", "max_pool2d"};
  EXPECT_EQ(ops([&](Graph& g) { forward(g, {2, 2}, {2, 2}); }), pooled);
  EXPECT_EQ(ops([&](Graph& g) { forward(g, {3, 3}, {3, 3}); }), behind) << "no pool that a warp's windows hold whole";
  EXPECT_EQ(ops([&](Graph& g) { forward(g, {2, 2}, {1, 1}); }), behind) << "windows that overlap";
  EXPECT_EQ(ops([&](Graph& g) { g.fetch("r", forward(g, {2, 2}, {2, 2})); }), behind) << "all windows are fetched";
  EXPECT_EQ(ops([&](Graph& g) {
              const Value r = conv2d(g.input("x", f32, {2, 16, 14, 14}), g.parameter("w", f32, {32, 16, 3, 3}),
                                     g.parameter("b", f32, {32}));
              const auto made = max_pool2d_with_index(r);
              g.fetch("y", made.first), g.fetch("index", made.second);
            }),
            behind)
      << "the index is fetched";
}

TEST(ConvPool, CompilesForEveryTile) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::nvrtc_problem();
  std::set<std::string> seen;
  for (const auto& [arch, target] : {std::pair{"sm_80", "a100"}, {"sm_90a", "h200"}}) {
    for (std::size_t i = 0; i < pool_end_cases().size(); ++i) {
      const PoolEndCase& c = pool_end_cases()[i];
      Graph g;
      build(g, c, i % 3 == 0 ? bf16 : f32);
      const Plan plan = plan_of(g, false, in_tf32(), target);
      for (const Step& step : plan.steps) {
        if (step.kind != Step::Kind::kernel) continue;
        for (const gpu::TextLaunch& launch : step.text->launches) {
          if (!seen.insert(arch + launch.entry).second) continue;
          EXPECT_FALSE(gpu::compile(launch.source, "conv.cu", arch).empty()) << to_string(c);
        }
      }
    }
  }
  EXPECT_FALSE(seen.empty());
}

}  // namespace
}  // namespace paoding::testing_program
