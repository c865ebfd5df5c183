// SPDX-License-Identifier: Apache-2.0
// The attention seq2seq and the language model: padding and batches change no result, and searching agrees with losses.
#include "models/seq2seq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "models/language_model.h"
#include "paoding/autodiff.h"
#include "tests/support/program_check.h"

namespace paoding::models {
namespace {

using testing_program::Dense;
using testing_program::expect_close;
using Words = std::vector<std::int64_t>;

constexpr std::int64_t kStartSymbol = 1, kEndSymbol = 2, kVocabulary = 7;

struct Example {
  Words source, target;  // the target without start and end
};

std::vector<Example> examples(unsigned seed, const std::vector<std::pair<int, int>>& lengths) {
  std::mt19937 random(seed);
  const auto word = [&] { return static_cast<std::int64_t>(3 + random() % (kVocabulary - 3)); };
  std::vector<Example> made;
  for (const auto& [source, target] : lengths) {
    Example& one = made.emplace_back();
    for (int i = 0; i < source; ++i) one.source.push_back(word());
    for (int i = 0; i < target; ++i) one.target.push_back(word());
  }
  return made;
}

// Time first, with `rest` where there is nothing.
Tensor side_by_side(const std::vector<Words>& columns, std::int64_t steps, std::int64_t rows, std::int64_t rest) {
  Dense values(static_cast<std::size_t>(steps * rows), static_cast<double>(rest));
  for (std::size_t b = 0; b < columns.size(); ++b) {
    for (std::size_t t = 0; t < columns[b].size(); ++t) {
      values[t * static_cast<std::size_t>(rows) + b] = static_cast<double>(columns[b][t]);
    }
  }
  return Tensor::from(i64, {steps, rows}, values);
}

Words with_first(std::int64_t first, Words words) {
  words.insert(words.begin(), first);
  return words;
}
Words with_last(Words words, std::int64_t last) {
  words.push_back(last);
  return words;
}

struct Seq2SeqResult {
  double loss = 0;
  std::map<std::string, Dense> gradients = {};
};

// Any model: its loss and the gradients of its parameters.
template <class Build>
Seq2SeqResult run(const Build& build, const std::map<std::string, Tensor>& feeds, std::uint64_t seed = 5) {
  Graph g;
  const Value loss = build(g);
  Values wanted;
  std::vector<std::string> names;
  for (const NodeId id : g.parameters()) {
    wanted.push_back(g.value({id, 0}));
    names.push_back(g.node(id).name.str());
  }
  const Values grads = gradients(std::array{loss}, wanted);
  g.fetch("loss", loss);
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("gradient/" + names[i], grads[i]);
  const Parameters parameters(g, Device::cpu(), {.seed = seed});
  Program program(g, {}, &parameters);
  auto fetched = program.run(feeds);
  Seq2SeqResult result{fetched.at("loss").to_doubles()[0]};
  for (const std::string& name : names) result.gradients[name] = fetched.at("gradient/" + name).to_doubles();
  return result;
}

// Adds `weight` times the result of another batch.
void add(Seq2SeqResult* sum, const Seq2SeqResult& one, double weight) {
  sum->loss += weight * one.loss;
  for (const auto& [name, values] : one.gradients) {
    Dense& into = sum->gradients[name];
    into.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) into[i] += weight * values[i];
  }
}

void expect_same(const Seq2SeqResult& got, const Seq2SeqResult& wanted, double tolerance) {
  EXPECT_NEAR(got.loss, wanted.loss, tolerance);
  ASSERT_EQ(got.gradients.size(), wanted.gradients.size());
  for (const auto& [name, values] : wanted.gradients) expect_close(name, got.gradients.at(name), values, tolerance);
}

const Seq2SeqOptions kOptions{
    .source_vocabulary = kVocabulary, .target_vocabulary = kVocabulary, .hidden = 6, .dtype = f64};

Seq2SeqResult of_pairs(const std::vector<Example>& batch, std::int64_t S, std::int64_t T, std::int64_t rows,
                       std::int64_t rest, bool has_lengths = true, Seq2SeqOptions options = kOptions) {
  std::vector<Words> sources, written, labels;
  Dense lengths(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    sources.push_back(batch[i].source);
    written.push_back(with_first(kStartSymbol, batch[i].target));
    labels.push_back(with_last(batch[i].target, kEndSymbol));
    lengths[i] = static_cast<double>(batch[i].source.size());
  }
  std::map<std::string, Tensor> feeds{{"source", side_by_side(sources, S, rows, rest)},
                                      {"written", side_by_side(written, T, rows, rest)},
                                      {"labels", side_by_side(labels, T, rows, -1)}};
  if (has_lengths) feeds["lengths"] = Tensor::from(i64, {rows}, lengths);
  return run(
      [&](Graph& g) {
        const Value source = g.input("source", i64, {S, rows}), read = g.input("written", i64, {T, rows});
        const Value wanted = g.input("labels", i64, {T, rows});
        const Value ends = has_lengths ? g.input("lengths", i64, {rows}) : Value();
        const Seq2Seq model(g, options);
        return model.loss(model.encode(source, ends), read, wanted);
      },
      feeds);
}

// Each example alone, without a padded place; weighted by the words that count.
Seq2SeqResult one_by_one(const std::vector<Example>& batch, const Seq2SeqOptions& options = kOptions) {
  Seq2SeqResult sum;
  double words = 0;
  for (const Example& one : batch) words += static_cast<double>(one.target.size() + 1);
  for (const Example& one : batch) {
    const auto S = std::ssize(one.source), T = std::ssize(one.target) + 1;
    add(&sum, of_pairs({one}, S, T, 1, 0, false, options), static_cast<double>(T) / words);
  }
  return sum;
}

TEST(Seq2Seq, LossAndGradientsDoNotSeePadding) {
  const auto batch = examples(1, {{6, 3}, {1, 4}, {3, 0}, {4, 2}});
  const Seq2SeqResult alone = one_by_one(batch);
  expect_same(of_pairs(batch, 6, 5, 4, 0), alone, 1e-13);
  expect_same(of_pairs(batch, 6, 5, 4, 5), alone, 1e-13);  // whatever stands there
  expect_same(of_pairs(batch, 9, 8, 4, 3), alone, 1e-13);  // longer
  expect_same(of_pairs(batch, 9, 8, 7, 3), alone, 1e-13);  // rows without an example, of length 0
  const auto full = examples(2, {{5, 3}, {5, 3}});
  expect_same(of_pairs(full, 5, 4, 2, 0, true), of_pairs(full, 5, 4, 2, 0, false), 1e-13);
}

TEST(Seq2Seq, PaddingIsNotSeenWhateverTheModel) {
  const auto batch = examples(3, {{2, 3}, {5, 1}, {3, 2}});
  for (const std::int64_t layers : {1, 3}) {
    Seq2SeqOptions options = kOptions;
    options.layers = layers;
    options.squashes_attention = layers == 1;
    expect_same(of_pairs(batch, 7, 6, 5, 4, true, options), one_by_one(batch, options), 1e-13);
  }
}

TEST(Seq2Seq, ABatchThatIsAllPaddingIsNothing) {
  const Seq2SeqResult nothing = of_pairs({}, 4, 3, 2, 0);
  EXPECT_EQ(nothing.loss, 0);
  for (const auto& [name, values] : nothing.gradients) {
    for (const double value : values) ASSERT_EQ(value, 0) << name;
  }
}

// ---- searching ----

// Checks the log probability of every hypothesis by another way: the model's score when it is told the words. `score`
// takes rows of words with their labels and gives minus each row's sum.
template <class Score>
void expect_totals(const std::vector<std::vector<Hypothesis>>& found, std::int64_t steps, const Score& score) {
  std::size_t most = 0;
  for (const auto& row : found) most = std::max(most, row.size());
  for (std::size_t k = 0; k < most; ++k) {
    std::vector<Words> written, labels;
    for (const auto& row : found) {
      ASSERT_LT(k, row.size());
      const Hypothesis& one = row[k];
      Words label = one.is_finished ? with_last(one.words, kEndSymbol) : one.words;
      EXPECT_EQ(one.is_finished || std::ssize(one.words) == steps, true);
      written.push_back(with_first(kStartSymbol, Words(label.begin(), label.end() - 1)));
      labels.push_back(std::move(label));
    }
    const Dense totals = score(written, labels);
    for (std::size_t row = 0; row < found.size(); ++row) {
      EXPECT_NEAR(found[row][k].log_probability, totals[row], 2e-5) << "row " << row << " hypothesis " << k;
    }
  }
}

class Seq2SeqSearch : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 4, kSource = 6, kSteps = 6;

