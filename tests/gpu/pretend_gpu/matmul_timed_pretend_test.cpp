// SPDX-License-Identifier: Apache-2.0
// Which of cuBLASLt's algorithms makes a product, on the pretended GPU, whose library names one: timing keeps its
// findings, times decide, and an algorithm that is no more is no error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/libraries/plan_cache.h"
#include "ops/matmul/matmul_gpu.h"
#include "runtime/compile.h"
#include "runtime/gpu/tuning.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

void build_product(Graph& g, std::int64_t rows, DType dtype = bf16) {
  const Value x = g.input("x", dtype, {rows, 136}), w = g.input("w", dtype, {136, 40});
  g.fetch("y", matmul(x, w));
}

std::string key_of(const Graph& g) {
  const Plan plan = compile_plan(g, {}, target_of(Device::cuda(0))).plan;
  const auto it = std::ranges::find_if(plan.steps, [](const Step& step) {
    return step.kind == Step::Kind::kernel && step.kernel->name == kCublasLtRow;
  });
  if (it == plan.steps.end()) throw std::runtime_error("the plan has no product by cuBLASLt");
  return product_key(it->call);
}

void expect_right(Program& program, const Graph& g, std::int64_t rows) {
  Graph wide;
  build_product(wide, rows, f64);
  expect_y_of(program, g, wide);
}

TEST(TimedProductOnAGpu, TimingKeepsWhatItFoundAndTimesOnce) {
  Graph g;
  build_product(g, 50);
  const TargetPtr target = target_of(Device::cuda(0));
  const std::string key = key_of(g);
  ASSERT_FALSE(gpu::PlanCache::shared().find(key));
  const Plan plan = compile_plan(g, {}, target).plan;
  const std::vector<std::string> notes = time_choices(plan, Device::cuda(0));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(has(notes[0], "matmul: timed bf16[50,136] by bf16[136,40]: cublaslt ")) << notes[0];
  const auto timed = gpu::PlanCache::shared().find(key);
  ASSERT_TRUE(timed);
  EXPECT_EQ(timed->engine, "1") << "the one that it names when it is asked for many";
  EXPECT_TRUE(time_choices(plan, Device::cuda(0)).empty());
}

TEST(TimedProductOnAGpu, ProductsOfF64AreNotTimed) {
  Graph g;
  build_product(g, 51, f64);
  const TargetPtr target = target_of(Device::cuda(0));
  EXPECT_TRUE(time_choices(compile_plan(g, {}, target).plan, Device::cuda(0)).empty());
}

TEST(TimedProductOnAGpu, WhatWasTimedDecidesAndOneThatIsNoMoreIsNoError) {
  for (const auto& [rows, algorithm] : {std::pair{52, "1"}, {53, "9"}, {54, "no number"}}) {
    SCOPED_TRACE(algorithm);
    Graph g;
    build_product(g, rows);
    gpu::PlanCache::shared().keep(key_of(g), {true, algorithm, 4, 9});
    Program program(g, on_gpu());
    EXPECT_TRUE(
        has_note(program, fmt::format("its algorithm {} took 4.0 us, its first 9.0, when they were timed", algorithm)));
    expect_right(program, g, rows);
  }
}

TEST(TimedProductOnAGpu, TheFirstIsKeptWhereNoneWasFaster) {
  Graph g;
  build_product(g, 55);
  gpu::PlanCache::shared().keep(key_of(g), {false, "1", 9, 4});
  Program program(g, on_gpu());
  EXPECT_FALSE(has_note(program, "when they were timed"));
  expect_right(program, g, 55);
}

}  // namespace
}  // namespace paoding::testing_program
