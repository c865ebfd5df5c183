// SPDX-License-Identifier: Apache-2.0
// translate: English to Italian, learnt from the descriptions of Debian's packages.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "models/all_tasks.h"
#include "models/encoder_decoder.h"
#include "models/pair_task.h"
#include "models/predictions.h"
#include "models/symbol_file.h"
#include "paoding/data/batches.h"
#include "paoding/data/corpora.h"
#include "paoding/data/metrics.h"
#include "paoding/data/sentence_pieces.h"
#include "paoding/data/vocabulary.h"
#include "paoding/error.h"
#include "paoding/printable.h"

namespace paoding::models {
namespace {

constexpr const char *kSourcePieces = "source.pieces", *kTargetPieces = "target.pieces";

class Translate : public PairTask {
 public:
  Translate() {
    model_.hidden = 512;
    model_.dropout = 0.2;
    length_power_ = 0.6;
    start_ = data::SentencePieces::kStart;
    end_ = data::SentencePieces::kEnd;
    settings = {.epochs = 10, .batch_size = 128, .learning_rate = 1e-3, .last_learning_rate = 1e-5, .warmup = 500};
    const std::vector<std::int64_t> lengths{6, 8, 10, 12, 14, 17, 20, 24, 28, 33, 40, 50};
    set_lengths(lengths, lengths);
  }
  std::string_view name() const override { return "translate"; }
  std::string_view summary() const override {
    return "English to Italian: attention seq2seq or transformer on package descriptions";
  }
  std::string_view item() const override { return "sentences"; }
  Options options() override {
    Options all = PairTask::options();
    all.push_back({.name = "vocabulary",
                   .meaning = "Pieces of words in each language",
                   .value = &vocabulary_,
                   .least = 100,
                   .most = 1 << 20,
                   .is_fixed = true});
    all.push_back(
        {.name = "model",
         .meaning = "lstm, or transformer: for that --layers 6, --learning-rate 5e-4 and --warmup 4000 are usual",
         .value = &kind_,
         .choices = {"lstm", "transformer"},
         .is_fixed = true});
    all.push_back({.name = "heads",
                   .meaning = "Of the transformer's attention",
                   .value = &heads_,
                   .least = 1,
                   .most = 1024,
                   .is_fixed = true});
    all.push_back({"sentences", "Pairs to train on, chosen at random; 0: all", &sentences_limit_, 0});
    return all;
  }

  void read(const std::filesystem::path& folder) override {
    if (is_transformer()) check_heads();
    const std::vector<data::SentencePair> corpus = data::read_translations(data::find_translations(folder, "en", "it"));
    content_ = {};
    for (const data::SentencePair& pair : corpus) content_.add(pair.source), content_.add(pair.target);
    auto parts = data::split(static_cast<std::int64_t>(corpus.size()), std::array{0.98, 0.01, 0.01}, kSplitSeed);
    keep_some(&parts[0], sentences_limit_);
    if (!source_) {
      std::vector<std::string> sources, targets;
      for (const std::int64_t i : parts[0]) {
        sources.push_back(corpus[static_cast<std::size_t>(i)].source);
        targets.push_back(corpus[static_cast<std::size_t>(i)].target);
      }
      set_pieces(data::SentencePieces::train(sources, {.vocabulary = vocabulary_}),
                 data::SentencePieces::train(targets, {.vocabulary = vocabulary_}));
    }
    for (std::size_t part = 0; part < 3; ++part) {
      pairs_[part].clear();
      texts_[part].clear();
      left_out_[part] = 0;
      for (const std::int64_t i : parts[part]) {
        const data::SentencePair& texts = corpus[static_cast<std::size_t>(i)];
        Pair pair{source_->encode(texts.source), target_->encode(texts.target)};
        const bool is_short = static_cast<std::int64_t>(pair.source.size()) <= longest_source() &&
                              static_cast<std::int64_t>(pair.target.size()) < longest_target();
        if (!is_short || pair.source.empty()) {
          left_out_[part] += 1;
          continue;
        }
        pairs_[part].push_back(std::move(pair));
        texts_[part].push_back(texts);
      }
    }
  }

  std::map<std::string, std::string> files() const override {
    return {{kSourcePieces, source_->serialized()}, {kTargetPieces, target_->serialized()}};
  }
  void set_files(const std::map<std::string, std::string>& files) override {
    set_pieces(data::SentencePieces::load(file_of(files, kSourcePieces), kSourcePieces),
               data::SentencePieces::load(file_of(files, kTargetPieces), kTargetPieces));
  }
  std::unique_ptr<Predictor> predictor(const Trained& trained) const override;

  std::string amount(Part part) const override {
    const std::int64_t left_out = left_out_[static_cast<std::size_t>(part)];
    return Task::amount(part) + (left_out > 0 ? fmt::format(" ({} longer ones left out)", left_out) : "");
  }

  std::int64_t most_pieces() const { return longest_source(); }
  const data::SentencePieces& source() const { return *source_; }
  const data::SentencePieces& target() const { return *target_; }
  // The texts of a part's examples.
  const std::vector<data::SentencePair>& texts(Part part) const { return texts_[static_cast<std::size_t>(part)]; }

