// SPDX-License-Identifier: Apache-2.0
// Convolutions as products on the GPU: run by the emulation against float64, for shapes that end within tiles, blocks
// and pieces, in every dtype and either layout; which convolutions they are chosen for; that the sources compile.
#include <gtest/gtest.h>

#include <random>

#include "gpu/driver/nvrtc.h"
#include "tests/gpu/emulated_cases.h"

namespace paoding::testing_program {
namespace {

struct GemmCase {
  Shape x, w;
  Conv2dOptions options = {};
};

std::string to_string(const GemmCase& c) {
  return fmt::format("{} with {}, stride {}, groups {}", paoding::to_string(c.x), paoding::to_string(c.w),
                     c.options.stride[0], c.options.groups);
}

const std::vector<GemmCase>& gemm_cases() {
  static const std::vector<GemmCase> all = {
      {{3, 1, 9, 10}, {16, 1, 3, 3}, {.padding = {1, 1, 1, 1}}},
      {{2, 16, 9, 9}, {32, 16, 3, 3}, {.padding = {1, 1, 1, 1}}},
      {{1, 32, 7, 7}, {33, 32, 3, 3}, {.padding = {0, 1, 2, 1}}},
      {{2, 3, 11, 8}, {7, 3, 5, 5}, {.stride = {2, 2}, .padding = {2, 2, 2, 2}}},
      {{2, 17, 10, 12}, {19, 17, 3, 3}, {.dilation = {2, 3}}},
      {{1, 32, 9, 8}, {64, 8, 5, 5}, {.stride = {2, 1}, .padding = {2, 2, 2, 2}, .groups = 4}},
      {{2, 24, 5, 6}, {130, 24, 1, 1}},
      {{1, 34, 6, 5}, {48, 34, 3, 3}, {.stride = {1, 3}}},
      {{1, 10, 1, 40}, {12, 10, 1, 7}, {.padding = {0, 0, 6, 0}}},
      {{1, 8, 6, 6}, {8, 8, 2, 2}, {.stride = {3, 3}}},
      {{3, 16, 18, 16}, {24, 16, 3, 3}},
      {{2, 40, 7, 9}, {72, 40, 3, 3}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
      {{1, 72, 8, 7}, {40, 72, 3, 3}, {.stride = {2, 3}, .padding = {2, 0, 1, 2}, .dilation = {2, 3}}},
      {{1, 24, 6, 6}, {72, 24, 1, 1}, {.stride = {2, 2}}},
      {{2, 100, 5, 6}, {120, 100, 1, 1}},
      {{3, 72, 5, 3}, {40, 72, 1, 1}},
      {{1, 64, 5, 8}, {200, 64, 1, 1}},
      {{2, 72, 24, 22}, {8, 72, 3, 3}, {.padding = {1, 1, 1, 1}}},
      {{2, 72, 46, 45}, {8, 72, 1, 2}, {.stride = {2, 2}}},
      {{2, 16, 24, 22}, {16, 8, 3, 3}, {.padding = {1, 1, 1, 1}, .groups = 2}},
  };
  return all;
}

// Groups of few channels: depthwise, with several results a channel, small groups; rows shorter and longer than a
// strip; strides, whose gradients have phases that no tap reads; taps on either side of those that a thread keeps.
const std::vector<GemmCase>& grouped_cases() {
  static const std::vector<GemmCase> all = {
      {{2, 32, 9, 10}, {32, 1, 3, 3}, {.padding = {1, 1, 1, 1}, .groups = 32}},
      {{1, 5, 7, 6}, {5, 1, 3, 3}, {.padding = {1, 1, 1, 1}, .groups = 5}},
      {{2, 16, 8, 9}, {16, 1, 5, 5}, {.stride = {2, 2}, .padding = {2, 2, 2, 2}, .groups = 16}},
      {{1, 8, 5, 12}, {24, 1, 3, 3}, {.padding = {1, 1, 1, 1}, .groups = 8}},
      {{1, 16, 6, 7}, {16, 4, 3, 3}, {.padding = {1, 1, 1, 1}, .groups = 4}},
      {{1, 12, 6, 7}, {8, 3, 3, 2}, {.stride = {1, 2}, .dilation = {2, 1}, .groups = 4}},
      {{2, 72, 3, 3}, {72, 1, 7, 7}, {.padding = {3, 3, 3, 3}, .groups = 72}},
      {{1, 8, 1, 30}, {8, 1, 1, 11}, {.padding = {0, 0, 10, 0}, .groups = 8}},
      {{1, 8, 6, 6}, {8, 1, 2, 2}, {.stride = {3, 3}, .groups = 8}},
  };
  return all;
}

// Convolutions by Hopper's TMA: channels that end within a TMA tile, windows within a tile; strides, whose gradients
// have phases without a tap, or of other taps than the next; taps and padding of all sides.
const std::vector<GemmCase>& tma_cases() {
  static const std::vector<GemmCase> all = {
      {{2, 40, 9, 7}, {72, 40, 3, 3}, {.padding = {1, 1, 1, 1}}},
      {{1, 32, 6, 5}, {40, 32, 1, 1}, {.stride = {2, 2}}},
      {{2, 72, 8, 7}, {136, 72, 3, 3}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
      {{1, 136, 7, 9}, {64, 136, 3, 3}, {.padding = {2, 2, 1, 0}, .dilation = {2, 1}}},
      {{1, 64, 9, 11}, {32, 64, 5, 3}, {.stride = {2, 3}, .padding = {2, 0, 1, 2}, .dilation = {2, 3}}},
      {{3, 32, 10, 10}, {32, 32, 2, 2}, {.stride = {3, 3}}},
  };
  return all;
}

// Squares of windows whose taps read one patch: squares that end beside the result, more columns than a CTA has,
// padding of all sides and dilation, the phases of a stride's gradient.
const std::vector<GemmCase>& patch_cases() {
  static const std::vector<GemmCase> all = {
      {{2, 40, 14, 15}, {72, 40, 3, 3}, {.padding = {1, 1, 1, 1}}},
      {{4, 64, 8, 16}, {48, 64, 3, 3}, {.padding = {1, 1, 1, 1}}},
      {{1, 32, 17, 15}, {136, 32, 3, 2}, {.padding = {2, 1, 0, 2}, .dilation = {2, 1}}},
      {{2, 48, 15, 16}, {64, 48, 3, 3}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
  };
  return all;
}

// Few channels, of which rows of taps are brought: with padding beside the image, rows of taps apart.
const std::vector<GemmCase>& tap_row_cases() {
  static const std::vector<GemmCase> all = {
      {{2, 3, 15, 14}, {40, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3, 3, 3}}},
      {{1, 1, 9, 20}, {32, 1, 3, 5}, {.stride = {1, 3}, .padding = {1, 0, 2, 4}, .dilation = {2, 1}}},
      {{3, 5, 6, 30}, {72, 5, 2, 8}},
  };
  return all;
}

// Rows of up to 128 windows, which are tiles: odd and even numbers of taps, rows of taps that are apart, rows of one
// plane.
const std::vector<GemmCase>& window_row_cases() {
  static const std::vector<GemmCase> all = {
      {{1, 3, 9, 170}, {40, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3, 3, 3}}},
      {{2, 5, 6, 84}, {64, 5, 2, 8}},
      {{1, 1, 9, 100}, {32, 1, 3, 5}, {.padding = {1, 0, 2, 2}, .dilation = {2, 1}}},
      {{2, 4, 7, 256}, {48, 4, 4, 4}, {.stride = {3, 2}, .padding = {2, 1, 1, 1}}},
      {{3, 3, 11, 192}, {64, 3, 7, 7}, {.stride = {2, 2}, .padding = {3, 3, 3, 3}}},
      {{2, 7, 12, 78}, {40, 7, 2, 6}, {.padding = {1, 0, 4, 3}, .dilation = {3, 1}}},
  };
  return all;
}

// The three convolutions of a case. Results that are only fetched lie densely; those that are used lie as they are
// wanted.
void build(Graph& g, const GemmCase& c, DType dtype, bool is_used) {
  const Value x = g.input("x", dtype, c.x), w = g.input("w", dtype, c.w), b = g.input("b", dtype, {c.w[0]});
  Conv2dOptions options = c.options;
  options.activation = Activation::relu;
  const Value y = conv2d(x, w, b, options);
  const Value dy = g.input("dy", dtype, y.shape());
  Attrs attrs = {{"stride", Ints(c.options.stride.begin(), c.options.stride.end())},
                 {"padding", Ints(c.options.padding.begin(), c.options.padding.end())},
                 {"dilation", Ints(c.options.dilation.begin(), c.options.dilation.end())},
                 {"groups", c.options.groups}};
  Attrs size = attrs, kernel = attrs;
  size.set("size", Ints{c.x[2], c.x[3]}), kernel.set("kernel", Ints{c.w[2], c.w[3]});
  const Value dx = call("conv2d_grad_input", {dy, w}, size), dw = call("conv2d_grad_weight", {x, dy}, kernel);
  g.fetch("y", is_used ? y + y : y), g.fetch("dx", is_used ? dx + dx : dx), g.fetch("dw", dw);
}

// TF32 values, where products round their operands to TF32.
Feeds feeds_of(const Graph& graph, bool allow_tf32, unsigned seed) {
  Feeds feeds = make_feeds(graph, seed);
  if (!allow_tf32) return feeds;
  for (auto& [name, values] : feeds) {
    for (double& value : values) value = name == "b" ? value : to_tf32(static_cast<float>(value));
  }
  return feeds;
}

// Where `is_used`, of a chip so small that a CTA has several tiles.
Plan plan_of(const GemmCase& c, DType dtype, bool allow_tf32, const std::string& target, bool is_used = true) {
  Graph g;
  build(g, c, dtype, is_used);
  CompileOptions options;
  options.allow_tf32 = allow_tf32;
  if (!is_used) options.disabled_passes = {"choose_layouts"};
  Target chip = named_target(target);
  if (is_used) chip.sm_count = 1;
  return std::move(compile_plan(g, options, std::make_shared<const Target>(chip)).plan);
}

// A sum of many hundred products rounds off a part of its partial sums, which may be larger than it is in the end.
constexpr double kGemmRoundings = 8;

void check_in_emulation(const std::vector<GemmCase>& gemm_cases, DType dtype, bool allow_tf32) {
  EmulatedCases made;
  unsigned seed = 0;
  for (const GemmCase& c : gemm_cases) {
    for (const bool is_used : {false, true}) {
      auto g = std::make_unique<Graph>();
      build(*g, c, dtype, is_used);
      Feeds feeds = feeds_of(*g, allow_tf32, ++seed);
      made.add(to_string(c), std::move(g), std::move(feeds), plan_of(c, dtype, allow_tf32, "h200", is_used));
    }
  }
  made.check(kGemmRoundings);
}

void check_on_a_gpu(const std::vector<GemmCase>& gemm_cases, const std::vector<std::pair<DType, bool>>& types) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  CasesOnGpu made;
  for (const auto& [dtype, allow_tf32] : types) {
    for (const GemmCase& c : gemm_cases) {
      auto g = std::make_unique<Graph>();
      build(*g, c, dtype, true);
      CompileOptions options;
      options.allow_tf32 = allow_tf32;
      Feeds feeds = feeds_of(*g, allow_tf32, 5);
      made.add(to_string(c) + (allow_tf32 ? " in TF32" : " in " + std::string(paoding::to_string(dtype))), std::move(g),
               std::move(feeds), options, dtype != f32 || allow_tf32 ? 2 : 1);
    }
  }
  made.check(kGemmRoundings);
}

// Also tiles of all sizes, and windows in many parts. A test for each type: compiling their kernels takes long.
void check_gemms_on_a_gpu(DType dtype, bool allow_tf32) {
  check_on_a_gpu({gemm_cases()[0],
                  gemm_cases()[3],
                  gemm_cases()[5],
                  {{9, 1, 28, 28}, {16, 1, 3, 3}, {.padding = {1, 1, 1, 1}}},
                  {{4, 32, 14, 14}, {32, 32, 3, 3}, {.padding = {1, 1, 1, 1}}},
                  {{2, 72, 9, 9}, {128, 72, 1, 1}, {.stride = {2, 2}}},
                  {{4, 72, 20, 20}, {128, 72, 1, 1}},
                  {{4, 72, 15, 15}, {96, 72, 3, 3}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
                  grouped_cases()[0],
                  grouped_cases()[2],
                  grouped_cases()[4],
                  {{4, 96, 28, 28}, {96, 1, 7, 7}, {.padding = {3, 3, 3, 3}, .groups = 96}}},
                 {{dtype, allow_tf32}});
}
TEST(ConvGemm, IsRightOnAGpuInF32) { check_gemms_on_a_gpu(f32, false); }
TEST(ConvGemm, IsRightOnAGpuInTf32) { check_gemms_on_a_gpu(f32, true); }
TEST(ConvGemm, IsRightOnAGpuInBf16) { check_gemms_on_a_gpu(bf16, false); }
TEST(ConvGemm, IsRightOnAGpuInF16) { check_gemms_on_a_gpu(f16, false); }

void check_tma_on_a_gpu(DType dtype) {
  std::vector<GemmCase> all = tma_cases();
  all.insert(all.end(), patch_cases().begin(), patch_cases().end());
  all.insert(all.end(), tap_row_cases().begin(), tap_row_cases().end());
  all.insert(all.end(), window_row_cases().begin(), window_row_cases().end());
  all.push_back({{1, 64, 18, 17}, {64, 64, 3, 3}, {.padding = {1, 1, 1, 1}}});
  all.push_back({{3, 128, 14, 14}, {136, 128, 3, 3}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}});
  check_on_a_gpu(all, {{dtype, false}});
}
TEST(ConvByTma, IsRightOnAGpuInBf16) { check_tma_on_a_gpu(bf16); }
TEST(ConvByTma, IsRightOnAGpuInF16) { check_tma_on_a_gpu(f16); }

TEST(ConvGemm, IsRightInF32) { check_in_emulation(gemm_cases(), f32, false); }
TEST(ConvGemm, IsRightInTf32) { check_in_emulation(gemm_cases(), f32, true); }
TEST(ConvGemm, IsRightInBf16) { check_in_emulation(gemm_cases(), bf16, false); }
TEST(ConvGemm, IsRightInF16) { check_in_emulation(gemm_cases(), f16, false); }

TEST(ConvByTma, IsRightInBf16) { check_in_emulation(tma_cases(), bf16, false); }
TEST(ConvByTma, IsRightByPatches) { check_in_emulation(patch_cases(), bf16, false); }
TEST(ConvByTma, BringsOnceWhatAllTapsRead) {
  const auto by_patches = [](const GemmCase& c) {
    const Plan plan = plan_of(c, bf16, false, "h200");
    int launches = 0;
    for (const Step& step : plan.steps) {
      if (step.kind != Step::Kind::kernel) continue;
      launches += static_cast<int>(std::ranges::count_if(
          step.text->launches, [](const auto& each) { return each.why.find("patches") != std::string::npos; }));
    }
    return launches;
  };
  EXPECT_EQ(by_patches(patch_cases()[0]), 1) << "forward; the gradient reads 72 channels";
  EXPECT_EQ(by_patches(patch_cases()[1]), 3) << "whole squares: the gradient for weights too";
  EXPECT_EQ(by_patches(patch_cases()[2]), 2) << "and that, but not for images";
  EXPECT_EQ(by_patches(patch_cases()[3]), 3) << "the phases of more than a tap";
  EXPECT_EQ(by_patches({{2, 64, 16, 16}, {64, 64, 5, 5}, {.padding = {2, 2, 2, 2}}}), 0) << "too many taps";
  EXPECT_EQ(by_patches({{2, 64, 9, 9}, {64, 64, 3, 3}, {.padding = {1, 1, 1, 1}}}), 0) << "81 windows of 256";
  EXPECT_EQ(by_patches({{2, 64, 16, 16}, {64, 64, 1, 1}}), 0);
}
TEST(ConvByTma, TakesTheTilesThatAreDoneFirst) {
  const auto tiles_of = [](const Shape& x, const Shape& w) {
    Graph g;
    const Value first =
        conv2d(g.input("x", bf16, x), g.input("w", bf16, w), g.input("b", bf16, {w[0]}), {.padding = {1, 1, 1, 1}});
    g.fetch("y", sum(conv2d(first, g.input("v", bf16, w), g.input("c", bf16, {w[0]}), {.padding = {1, 1, 1, 1}}),
                     std::array<std::int64_t, 3>{0, 2, 3}));
    const Plan plan = std::move(compile_plan(g, {}, std::make_shared<const Target>(named_target("h200"))).plan);
    std::string why;
    for (const Step& step : plan.steps) {
      if (step.kind != Step::Kind::kernel || step.kernel->name != "tma" || !why.empty()) continue;
      why = step.text->launches.back().why;
    }
    return why.substr(0, why.find(" by "));
  };
  EXPECT_EQ(tiles_of({256, 128, 28, 28}, {128, 128, 3, 3}), "784 tiles of 256 x 128") << "5.9 of every SM";
  EXPECT_EQ(tiles_of({256, 256, 14, 14}, {256, 256, 3, 3}), "262 tiles of 192 x 256") << "1.98";
  EXPECT_EQ(tiles_of({256, 512, 7, 7}, {512, 512, 3, 3}), "132 tiles of 192 x 256") << "one";
  EXPECT_EQ(tiles_of({2, 512, 7, 7}, {512, 512, 3, 3}), "4 tiles of 128 x 128") << "fewer than SMs";
}
TEST(ConvByTma, IsRightByRowsOfTaps) { check_in_emulation(tap_row_cases(), bf16, false); }
TEST(ConvByTma, IsRightByRowsOfWindows) {
  int of_weights = 0;
  for (const GemmCase& c : window_row_cases()) {
    const Plan plan = plan_of(c, bf16, false, "h200");
    const auto goes_by_rows = [](const Step& step) {
      return step.kind == Step::Kind::kernel && step.text != nullptr &&
             std::ranges::any_of(step.text->launches, [](const gpu::TextLaunch& launch) {
               return launch.why.find("rows of windows") != std::string::npos;
             });
    };
    int launches = 0;
    for (const Step& step : plan.steps) {
      if (!goes_by_rows(step)) continue;
      (step.call.op->name == "conv2d_bias" ? launches : of_weights) += 1;
    }
    EXPECT_EQ(launches, 1) << to_string(plan);
  }
  EXPECT_EQ(of_weights, 3) << "of whole sixteens of windows";
  check_in_emulation(window_row_cases(), bf16, false);
}
TEST(ConvByTma, ReadsWeightsWhereTheyLieAsItWouldPackThem) {
  Graph g;
  const Value x = g.input("x", bf16, {2, 40, 9, 7}), given = g.input("w", bf16, {72, 3, 2, 40});
  const Value w = transpose(given, std::array<std::int64_t, 4>{0, 3, 1, 2});
  const Value y = conv2d(x, w, g.input("b", bf16, {72}), {.padding = {1, 1, 1, 1}});
  g.fetch("y", y + y);
  const EmulatedProgram program(compile_plan(g, {}, std::make_shared<const Target>(named_target("h200"))).plan);
  const auto kernels = program.kernels();
  EXPECT_TRUE(std::ranges::none_of(kernels,
                                   [](const auto* kernel) { return kernel->entry.find("pack") != std::string::npos; }));
  const Feeds feeds = make_feeds(g, 3);
  const Tensors got = program.run(gpu::EmulatedKernels(kernels), to_tensors(g, feeds), 1);
  for (const auto& [name, expected] : expected_within(g, feeds, kGemmRoundings)) {
    EXPECT_EQ(expected.problem_with(got.at(name).to_doubles()), "") << name;
  }
}
// Launches of the convolution of a program that computes from parameters alone as much as it may.
std::size_t launches_of(const GemmCase& c, CompileOptions options, Preprocess preprocess,
                        std::size_t* preprocessed = nullptr) {
  Graph g;
  const Value x = g.input("x", f32, c.x), w = g.parameter("w", f32, c.w);
  g.fetch("y", relu(conv2d(x, w, g.parameter("b", f32, {c.w[0]}), c.options)));
  const CompiledPlan made = compile_plan(g, options, std::make_shared<const Target>(named_target("h200")), preprocess);
  if (preprocessed != nullptr) *preprocessed = made.preprocessed.names.size();
  const auto step = std::ranges::find(made.plan.steps, Step::Kind::kernel, &Step::kind);
  return step->text->launches.size();
}
TEST(ConvByTma, PackNoWeightsInRunsThatOnlyReadThem) {
  CompileOptions options;
  options.precision = bf16;
  std::size_t preprocessed = 0;
  launches_of({{2, 64, 9, 9}, {64, 64, 3, 3}}, options, Preprocess::once, &preprocessed);
  EXPECT_EQ(preprocessed, 1U);
}
// In front of all, where copies of several weights share a launch; those of one tap are read where they lie.
TEST(ConvByTma, CopyWeightsOnceForAllThatReadThem) {
  Graph g;
  const Value x = g.input("x", f32, {2, 64, 9, 9}), first = g.parameter("first", f32, {72, 64, 3, 3}),
              second = g.parameter("second", f32, {64, 72, 3, 3}), third = g.parameter("third", f32, {64, 64, 1, 1});
  const Conv2dOptions padded{.padding = {1, 1, 1, 1}};
  const Value y = conv2d(conv2d(conv2d(x, first, padded), second, padded), third);
  const Values made = gradients(std::array{sum(square(y))}, std::array{x, first, second, third});
  for (std::size_t i = 0; i < made.size(); ++i) g.fetch("d" + std::to_string(i), made[i]);
  CompileOptions options;
  options.precision = bf16;
  const CompiledPlan compiled = compile_plan(g, options, std::make_shared<const Target>(named_target("h200")));
  const std::vector<Step>& steps = compiled.plan.steps;
  const auto is_copy = [](const Step& step) { return step.label.op == "copy_transposed"; };
  EXPECT_EQ(std::ranges::count_if(steps, is_copy), 2) << to_string(compiled.plan);
  EXPECT_TRUE(is_copy(steps[0]) && is_copy(steps[1])) << to_string(compiled.plan);
  for (const Step& step : steps) {
    if (step.kind != Step::Kind::kernel || step.call.op->name.starts_with("conv2d_grad_weight")) continue;
    EXPECT_EQ(step.text->launches.size(), 1U) << step.label.op;
  }
}
TEST(ConvGemm, PacksNoWeightsInRunsThatOnlyReadThem) {
  CompileOptions options;
  for (const bool allow_tf32 : {false, true}) {
    options.allow_tf32 = allow_tf32;
    const GemmCase many{{2, 72, 28, 28}, {72, 72, 3, 3}}, odd{{2, 70, 28, 28}, {72, 70, 3, 3}},
        few{{2, 16, 28, 28}, {16, 16, 3, 3}};
    std::size_t preprocessed = 0;
    EXPECT_EQ(launches_of(many, options, Preprocess::in_every_run), 2U);
    EXPECT_EQ(launches_of(many, options, Preprocess::once, &preprocessed), 1U);
    EXPECT_EQ(preprocessed, 1U);
    launches_of(odd, options, Preprocess::once, &preprocessed);
    EXPECT_EQ(preprocessed, 0U) << "70 channels are not whole pieces";
    launches_of(few, options, Preprocess::once, &preprocessed);
    EXPECT_EQ(preprocessed, 0U) << "a CTA keeps them";
  }
}
// The weights lie in that order, as preprocessed ones do.
TEST(ConvGemm, IsRightByPackedWeights) {
  Graph g;
  const Value x = g.input("x", f32, {2, 72, 9, 7}), given = g.input("w", f32, {72, 3, 2, 72});
  const Value w = transpose(given, std::array<std::int64_t, 4>{0, 3, 1, 2});
  const Value y = conv2d(x, w, g.input("b", f32, {72}), {.padding = {1, 1, 1, 1}});
  g.fetch("y", y + y);
  for (const bool allow_tf32 : {false, true}) {
    CompileOptions options;
    options.allow_tf32 = allow_tf32;
    const EmulatedProgram program(compile_plan(g, options, std::make_shared<const Target>(named_target("h200"))).plan);
    const Feeds feeds = feeds_of(g, allow_tf32, 3);
    const Tensors got = program.run(gpu::EmulatedKernels(program.kernels()), to_tensors(g, feeds), 1);
    for (const auto& [name, expected] : expected_within(g, feeds, kGemmRoundings)) {
      EXPECT_EQ(expected.problem_with(got.at(name).to_doubles()), "") << name;
    }
  }
}

// Factors are taken apart, which leaves a NaN of non-finite values.
TEST(ConvGemm, OfWhatIsNotFiniteInF32GivesWhatIsMeant) {
  const GemmCase c{{1, 40, 9, 8}, {24, 40, 3, 3}, {.padding = {1, 1, 1, 1}}};
  Graph g;
  build(g, c, f32, false);
  const EmulatedProgram program(plan_of(c, f32, false, "h200", false));
  Feeds feeds = make_feeds(g, 3);
  const double infinite = std::numeric_limits<double>::infinity();
  feeds.at("x")[100] = infinite, feeds.at("x")[2000] = std::nan(""), feeds.at("w")[500] = -infinite,
  feeds.at("dy")[7] = infinite;
  const Tensors got = program.run(gpu::EmulatedKernels(program.kernels()), to_tensors(g, feeds), 1);
  for (const auto& [name, expected] : expected_within(g, feeds, kGemmRoundings)) {
    EXPECT_EQ(expected.problem_with(got.at(name).to_doubles()), "") << name;
    EXPECT_TRUE(std::ranges::any_of(expected.values, [](double value) { return std::isfinite(value); })) << name;
    EXPECT_TRUE(std::ranges::any_of(expected.values, [](double value) { return std::isinf(value); })) << name;
  }
}

TEST(ConvByTma, IsRightInF16) { check_in_emulation(tma_cases(), f16, false); }

TEST(ConvByChannel, IsRightInF32) { check_in_emulation(grouped_cases(), f32, false); }
TEST(ConvByChannel, IsRightInBf16) { check_in_emulation(grouped_cases(), bf16, false); }
TEST(ConvByChannel, IsRightInF16) { check_in_emulation(grouped_cases(), f16, false); }

TEST(ConvByChannel, LimitsWhatItMakes) {
  for (const DType dtype : {f32, bf16}) {
    Graph g;
    const Value x = g.input("x", dtype, {2, 16, 9, 10}), w = g.input("w", dtype, {16, 1, 3, 3});
    const Value y = conv2d(x * 4.0, w, g.input("b", dtype, {16}), {.padding = {1, 1, 1, 1}, .groups = 16});
    const Value limited = hardtanh(y, 0, 6);
    g.fetch("y", limited + limited);
    const EmulatedProgram program(compile_plan(g, {}, std::make_shared<const Target>(named_target("h200"))).plan);
    const Feeds feeds = make_feeds(g, 3);
    const Tensors got = program.run(gpu::EmulatedKernels(program.kernels()), to_tensors(g, feeds), 1);
    for (const auto& [name, expected] : expected_within(g, feeds, kGemmRoundings)) {
      EXPECT_EQ(expected.problem_with(got.at(name).to_doubles()), "") << name;
    }
    const std::vector<double> values = got.at("y").to_doubles();
    EXPECT_EQ(*std::ranges::max_element(values), 12);
  }
}

std::set<std::string> kernels_of(const Plan& plan) {
  std::set<std::string> names;
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::kernel) names.insert(step.kernel->name);
  }
  return names;
}

