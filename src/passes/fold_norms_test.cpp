// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

struct Norm {
  Value gamma, beta, mean, variance;
  explicit Norm(Graph& g, std::int64_t channels)
      : gamma(g.input("gamma", f64, {channels})),
        beta(g.input("beta", f64, {channels})),
        mean(g.input("mean", f64, {channels})),
        variance(square(g.input("deviation", f64, {channels}))) {}
  Value operator()(const Value& x) const { return batch_norm(x, gamma, beta, mean, variance, {.training = false}); }
};

Value convolved(Graph& g, const Shape& image, std::int64_t outputs) {
  const Value x = g.input("x", f64, image), w = g.input("w", f64, {outputs, image[1], 3, 3});
  return conv2d(x, w, {.padding = {1, 1, 1, 1}});
}

// Nodes that work on something as large as `shape`.
int count_of_shape(const Graph& g, const Shape& shape) {
  int count = 0;
  for (NodeId id = 0; id < g.size(); ++id) {
    const bool is_work = g.node(id).op->name != "input" && g.node(id).op->name != "parameter";
    if (is_work && g.node(id).types[0].shape == shape) ++count;
  }
  return count;
}

TEST(FoldNorms, MakesANormOutsideOfTrainingABias) {
  for (const std::int64_t outputs : {5, 1}) {
    Graph g;
    const Value c = convolved(g, {2, 3, 9, 8}, outputs);
    g.fetch("y", relu(Norm(g, outputs)(c)));
    const auto notes =
        run_and_compare(g, {merge_duplicates, fold_identities, simplify_views, fold_norms, fuse_convolutions});
    EXPECT_EQ(count_of_shape(g, {2, outputs, 9, 8}), 1) << "the convolution and nothing else";
    EXPECT_EQ(std::get<std::string>(*only(g, "conv2d_bias").attrs.find("activation")), "relu");
    ASSERT_FALSE(notes.empty());
    EXPECT_EQ(notes[0], "1 convolutions took in factors of their channels");
  }
}

TEST(FoldNorms, TakesFactorsOnEitherSideAndScalars) {
  Graph g;
  const Value c = convolved(g, {1, 2, 9, 9}, 3), f = g.input("f", f64, {1, 3, 1, 1}), b = g.input("b", f64, {3, 1, 1});
  g.fetch("y", 2.0 * (f * (c + b) - b) * f + 1.5);
  run_and_compare(g, {merge_duplicates, fold_norms});
  EXPECT_EQ(count_of_shape(g, {1, 3, 9, 9}), 2) << "the convolution and what is added";
}

TEST(FoldNorms, OfOneLayerAfterAnother) {
  Graph g;
  Value x = convolved(g, {2, 3, 9, 8}, 4);
  const Norm norm(g, 4);
  for (const char* name : {"w1", "w2"}) x = conv2d(relu(norm(x)), g.input(name, f64, {4, 4, 1, 1}));
  g.fetch("y", norm(x) + x * 0.0);
  run_and_compare(g, {merge_duplicates, simplify_views, fold_norms, fuse_convolutions});
  EXPECT_EQ(count_here(g, "conv2d_bias"), 2) << "the last one is needed without its norm too";
}

// Its casts go with it; rounding once instead of twice stays within the precision of 16 bits.
TEST(FoldNorms, TakesInWhatANormOf16BitsComputesInF32) {
  Graph g;
  const Value x = g.input("x", bf16, {2, 8, 9, 8}), w = g.input("w", bf16, {4, 8, 3, 3});
  Values vectors;
  for (const char* name : {"gamma", "beta", "mean", "deviation"}) vectors.push_back(g.input(name, bf16, {4}));
  const Value y = batch_norm(conv2d(x, w), vectors[0], vectors[1], cast(vectors[2], f32), square(cast(vectors[3], f32)),
                             {.training = false});
  ASSERT_EQ(y.dtype(), bf16);
  g.fetch("y", relu(y));
  CompileOptions without;
  without.disabled_passes = {"fold_norms"};
  const auto tensors = testing_program::to_tensors(g, testing_program::make_feeds(g, 3));
  const auto folded = Program(g).run(tensors).at("y").to_doubles();
  const auto expected = Program(g, without).run(tensors).at("y").to_doubles();
  ASSERT_EQ(folded.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, value);
  for (std::size_t i = 0; i < folded.size(); ++i) EXPECT_NEAR(folded[i], expected[i], largest * std::ldexp(1.0, -7));

  for (Pass pass : {Pass{"merge_duplicates", "", merge_duplicates}, Pass{"fold_norms", "", fold_norms},
                    Pass{"fuse_convolutions", "", fuse_convolutions}}) {
    PassNotes notes(std::make_shared<const Target>(named_target("h200")));
    pass.run(g, notes);
  }
  EXPECT_EQ(count_of_shape(g, {2, 4, 7, 6}), 1) << "the convolution and nothing else";
}