 protected:
  Value loss_of(Graph& graph, const Value& source, const Value& lengths, const Value& written, const Value& labels,
                bool is_training) const override {
    if (!is_transformer()) return PairTask::loss_of(graph, source, lengths, written, labels, is_training);
    return EncoderDecoder(graph, transformer(is_training)).loss(source, lengths, written, labels);
  }
  BeamSearch search_of(Graph& graph, const Value& source, const Value& lengths,
                       const BeamSearchOptions& options) const override {
    if (!is_transformer()) return PairTask::search_of(graph, source, lengths, options);
    return EncoderDecoder(graph, transformer(false)).search(source, lengths, options);
  }

 private:
  bool is_transformer() const { return kind_ == "transformer"; }
  void check_heads() const {
    if (model_.hidden % heads_ == 0) return;
    throw Error(ErrorKind::argument, fmt::format("hidden is {}, which {} heads do not divide", model_.hidden, heads_));
  }
  EncoderDecoderOptions transformer(bool is_training) const {
    return {.source_vocabulary = model_.source_vocabulary,
            .target_vocabulary = model_.target_vocabulary,
            .hidden = model_.hidden,
            .heads = heads_,
            .layers = model_.layers,
            .source_positions = longest_source(),
            .target_positions = longest_target(),
            .dropout = is_training ? model_.dropout : 0};
  }
  void set_pieces(data::SentencePieces source, data::SentencePieces target) {
    source_ = std::move(source);
    target_ = std::move(target);
    model_.source_vocabulary = source_->size();
    model_.target_vocabulary = target_->size();
  }

  std::optional<data::SentencePieces> source_, target_;
  std::vector<data::SentencePair> texts_[3];
  std::int64_t left_out_[3] = {0, 0, 0};  // of the parts: too long, or empty
  std::int64_t vocabulary_ = 8000, sentences_limit_ = 0, heads_ = 8;
  std::string kind_ = "lstm";
};

class TranslatePredictor : public Predictor {
 public:
  TranslatePredictor(const Translate& task, const Trained& trained)
      : task_(task), mean_loss_(task, trained, 64), search_(task, trained) {}

  std::vector<Score> evaluate(Part part, const SearchOptions& search, std::int64_t limit) override {
    std::vector<std::string> sources, references;
    for (const data::SentencePair& pair : task_.texts(part)) {
      if (limit > 0 && static_cast<std::int64_t>(sources.size()) == limit) break;
      sources.push_back(pair.source);
      references.push_back(pair.target);
    }
    return {{"loss", mean_loss_(part, limit)}, {"BLEU", data::bleu(translated(sources, search.beam), references)}};
  }

  std::string show(const SearchOptions& search, std::int64_t count) override {
    const std::vector<data::SentencePair> pairs = spread(task_.texts(Part::test), count);
    std::vector<std::string> sources;
    for (const data::SentencePair& pair : pairs) sources.push_back(pair.source);
    const std::vector<std::string> found = translated(sources, search.beam);
    std::string text;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      text += fmt::format("{}\n  predicted {}\n  there     {}\n", printable(sources[i], ""), printable(found[i], ""),
                          printable(pairs[i].target, ""));
    }
    return text;
  }

  std::vector<Predictions> predict(std::span<const std::string> lines, const SearchOptions& search) override {
    const std::vector<Sequence> sources = pieces_of(lines);
    const auto found = search_(sources, std::max(search.beam, search.best), search.packs);
    const auto text = [&](const Sequence& pieces) { return task_.target().decode(pieces); };
    std::vector<Predictions> all = predictions_of(found, search.best, text);
    say_nothing_of_nothing(sources, &all);
    return all;
  }

  Graphs graphs(const SearchOptions& search) const override { return search_.graphs(search.beam); }
  void prepare(const SearchOptions& search) override { search_.prepare(search.beam); }

  std::string remark(const std::string& line) const override {
    const Sequence pieces = task_.source().encode(line);
    const auto is_unknown = [](const Sequence& some) {
      return std::find(some.begin(), some.end(), data::SentencePieces::kUnknown) != some.end();
    };
    std::vector<std::string> unseen;
    if (is_unknown(pieces)) {
      const auto characters = data::characters(line, "sentence '" + printable(line, "") + "'");
      for (const std::string& character : std::set(characters.begin(), characters.end())) {
        if (is_unknown(task_.source().encode(character))) unseen.push_back(character);
      }
    }
    const std::int64_t count = std::ssize(pieces), most = task_.most_pieces();
    return with_remark(remark_of_unseen(unseen),
                       count > most ? fmt::format("{} pieces of words, only the first {} count", count, most) : "");
  }

 private:
  std::vector<Sequence> pieces_of(std::span<const std::string> lines) const {
    std::vector<Sequence> all;
    for (const std::string& line : lines) all.push_back(task_.source().encode(line));
    return all;
  }
  std::vector<std::string> translated(std::span<const std::string> lines, std::int64_t beam) {
    std::vector<std::string> texts;
    for (const auto& found : search_(pieces_of(lines), beam)) texts.push_back(task_.target().decode(found.at(0).words));
    return texts;
  }

  const Translate& task_;
  MeanLoss mean_loss_;
  PairSearch search_;
};

std::unique_ptr<Predictor> Translate::predictor(const Trained& trained) const {
  return std::make_unique<TranslatePredictor>(*this, trained);
}

}  // namespace

std::unique_ptr<Task> make_translate() { return std::make_unique<Translate>(); }

}  // namespace paoding::models
