// SPDX-License-Identifier: Apache-2.0
// Scores and texts of gpt.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "models/gpt_task.h"
#include "models/predictions.h"
#include "paoding/data/batches.h"
#include "paoding/model.h"
#include "paoding/printable.h"

namespace paoding::models {
namespace {

constexpr std::int64_t kWindowsTogether = 16, kTextsTogether = 8;  // of a run that scores, that continues texts
constexpr double kSampleTemperature = 0.8;

// Sizes of beginnings that programs are made for: powers of two from 16 on, up to the longest.
std::vector<std::int64_t> lengths_up_to(std::int64_t longest) {
  std::vector<std::int64_t> all;
  for (std::int64_t length = 16; length < longest; length *= 2) all.push_back(length);
  all.push_back(longest);
  return all;
}

std::unique_ptr<Graph> search_graph(const GptTask& task, const Programs::Key& key) {
  auto graph = std::make_unique<Graph>();
  const Value written = graph->input("written", i64, {key[1], key[0]}),
              lengths = graph->input("lengths", i64, {key[1]});
  const Gpt model(*graph, task.model(false));
  fetch(*graph, model.search(written, lengths, {.beam = key[2], .steps = task.most_steps(), .end = task.text().end()}));
  return graph;
}

std::unique_ptr<Graph> draw_graph(const GptTask& task, const Programs::Key& key) {
  auto graph = std::make_unique<Graph>();
  const Value written = graph->input("written", i64, {key[1], key[0]}),
              lengths = graph->input("lengths", i64, {key[1]});
  const Value uniform = graph->input("uniform", f32, {task.most_steps(), key[1]});
  const Value temperature = graph->input("temperature", f32, {});
  fetch(*graph, Gpt(*graph, task.model(false)).draw(written, lengths, uniform, temperature, task.text().end()));
  return graph;
}

// The numbers that draw the continuation of a text, [steps] of each row: uniform in [0, 1), multiples of 2^-24. They
// follow from the seed and the text, whatever stands beside it.
void set_numbers(const Tokens& text, std::uint64_t seed, std::int64_t row, Tensor* uniform) {
  std::vector<std::uint32_t> all{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (const std::int64_t token : text) all.push_back(static_cast<std::uint32_t>(token));
  std::seed_seq sequence(all.begin(), all.end());
  std::mt19937_64 random(sequence);
  const std::int64_t steps = uniform->shape()[0], rows = uniform->shape()[1];
  for (std::int64_t t = 0; t < steps; ++t) {
    uniform->data<float>()[t * rows + row] = static_cast<float>(random() >> 40) * 0x1p-24F;
  }
}

class GptPredictor : public Predictor {
 public:
  GptPredictor(const GptTask& task, const Trained& trained)
      : task_(task),
        mean_loss_(task, trained, kWindowsTogether),
        before_run_(trained.before_run),
        lengths_(lengths_up_to(task.most_read())),
        searches_({{"time", 1, task.most_read(), bucket_sizes(lengths_)}, {"rows", 1, kTextsTogether}, {"beam"}},
                  trained.graphs_of("search", [&task](const auto& key) { return search_graph(task, key); }),
                  trained.compile, trained.parameters),
        draws_({{"time", 1, task.most_read(), bucket_sizes(lengths_)}, {"rows", 1, kTextsTogether}},
               trained.graphs_of("draw", [&task](const auto& key) { return draw_graph(task, key); }), trained.compile,
               trained.parameters) {}

  Graphs graphs(const SearchOptions& search) const override {
    Graphs all;
    for (const Programs::Key& key : keys()) {
      all[graph_name("search", with_beam(key, search.beam))] = search_graph(task_, with_beam(key, search.beam));
      all[graph_name("draw", key)] = draw_graph(task_, key);
    }
    return all;
  }
  void prepare(const SearchOptions& search) override {
    std::vector<Programs::Key> all;
    for (const Programs::Key& key : keys()) all.push_back(with_beam(key, search.beam));
    searches_.prepare(all);
    for (const Programs::Key& key : all) searches_.at(key);
  }

  std::vector<Score> evaluate(Part part, const SearchOptions&, std::int64_t limit) override {
    const double bits = mean_loss_(part, limit) / std::numbers::ln2;
    std::vector<Score> scores{{"bits per byte", bits * task_.tokens_per_byte(part), false}};
    return scores;
  }

  // How verses begin, how they go on, and how the model would go on.
  std::string show(const SearchOptions& search, std::int64_t count) override {
    std::vector<std::string> beginnings, rests;
    for (const std::string& verse : spread(task_.verses(Part::test), count)) {
      const std::size_t half = verse.find(' ', std::min<std::size_t>(30, verse.size() / 2));
      beginnings.push_back(verse.substr(0, half));
      rests.push_back(half == std::string::npos ? "" : verse.substr(half));
    }
    const auto found = predict(beginnings, search);
    std::string text;
    for (std::size_t i = 0; i < beginnings.size(); ++i) {
      text += fmt::format("{} ...\n  predicted   {}\n  in the book {}\n", printable(beginnings[i], ""),
                          printable(found[i].at(0).text, ""), printable(rests[i], ""));
    }
    return text;
  }

  std::string sample(std::uint64_t seed) override {
    const auto found = continued({Tokens{}}, {.temperature = kSampleTemperature, .seed = seed});
    return task_.text().decode(found[0].at(0).words);
  }

  std::vector<Predictions> predict(std::span<const std::string> lines, const SearchOptions& search) override {
    std::vector<Tokens> beginnings;
    for (const std::string& line : lines) beginnings.push_back(task_.text().encode(line));
    std::vector<Predictions> all = predictions_of(continued(beginnings, search), search.best,
                                                  [&](const Tokens& tokens) { return task_.text().decode(tokens); });
    say_nothing_of_nothing(beginnings, &all);
    return all;
  }

  std::string remark(const std::string& line) const override {
    const std::int64_t count = std::ssize(task_.text().encode(line)), most = task_.most_read() - 1;
    return with_remark(remark_of_unseen(task_.text().unseen(line)),
                       count > most ? fmt::format("{} tokens, only the last {} count", count, most) : "");
  }

 private:
  std::vector<Programs::Key> keys() const {
    std::vector<Programs::Key> all;
    for (const std::int64_t length : lengths_) {
      for (const std::int64_t rows : {std::int64_t{1}, kTextsTogether}) all.push_back({length, rows});
    }
    return all;
  }
  static Programs::Key with_beam(Programs::Key key, std::int64_t beam) {
    key.push_back(beam);
    return key;
  }

  // Feeds the beginnings `batch`, an end before each; those that are too long count with their last tokens.
  void feed(Program& program, const std::vector<Tokens>& beginnings, std::span<const std::int64_t> batch) const {
    const Shape shape = program.input_type(0).shape;
    const std::int64_t rows = shape[0], length = shape[1];
    Tensor written(i64, shape), lengths(i64, {rows});
    std::fill_n(written.data<std::int64_t>(), rows * length, task_.text().end());
    std::fill_n(lengths.data<std::int64_t>(), rows, 1);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Tokens& text = beginnings[static_cast<std::size_t>(batch[i])];
      const std::int64_t used = std::min(std::ssize(text), length - 1);
      lengths.data<std::int64_t>()[i] = used + 1;
      std::copy(text.end() - used, text.end(),
                written.data<std::int64_t>() + static_cast<std::int64_t>(i) * length + 1);
    }
    program.set_input(0, written);
    program.set_input(1, lengths);
  }

  std::vector<std::vector<Hypothesis>> continued(const std::vector<Tokens>& beginnings, const SearchOptions& search) {
    std::vector<std::int64_t> buckets;
    for (const Tokens& text : beginnings) {
      buckets.push_back(data::bucket_bound(lengths_, std::ssize(text) + 1));
    }
    std::vector<std::vector<Hypothesis>> found(beginnings.size());
    for (const data::BatchExamples& batch : data::batches_in_order(buckets, kTextsTogether)) {
      const Programs::Key key{buckets[static_cast<std::size_t>(batch[0])], batch.size() == 1 ? 1 : kTextsTogether};
      const bool draws = search.temperature > 0;
      Program& program = draws ? draws_.at(key) : searches_.at(with_beam(key, std::max(search.beam, search.best)));
      feed(program, beginnings, batch);
      if (draws) {
        Tensor uniform(program.input_type(2));
        std::fill_n(uniform.data<float>(), uniform.shape().elements(), 0.0F);
        for (std::size_t i = 0; i < batch.size(); ++i) {
          set_numbers(beginnings[static_cast<std::size_t>(batch[i])], search.seed, static_cast<std::int64_t>(i),
                      &uniform);
        }
        program.set_input(2, uniform);
        program.set_input(3, Tensor::from(f32, {}, {search.temperature}));
      }
      if (before_run_) before_run_();
      program.run();
      auto rows = hypotheses(program, task_.text().end());
      for (std::size_t i = 0; i < batch.size(); ++i) {
        check_found(rows[i]);
        found[static_cast<std::size_t>(batch[i])] = std::move(rows[i]);
      }
    }
    return found;
  }

  const GptTask& task_;
  MeanLoss mean_loss_;
  std::function<void()> before_run_;
  std::vector<std::int64_t> lengths_;
  Programs searches_, draws_;
};

}  // namespace

std::unique_ptr<Predictor> GptTask::predictor(const Trained& trained) const {
  return std::make_unique<GptPredictor>(*this, trained);
}

}  // namespace paoding::models
