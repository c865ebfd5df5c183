// SPDX-License-Identifier: Apache-2.0
// categorical: how often each category is drawn, against its probability; which ones are drawn at all.
#include "paoding/ops/sampling.h"

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kSampledRows = 20000;
const Dense kLogits{0.5, -1, 2, 0.25, 1.5, -3};

// The categories drawn for kSampledRows rows of the same logits, counted, in a run after `runs` others.
std::vector<double> counts(const CategoricalOptions& options, DType dtype = f32, std::uint64_t seed = 5, int runs = 0) {
  Graph g;
  const auto categories = static_cast<std::int64_t>(kLogits.size());
  const Value row = g.input("row", dtype, {categories});
  g.fetch("drawn", categorical(expand(row, {kSampledRows, categories}), options));
  Parameters parameters(g, Device::cpu(), {.seed = seed});
  Program program(g, {}, &parameters);
  const Tensors feeds{{"row", Tensor::from(dtype, {categories}, kLogits)}};
  for (int run = 0; run < runs; ++run) program.run(feeds);
  std::vector<double> found(kLogits.size());
  for (const double category : program.run(feeds).at("drawn").to_doubles())
    ++found.at(static_cast<std::size_t>(category));
  return found;
}

Dense probabilities(const Dense& logits, double temperature) {
  Dense made;
  double total = 0;
  for (const double logit : logits) made.push_back(std::exp(logit / temperature)), total += made.back();
  for (double& p : made) p /= total;
  return made;
}

void expect_drawn(const std::vector<double>& found, const Dense& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double mean = expected[i] * kSampledRows;
    EXPECT_NEAR(found[i], mean, 5 * std::sqrt(mean * (1 - expected[i])) + 1e-9) << i;
    EXPECT_TRUE(expected[i] > 0 || found[i] == 0) << i;
  }
}

// The distribution over `allowed` alone.
Dense limited(Dense all, const std::set<std::size_t>& allowed) {
  double total = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!allowed.contains(i)) all[i] = 0;
    total += all[i];
  }
  for (double& p : all) p /= total;
  return all;
}

TEST(Categorical, DrawsAsOftenAsItsProbabilitiesSay) {
  expect_drawn(counts({}), probabilities(kLogits, 1));
  expect_drawn(counts({.temperature = 2.5}), probabilities(kLogits, 2.5));
  expect_drawn(counts({}, f64), probabilities(kLogits, 1));
  expect_drawn(counts({}, bf16), probabilities(rounded({bf16, {6}}, kLogits), 1));
}

TEST(Categorical, DrawsFromTheLargestAlone) {
  const Dense all = probabilities(kLogits, 0.7);
  expect_drawn(counts({.temperature = 0.7, .top_k = 3}), limited(all, {0, 2, 4}));
  expect_drawn(counts({.temperature = 0.7, .top_k = 1}), limited(all, {2}));
  expect_drawn(counts({.temperature = 0.7, .top_k = 100}), all);
  // 2 has 0.59 of it, 4 another 0.29, 0 and 3 share most of the rest.
  expect_drawn(counts({.temperature = 0.7, .top_p = 0.5}), limited(all, {2}));
  expect_drawn(counts({.temperature = 0.7, .top_p = 0.8}), limited(all, {2, 4}));
  expect_drawn(counts({.temperature = 0.7, .top_k = 2, .top_p = 0.99}), limited(all, {2, 4}));
  expect_drawn(counts({.temperature = 0}), limited(all, {2}));
}

TEST(Categorical, DrawsTheSameOfOneSeedAndOthersInEveryRun) {
  EXPECT_EQ(counts({}), counts({}));
  EXPECT_NE(counts({}), counts({}, f32, 6));
  EXPECT_NE(counts({}), counts({}, f32, 5, 1));
}

TEST(Categorical, SaysWhatItNeeds) {
  Graph g;
  const Value logits = g.input("logits", f32, {2, 3}), ids = g.input("ids", i64, {2, 3});
  EXPECT_TRUE(has(message_of([&] { categorical(ids); }), "categorical: logits are i64, needed are floats"));
  EXPECT_TRUE(
      has(message_of([&] { categorical(logits, {.temperature = -1}); }), "temperature = -1, needs to be at least 0"));
  EXPECT_TRUE(has(message_of([&] { categorical(logits, {.top_p = 1.5}); }), "top_p = 1.5"));
}

}  // namespace
}  // namespace paoding::testing_program
