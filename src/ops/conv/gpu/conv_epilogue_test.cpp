// SPDX-License-Identifier: Apache-2.0
// Groups that are the epilogue of a convolution's kernel: which are, and their results in the emulation, against
// float64.
#include <gtest/gtest.h>

#include <set>

#include "gpu/driver/nvrtc.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "plan/epilogues.h"
#include "tests/gpu/emulated_cases.h"

namespace paoding::testing_program {
namespace {

using Axes = std::array<std::int64_t, 3>;
constexpr Axes kPixels{0, 2, 3};

// The ops after a convolution `y` of an image of `x` by `w`.
struct EndCase {
  const char* what;
  Shape x, w;
  DType dtype;
  Conv2dOptions options = {};
  void (*build)(Graph& g, const Value& y);
  bool is_gradient = false;
};

// An image that another convolution reads, so that its channels lie innermost.
void fetch_convolved(Graph& g, const char* name, const Value& image) {
  const Value w = g.input(std::string("w_") + name, image.dtype(), {8, image.shape()[1], 1, 1});
  g.fetch(name, conv2d(image, w));
}
// Given with its channels innermost.
Value image(Graph& g, const char* name, const Value& like) {
  const Shape& shape = like.shape();
  const Value given = g.input(name, like.dtype(), {shape[0], shape[2], shape[3], shape[1]});
  return transpose(given, std::array<std::int64_t, 4>{0, 3, 1, 2});
}
Value per_channel(Graph& g, const char* name, const Value& like) {
  return reshape(g.input(name, f32, {like.shape()[1]}), Shape{1, like.shape()[1], 1, 1});
}
void fetch_sums(Graph& g, const char* name, const Value& image) { g.fetch(name, sum(cast(image, f32), kPixels)); }

void statistics(Graph& g, const Value& y) {
  const Value wide = cast(y, f32);
  g.fetch("sum", sum(wide, kPixels)), g.fetch("squares", sum(square(wide), kPixels));
  fetch_convolved(g, "kept", y);
}
void activation(Graph& g, const Value& y) {
  const Value activated = sigmoid(cast(y, f32) + per_channel(g, "b", y)) * cast(image(g, "r", y), f32);
  fetch_convolved(g, "activated", cast(activated, y.dtype()));
}
void limited(Graph& g, const Value& y) { fetch_convolved(g, "limited", hardtanh(y, 0, 6)); }
void numbered(Graph& g, const Value& y) {
  Value numbers = full(g, {}, 0, f32);
  for (int axis = 0; axis < 4; ++axis) numbers = numbers * 3.0 + cast(iota(g, y.shape(), axis, i32), f32);
  fetch_convolved(g, "numbered", cast(cast(y, f32) * sin(numbers), y.dtype()));
}
void masked_residual(Graph& g, const Value& y) {
  const Value zero = full(g, {}, 0, y.dtype()), z = image(g, "z", y), c = image(g, "c", y);
  const Value masked = select(greater(z, full(g, {}, 0.5, y.dtype())), y + image(g, "r", y), zero);
  fetch_convolved(g, "masked", masked);
  fetch_sums(g, "sum", masked);
  g.fetch("product", sum(cast(masked, f32) * (cast(c, f32) * per_channel(g, "a", y)), kPixels));
}

// Columns and windows that end within tiles, one tile of columns and two, rows of taps, phases of a stride.
const std::vector<EndCase>& end_cases() {
  static const std::vector<EndCase> all = {
      {"statistics of one tap", {2, 40, 19, 17}, {72, 40, 1, 1}, bf16, {}, statistics},
      {"statistics of nine taps", {3, 32, 11, 9}, {40, 32, 3, 3}, f16, {.padding = {1, 1, 1, 1}}, statistics},
      {"statistics of nine taps by patches",
       {3, 32, 14, 15},
       {72, 32, 3, 3},
       f16,
       {.padding = {1, 1, 1, 1}},
       statistics},
      {"statistics of few channels",
       {2, 3, 21, 20},
       {64, 3, 7, 7},
       bf16,
       {.stride = {2, 2}, .padding = {3, 3, 3, 3}},
       statistics},
      {"statistics of few channels by rows of windows",
       {2, 3, 9, 164},
       {64, 3, 7, 7},
       f16,
       {.stride = {2, 2}, .padding = {3, 3, 3, 3}},
       statistics},
      {"an activation and a residual", {2, 32, 9, 8}, {136, 32, 3, 3}, bf16, {.stride = {2, 1}}, activation},
      {"a limit after few channels", {2, 24, 19, 17}, {104, 24, 1, 1}, f16, {}, limited},
      {"what reads where it is", {3, 32, 9, 8}, {72, 32, 2, 2}, bf16, {}, numbered},
      {"a gradient's mask and sums", {3, 136, 13, 11}, {40, 136, 1, 1}, bf16, {}, masked_residual, true},
      {"the same of nine taps", {2, 64, 12, 13}, {40, 64, 3, 3}, f16, {.padding = {1, 1, 1, 1}}, masked_residual, true},
      {"the same of many channels",
       {2, 64, 12, 13},
       {72, 64, 3, 3},
       bf16,
       {.padding = {1, 1, 1, 1}},
       masked_residual,
       true},
      {"phases of a gradient",
       {2, 40, 9, 11},
       {48, 40, 3, 3},
       bf16,
       {.stride = {2, 2}, .padding = {1, 1, 1, 1}},
       activation,
       true},
  };
  return all;
}

Value convolution(Graph& g, const EndCase& c) {
  const Value x = g.input("x", c.dtype, c.x), w = g.input("w", c.dtype, c.w);
  const Value y = conv2d(x, w, c.options);
  if (!c.is_gradient) return y;
  const Value dy = image(g, "dy", y);
  return gradients(std::array{sum(cast(y, f32) * cast(dy, f32))}, std::array{x})[0];
}

// A chip whose memory is so slow that every epilogue pays; with few SMs a CTA has several tiles.
TargetPtr chip_of(int sms, std::int64_t cache_bytes = 0) {
  Target chip = named_target("h200");
  chip.sm_count = sms, chip.last_cache_bytes = cache_bytes;
  chip.read_bytes_per_us = chip.write_bytes_per_us = chip.cached_bytes_per_us = 1;
  return std::make_shared<const Target>(chip);
}

void check_in_emulation(int sms, std::int64_t cache_bytes) {
  EmulatedCases made;
  unsigned seed = 0;
  for (const EndCase& c : end_cases()) {
    auto g = std::make_unique<Graph>();
    c.build(*g, convolution(*g, c));
    Plan plan = std::move(compile_plan(*g, {}, chip_of(sms, cache_bytes)).plan);
    EXPECT_EQ(std::ranges::count_if(plan.steps, has_epilogue), 1) << c.what << "\n" << to_string(plan);
    Feeds feeds = make_feeds(*g, ++seed);
    made.add(c.what, std::move(g), std::move(feeds), std::move(plan));
  }
  made.check(16);
}

TEST(ConvEpilogue, IsRightWhereEveryCtaHasATile) { check_in_emulation(132, 1 << 20); }
TEST(ConvEpilogue, IsRightWhereACtaHasManyTiles) { check_in_emulation(1, 1 << 20); }
TEST(ConvEpilogue, IsRightWhereTheNextTileComesMeanwhile) { check_in_emulation(1, 0); }

// A residual block with batch norms in training: sums from 0 after convolutions, the masked gradient and its sums.
TEST(ConvEpilogue, OfABlockWithBatchNormsIsRight) {
  Graph g;
  const Shape x_shape{2, 32, 8, 8};
  const Value x = image(g, "x", g.input("like", f32, x_shape));
  Values wanted;
  const auto layer = [&](const Value& from, const std::string& name, std::int64_t outputs) {
    wanted.push_back(g.input("w_" + name, f32, {outputs, from.shape()[1], 1, 1}));
    wanted.push_back(g.input("gamma_" + name, f32, {outputs}));
    return batch_norm(conv2d(from, wanted[wanted.size() - 2]), wanted.back(), g.input("beta_" + name, f32, {outputs}),
                      {}, {});
  };
  const Value inner = relu(layer(x, "first", 40)), y = relu(layer(inner, "second", 32) + x);
  const Values made = gradients(std::array{sum(cast(y, f32) * cast(image(g, "dy", y), f32))}, wanted);
  for (std::size_t i = 0; i < made.size(); ++i) g.fetch("d" + std::to_string(i), made[i]);
  CompileOptions mixed;
  mixed.precision = bf16;
  const Feeds feeds = make_feeds(g, 3);
  // On a GPU whose convolutions have no epilogues, the same roundings in kernels of their own.
  Tensors of[2];
  for (const bool has_epilogues : {false, true}) {
    const auto chip = has_epilogues ? chip_of(1) : std::make_shared<const Target>(named_target("a100"));
    Plan plan = std::move(compile_plan(g, mixed, chip).plan);
    EXPECT_EQ(std::ranges::count_if(plan.steps, has_epilogue), has_epilogues ? 2 : 0) << to_string(plan);
    const EmulatedProgram program(std::move(plan));
    ASSERT_EQ(program.library_op(), "");
    of[has_epilogues] = program.run(gpu::EmulatedKernels(program.kernels()), to_tensors(g, feeds), 1);
  }
  for (const auto& [name, made] : of[1]) {
    const std::vector<double> expected = of[0].at(name).to_doubles(), values = made.to_doubles();
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 0) << name;
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 0.005 * largest) << name;
  }
}

