// SPDX-License-Identifier: Apache-2.0
// Which convolutions are cuDNN's, on the pretended GPU: times decide; timing keeps its findings; a cache file that is
// no entry is ignored, and said; an engine that is no more is no error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "gpu/libraries/plan_cache.h"
#include "ops/conv/gpu/conv_cudnn.h"
#include "runtime/compile.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

// A convolution between additions, so that images lie as kernels want them.
void build_convolution(Graph& g, std::int64_t height, DType dtype = bf16) {
  const Value x = g.input("x", dtype, {1, 24, height, 6}), w = g.input("w", dtype, {24, 24, 3, 3});
  const Value y = conv2d(x + x, w, {.padding = {1, 1, 1, 1}});
  g.fetch("y", y + y);
}

const Step& convolution_of(const Plan& plan) {
  const auto it = std::ranges::find_if(
      plan.steps, [](const Step& step) { return step.kind == Step::Kind::kernel && has_cudnn_row(*step.call.op); });
  if (it == plan.steps.end()) throw std::runtime_error("the plan has no convolution");
  return *it;
}

std::string convolution_key_of(const Graph& g) {
  return timing_key(convolution_of(compile_plan(g, {}, target_of(Device::cuda(0))).plan).call);
}

void expect_right_convolution(Program& program, const Graph& g, std::int64_t height) {
  Graph wide;
  build_convolution(wide, height, f64);
  expect_y_of(program, g, wide);
}

bool ran_by_cudnn() { return std::ranges::count(pretend_gpu().calls(), "cudnnBackendExecute") > 0; }

TEST(ConvByCudnnOnAGpu, WhatWasTimedDecides) {
  Graph g;
  build_convolution(g, 5);
  gpu::PlanCache::shared().keep(convolution_key_of(g), {true, "7 k24=2", 4, 9});
  pretend_gpu().forget_calls();
  Program by_library(g, on_gpu());
  EXPECT_TRUE(has_note(by_library, "conv2d: cudnn chosen: it took 4.0 us, ours 9.0, when they were timed"));
  EXPECT_TRUE(has(by_library.plan_text(), "(cudnn)"));
  EXPECT_TRUE(ran_by_cudnn());
  expect_right_convolution(by_library, g, 5);

  gpu::PlanCache::shared().keep(convolution_key_of(g), {false, "7 k24=2", 9, 4});
  pretend_gpu().forget_calls();
  Program by_own(g, on_gpu());
  EXPECT_TRUE(has_note(by_own, "conv2d: cudnn declined: it took 9.0 us, ours 4.0, when they were timed"));
  EXPECT_FALSE(ran_by_cudnn());
  expect_right_convolution(by_own, g, 5);
}

TEST(ConvByCudnnOnAGpu, AnEngineThatIsNoMoreIsDeclined) {
  Graph g;
  build_convolution(g, 6);
  gpu::PlanCache::shared().keep(convolution_key_of(g), {true, "99", 4, 9});
  Program program(g, on_gpu());
  EXPECT_TRUE(has_note(program, "conv2d: cudnn declined when it was prepared: "));
  EXPECT_TRUE(has_note(program, "it has none that is named 99"));
  expect_right_convolution(program, g, 6);
}

TEST(ConvByCudnnOnAGpu, AnEngineThatWantsTooMuchMemoryIsDeclined) {
  Graph g;
  build_convolution(g, 7);
  gpu::PlanCache::shared().keep(convolution_key_of(g), {true, "3 k24=0", 4, 9});
  Program program(g, on_gpu());
  EXPECT_TRUE(has_note(program, "engine 3 k24=0 needs 1099511627776 bytes of workspace"));
  expect_right_convolution(program, g, 7);
}

TEST(ConvByCudnnOnAGpu, TimingKeepsWhatItFound) {
  Graph g;
  build_convolution(g, 8);
  // Results of earlier runs must not be found.
  const auto forget = [&](const std::filesystem::path& folder) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() == ".plan") std::filesystem::remove(file.path());
    }
  };
  forget(gpu::PlanCache::shared().file_of("any").parent_path());
  const std::string key = convolution_key_of(g);
  CompileOptions options = on_gpu();
  options.tune = true;
  Program first(g, options);
  EXPECT_TRUE(has_note(first, "conv2d: timed bf16[1,24,8,6] by bf16[24,24,3,3], stride 1: cudnn "));
  const auto choice = gpu::PlanCache::shared().find(key);
  ASSERT_TRUE(choice);
  EXPECT_TRUE((std::set<std::string>{"4 k24=1", "7 k24=2", "9 k24=0"}).contains(choice->engine)) << choice->engine;
  EXPECT_EQ(choice->is_library, has(first.plan_text(), "(cudnn)"));
  EXPECT_EQ(choice->is_library, choice->library_us < 0.97 * choice->own_us);
  expect_right_convolution(first, g, 8);
  // Another process finds it.
  EXPECT_EQ(gpu::PlanCache(gpu::PlanCache::shared().file_of(key).parent_path()).find(key), choice);
  const Program second(g, options);
  EXPECT_FALSE(has_note(second, "timed bf16"));
  const Program third(g, on_gpu());
  EXPECT_EQ(has(third.plan_text(), "(cudnn)"), choice->is_library);
}

TEST(ConvByCudnnOnAGpu, AFileThatIsNoEntryIsIgnoredAndSaid) {
  Graph g;
  build_convolution(g, 9);
  // The key of another height, in which nothing has been asked for yet, would be remembered: it is made of this one's.
  Graph like;
  build_convolution(like, 10);
  std::string key = convolution_key_of(like);
  for (const auto& [from, to] : {std::pair{"[1,24,10,6]", "[1,24,9,6]"}, {"by 1440,", "by 1296,"}}) {
    for (std::size_t at = key.find(from); at != std::string::npos; at = key.find(from)) {
      key.replace(at, std::string(from).size(), to);
    }
  }
  const auto file = gpu::PlanCache::shared().file_of(key);
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << "something else";
  Program program(g, on_gpu());
  EXPECT_EQ(convolution_key_of(g), key);
  EXPECT_TRUE(has_note(program, file.string() + " is ignored: it does not begin with 'paoding plan 1'"));
  std::filesystem::remove(file);
  expect_right_convolution(program, g, 9);
}

}  // namespace
}  // namespace paoding::testing_program