TEST(ConvGemm, IsChosenWhereItHasProducts) {
  const std::set<std::string> gemm{"implicit_gemm"}, sums{"sums"}, patch{"patch"}, channel{"by_channel"};
  const GemmCase plain = gemm_cases()[1];
  EXPECT_EQ(kernels_of(plan_of(plain, f32, true, "h200")), patch) << "few channels";
  EXPECT_EQ(kernels_of(plan_of(plain, f32, false, "a100")), gemm);
  EXPECT_EQ(kernels_of(plan_of(plain, bf16, false, "a100")), patch);
  EXPECT_EQ(kernels_of(plan_of(plain, f64, false, "h200")), sums) << "no products of f64";
  EXPECT_EQ(kernels_of(plan_of(plain, f32, true, "t4")), sums) << "no copies beside other work";
  const GemmCase depthwise{{2, 32, 8, 8}, {32, 1, 3, 3}, {.groups = 32}};
  EXPECT_EQ(kernels_of(plan_of(depthwise, f32, true, "h200")), channel) << "groups of one channel";
  EXPECT_EQ(kernels_of(plan_of(depthwise, bf16, false, "t4")), channel);
  EXPECT_EQ(kernels_of(plan_of(depthwise, f64, false, "h200")), sums);
  for (const GemmCase& c : tma_cases()) {
    EXPECT_EQ(kernels_of(plan_of(c, bf16, false, "h200")), (std::set<std::string>{"tma"})) << to_string(c);
    EXPECT_EQ(kernels_of(plan_of(c, f32, true, "h200")).count("tma"), 0) << "f32";
    EXPECT_EQ(kernels_of(plan_of(c, f16, false, "b200")).count("tma"), 0) << "not Hopper";
  }
  for (const GemmCase& c : tap_row_cases()) EXPECT_EQ(kernels_of(plan_of(c, f16, false, "h200")).count("tma"), 1);
  const GemmCase wide{{1, 4, 70, 70}, {4, 1, 61, 61}, {.groups = 4}};
  EXPECT_EQ(kernels_of(plan_of(wide, bf16, false, "h200")), (std::set<std::string>{"by_channel"}));
}

