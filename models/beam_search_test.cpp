// SPDX-License-Identifier: Apache-2.0
// Beam search against hypotheses that are kept one by one in float64, and against every sequence there is. Words are
// scored by a random recurrence: state' = tanh(state mix + table[word]), scores = state' out + bias.
#include "models/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/support/program_check.h"

namespace paoding::models {
namespace {

using testing_program::Dense;
using testing_program::Tensors;
using Words = std::vector<std::int64_t>;

constexpr std::int64_t kStart = 1, kEnd = 2;

struct Machine {
  std::int64_t words = 5, width = 3, rows = 2;
  Dense mix, table, out, bias, state;  // [D, D], [V, D], [D, V], [V], [B, D]

  explicit Machine(std::int64_t words_, unsigned seed, double end_bias = 0) : words(words_) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, 1.5);
    for (auto [values, size] :
         {std::pair{&mix, width * width}, std::pair{&table, words * width}, std::pair{&out, width * words},
          std::pair{&bias, words}, std::pair{&state, rows * width}}) {
      values->resize(static_cast<std::size_t>(size));
      for (double& value : *values) value = static_cast<float>(normal(random));
    }
    bias[kEnd] += end_bias;
  }

  // The state after `word`, and the log probabilities of the next words.
  std::pair<Dense, Dense> step(const Dense& before, std::int64_t word) const {
    const auto D = static_cast<std::size_t>(width), V = static_cast<std::size_t>(words);
    Dense after(D), scores(bias);
    for (std::size_t j = 0; j < D; ++j) {
      double sum = table[static_cast<std::size_t>(word) * D + j];
      for (std::size_t i = 0; i < D; ++i) sum += before[i] * mix[i * D + j];
      after[j] = std::tanh(sum);
    }
    double all = 0;
    for (std::size_t v = 0; v < V; ++v) {
      for (std::size_t i = 0; i < D; ++i) scores[v] += after[i] * out[i * V + v];
      all += std::exp(scores[v]);
    }
    for (double& score : scores) score -= std::log(all);
    return {after, scores};
  }
  Dense state_of(std::int64_t row) const { return {state.begin() + row * width, state.begin() + (row + 1) * width}; }
};

struct Known {
  Words words;  // without the end
  double total = 0;
  bool is_finished = false;
  Dense state = {};
  std::int64_t last = kStart;
};

// All hypotheses that may follow each; a finished one is followed by itself.
std::vector<Known> longer(const Machine& machine, const std::vector<Known>& all) {
  std::vector<Known> made;
  for (const Known& one : all) {
    if (one.is_finished) {
      made.push_back(one);
      continue;
    }
    const auto [state, scores] = machine.step(one.state, one.last);
    for (std::int64_t word = 0; word < machine.words; ++word) {
      Known next{one.words, one.total + scores[static_cast<std::size_t>(word)], word == kEnd, state, word};
      if (word != kEnd) next.words.push_back(word);
      made.push_back(std::move(next));
    }
  }
  std::stable_sort(made.begin(), made.end(), [](const Known& a, const Known& b) { return a.total > b.total; });
  return made;
}

std::vector<Known> expected(const Machine& machine, std::int64_t row, std::int64_t first, std::int64_t steps,
                            std::size_t kept) {
  std::vector<Known> all{{.words = {}, .state = machine.state_of(row), .last = first}};
  for (std::int64_t t = 0; t < steps; ++t) {
    all = longer(machine, all);
    if (all.size() > kept) all.resize(kept);
  }
  return all;
}

// Fetches of a search of `beam`; `first`: with an input for the first word of each row.
std::unique_ptr<Graph> search_graph(const Machine& m, std::int64_t beam, std::int64_t steps, bool has_first) {
  auto made = std::make_unique<Graph>();
  Graph& g = *made;
  const std::int64_t D = m.width, V = m.words, B = m.rows;
  const Value mix = g.input("mix", f32, {D, D}), table = g.input("table", f32, {V, D});
  const Value out = g.input("out", f32, {D, V}), bias = g.input("bias", f32, {V}),
              state = g.input("state", f32, {B, D});
  BeamSearchOptions options{.beam = beam, .steps = steps, .start = kStart, .end = kEnd};
  if (has_first) options.first = g.input("first", i64, {B});
  fetch(g, beam_search({state}, options, [&](const Value& words, const Values& before) {
          EXPECT_EQ(words.shape(), (Shape{B * beam}));
          const Value after = tanh(matmul(before[0], mix) + embedding(table, words));
          return Continuation{.logits = matmul(after, out) + bias, .state = {after}};
        }));
  return made;
}

std::vector<std::vector<Hypothesis>> found(const Machine& m, std::int64_t beam, std::int64_t steps,
                                           double length_power = 0, const Words& first = {}) {
  Program program(*search_graph(m, beam, steps, !first.empty()));
  Tensors feeds{{"mix", Tensor::from(f32, {m.width, m.width}, m.mix)},
                {"table", Tensor::from(f32, {m.words, m.width}, m.table)},
                {"out", Tensor::from(f32, {m.width, m.words}, m.out)},
                {"bias", Tensor::from(f32, {m.words}, m.bias)},
                {"state", Tensor::from(f32, {m.rows, m.width}, m.state)}};
  if (!first.empty()) feeds["first"] = Tensor::from(i64, {m.rows}, Dense(first.begin(), first.end()));
  program.run(feeds);
  return hypotheses(program, kEnd, length_power);
}