  Seq2SeqSearch() {
    // Weights several times as large as usual, so that words differ in how likely they are.
    Graph g;
    const Seq2Seq model(g, kOptions);
    parameters_.emplace(g, Device::cpu(), ParametersOptions{.seed = 9});
    for (const std::string& name : parameters_->names()) {
      const Tensor start = parameters_->get(name);
      Dense values = start.to_doubles();
      for (double& value : values) value *= name.find("weight") == std::string::npos ? 1.5 : 3;
      parameters_->set(name, Tensor::from(f64, start.shape(), values));
    }
    batch_ = examples(4, {{6, 0}, {1, 0}, {4, 0}, {2, 0}});
  }

  std::vector<std::vector<Hypothesis>> search(const std::vector<Example>& batch, std::int64_t S, std::int64_t beam,
                                              bool has_lengths = true) {
    const auto rows = std::ssize(batch);
    Graph g;
    const Value source = g.input("source", i64, {S, rows});
    const Value ends = has_lengths ? g.input("lengths", i64, {rows}) : Value();
    const Seq2Seq model(g, kOptions);
    fetch(g, model.search(model.encode(source, ends),
                          {.beam = beam, .steps = kSteps, .start = kStartSymbol, .end = kEndSymbol}));
    Program program(g, {}, &*parameters_);
    program.run(feeds_of(batch, S, has_lengths));
    return hypotheses(program, kEndSymbol);
  }

