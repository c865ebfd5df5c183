// SPDX-License-Identifier: Apache-2.0
// mlm: an encoder that names the tokens that are missing in a text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "models/all_tasks.h"
#include "models/book_task.h"
#include "models/masked_model.h"
#include "models/predictions.h"
#include "paoding/data/batches.h"
#include "paoding/model.h"
#include "paoding/ops.h"
#include "paoding/printable.h"

namespace paoding::models {
namespace {

constexpr char kGap = '_';  // in lines: a token that is missing
constexpr std::int64_t kLinesTogether = 16, kWindowsScored = 16;

class MlmTask : public BookTask {
 public:
  std::string_view name() const override { return "mlm"; }
  std::string_view summary() const override {
    return "Missing bytes or pieces of words: encoder of the King James Version, trained on hidden tokens";
  }
  std::unique_ptr<Predictor> predictor(const Trained& trained) const override;

  MaskedModelOptions model(bool is_training) const {
    const TransformerSize sizes = size();
    return {.vocabulary = text().size() + 1,
            .hidden = sizes.hidden,
            .layers = sizes.layers,
            .heads = sizes.heads,
            .context = sizes.context,
            .dropout = is_training ? dropout_ : 0};
  }
  std::int64_t mask() const { return text().size(); }

  // `chosen` are those that scoring hides, 1 for 3 in 20: the same whatever the batch. Training draws its own.
  Batch batch(Part part, std::span<const std::int64_t> examples, std::int64_t, std::int64_t rows) const override {
    const std::int64_t context = size().context;
    Tensor texts(i64, {rows, context}), lengths(i64, {rows}), chosen(i64, {rows, context});
    std::fill_n(texts.data<std::int64_t>(), rows * context, text().end());
    std::fill_n(chosen.data<std::int64_t>(), rows * context, 0);
    std::fill_n(lengths.data<std::int64_t>(), rows, 0);
    Batch made;
    made.items = std::ssize(examples);
    for (std::int64_t row = 0; row < made.items; ++row) {
      const std::int64_t example = examples[static_cast<std::size_t>(row)];
      const std::span<const std::int32_t> tokens = window(part, example).subspan(1);
      std::copy(tokens.begin(), tokens.end(), texts.data<std::int64_t>() + row * context);
      lengths.data<std::int64_t>()[row] = std::ssize(tokens);
      std::mt19937_64 random(static_cast<std::uint64_t>(example));
      std::int64_t* mine = chosen.data<std::int64_t>() + row * context;
      mine[random() % tokens.size()] = 1;  // at least one
      for (std::int64_t t = 0; t < std::ssize(tokens); ++t) {
        if (random() % 20 < 3) mine[t] = 1;
        made.weight += static_cast<double>(mine[t]);
      }
    }
    made.feeds = {texts, lengths, chosen};
    return made;
  }

  Value loss(Graph& graph, std::int64_t, std::int64_t rows, bool is_training) const override {
    const MaskedModelOptions options = model(is_training);
    const Shape shape{rows, options.context};
    const Value texts = graph.input("texts", i64, shape), lengths = graph.input("lengths", i64, {rows});
    const Value chosen = graph.input("chosen", i64, shape);
    const MaskedModel model(graph, options);
    return is_training ? model.training_loss(texts, lengths) : model.loss(texts, lengths, equal(chosen, 1));
  }
};

std::unique_ptr<Graph> filling_graph(const MlmTask& task, const Programs::Key& key) {
  auto graph = std::make_unique<Graph>();
  const Value written = graph->input("written", i64, {key[1], key[0]}),
              lengths = graph->input("lengths", i64, {key[1]});
  const Value logits = MaskedModel(*graph, task.model(false)).logits(written, lengths);
  const Value scores = log_softmax(slice(logits, 2, 0, task.mask()));  // a hidden token is one of the text
  const Sorted best = topk(scores, std::min(key[2], task.mask()));
  graph->fetch("tokens", best.indices);
  graph->fetch("log_probabilities", best.values);
  return graph;
}

class MlmPredictor : public Predictor {
 public:
  MlmPredictor(const MlmTask& task, const Trained& trained)
      : task_(task),
        mean_loss_(task, trained, kWindowsScored),
        before_run_(trained.before_run),
        programs_({{"time", 1, task.size().context, powers_of_two()}, {"rows", 1, kLinesTogether}, {"beam"}},
                  trained.graphs_of("fill", [&task](const auto& key) { return filling_graph(task, key); }),
                  trained.compile, trained.parameters) {}

