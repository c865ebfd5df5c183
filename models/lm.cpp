// SPDX-License-Identifier: Apache-2.0
// lm: a language model of a book, verse by verse: which word follows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "models/all_tasks.h"
#include "models/language_model.h"
#include "models/predictions.h"
#include "models/symbol_file.h"
#include "paoding/data/batches.h"
#include "paoding/data/corpora.h"
#include "paoding/data/vocabulary.h"
#include "paoding/error.h"
#include "paoding/model.h"
#include "paoding/printable.h"

namespace paoding::models {
namespace {

using Sequence = std::vector<std::int64_t>;
constexpr const char *kUnknownWord = "<unknown>", *kTextStart = "<start>", *kTextEnd = "<end>", *kWords = "words.txt";
constexpr std::int64_t kTextRows = 32;  // of a run that searches

bool is_in_word(unsigned char c) { return std::isalnum(c) != 0 || c == '\'' || c == '-' || c >= 0x80; }

// Words, and punctuation marks each by itself.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (is_in_word(static_cast<unsigned char>(text[i]))) {
      while (end < text.size() && is_in_word(static_cast<unsigned char>(text[end]))) ++end;
    } else if (std::isspace(static_cast<unsigned char>(text[i])) != 0) {
      i = end;
      continue;
    }
    words.emplace_back(text.substr(i, end - i));
    i = end;
  }
  return words;
}

class Lm : public Task {
 public:
  Lm() { settings = {.epochs = 8, .batch_size = 32, .learning_rate = 2e-3, .last_learning_rate = 1e-5}; }
  std::string_view name() const override { return "lm"; }
  std::string_view summary() const override { return "The next word: LSTM language model of the King James Version"; }
  std::string_view item() const override { return "verses"; }
  Options options() override {
    return {
        {.name = "hidden",
         .meaning = "Width of embeddings and states",
         .value = &model_.hidden,
         .least = 1,
         .most = 1 << 16,
         .is_fixed = true},
        {.name = "layers", .meaning = "Of the LSTM", .value = &model_.layers, .least = 1, .most = 64, .is_fixed = true},
        {"dropout", "Share of what is dropped", &dropout_, 0, 0.99},
        {.name = "least-count",
         .meaning = "Words that are rarer in the training part count as unknown",
         .value = &least_count_,
         .least = 1,
         .most = 1e9,
         .is_fixed = true},
        {"continue", "Most words that predict adds to a line", &continue_, 1, 1000}};
  }

  void read(const std::filesystem::path& folder) override {
    std::vector<std::vector<std::string>> verses;
    content_ = {};
    for (const std::string& verse : data::read_kjv(data::find_kjv(folder))) {
      content_.add(verse);
      verses.push_back(words_of(verse));
    }
    const auto parts = data::split(static_cast<std::int64_t>(verses.size()), std::array{0.93, 0.02, 0.05}, 1);
    if (words_.size() == 0) {
      std::map<std::string, std::int64_t> counts;
      for (const std::int64_t i : parts[0]) {
        for (const std::string& word : verses[static_cast<std::size_t>(i)]) ++counts[word];
      }
      std::vector<std::string> kept{kUnknownWord, kTextStart, kTextEnd};
      for (const auto& [word, count] : counts) {
        if (count >= least_count_) kept.push_back(word);
      }
      set_vocabulary(data::Vocabulary(std::move(kept)));
    }
    for (std::size_t part = 0; part < 3; ++part) {
      verses_[part].clear();
      for (const std::int64_t i : parts[part]) verses_[part].push_back(numbers(verses[static_cast<std::size_t>(i)]));
    }
  }

  std::map<std::string, std::string> files() const override { return {{kWords, to_file(words_)}}; }
  void set_files(const std::map<std::string, std::string>& files) override { set_vocabulary(from_file(files, kWords)); }

  std::vector<std::int64_t> buckets(Part part) const override {
    std::vector<std::int64_t> made;
    for (const Sequence& verse : verses(part)) {
      made.push_back(bound(static_cast<std::int64_t>(verse.size()) + 1));
    }
    return made;
  }

  std::int64_t any_bucket() const override { return bound(1); }
  Extents extents() const override { return extents_; }
  Extents::Key sizes(std::int64_t bucket) const override { return {bucket}; }
  std::int64_t bucket_of(const Extents::Key& sizes) const override { return sizes[0]; }