  std::map<std::string, Tensor> feeds_of(const std::vector<Example>& batch, std::int64_t S, bool has_lengths) {
    std::vector<Words> sources;
    Dense lengths;
    for (const Example& one : batch) {
      sources.push_back(one.source);
      lengths.push_back(static_cast<double>(one.source.size()));
    }
    std::map<std::string, Tensor> feeds{{"source", side_by_side(sources, S, std::ssize(batch), 5)}};
    if (has_lengths) feeds["lengths"] = Tensor::from(i64, {std::ssize(batch)}, lengths);
    return feeds;
  }

  Dense score(const std::vector<Words>& written, const std::vector<Words>& labels) {
    Graph g;
    const Value source = g.input("source", i64, {kSource, kRows}), ends = g.input("lengths", i64, {kRows});
    const Value read = g.input("written", i64, {kSteps, kRows}), wanted = g.input("labels", i64, {kSteps, kRows});
    const Seq2Seq model(g, kOptions);
    const Value losses = model.loss(model.encode(source, ends), read, wanted, LossReduction::none);
    g.fetch("totals", -sum(losses, std::array<std::int64_t, 1>{0}));
    Program program(g, {}, &*parameters_);
    auto feeds = feeds_of(batch_, kSource, true);
    feeds["written"] = side_by_side(written, kSteps, kRows, 0);
    feeds["labels"] = side_by_side(labels, kSteps, kRows, -1);
    return program.run(feeds).at("totals").to_doubles();
  }

  std::optional<Parameters> parameters_;
  std::vector<Example> batch_;
};

TEST_F(Seq2SeqSearch, TotalsAreWhatTheLossSaysOfTheWordsFound) {
  for (const std::int64_t beam : {1, 2, 5}) {
    const auto found = search(batch_, kSource, beam);
    ASSERT_EQ(std::ssize(found), kRows);
    for (const auto& row : found) EXPECT_EQ(std::ssize(row), beam);
    expect_totals(found, kSteps, [&](const auto& written, const auto& labels) { return score(written, labels); });
  }
}

TEST_F(Seq2SeqSearch, AWiderBeamFindsNothingWorseHere) {
  const auto greedy = search(batch_, kSource, 1), wide = search(batch_, kSource, 5);
  for (std::size_t row = 0; row < greedy.size(); ++row) {
    EXPECT_GE(wide[row][0].log_probability, greedy[row][0].log_probability - 1e-5);
  }
}

TEST_F(Seq2SeqSearch, ASourceFindsTheSameAloneAndInABatch) {
  const auto together = search(batch_, kSource, 3), padded = search(batch_, kSource + 3, 3);
  for (std::size_t row = 0; row < batch_.size(); ++row) {
    const auto alone = search({batch_[row]}, std::ssize(batch_[row].source), 3, false);
    ASSERT_EQ(alone[0].size(), together[row].size());
    for (std::size_t k = 0; k < alone[0].size(); ++k) {
      EXPECT_EQ(alone[0][k].words, together[row][k].words);
      EXPECT_EQ(padded[row][k].words, together[row][k].words);
      EXPECT_NEAR(alone[0][k].log_probability, together[row][k].log_probability, 1e-5);
      EXPECT_NEAR(padded[row][k].log_probability, together[row][k].log_probability, 1e-5);
    }
  }
}

// ---- the language model ----

const LanguageModelOptions kLm{.vocabulary = kVocabulary, .hidden = 8, .layers = 2};

Seq2SeqResult of_texts(const std::vector<Words>& texts, std::int64_t T, std::int64_t rows, std::int64_t rest) {
  std::vector<Words> written, labels;
  for (const Words& text : texts) {
    written.push_back(with_first(kStartSymbol, text));
    labels.push_back(with_last(text, kEndSymbol));
  }
  return run(
      [&](Graph& g) {
        const Value read = g.input("written", i64, {T, rows}), wanted = g.input("labels", i64, {T, rows});
        return LanguageModel(g, kLm).loss(read, wanted);
      },
      {{"written", side_by_side(written, T, rows, rest)}, {"labels", side_by_side(labels, T, rows, -1)}});
}