  Graphs graphs(const SearchOptions& search) const override {
    Graphs all;
    for (const Programs::Key& key : keys(search)) all[graph_name("fill", key)] = filling_graph(task_, key);
    return all;
  }
  void prepare(const SearchOptions& search) override {
    programs_.prepare(keys(search));
    for (const Programs::Key& key : keys(search)) programs_.at(key);
  }

  std::vector<Score> evaluate(Part part, const SearchOptions&, std::int64_t limit) override {
    return {{"perplexity of hidden tokens", std::exp(mean_loss_(part, limit)), false}};
  }

  // Verses without a word in the middle.
  std::string show(const SearchOptions& search, std::int64_t count) override {
    const std::vector<std::string> verses = spread(task_.verses(Part::test), count);
    std::vector<std::string> lines;
    for (const std::string& verse : verses) {
      const std::size_t begin = std::min(verse.find(' ', verse.size() / 2), verse.size() - 1) + 1;
      const std::size_t length = std::min(verse.find(' ', begin), verse.size()) - begin;
      std::string line = verse;
      lines.push_back(line.replace(begin, length, std::string(task_.text().is_bytes() ? length : 1, kGap)));
    }
    const auto found = predict(lines, search);
    std::string text;
    for (std::size_t i = 0; i < verses.size(); ++i) {
      text += fmt::format("{}\n  predicted   {}\n  in the book {}\n", printable(lines[i], ""),
                          printable(found[i].at(0).text, ""), printable(verses[i], ""));
    }
    return text;
  }

  std::vector<Predictions> predict(std::span<const std::string> lines, const SearchOptions& search) override {
    std::vector<Tokens> texts;
    std::vector<std::int64_t> buckets;
    for (const std::string& line : lines) {
      texts.push_back(tokens_of(line));
      buckets.push_back(programs_.bucket_of({std::ssize(texts.back()), 1, 1})[0]);
    }
    std::vector<Predictions> all(lines.size());
    for (const data::BatchExamples& batch : data::batches_in_order(buckets, kLinesTogether)) {
      const std::int64_t rows = batch.size() == 1 ? 1 : kLinesTogether;
      fill(texts, batch, {buckets[static_cast<std::size_t>(batch[0])], rows, std::max(search.beam, search.best)},
           search.best, &all);
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].empty()) all[i] = {Prediction{}};
    }
    return all;
  }

  std::string remark(const std::string& line) const override {
    std::vector<std::string> unseen = task_.text().unseen(line);
    std::erase(unseen, std::string(1, kGap));
    const std::int64_t most = task_.size().context - 2, count = std::ssize(all_tokens(line)) - 2;
    return with_remark(remark_of_unseen(unseen),
                       count > most ? fmt::format("{} tokens, only the first {} count", count, most) : "");
  }

 private:
  std::vector<Programs::Key> keys(const SearchOptions& search) const {
    std::vector<Programs::Key> all;
    for (const std::int64_t length : programs_.extents().buckets(0)) {
      for (const std::int64_t rows : {std::int64_t{1}, kLinesTogether}) all.push_back({length, rows, search.beam});
    }
    return all;
  }

