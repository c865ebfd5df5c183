// SPDX-License-Identifier: Apache-2.0
// gpt: searching and drawing agree with the scores that the model gives a whole text; its windows are the book, and its
// score is that of the mean loss.
#include "models/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "data/test_folder.h"
#include "models/gpt_task.h"
#include "paoding/data/corpora.h"
#include "tests/support/program_check.h"
#include "tests/support/small_corpora.h"

namespace paoding::models {
namespace {

using data::refusal;
using testing_program::Dense;

constexpr std::int64_t kSteps = 5, kEndToken = 3;
const GptOptions kTinyGpt{.vocabulary = 11, .hidden = 12, .layers = 2, .heads = 3, .context = 12, .dtype = f64};

// Larger than at first, so that no two tokens are as likely.
Parameters strong_parameters(const Graph& graph) {
  Parameters parameters(graph, Device::cpu(), {.seed = 3});
  for (const std::string& name : parameters.names()) {
    if (!name.ends_with("/weight")) continue;
    const Tensor small = parameters.get(name);
    Dense values = small.to_doubles();
    for (double& value : values) value *= 20;
    parameters.set(name, Tensor::from(small.dtype(), small.shape(), values));
  }
  return parameters;
}

// Log probabilities of the token after a text, from the model that sees it whole.
Dense after(const Tokens& text) {
  Graph g;
  const auto length = static_cast<std::int64_t>(text.size());
  const Value written = g.input("written", i64, {1, length});
  g.fetch("scores", log_softmax(Gpt(g, kTinyGpt).logits(written)));
  const Parameters parameters = strong_parameters(g);
  const Tensor fed = Tensor::from(i64, {1, length}, Dense(text.begin(), text.end()));
  const Dense all = Program(g, {}, &parameters).run({{"written", fed}}).at("scores").to_doubles();
  return {all.end() - kTinyGpt.vocabulary, all.end()};
}

const std::vector<Tokens> kBeginnings{{1, 5, 2}, {7}, {4, 4, 9, 10, 0}};

// Beginnings beside each other, with other tokens behind the shorter ones.
std::map<std::string, Tensor> beginnings_fed(std::int64_t length) {
  Dense written(kBeginnings.size() * static_cast<std::size_t>(length), 8), lengths;
  for (std::size_t row = 0; row < kBeginnings.size(); ++row) {
    std::copy(kBeginnings[row].begin(), kBeginnings[row].end(),
              written.begin() + static_cast<std::ptrdiff_t>(row) * length);
    lengths.push_back(static_cast<double>(kBeginnings[row].size()));
  }
  const auto rows = static_cast<std::int64_t>(kBeginnings.size());
  return {{"written", Tensor::from(i64, {rows, length}, written)}, {"lengths", Tensor::from(i64, {rows}, lengths)}};
}

TEST(Gpt, GoesOnWithTheLikeliestTokenOfTheWholeText) {
  Graph g;
  const Value written = g.input("written", i64, {3, 6}), lengths = g.input("lengths", i64, {3});
  fetch(g, Gpt(g, kTinyGpt).search(written, lengths, {.steps = kSteps, .end = kEndToken}));
  const Parameters parameters = strong_parameters(g);
  Program program(g, {}, &parameters);
  program.run(beginnings_fed(6));
  const auto found = hypotheses(program, kEndToken);
  for (std::size_t row = 0; row < kBeginnings.size(); ++row) {
    Tokens text = kBeginnings[row];
    double total = 0;
    for (std::int64_t t = 0; t < kSteps; ++t) {
      const Dense scores = after(text);
      const auto best = std::max_element(scores.begin(), scores.end());
      total += *best;
      if (best - scores.begin() == kEndToken) break;
      text.push_back(best - scores.begin());
    }
    const Tokens wanted(text.begin() + std::ssize(kBeginnings[row]), text.end());
    EXPECT_EQ(found[row].at(0).words, wanted) << row;
    EXPECT_NEAR(found[row].at(0).log_probability, total, 1e-5);
  }
}

TEST(Gpt, DrawsByTheSharesOfProbability) {
  for (const double temperature : {1.0, 2.5}) {
    Graph g;
    const Value written = g.input("written", i64, {3, 6}), lengths = g.input("lengths", i64, {3});
    const Value uniform = g.input("uniform", f32, {kSteps, 3}), heat = g.input("temperature", f32, {});
    fetch(g, Gpt(g, kTinyGpt).draw(written, lengths, uniform, heat, kEndToken));
    const Parameters parameters = strong_parameters(g);
    Program program(g, {}, &parameters);
    auto feeds = beginnings_fed(6);
    Dense numbers;
    for (std::int64_t i = 0; i < kSteps * 3; ++i) numbers.push_back(std::fmod(0.618 * static_cast<double>(i + 1), 1));
    numbers[0] = 0, numbers[1] = 1 - 0x1p-24;  // the ends of the range
    feeds["uniform"] = Tensor::from(f32, {kSteps, 3}, numbers);
    feeds["temperature"] = Tensor::from(f32, {}, {temperature});
    program.run(feeds);
    const auto found = hypotheses(program, kEndToken);
    for (std::size_t row = 0; row < 3; ++row) {
      Tokens text = kBeginnings[row];
      double total = 0;
      for (std::size_t t = 0; t < kSteps; ++t) {
        const Dense scores = after(text);
        double all = 0, passed = 0;
        for (const double score : scores) all += std::exp(score / temperature);
        std::size_t token = 0;
        while (token + 1 < scores.size()) {
          passed += std::exp(scores[token] / temperature) / all;
          if (passed > numbers[3 * t + row]) break;
          ++token;
        }
        total += scores[token];
        if (token == kEndToken) break;
        text.push_back(static_cast<std::int64_t>(token));
      }
      const Tokens wanted(text.begin() + std::ssize(kBeginnings[row]), text.end());
      EXPECT_EQ(found[row].at(0).words, wanted) << row << " at temperature " << temperature;
      EXPECT_NEAR(found[row].at(0).log_probability, total, 1e-5);
    }
  }
}

TEST(Gpt, BeginsAsGpt2Does) {
  Graph g;
  const GptOptions options{.vocabulary = 90, .hidden = 64, .layers = 8, .heads = 4, .context = 50};
  g.fetch("loss", Gpt(g, options).loss(g.input("written", i64, {1, 50}), g.input("labels", i64, {1, 50})));
  const Parameters parameters(g, Device::cpu(), {.seed = 4});
  std::int64_t elements = 0;
  for (const std::string& name : parameters.names()) {
    double squares = 0;
    const Dense values = parameters.get(name).to_doubles();
    for (const double value : values) squares += value * value;
    const double deviation = std::sqrt(squares / static_cast<double>(values.size()));
    const bool adds = name.ends_with("/out/weight");
    const double wanted = name.ends_with("/gamma") ? 1 : !name.ends_with("/weight") ? 0 : adds ? 0.02 / 4 : 0.02;
    EXPECT_NEAR(deviation, wanted, 0.06 * wanted) << name;
    elements += std::ssize(values);
  }
  // Radford et al. 2019: 12 layers of 768 have 124 million; the formula of their sizes at these.
  EXPECT_EQ(elements, (90 + 50) * 64 + 8 * (12 * 64 * 64 + 13 * 64) + 2 * 64);
}

// ---- the task ----

std::unique_ptr<GptTask> small_gpt(const std::map<std::string, std::string>& more = {}) {
  auto task = std::make_unique<GptTask>();
  std::map<std::string, std::string> texts{{"hidden", "8"}, {"heads", "2"}, {"layers", "1"}, {"context", "40"}};
  for (const auto& [name, text] : more) texts[name] = text;
  const Options all = task->options();
  for (const auto& [name, text] : texts) set(*find(all, name), text);
  return task;
}

TEST(GptTask, WindowsAreTheBook) {
  for (const char* pieces : {"0", "60"}) {
    const auto task = small_gpt({{"pieces", pieces}});
    task->read(small_corpora::all().path());
    std::multiset<std::string> wanted, found;
    for (int i = 0; i < 31'102; ++i) wanted.insert(small_corpora::verse(i));
    for (const Part part : {Part::train, Part::validation, Part::test}) {
      Tokens all;
      const auto windows = std::ssize(task->buckets(part));
      for (std::int64_t i = 0; i < windows; ++i) {
        const Batch batch = task->batch(part, std::array{i}, 0, 2);
        const auto *written = batch.feeds[0].data<std::int64_t>(), *labels = batch.feeds[1].data<std::int64_t>();
        for (std::int64_t t = 0; t < batch.weight; ++t) {
          ASSERT_EQ(written[t], all.empty() ? task->text().end() : all.back());
          all.push_back(labels[t]);
        }
        for (auto t = static_cast<std::int64_t>(batch.weight); t < 2 * 40; ++t) ASSERT_EQ(labels[t], -1);
        ASSERT_TRUE(batch.weight == 40 || i + 1 == windows);
      }
      const std::string text = task->text().decode(all);
      EXPECT_DOUBLE_EQ(task->tokens_per_byte(part), static_cast<double>(all.size()) / static_cast<double>(text.size()));
      for (std::size_t from = 0; from < text.size();) {
        const std::size_t to = text.find('\n', from);
        ASSERT_NE(to, std::string::npos) << "every verse has an end";
        found.insert(text.substr(from, to - from));
        from = to + 1;
      }
    }
    EXPECT_TRUE(found == wanted) << pieces << " pieces";
  }
}

TEST(GptTask, BitsPerByteAreThoseOfTheMeanLoss) {
  for (const char* pieces : {"0", "60"}) {
    const auto task = small_gpt({{"pieces", pieces}});
    task->read(small_corpora::all().path());
    Graph graph;
    task->loss(graph, 0, 1, false);
    const Parameters parameters(graph, Device::cpu(), {.seed = 12});
    const double loss = MeanLoss(*task, {&parameters, {}}, 3)(Part::validation, 30);
    const double bits = loss / std::numbers::ln2 * task->tokens_per_byte(Part::validation);
    const auto scores = task->predictor({&parameters, {}})->evaluate(Part::validation, {}, 30);
    EXPECT_EQ(scores.at(0).name, "bits per byte");
    EXPECT_NEAR(scores.at(0).value, bits, 1e-5);
    if (pieces[0] == '0') {
      EXPECT_NEAR(bits, 8, 0.1) << "nothing is learnt yet, and each byte as likely";
    }
  }
}

TEST(GptTask, DrawsWhatSeedAndBeginningSay) {
  const auto task = small_gpt();
  task->read(small_corpora::all().path());
  Graph graph;
  task->loss(graph, 0, 1, false);
  const Parameters parameters(graph, Device::cpu(), {.seed = 12});
  const auto predictor = task->predictor({&parameters, {}});
  const auto drawn = [&](const std::vector<std::string>& lines, std::uint64_t seed) {
    std::vector<std::string> texts;
    for (const auto& found : predictor->predict(lines, {.temperature = 1, .seed = seed})) {
      EXPECT_EQ(found.size(), 1U);
      EXPECT_LT(found.at(0).log_probability, 0);
      texts.push_back(found.at(0).text);
    }
    return texts;
  };
  const auto first = drawn({"And the", "the light of", "And"}, 1);
  EXPECT_EQ(drawn({"And", "And the"}, 1), (std::vector<std::string>{first[2], first[0]}))
      << "whatever stands beside it";
  EXPECT_NE(drawn({"And the"}, 2)[0], first[0]);
  EXPECT_EQ(predictor->sample(5), predictor->sample(5));
  EXPECT_NE(predictor->sample(5), predictor->sample(6));
}

TEST(GptTask, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(refusal([] {
              small_gpt({{"heads", "3"}})->read(small_corpora::all().path());
            }),
            "argument: hidden is 8, which 3 heads do not divide");
  EXPECT_EQ(refusal([] {
              small_gpt({{"context", "1"}})->read(small_corpora::all().path());
            }),
            "argument: context is 1, needs to be at least 2");
  const auto task = small_gpt();
  EXPECT_EQ(refusal([&] { task->set_files({}); }), "file: the checkpoint has no file 'characters.txt'");
  EXPECT_EQ(refusal([&] {
              small_gpt({{"pieces", "60"}})->set_files({{"characters.txt", "a\n"}});
            }),
            "file: the checkpoint has no file 'text.pieces'");
}

}  // namespace
}  // namespace paoding::models