TEST(LanguageModel, LossAndGradientsDoNotSeePadding) {
  std::vector<Words> texts;
  for (const Example& one : examples(6, {{0, 5}, {0, 2}, {0, 0}, {0, 3}})) texts.push_back(one.target);
  Seq2SeqResult alone;
  for (const Words& text : texts) {
    const auto T = std::ssize(text) + 1;
    add(&alone, of_texts({text}, T, 1, 0), static_cast<double>(T) / 14);
  }
  expect_same(of_texts(texts, 6, 4, 0), alone, 3e-6);  // in float32
  expect_same(of_texts(texts, 9, 6, 4), alone, 3e-6);
}

class LanguageModelSearch : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 3, kLongest = 6, kSteps = 5;
  LanguageModelSearch() {
    Graph g;
    const LanguageModel model(g, kLm);
    parameters_.emplace(g, Device::cpu(), ParametersOptions{.seed = 3});
    for (const std::string& name : parameters_->names()) {
      const Tensor start = parameters_->get(name);
      Dense values = start.to_doubles();
      for (double& value : values) value *= name == "words/weight" ? 10 : 2;
      if (name == "words/bias") values[kEndSymbol] = 1.5;
      parameters_->set(name, Tensor::from(f32, start.shape(), values));
    }
    for (const Example& one : examples(8, {{0, 5}, {0, 0}, {0, 2}}))
      begun_.push_back(with_first(kStartSymbol, one.target));
  }

  std::vector<std::vector<Hypothesis>> search(const std::vector<Words>& begun, std::int64_t T, std::int64_t beam) {
    const auto rows = std::ssize(begun);
    Graph g;
    const Value read = g.input("written", i64, {T, rows}), lengths = g.input("lengths", i64, {rows});
    fetch(g, LanguageModel(g, kLm).search(read, lengths,
                                          {.beam = beam, .steps = kSteps, .start = kStartSymbol, .end = kEndSymbol}));
    Dense ends;
    for (const Words& text : begun) ends.push_back(static_cast<double>(text.size()));
    Program program(g, {}, &*parameters_);
    program.run({{"written", side_by_side(begun, T, rows, 3)}, {"lengths", Tensor::from(i64, {rows}, ends)}});
    return hypotheses(program, kEndSymbol);
  }

  // A text's log probability, by the loss of all of it less that of its beginning.
  double log_probability(const Words& text) {
    if (text.size() < 2) return 0;
    const auto T = std::ssize(text) - 1;
    Graph g;
    const Value read = g.input("written", i64, {T, 1}), wanted = g.input("labels", i64, {T, 1});
    g.fetch("loss", LanguageModel(g, kLm).loss(read, wanted));
    Program program(g, {}, &*parameters_);
    const auto fetched = program.run({{"written", side_by_side({Words(text.begin(), text.end() - 1)}, T, 1, 0)},
                                      {"labels", side_by_side({Words(text.begin() + 1, text.end())}, T, 1, 0)}});
    return -static_cast<double>(T) * fetched.at("loss").to_doubles()[0];
  }

  std::optional<Parameters> parameters_;
  std::vector<Words> begun_;  // with the start
};

TEST_F(LanguageModelSearch, TotalsAreWhatTheLossSaysOfTheWordsFound) {
  std::set<std::size_t> lengths;
  for (const std::int64_t beam : {1, 4}) {
    const auto found = search(begun_, kLongest, beam);
    for (std::size_t row = 0; row < begun_.size(); ++row) {
      ASSERT_EQ(std::ssize(found[row]), beam);
      for (const Hypothesis& one : found[row]) {
        Words text = begun_[row];
        text.insert(text.end(), one.words.begin(), one.words.end());
        if (one.is_finished) text.push_back(kEndSymbol);
        lengths.insert(one.words.size());
        EXPECT_NEAR(one.log_probability, log_probability(text) - log_probability(begun_[row]), 5e-5)
            << "row " << row << " beam " << beam;
      }
    }
  }
  EXPECT_GT(lengths.size(), 1U);
}

TEST_F(LanguageModelSearch, ABeginningFindsTheSameAloneAndInABatch) {
  const auto together = search(begun_, kLongest, 3);
  for (std::size_t row = 0; row < begun_.size(); ++row) {
    const auto alone = search({begun_[row]}, std::ssize(begun_[row]), 3);
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(alone[0][k].words, together[row][k].words);
      EXPECT_NEAR(alone[0][k].log_probability, together[row][k].log_probability, 1e-5);
    }
  }
}

}  // namespace
}  // namespace paoding::models