TEST(FoldNorms, LeavesTrainingAlone) {
  Graph g;
  const Value c = convolved(g, {2, 3, 9, 8}, 4);
  const Value gamma = g.input("gamma", f64, {4});
  const Value y = batch_norm(c, gamma, g.input("beta", f64, {4}), {}, {});
  g.fetch("y", y);
  g.fetch("d", gradients(sum(y * y), {gamma})[0]);
  const auto notes = run_and_compare(g, {expand_composed_ops, merge_duplicates, fold_norms});
  for (const std::string& note : notes) EXPECT_EQ(note.find("factors"), std::string::npos) << note;
}

TEST(FoldNorms, LeavesAResultThatIsSmallerThanItsWeights) {
  Graph g;
  g.fetch("y", Norm(g, 16)(convolved(g, {1, 8, 2, 2}, 16)));
  const auto notes = run_and_compare(g, {merge_duplicates, fold_identities, simplify_views, fold_norms});
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("its weights are larger than its result"), std::string::npos) << notes[0];
}

// On a GPU, where the image is of 16 bits: mean and variance of an image that lies far from 0 as well.
TEST(FoldNorms, AddsUpDistancesFromZeroIn16Bits) {
  const auto subtractions = [](DType precision, const char* target) {
    Graph g;
    const Value c = conv2d(g.input("x", f32, {2, 3, 9, 8}), g.input("w", f32, {4, 3, 3, 3}));
    const Value y = batch_norm(c, g.input("gamma", f32, {4}), g.input("beta", f32, {4}), {}, {});
    g.fetch("y", y);
    for (const auto pass : {expand_composed_ops, merge_duplicates, simplify_views, fold_norms}) {
      PassNotes notes(std::make_shared<const Target>(named_target(target)), precision);
      pass(g, notes);
    }
    int of_images = 0;
    for (NodeId id = 0; id < g.size(); ++id) {
      of_images += g.node(id).op->name == "sub" && g.node(id).types[0].shape == Shape{2, 4, 7, 6} ? 1 : 0;
    }
    return of_images;
  };
  EXPECT_EQ(subtractions(bf16, "h200"), 0);
  EXPECT_EQ(subtractions(f16, "h200"), 0);
  EXPECT_EQ(subtractions(f32, "h200"), 1);
  EXPECT_EQ(subtractions(bf16, "avx512"), 1);
}

// It means the same.
TEST(FoldNorms, GivesTheSameStatisticsFromZero) {
  Graph g;
  const Value c = cast(convolved(g, {2, 3, 9, 8}, 4), f32),
              x = cast(conv2d(cast(c, bf16), cast(g.input("u", f64, {4, 4, 1, 1}), bf16)), f32);
  const Value y = batch_norm(x, g.input("gamma", f32, {4}), g.input("beta", f32, {4}), {}, {});
  g.fetch("y", y);
  for (const auto pass : {expand_composed_ops, merge_duplicates, fold_identities, simplify_views}) {
    PassNotes notes(std::make_shared<const Target>(named_target("h200")));
    pass(g, notes);
  }
  const auto feeds = random_feeds(g, 3);
  const auto before = evaluate_graph(g, feeds).at("y");
  PassNotes notes(std::make_shared<const Target>(named_target("h200")));
  fold_norms(g, notes);
  ASSERT_EQ(notes.list().size(), 1U);
  const auto after = evaluate_graph(g, feeds).at("y");
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-6);
}

}  // namespace
}  // namespace paoding
