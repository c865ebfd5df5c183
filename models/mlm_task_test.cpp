// SPDX-License-Identifier: Apache-2.0
// mlm: fillings of gaps are the likeliest tokens of the model's scores, whatever stands beside and behind a line; the
// tokens that training hides are as many as they should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "data/test_folder.h"
#include "models/masked_model.h"
#include "models/option.h"
#include "models/task.h"
#include "paoding/autodiff.h"
#include "tests/support/program_check.h"
#include "tests/support/small_corpora.h"

namespace paoding::models {
namespace {

using testing_program::Dense;

std::unique_ptr<Task> small_mlm() {
  auto task = make_task("mlm");
  const Options all = task->options();
  for (const auto& [name, text] : std::map<std::string, std::string>{
           {"hidden", "8"}, {"heads", "2"}, {"layers", "2"}, {"context", "24"}, {"dropout", "0"}}) {
    set(*find(all, name), text);
  }
  task->read(small_corpora::all().path());
  return task;
}

Parameters mlm_parameters(const Task& task) {
  Graph graph;
  task.loss(graph, 0, 1, false);
  Parameters parameters(graph, Device::cpu(), {.seed = 3});
  for (const std::string& name : parameters.names()) {
    const Tensor quiet = parameters.get(name);
    Dense values = quiet.to_doubles();
    for (double& value : values) value *= name.ends_with("/weight") ? 20 : 1;
    parameters.set(name, Tensor::from(quiet.dtype(), quiet.shape(), values));
  }
  return parameters;
}

// Log probabilities of the 256 bytes at each place of a text of these tokens, 256 for a gap.
Dense byte_scores(const Parameters& parameters, const std::vector<double>& tokens) {
  Graph g;
  const auto length = std::ssize(tokens);
  const Value written = g.input("written", i64, {1, length}), lengths = g.input("lengths", i64, {1});
  const MaskedModel model(g, {.vocabulary = 257, .hidden = 8, .layers = 2, .heads = 2, .context = 24});
  g.fetch("scores", log_softmax(slice(model.logits(written, lengths), 2, 0, 256)));
  return Program(g, {}, &parameters)
      .run({{"written", Tensor::from(i64, {1, length}, tokens)},
            {"lengths", Tensor::from(i64, {1}, Dense{static_cast<double>(length)})}})
      .at("scores")
      .to_doubles();
}

TEST(MlmTask, FillsGapsWithTheLikeliestTokens) {
  const auto task = small_mlm();
  const Parameters parameters = mlm_parameters(*task);
  const auto predictor = task->predictor({&parameters, {}});
  const std::vector<std::string> lines{"a_c_", "the light", "_"};
  const auto together = predictor->predict(lines, {.beam = 3, .best = 3});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto alone = predictor->predict(std::vector{lines[i]}, {.beam = 3, .best = 3});
    std::vector<double> tokens{'\n'};
    std::vector<std::size_t> gaps;
    for (const char c : lines[i]) {
      if (c == '_') gaps.push_back(tokens.size());
      tokens.push_back(c == '_' ? 256 : static_cast<double>(c));
    }
    if (gaps.empty()) gaps.push_back(tokens.size()), tokens.push_back(256);
    tokens.push_back('\n');
    const Dense scores = byte_scores(parameters, tokens);
    // Every way to fill the gaps, of which there are two at most.
    std::vector<std::pair<double, std::string>> ways;
    for (std::size_t a = 0; a < 256; ++a) {
      for (std::size_t b = 0; b < (gaps.size() > 1 ? 256U : 1U); ++b) {
        std::string text;
        for (std::size_t t = 1; t + 1 < tokens.size(); ++t) {
          text += static_cast<char>(t == gaps[0]                      ? a
                                    : gaps.size() > 1 && t == gaps[1] ? b
                                                                      : static_cast<unsigned>(tokens[t]));
        }
        const double second = gaps.size() > 1 ? scores[gaps[1] * 256 + b] : 0;
        ways.emplace_back(scores[gaps[0] * 256 + a] + second, text);
      }
    }
    std::ranges::sort(ways, [](const auto& x, const auto& y) { return x.first > y.first; });
    ASSERT_EQ(together[i].size(), 3U);
    for (std::size_t k = 0; k < 3; ++k) {
      std::string wanted = ways[k].second;
      if (wanted.ends_with('\n')) wanted.pop_back();  // the end of a line is no part of it
      EXPECT_EQ(together[i][k].text, wanted) << lines[i];
      EXPECT_NEAR(together[i][k].log_probability, ways[k].first, 1e-5);
      EXPECT_EQ(alone[0][k].text, together[i][k].text);
      EXPECT_NEAR(alone[0][k].log_probability, together[i][k].log_probability, 1e-5);
    }
  }
}

// The loss's gradient says which places are scored: it is 0 for the bias of a token that is at none of them.
TEST(MlmTask, TrainingHidesThreeTokensOfTwenty) {
  constexpr std::int64_t kRows = 40, kSteps = 50;
  Graph g;
  const Value texts = g.input("texts", i64, {kRows, kSteps}), lengths = g.input("lengths", i64, {kRows});
  const MaskedModel model(g, {.vocabulary = 9, .hidden = 4, .layers = 1, .heads = 1, .context = kSteps});
  const Value loss = model.training_loss(texts, lengths);
  g.fetch("dtokens", gradients(std::array{loss}, std::array{g.find("scores/bias")})[0]);
  g.fetch("loss", loss);
  const Parameters parameters(g, Device::cpu(), {.seed = 5});
  Program program(g, {}, &parameters);
  // Token 3 everywhere: its bias's gradient is its probability less 1, however many are scored. Token 5 stands behind
  // the texts' ends and is never scored.
  Dense written(kRows * kSteps, 3), ends(kRows, kSteps / 2.0);
  for (std::size_t i = 0; i < written.size(); ++i) written[i] = i % kSteps < kSteps / 2 ? 3 : 5;
  const std::map<std::string, Tensor> feeds{{"texts", Tensor::from(i64, {kRows, kSteps}, written)},
                                            {"lengths", Tensor::from(i64, {kRows}, ends)}};
  std::set<double> losses;
  for (int run = 0; run < 4; ++run) {
    const auto got = program.run(feeds);
    const Dense gradient = got.at("dtokens").to_doubles();
    EXPECT_LT(gradient[3], -0.8);
    EXPECT_GT(gradient[5], 0) << "it is no label";
    losses.insert(got.at("loss").to_doubles()[0]);
  }
  EXPECT_EQ(losses.size(), 4U) << "others are hidden in every run";
}

TEST(MlmTask, ScoresTheSameTokensInEveryBatch) {
  const auto task = small_mlm();
  const Batch both = task->batch(Part::test, std::array<std::int64_t, 2>{7, 3}, 0, 3),
              one = task->batch(Part::test, std::array<std::int64_t, 1>{3}, 0, 1);
  const auto *many = both.feeds[2].data<std::int64_t>(), *alone = one.feeds[2].data<std::int64_t>();
  EXPECT_TRUE(std::equal(alone, alone + 24, many + 24));
  EXPECT_EQ(std::count(alone, alone + 24, 1), one.weight);
  EXPECT_EQ(std::count(many, many + 72, 1), both.weight);
  double hidden = 0, all = 0;
  for (std::int64_t i = 0; i < 400; ++i) {
    hidden += task->batch(Part::train, std::array{i}, 0, 1).weight;
    all += 24;
  }
  EXPECT_NEAR(hidden / all, 0.15 + 0.85 / 24, 0.01);
}

}  // namespace
}  // namespace paoding::models
