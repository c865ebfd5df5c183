// SPDX-License-Identifier: Apache-2.0
// Composed ops that a kernel claims, and those that no kernel does.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "ops/kernel.h"
#include "ops/scan/scan.h"
#include "paoding/paoding.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

// Twice its input, which a kernel does for rows of 4 elements; it counts its runs, so that a test can tell.
int runs_of_the_kernel = 0;

class TwiceKernel : public PreparedKernel {
 public:
  void run(const KernelRun& run) const override {
    ++runs_of_the_kernel;
    for (int i = 0; i < 4; ++i) {
      static_cast<float*>(run.operands[1])[i] = 2 * static_cast<const float*>(run.operands[0])[i];
    }
  }
};

const OpDef& twice() {
  static const OpDef& op = [&]() -> const OpDef& {
    register_kernel("test_twice",
                    {.name = "four",
                     .device = DeviceKind::cpu,
                     .refusal = [](const KernelCall& call) -> std::string {
                       if (!call.inputs[0].is_dense()) return "a is not dense";
                       return call.inputs[0].type == Type{f32, {4}} ? "" : "a is not f32[4]";
                     },
                     .prepare = [](const KernelCall&, const Device&) { return std::make_unique<TwiceKernel>(); }});
    return register_op({.name = "test_twice",
                        .summary = "2 a",
                        .kind = OpKind::composed,
                        .inputs = {"a"},
                        .gradient = [](const GradCall& call) { return Values{call.grads[0] * 2.0}; },
                        .compose = [](std::span<const Value> in, const Attrs&) { return Values{in[0] + in[0]}; }});
  }();
  return op;
}

Tensor made(DType dtype, const Shape& shape, const std::vector<double>& values) {
  return Tensor::from(dtype, shape, values);
}

Value twice(const Value& a) { return call(twice(), std::array{a})[0]; }

TEST(ExpandComposedOps, WhatAKernelAcceptsStaysWholeAndItRuns) {
  Graph g;
  const Value a = g.input("a", f32, {4});
  g.fetch("y", twice(exp(a)));
  g.fetch("da", gradients(sum(square(twice(a))), {a})[0]);
  PassNotes notes;
  const auto planned = g.clone();
  expand_composed_ops(*planned, notes);
  EXPECT_EQ(count_here(*planned, "test_twice"), 2);
  ASSERT_EQ(notes.list().size(), 2u);
  EXPECT_EQ(notes.list()[0], "test_twice stays whole: four runs it");
  EXPECT_NE(to_text(*planned).find("test_twice("), std::string::npos) << to_text(*planned);
  runs_of_the_kernel = 0;
  const auto results = Program(g).run({{"a", made(f32, {4}, {0, 1, 2, 3})}});
  EXPECT_EQ(runs_of_the_kernel, 2);
  EXPECT_NEAR(results.at("y").to_doubles()[1], 2 * std::exp(1), 1e-6);
  EXPECT_EQ(results.at("da").to_doubles(), (std::vector<double>{0, 8, 16, 24}));
}

TEST(ExpandComposedOps, WhatAllDeclineIsComposedAndTheNoteSaysWhy) {
  Graph g;
  g.fetch("y", twice(g.input("a", f32, {5})));
  PassNotes notes;
  expand_composed_ops(g, notes);
  EXPECT_EQ(count_here(g, "test_twice"), 0);
  EXPECT_EQ(count_here(g, "add"), 1);
  ASSERT_EQ(notes.list().size(), 2u);
  EXPECT_EQ(notes.list()[0], "test_twice: four declined: a is not f32[4]");
  EXPECT_EQ(notes.list()[1], "test_twice became 1 nodes");
}

TEST(ExpandComposedOps, AKernelOfAnotherDeviceClaimsNothing) {
  Graph g;
  g.fetch("y", twice(g.input("a", f32, {4})));
  PassNotes notes(std::make_shared<const Target>(named_target("h200")));
  expand_composed_ops(g, notes);
  EXPECT_EQ(count_here(g, "test_twice"), 0);
}

