// SPDX-License-Identifier: Apache-2.0
// Which products a GPU computes by paoding's own kernel, and which operands it may read before the launch in front has
// ended.
#include <gtest/gtest.h>

#include "base/target.h"
#include "gpu/codegen/text_launch.h"
#include "paoding/paoding.h"
#include "runtime/compile.h"

namespace paoding {
namespace {

Plan plan_of(const Graph& graph, bool allow_tf32, const char* target = "h200") {
  CompileOptions options;
  options.allow_tf32 = allow_tf32;
  return compile_plan(graph, options, std::make_shared<const Target>(named_target(target))).plan;
}

void collect(const std::vector<Step>& steps, std::vector<const Step*>* products) {
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::kernel && step.call.op->name == "matmul") products->push_back(&step);
    for (const auto* body : step.bodies()) collect(*body, products);
  }
}
std::vector<const Step*> products_of(const Plan& plan) {
  std::vector<const Step*> products;
  collect(plan.steps, &products);
  return products;
}

std::string kernel_for(Shape a, Shape b, bool allow_tf32, const char* target = "h200", DType dtype = f32,
                       bool is_b_along = false) {
  Graph graph;
  graph.fetch("c",
              matmul(graph.input("a", dtype, std::move(a)), graph.input("b", dtype, std::move(b)), false, is_b_along));
  const Plan plan = plan_of(graph, allow_tf32, target);
  return products_of(plan).at(0)->kernel->name;
}

TEST(FewRows, AreOurOwnOnAChipThatHasTheInstructions) {
  EXPECT_EQ(kernel_for({128, 512}, {512, 2048}, true), "few_rows");
  EXPECT_EQ(kernel_for({1, 512}, {512, 2048}, true), "few_rows");
  EXPECT_EQ(kernel_for({128, 512}, {512, 2048}, false), "few_rows") << "as three products in TF32";
  EXPECT_EQ(kernel_for({512, 512}, {512, 2048}, true), "cublaslt") << "the library has larger tiles";
  EXPECT_EQ(kernel_for({1024, 512}, {512, 2048}, false), "few_rows") << "but those do not use tensor cores";
  EXPECT_EQ(kernel_for({2048, 512}, {512, 2048}, false), "cublaslt") << "many rows";
  EXPECT_EQ(kernel_for({2048, 512}, {2048, 512}, false, "h200", f32, true), "few_rows") << "along K";
  EXPECT_EQ(kernel_for({128, 512}, {512, 2048}, true, "a100"), "cublaslt") << "another chip";
  EXPECT_EQ(kernel_for({128, 512}, {512, 2048}, true, "h200", bf16), "cublaslt") << "another dtype";
  EXPECT_EQ(kernel_for({64, 128}, {128, 512}, true, "h200", bf16), "narrow_rows") << "all factors of a CTA at once";
  EXPECT_EQ(kernel_for({64, 512}, {512, 2048}, true, "h200", bf16), "cublaslt") << "of a K that takes longer so";
  EXPECT_EQ(kernel_for({6400, 512}, {512, 2048}, true), "cublaslt") << "many rows";
  EXPECT_EQ(kernel_for({128, 510}, {510, 2048}, true), "cublaslt") << "rows that TMA cannot bring";
  EXPECT_EQ(kernel_for({128, 512}, {512, 2046}, true), "cublaslt") << "and results";
  EXPECT_EQ(kernel_for({4, 128, 512}, {4, 512, 2048}, true), "cublaslt") << "a batch";
}

// A loop whose step multiplies a value that it made just before by a parameter, and is no recurrence that has a kernel.
TEST(FewRows, ReadWhatTheLaunchInFrontDoesNotWriteBeforeItHasEnded) {
  Graph graph;
  const Value w = graph.parameter("w", f32, {64, 64});
  const Value x = graph.input("x", f32, {8, 64}), xs = graph.input("xs", f32, {4, 8, 64});
  const StepResult loop = scan({x}, {xs}, [&](const Values& carry, const Values& element) {
    return step({sigmoid(matmul(carry[0], w) + element[0])}, {});
  });
  graph.fetch("y", loop.carries[0]);
  const Plan plan = plan_of(graph, true);
  const std::vector<const Step*> products = products_of(plan);
  ASSERT_EQ(products.size(), 1u);
  EXPECT_EQ(products[0]->kernel->name, "few_rows");
  EXPECT_EQ(products[0]->call.unmodified_by_previous, 0b10u) << "w, not the carry";
  ASSERT_EQ(products[0]->text->launches.size(), 1u);
  EXPECT_TRUE(products[0]->text->launches[0].overlaps_before);
}

TEST(FewRows, WaitForAWeightThatTheLaunchInFrontMakes) {
  Graph graph;
  const Value x = graph.input("x", f32, {8, 64}), w = graph.input("w", f32, {64, 64});
  graph.fetch("y", matmul(x, exp(w)));
  const Plan plan = plan_of(graph, true);
  const std::vector<const Step*> products = products_of(plan);
  EXPECT_EQ(products.at(0)->call.unmodified_by_previous, 0b01u) << "x, not exp(w)";
}

// The two groups in front have one source: they may share a launch, or change places.
TEST(FewRows, WaitForAllThatAnyOfTheGroupsInFrontMakes) {
  Graph graph;
  const Value x = graph.input("x", f32, {8, 64}), w = graph.input("w", f32, {64, 64});
  graph.fetch("y", matmul(exp(x), exp(w)));
  const Plan plan = plan_of(graph, true);
  EXPECT_EQ(products_of(plan).at(0)->call.unmodified_by_previous, 0u);
}

TEST(FewRows, WaitForEverythingWhereNothingIsKnownOfWhatRanBefore) {
  Graph graph;
  graph.fetch("y", matmul(graph.input("x", f32, {8, 64}), graph.input("w", f32, {64, 64})));
  const Plan plan = plan_of(graph, true);
  EXPECT_EQ(products_of(plan).at(0)->call.unmodified_by_previous, 0u);
}

}  // namespace
}  // namespace paoding