TEST(ConvEpilogue, IsRightOnAGpu) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  CasesOnGpu made;
  for (const EndCase& c : end_cases()) {
    auto g = std::make_unique<Graph>();
    c.build(*g, convolution(*g, c));
    Feeds feeds = make_feeds(*g, 5);
    made.add(c.what, std::move(g), std::move(feeds));
  }
  made.check(64);
}

TEST(ConvEpilogue, CompilesInEitherPlaceOfTheTile) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::nvrtc_problem();
  std::set<std::string> seen;
  for (const EndCase& c : end_cases()) {
    for (const std::int64_t cache_bytes : {0, 1 << 20}) {
      Graph g;
      c.build(g, convolution(g, c));
      const Plan plan = compile_plan(g, {}, chip_of(132, cache_bytes)).plan;
      for (const Step& step : plan.steps) {
        if (!has_epilogue(step)) continue;
        for (const gpu::TextLaunch& launch : step.text->launches) {
          if (!seen.insert(launch.entry).second) continue;
          EXPECT_FALSE(gpu::compile(launch.source, "conv.cu", "sm_90a").empty()) << c.what;
        }
      }
    }
  }
  EXPECT_FALSE(seen.empty());
}

// Two convolutions, and both groups after the second: the first one's sums, and the epilogue of the second.
TEST(ConvEpilogue, OfTwoConvolutionsAreBothTaken) {
  Graph g;
  const Value y = conv2d(g.input("x", bf16, {2, 64, 16, 16}), g.input("w", bf16, {64, 64, 3, 3}));
  fetch_sums(g, "sum", y);
  fetch_sums(g, "activated", relu(conv2d(y, g.input("v", bf16, {64, 64, 1, 1}))));
  const Plan plan = compile_plan(g, {}, chip_of(132)).plan;
  EXPECT_EQ(std::ranges::count_if(plan.steps, has_epilogue), 2) << to_string(plan);
}

// A group whose result another reads from the same memory, or that lies otherwise, stays a group of its own.
TEST(ConvEpilogue, LeavesWhatDoesNotGoOverTheResultAsItLies) {
  const auto epilogues = [](void (*build)(Graph&, const Value&)) {
    Graph g;
    build(g, conv2d(g.input("x", bf16, {2, 64, 16, 16}), g.input("w", bf16, {64, 64, 3, 3})));
    const Plan plan = compile_plan(g, {}, chip_of(132)).plan;
    return std::ranges::count_if(plan.steps, has_epilogue);
  };
  EXPECT_EQ(epilogues(statistics), 1);
  EXPECT_EQ(epilogues([](Graph& g, const Value& y) {  // of rows, not of channels
              g.fetch("sum", sum(cast(y, f32), std::array<std::int64_t, 2>{1, 3}));
              fetch_convolved(g, "kept", y);
            }),
            0);
  EXPECT_EQ(epilogues([](Graph& g, const Value& y) {  // needs a part of the result first
              const Value first = slice(slice(y, 2, 0, 1), 3, 0, 1);
              fetch_sums(g, "sum", y - first);
              fetch_convolved(g, "kept", y);
            }),
            0);
}

}  // namespace
}  // namespace paoding::testing_program