TEST(ExpandComposedOps, OperandsThatLieOtherwiseAreCopiedForTheClaimant) {
  Graph g;
  const Value a = g.input("a", f32, {4, 3});
  g.fetch("y", twice(reshape(slice(a, 1, 1, 2), {4})));
  runs_of_the_kernel = 0;
  const Tensor fed = made(f32, {4, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  EXPECT_EQ(Program(g).run({{"a", fed}}).at("y").to_doubles(), (std::vector<double>{2, 8, 14, 20}));
  EXPECT_EQ(runs_of_the_kernel, 1);
}

TEST(ExpandComposedOps, WhatIsClaimedInALoopLeavesItAsItsPartsWould) {
  Graph g;
  const Value start = g.input("start", f32, {4}), xs = g.input("xs", f32, {3, 4});
  g.fetch("y", scan({start}, {xs}, [](const Values& carry, const Values& x) {
                 return step({tanh(carry[0] + twice(x[0]))}, {});
               }).carries[0]);
  run_and_compare(g, {expand_composed_ops, hoist_products});
  const Graph& body = *only(g, "scan").bodies[0];
  EXPECT_EQ(count_here(body, "test_twice"), 0);
  EXPECT_EQ(count_here(g, "add"), 1);
}

// Gives 2 a and 3 a, and records the requests for each, so that a test can see them.
std::vector<std::int64_t> elements_asked_for;

class BothKernel : public PreparedKernel {
 public:
  explicit BothKernel(const KernelCall& call) {
    for (const Layout& output : call.outputs) elements_.push_back(output.type.shape.elements());
    elements_asked_for = elements_;
  }
  void run(const KernelRun& run) const override {
    for (std::size_t k = 0; k < elements_.size(); ++k) {
      for (std::int64_t i = 0; i < elements_[k]; ++i) {
        static_cast<float*>(run.operands[1 + k])[i] =
            (2 + static_cast<float>(k)) * static_cast<const float*>(run.operands[0])[i];
      }
    }
  }

 private:
  std::vector<std::int64_t> elements_;
};

const OpDef& both() {
  static const OpDef& op = [&]() -> const OpDef& {
    register_kernel(
        "test_both",
        {.name = "four",
         .device = DeviceKind::cpu,
         .refusal =
             [](const KernelCall& call) { return std::string(call.inputs[0].is_dense() ? "" : "a is not dense"); },
         .prepare = [](const KernelCall& call, const Device&) { return std::make_unique<BothKernel>(call); }});
    return register_op({.name = "test_both",
                        .summary = "2 a and 3 a",
                        .kind = OpKind::composed,
                        .inputs = {"a"},
                        .gradient = [](const GradCall&) { return Values{Value()}; },
                        .compose =
                            [](std::span<const Value> in, const Attrs&) {
                              const Value two = in[0] * 2.0, three = in[0] * 3.0;
                              return Values{two, three};
                            }});
  }();
  return op;
}

TEST(ExpandComposedOps, AResultThatNobodyReadsHasNoPlace) {
  Graph g;
  const Value a = g.input("a", f32, {4});
  g.fetch("y", call(both(), std::array{a})[1] + 1.0);
  Program program(g);
  EXPECT_EQ(elements_asked_for, (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(program.run({{"a", made(f32, {4}, {0, 1, 2, 3})}}).at("y").to_doubles(),
            (std::vector<double>{1, 4, 7, 10}));
}

TEST(ExpandComposedOps, TheGradientOfAnEmbeddingWithPaddingIsOneKernel) {
  Graph g;
  const Value ids = g.input("ids", i64, {2, 3}), table = g.input("table", f32, {5, 4});
  const Value weight = g.input("weight", f32, {2, 3, 4});
  g.fetch("dtable", gradients(sum(embedding(table, ids, 1) * weight), {table})[0]);
  PassNotes notes;
  expand_composed_ops(g, notes);
  EXPECT_EQ(count_here(g, "embedding_grad"), 1);
  EXPECT_EQ(count_here(g, "select") + count_here(g, "scatter_add"), 0);
  EXPECT_NE(std::find(notes.list().begin(), notes.list().end(), "embedding_grad stays whole: rows runs it"),
            notes.list().end());
  std::vector<double> weights(24);
  std::iota(weights.begin(), weights.end(), 1);
  const auto got = Program(g).run({{"ids", made(i64, {2, 3}, {4, 1, 0, 1, 4, 2})},
                                   {"table", Tensor(f32, {5, 4})},
                                   {"weight", made(f32, {2, 3, 4}, weights)}});
  EXPECT_EQ(got.at("dtable").to_doubles(),
            (std::vector<double>{9, 10, 11, 12, 0, 0, 0, 0, 21, 22, 23, 24, 0, 0, 0, 0, 18, 20, 22, 24}));
}

}  // namespace
}  // namespace paoding