  // A line between two ends; one without a gap has it behind its last token.
  Tokens all_tokens(const std::string& line) const {
    Tokens made{task_.text().end()};
    std::size_t from = 0;
    for (std::size_t gap = line.find(kGap); gap != std::string::npos; gap = line.find(kGap, from)) {
      const Tokens part = task_.text().encode(std::string_view(line).substr(from, gap - from));
      made.insert(made.end(), part.begin(), part.end());
      made.push_back(task_.mask());
      from = gap + 1;
    }
    const Tokens rest = task_.text().encode(std::string_view(line).substr(from));
    made.insert(made.end(), rest.begin(), rest.end());
    if (from == 0) made.push_back(task_.mask());
    made.push_back(task_.text().end());
    return made;
  }
  Tokens tokens_of(const std::string& line) const {
    Tokens made = all_tokens(line);
    made.resize(std::min(made.size(), static_cast<std::size_t>(task_.size().context)));
    return made;
  }

  void fill(const std::vector<Tokens>& texts, std::span<const std::int64_t> batch, const Programs::Key& key,
            std::int64_t best, std::vector<Predictions>* all) {
    Program& program = programs_.at(key);
    Tensor written(program.input_type(0)), lengths(program.input_type(1));
    const std::int64_t rows = key[1], length = written.shape()[1];
    std::fill_n(written.data<std::int64_t>(), rows * length, task_.text().end());
    std::fill_n(lengths.data<std::int64_t>(), rows, 0);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Tokens& text = texts[static_cast<std::size_t>(batch[i])];
      std::ranges::copy(text, written.data<std::int64_t>() + static_cast<std::int64_t>(i) * length);
      lengths.data<std::int64_t>()[i] = std::ssize(text);
    }
    program.set_input(0, written);
    program.set_input(1, lengths);
    if (before_run_) before_run_();
    program.run();
    const Tensor found = program.fetch(0), logs = program.fetch(1);
    const std::int64_t kinds = found.shape()[2];
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const auto at = static_cast<std::size_t>(batch[i]);
      const std::int64_t row = static_cast<std::int64_t>(i) * length * kinds;
      (*all)[at] =
          filled(texts[at], std::min(best, kinds), found.data<std::int64_t>() + row, logs.data<float>() + row, kinds);
    }
  }

  // The likeliest fillings of all gaps; each gap is filled whatever the others are.
  Predictions filled(const Tokens& text, std::int64_t best, const std::int64_t* found, const float* logs,
                     std::int64_t kinds) const {
    std::vector<std::pair<double, Tokens>> kept{{0, text}};
    for (std::int64_t t = 0; t < std::ssize(text); ++t) {
      if (text[static_cast<std::size_t>(t)] != task_.mask()) continue;
      std::vector<std::pair<double, Tokens>> more;
      for (const auto& [log, tokens] : kept) {
        for (std::int64_t k = 0; k < best; ++k) {
          more.emplace_back(log + logs[t * kinds + k], tokens);
          more.back().second[static_cast<std::size_t>(t)] = found[t * kinds + k];
        }
      }
      std::ranges::stable_sort(more, [](const auto& a, const auto& b) { return a.first > b.first; });
      more.resize(std::min(more.size(), static_cast<std::size_t>(best)));
      kept = std::move(more);
    }
    Predictions made;
    for (auto& [log, tokens] : kept) {
      check_number(log, "the log probability of a prediction");
      tokens.erase(tokens.begin());
      if (!tokens.empty() && tokens.back() == task_.text().end()) tokens.pop_back();
      made.push_back({task_.text().decode(tokens), log});
    }
    return made;
  }

  const MlmTask& task_;
  MeanLoss mean_loss_;
  std::function<void()> before_run_;
  Programs programs_;
};

std::unique_ptr<Predictor> MlmTask::predictor(const Trained& trained) const {
  return std::make_unique<MlmPredictor>(*this, trained);
}

}  // namespace

std::unique_ptr<Task> make_mlm() { return std::make_unique<MlmTask>(); }

}  // namespace paoding::models