  // A bucket is its bound. Longer verses are cut.
  Batch batch(Part part, std::span<const std::int64_t> examples, std::int64_t bucket,
              std::int64_t rows) const override {
    Tensor written(i64, {bucket, rows}), labels(i64, {bucket, rows});
    std::fill_n(written.data<std::int64_t>(), bucket * rows, end_);
    std::fill_n(labels.data<std::int64_t>(), bucket * rows, -1);
    Batch made;
    made.bucket = bucket;
    made.items = static_cast<std::int64_t>(examples.size());
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const Sequence& verse = verses(part)[static_cast<std::size_t>(examples[i])];
      const auto length = static_cast<std::int64_t>(verse.size());
      for (std::int64_t t = 0; t < std::min(bucket, length + 1); ++t) {
        const std::int64_t place = t * rows + static_cast<std::int64_t>(i);
        written.data<std::int64_t>()[place] = t == 0 ? start_ : verse[static_cast<std::size_t>(t - 1)];
        labels.data<std::int64_t>()[place] = t == length ? end_ : verse[static_cast<std::size_t>(t)];
        made.weight += 1;
      }
    }
    made.feeds = {written, labels};
    return made;
  }

  Value loss(Graph& graph, std::int64_t bucket, std::int64_t rows, bool is_training) const override {
    const Value written = graph.input("written", i64, {bucket, rows}),
                labels = graph.input("labels", i64, {bucket, rows});
    return model(graph, is_training).loss(written, labels);
  }

  std::unique_ptr<Predictor> predictor(const Trained& trained) const override;

  LanguageModel model(Graph& graph, bool is_training) const {
    LanguageModelOptions options = model_;
    options.dropout = is_training ? dropout_ : 0;
    return LanguageModel(graph, options);
  }
  bool is_unseen(std::string_view word) const { return words_.find(word) < 0; }
  Sequence numbers(const std::vector<std::string>& words) const {
    Sequence made;
    for (const std::string& word : words) made.push_back(std::max<std::int64_t>(0, words_.find(word)));
    return made;
  }
  // Marks that close stand at the word before them.
  std::string text(const Sequence& numbers) const {
    std::string text;
    for (const std::int64_t number : numbers) {
      const std::string& word = words_.symbol(number);
      if (!text.empty() && word.find_first_of(",.;:!?)") != 0) text += ' ';
      text += word;
    }
    return text;
  }
  const std::vector<Sequence>& verses(Part part) const { return verses_[static_cast<std::size_t>(part)]; }
  std::int64_t start() const { return start_; }
  std::int64_t end() const { return end_; }
  std::int64_t most_words() const { return continue_; }
  std::int64_t longest() const { return extents_.specs()[0].maximum; }
  // The length of the program that runs this one, which is cut where it is too long.
  std::int64_t bound(std::int64_t length) const { return extents_.bucket_of({std::min(length, longest())})[0]; }

 private:
  void set_vocabulary(data::Vocabulary words) {
    words_ = std::move(words);
    start_ = words_.find(kTextStart);
    end_ = words_.find(kTextEnd);
    if (words_.find(kUnknownWord) != 0 || start_ < 0 || end_ < 0) {
      throw Error(ErrorKind::file,
                  fmt::format("{} must begin with {}, and have {} and {}", kWords, kUnknownWord, kTextStart, kTextEnd));
    }
    model_.vocabulary = words_.size();
  }

  LanguageModelOptions model_;
  double dropout_ = 0.3;
  std::int64_t least_count_ = 2, continue_ = 20, start_ = 1, end_ = 2;
  // Lengths are with the end.
  Extents extents_{{{"time", 1, 100, bucket_sizes({12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 100})}}};
  data::Vocabulary words_;
  std::vector<Sequence> verses_[3];
};

class LmPredictor : public Predictor {
 public:
  LmPredictor(const Lm& task, const Trained& trained)
      : task_(task),
        mean_loss_(task, trained, kTextRows),
        before_run_(trained.before_run),
        build_([&task](const Programs::Key& key) {
          auto graph = std::make_unique<Graph>();
          const Value written = graph->input("written", i64, {key[0], key[1]});
          const Value lengths = graph->input("lengths", i64, {key[1]});
          fetch(*graph,
                task.model(*graph, false)
                    .search(written, lengths,
                            {.beam = key[2], .steps = task.most_words(), .start = task.start(), .end = task.end()}));
          return graph;
        }),
        programs_({task.extents().specs()[0], {"rows", 1, kTextRows}, {"beam"}}, trained.graphs_of("search", build_),
                  trained.compile, trained.parameters) {}

  Graphs graphs(const SearchOptions& search) const override {
    Graphs all;
    for (const Programs::Key& key : keys(search)) all[graph_name("search", key)] = build_(key);
    return all;
  }
  void prepare(const SearchOptions& search) override {
    programs_.prepare(keys(search));
    for (const Programs::Key& key : keys(search)) programs_.at(key);
  }

  std::vector<Score> evaluate(Part part, const SearchOptions&, std::int64_t limit) override {
    return {{"perplexity", std::exp(mean_loss_(part, limit)), false}};
  }