// Tiles fewer than SMs leave most of the chip without work; parts of few blocks cost more than they gain.
TEST(ConvGemm, SharesOutTheSumsOfFewTiles) {
  const auto why_of = [](const GemmCase& c) {
    const Plan plan = plan_of(c, f32, false, "h200", false);
    const auto step = std::ranges::find(plan.steps, Step::Kind::kernel, &Step::kind);
    return step->text->launches.back().why;
  };
  EXPECT_EQ(why_of({{4, 512, 7, 7}, {512, 512, 3, 3}, {.padding = {1, 1, 1, 1}}}), "16 tiles of 64 x 128 in 16 parts");
  EXPECT_EQ(why_of({{4, 256, 14, 14}, {256, 256, 3, 3}, {.padding = {1, 1, 1, 1}}}),
            "26 tiles of 64 x 128 in 10 parts, weights packed");
  EXPECT_EQ(why_of({{1, 24, 6, 6}, {24, 24, 1, 1}}), "1 tiles of 64 x 32") << "two blocks";
  EXPECT_EQ(why_of({{64, 64, 28, 28}, {64, 64, 3, 3}, {.padding = {1, 1, 1, 1}}}),
            "392 tiles of 128 x 64, weights packed");
}

// Single elements of 16 bits cannot be copied beside other work; those of 32 can, and channels that lie side by side.
TEST(ConvGemm, PacksWeightsThatManyTilesRead) {
  const auto packs = [](const GemmCase& c, DType dtype) {
    int count = 0;
    const Plan plan = plan_of(c, dtype, true, "a100");
    for (const Step& step : plan.steps) {
      if (step.kind != Step::Kind::kernel) continue;
      count += step.text->launches.front().entry.starts_with("conv2d_weight_pack") ? 1 : 0;
    }
    return count;
  };
  const GemmCase many{{2, 72, 28, 28}, {72, 72, 3, 3}}, few{{1, 72, 9, 9}, {72, 72, 3, 3}};
  EXPECT_EQ(packs(many, bf16), 2) << "forward and for the image";
  EXPECT_EQ(packs(many, f32), 2);
  EXPECT_EQ(packs({{2, 70, 28, 28}, {72, 70, 3, 3}}, f32), 1) << "for the image: 70 channels are not whole pieces";
  EXPECT_EQ(packs(few, bf16), 0);
  EXPECT_EQ(packs({{2, 72, 22, 23}, {72, 72, 1, 1}}, bf16), 1) << "for the image, across its rows";
}