void expect_same(const std::vector<Hypothesis>& got, const std::vector<Known>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].words, wanted[i].words) << "hypothesis " << i;
    EXPECT_EQ(got[i].is_finished, wanted[i].is_finished) << "hypothesis " << i;
    EXPECT_NEAR(got[i].log_probability, wanted[i].total, 1e-5) << "hypothesis " << i;
  }
}

TEST(BeamSearch, KeepsTheBestOfEachStep) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    // Ends are rare, as likely as anything, likely.
    const Machine machine(5 + seed % 3, seed, static_cast<double>(seed % 3) * 2 - 2);
    for (const std::int64_t beam : {1, 2, 5}) {
      const auto rows = found(machine, beam, 7);
      ASSERT_EQ(std::ssize(rows), machine.rows);
      for (std::int64_t row = 0; row < machine.rows; ++row) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << " beam " << beam << " row " << row);
        expect_same(rows[static_cast<std::size_t>(row)],
                    expected(machine, row, kStart, 7, static_cast<std::size_t>(beam)));
      }
    }
  }
}

TEST(BeamSearch, FindsEverySequenceWhenItMayKeepThemAll) {
  const Machine machine(3, 11);
  // Two words that are no end give in at most 3 steps: 1 + 2 + 4 hypotheses that end and 8 that do not.
  for (const std::int64_t beam : {15, 20}) {
    const auto rows = found(machine, beam, 3);
    for (std::int64_t row = 0; row < machine.rows; ++row) {
      const auto& got = rows[static_cast<std::size_t>(row)];
      ASSERT_EQ(got.size(), 15U) << "of more hypotheses than sequences, only those that are some";
      expect_same(got, expected(machine, row, kStart, 3, 1000));
      double sum = 0;
      for (const Hypothesis& one : got) sum += std::exp(one.log_probability);
      EXPECT_NEAR(sum, 1, 1e-5) << "they are all there is";
    }
  }
  EXPECT_EQ(found(Machine(2 + 1, 3), 1000, 1)[0].size(), 3U);
}

TEST(BeamSearch, IsNeverBetterThanTheBestSequence) {
  for (unsigned seed = 20; seed < 26; ++seed) {
    const Machine machine(4, seed);
    double worse = 0;
    for (const std::int64_t beam : {1, 2, 5, 40}) {
      const auto rows = found(machine, beam, 4);
      for (std::int64_t row = 0; row < machine.rows; ++row) {
        const double best = expected(machine, row, kStart, 4, 100'000)[0].total;
        const double got = rows[static_cast<std::size_t>(row)][0].log_probability;
        EXPECT_LE(got, best + 1e-5);
        worse += beam == 40 ? best - got : 0;
      }
    }
    EXPECT_NEAR(worse, 0, 1e-5) << "40 hold every beginning of 3 words";
  }
}

TEST(BeamSearch, BeginsWithTheWordsGiven) {
  const Machine machine(6, 31);
  const Words first{4, 0};
  for (const std::int64_t beam : {1, 3}) {
    const auto rows = found(machine, beam, 5, 0, first);
    for (std::size_t row = 0; row < 2; ++row) {
      expect_same(rows[row],
                  expected(machine, static_cast<std::int64_t>(row), first[row], 5, static_cast<std::size_t>(beam)));
    }
  }
}

TEST(BeamSearch, OrdersHypothesesByLengthToo) {
  int moved = 0;
  for (unsigned seed = 40; seed < 46; ++seed) {
    const Machine machine(5, seed, 1);
    for (const double power : {0.6, 1.0, 3.0}) {
      const auto rows = found(machine, 5, 6, power);
      for (std::int64_t row = 0; row < machine.rows; ++row) {
        auto wanted = expected(machine, row, kStart, 6, 5);
        const auto before = wanted;
        const auto score = [&](const Known& k) {
          return k.total / std::pow(static_cast<double>(k.words.size()) + 1, power);
        };
        std::stable_sort(wanted.begin(), wanted.end(),
                         [&](const Known& a, const Known& b) { return score(a) > score(b); });
        expect_same(rows[static_cast<std::size_t>(row)], wanted);
        moved += wanted[0].words != before[0].words;
      }
    }
  }
  EXPECT_GT(moved, 0) << "no case in which length matters was tried";
}

// An end that is certain from the start on, and one that is impossible.
TEST(BeamSearch, StaysAtAnEndAndNeedsNone) {
  const auto ended = found(Machine(5, 50, 60), 1, 4);
  EXPECT_TRUE(ended[0][0].words.empty());
  EXPECT_TRUE(ended[0][0].is_finished);
  EXPECT_NEAR(ended[0][0].log_probability, 0, 1e-5);
  const auto endless = found(Machine(5, 51, -60), 3, 4);
  for (const Hypothesis& one : endless[1]) {
    EXPECT_EQ(one.words.size(), 4U);
    EXPECT_FALSE(one.is_finished);
  }
}

}  // namespace
}  // namespace paoding::models