  // How verses begin, how they go on, and how the model would go on.
  std::string show(const SearchOptions& search, std::int64_t count) override {
    const std::vector<Sequence> verses = spread(task_.verses(Part::test), count);
    std::vector<Sequence> beginnings;
    for (const Sequence& verse : verses) {
      const std::size_t half = std::min<std::size_t>(6, verse.size() / 2);
      beginnings.emplace_back(verse.begin(), verse.begin() + static_cast<std::ptrdiff_t>(half));
    }
    const auto found = continued(beginnings, search.beam);
    std::string text;
    for (std::size_t i = 0; i < verses.size(); ++i) {
      const Sequence rest(verses[i].begin() + static_cast<std::ptrdiff_t>(beginnings[i].size()), verses[i].end());
      text += fmt::format("{} ...\n  predicted   {}\n  in the book {}\n", printable(task_.text(beginnings[i]), ""),
                          printable(task_.text(found[i].at(0).words), ""), printable(task_.text(rest), ""));
    }
    return text;
  }

  std::vector<Predictions> predict(std::span<const std::string> lines, const SearchOptions& search) override {
    std::vector<Sequence> beginnings;
    for (const std::string& line : lines) beginnings.push_back(task_.numbers(words_of(line)));
    const auto found = continued(beginnings, std::max(search.beam, search.best));
    std::vector<Predictions> all =
        predictions_of(found, search.best, [&](const Sequence& words) { return task_.text(words); });
    say_nothing_of_nothing(beginnings, &all);
    return all;
  }

  std::string remark(const std::string& line) const override {
    const std::vector<std::string> words = words_of(line);
    std::vector<std::string> unseen;
    for (const std::string& word : words) {
      if (task_.is_unseen(word)) unseen.push_back(word);
    }
    const std::int64_t count = std::ssize(words), most = task_.longest() - 1;
    return with_remark(remark_of_unseen(unseen),
                       count > most ? fmt::format("{} words, only the last {} count", count, most) : "");
  }

 private:
  std::vector<Programs::Key> keys(const SearchOptions& search) const {
    std::vector<Programs::Key> all;
    for (const std::int64_t bound : task_.extents().buckets(0)) {
      for (const std::int64_t rows : {std::int64_t{1}, kTextRows}) all.push_back({bound, rows, search.beam});
    }
    return all;
  }

  // Beginnings that are too long count with their last words.
  std::vector<std::vector<Hypothesis>> continued(const std::vector<Sequence>& beginnings, std::int64_t beam) {
    std::vector<std::int64_t> buckets;
    for (const Sequence& text : beginnings) buckets.push_back(task_.bound(static_cast<std::int64_t>(text.size()) + 1));
    std::vector<std::vector<Hypothesis>> found(beginnings.size());
    for (const data::BatchExamples& batch : data::batches_in_order(buckets, kTextRows)) {
      const std::int64_t bound = buckets[static_cast<std::size_t>(batch[0])];
      const std::int64_t rows = batch.size() == 1 ? 1 : kTextRows;
      Tensor written(i64, {bound, rows}), lengths(i64, {rows});
      std::fill_n(written.data<std::int64_t>(), bound * rows, task_.start());
      std::fill_n(lengths.data<std::int64_t>(), rows, 1);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const Sequence& text = beginnings[static_cast<std::size_t>(batch[i])];
        const auto all = static_cast<std::int64_t>(text.size()), used = std::min(all, bound - 1);
        lengths.data<std::int64_t>()[i] = used + 1;
        for (std::int64_t t = 0; t < used; ++t) {
          written.data<std::int64_t>()[(t + 1) * rows + static_cast<std::int64_t>(i)] =
              text[static_cast<std::size_t>(all - used + t)];
        }
      }
      Program& program = programs_.at({bound, rows, beam});
      program.set_input(0, written);
      program.set_input(1, lengths);
      if (before_run_) before_run_();
      program.run();
      auto rows_found = hypotheses(program, task_.end());
      for (std::size_t i = 0; i < batch.size(); ++i) {
        check_found(rows_found[i]);
        found[static_cast<std::size_t>(batch[i])] = std::move(rows_found[i]);
      }
    }
    return found;
  }

  const Lm& task_;
  MeanLoss mean_loss_;
  std::function<void()> before_run_;
  Programs::Build build_;
  Programs programs_;
};

std::unique_ptr<Predictor> Lm::predictor(const Trained& trained) const {
  return std::make_unique<LmPredictor>(*this, trained);
}

}  // namespace

std::unique_ptr<Task> make_lm() { return std::make_unique<Lm>(); }

}  // namespace paoding::models
