// SPDX-License-Identifier: Apache-2.0
// Convolutions that add an image to their result: by every kernel that does so, run by the emulation against float64.
// (By cuBLASLt: pretend_gpu/conv_product_pretend_test.cpp.)
#include <gtest/gtest.h>

#include "tests/gpu/emulated_cases.h"

namespace paoding::testing_program {
namespace {

struct AddCase {
  Shape x, w;
  DType dtype;
  bool allow_tf32;
  const char* kernel;
  Conv2dOptions options = {};
  bool has_relu = true;
};

// Columns and windows that end within tiles, two tiles of columns, strides, groups; channels that lie in pairs or not.
const std::vector<AddCase>& add_cases() {
  static const std::vector<AddCase> all = {
      {{2, 40, 9, 7}, {72, 40, 3, 3}, bf16, false, "tma", {.padding = {1, 1, 1, 1}}},
      {{1, 32, 6, 5}, {40, 32, 1, 1}, bf16, false, "tma", {.stride = {2, 2}}, false},
      {{1, 64, 8, 7}, {136, 64, 3, 3}, f16, false, "tma", {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
      {{2, 72, 9, 9}, {80, 72, 3, 3}, f32, true, "implicit_gemm", {.padding = {1, 1, 1, 1}}},
      {{1, 32, 9, 8},
       {60, 8, 5, 5},
       f32,
       true,
       "implicit_gemm",
       {.stride = {2, 1}, .padding = {2, 2, 2, 2}, .groups = 4}},
      {{2, 10, 7, 6}, {14, 10, 2, 3}, f32, false, "implicit_gemm", {}, false},
      {{1, 4, 7, 5}, {6, 2, 3, 2}, f64, false, "sums", {.stride = {2, 1}, .dilation = {1, 2}, .groups = 2}},
  };
  return all;
}

// Between elementwise ops, so that images lie as the kernels want them.
void build(Graph& g, const AddCase& c) {
  const Value x = g.input("x", c.dtype, c.x), w = g.input("w", c.dtype, c.w), b = g.input("b", c.dtype, {c.w[0]});
  const Value y = conv2d(x, w, b, c.options), other = g.input("other", c.dtype, y.shape());
  const Value sum = y + (other + other);
  const Value end = c.has_relu ? relu(sum) : sum;
  g.fetch("y", end * end);
}

CompileOptions options_of(const AddCase& c) {
  CompileOptions options;
  options.allow_tf32 = c.allow_tf32;
  return options;
}

std::string to_string(const AddCase& c) {
  return fmt::format("{} {} with {} by {}", paoding::to_string(c.dtype), paoding::to_string(c.x),
                     paoding::to_string(c.w), c.kernel);
}

// TF32 values, where products round their operands to TF32.
Feeds feeds_of(const Graph& g, const AddCase& c, unsigned seed) {
  Feeds feeds = make_feeds(g, seed);
  for (const char* name : {"x", "w"}) {
    if (!c.allow_tf32) break;
    for (double& value : feeds.at(name)) value = to_tf32(static_cast<float>(value));
  }
  return feeds;
}

// A sum of many hundred products rounds off a part of its partial sums; tensor cores cut off in every step of theirs.
constexpr double kAddRoundings = 8, kManyCuts = 64;

TEST(ConvAdd, IsRightInTheEmulationByEveryKernel) {
  EmulatedCases made;
  unsigned seed = 0;
  const auto chip = std::make_shared<const Target>(named_target("h200"));
  for (const AddCase& c : add_cases()) {
    auto g = std::make_unique<Graph>();
    build(*g, c);
    Plan plan = std::move(compile_plan(*g, options_of(c), chip).plan);
    int found = 0;
    for (const Step& step : plan.steps) {
      if (step.kind != Step::Kind::kernel || step.call.op->name != "conv2d_add") continue;
      ++found;
      EXPECT_EQ(step.kernel->name, c.kernel) << to_string(c);
    }
    EXPECT_EQ(found, 1) << to_string(c) << "\n" << to_string(plan);
    Feeds feeds = feeds_of(*g, c, ++seed);
    made.add(to_string(c), std::move(g), std::move(feeds), std::move(plan));
  }
  made.check(kAddRoundings);
}

TEST(ConvAdd, IsRightOnAGpu) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  std::vector<AddCase> all = add_cases();
  all.push_back({{3, 64, 20, 20}, {256, 64, 1, 1}, bf16, false, "cublaslt"});
  all.push_back({{3, 64, 20, 20}, {256, 64, 1, 1}, f16, false, "cublaslt", {}, false});
  CasesOnGpu made;
  for (const AddCase& c : all) {
    auto g = std::make_unique<Graph>();
    build(*g, c);
    Feeds feeds = feeds_of(*g, c, 5);
    made.add(to_string(c), std::move(g), std::move(feeds), options_of(c));
  }
  made.check(kManyCuts);
}

}  // namespace
}  // namespace paoding::testing_program