TEST(ConvGemm, CompilesForEveryTile) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::nvrtc_problem();
  std::set<std::string> seen;
  for (const auto& [arch, target] : {std::pair{"sm_80", "a100"}, {"sm_90a", "h200"}}) {
    for (const auto& [dtype, allow_tf32] : {std::pair{f32, false}, {f32, true}, {bf16, false}, {f16, false}}) {
      std::vector<GemmCase> all = {gemm_cases()[0], gemm_cases()[1], gemm_cases()[3], gemm_cases()[6]};
      if (dtype == bf16) all.insert(all.end(), {grouped_cases()[0], grouped_cases()[2], grouped_cases()[4]});
      if (dtype == bf16) all.insert(all.end(), {tma_cases()[0], tma_cases()[2], patch_cases()[0], tap_row_cases()[0]});
      for (const GemmCase& c : all) {
        const Plan plan = plan_of(c, dtype, allow_tf32, target);
        for (const Step& step : plan.steps) {
          if (step.kind != Step::Kind::kernel) continue;
          for (const gpu::TextLaunch& launch : step.text->launches) {
            if (!seen.insert(arch + launch.entry).second) continue;
            EXPECT_FALSE(gpu::compile(launch.source, "conv.cu", arch).empty()) << to_string(c);
          }
        }
      }
    }
  }
  EXPECT_FALSE(seen.empty());
}

}  // namespace
}  // namespace paoding::testing_program
