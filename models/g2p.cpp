// SPDX-License-Identifier: Apache-2.0
// g2p: from the spelling of a word to its phonemes ("grapheme to phoneme"), as a pronouncing dictionary has them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "models/all_tasks.h"
#include "models/pair_task.h"
#include "models/predictions.h"
#include "models/symbol_file.h"
#include "paoding/data/batches.h"
#include "paoding/data/corpora.h"
#include "paoding/data/metrics.h"
#include "paoding/data/vocabulary.h"
#include "paoding/error.h"
#include "paoding/printable.h"

namespace paoding::models {
namespace {

constexpr const char *kUnknown = "<unknown>", *kStart = "<start>", *kEnd = "<end>";
constexpr const char *kLetters = "letters.txt", *kPhonemes = "phonemes.txt";

// A word of the validation or test part, and every way to say it.
struct Word {
  std::string spelling;
  std::vector<Sequence> ways;
};

class G2p : public PairTask {
 public:
  G2p() {
    model_.hidden = 256;
    model_.dropout = 0.1;
    settings = {.epochs = 12, .batch_size = 64, .learning_rate = 1e-3, .last_learning_rate = 1e-5};
    set_lengths({4, 5, 6, 7, 8, 9, 10, 12, 14, 18, 36}, {4, 6, 7, 8, 9, 10, 12, 14, 18, 36});
  }
  std::string_view name() const override { return "g2p"; }
  std::string_view summary() const override { return "Spelling to phonemes: attention seq2seq on a dictionary"; }
  std::string_view item() const override { return "words"; }
  Options options() override {
    Options all = PairTask::options();
    all.push_back({"words", "Words of the dictionary to train on, chosen at random; 0: all", &words_limit_, 0});
    return all;
  }

  void read(const std::filesystem::path& folder) override {
    const std::filesystem::path path = data::find_pronunciations(folder);
    std::vector<data::Pronunciations> dictionary = data::read_pronunciations(path);
    content_ = {};
    std::string text;
    for (const data::Pronunciations& entry : dictionary) {
      text = entry.word;
      for (const auto& way : entry.ways) {
        text += '\n';
        for (const std::string& phoneme : way) (text += ' ') += phoneme;
      }
      content_.add(text);
    }
    std::erase_if(dictionary, [&](const data::Pronunciations& entry) {
      const auto is_short = [&](const auto& way) { return std::ssize(way) < longest_target(); };
      return std::ssize(entry.word) > longest_source() || std::ranges::none_of(entry.ways, is_short);
    });
    if (letters_.size() == 0) make_vocabularies(dictionary, path.string());
    // The split is by word, so that no word of one part is said in another.
    auto parts = data::split(static_cast<std::int64_t>(dictionary.size()), std::array{0.93, 0.02, 0.05}, kSplitSeed);
    keep_some(&parts[0], words_limit_);
    for (std::size_t part = 0; part < 3; ++part) {
      pairs_[part].clear();
      words_[part].clear();
      for (const std::int64_t at : parts[part]) add(part, dictionary[static_cast<std::size_t>(at)]);
    }
  }

  std::map<std::string, std::string> files() const override {
    return {{kLetters, to_file(letters_)}, {kPhonemes, to_file(phonemes_)}};
  }
  void set_files(const std::map<std::string, std::string>& files) override {
    set_vocabularies(from_file(files, kLetters), from_file(files, kPhonemes));
  }
  std::unique_ptr<Predictor> predictor(const Trained& trained) const override;

  // An example is one way to say a word.
  std::string amount(Part part) const override {
    const std::size_t spelled = words(part).size(), said = pairs(part).size();
    return said == spelled ? fmt::format("{} words", said) : fmt::format("{} words said in {} ways", spelled, said);
  }

  const data::Vocabulary& letters() const { return letters_; }
  std::int64_t most_letters() const { return longest_source(); }
  const std::vector<Word>& words(Part part) const { return words_[static_cast<std::size_t>(part)]; }
  // Letters as ids; those never seen in training are "unknown".
  Sequence spell(const std::string& word) const {
    Sequence numbers;
    for (const std::string& letter : data::characters(word, "word '" + printable(word, "") + "'")) {
      numbers.push_back(std::max<std::int64_t>(0, letters_.find(letter)));
    }
    return numbers;
  }
  std::string say(const Sequence& phonemes) const {
    std::vector<std::string> texts;
    for (const std::int64_t phoneme : phonemes) texts.push_back(phonemes_.symbol(phoneme));
    return fmt::format("{}", fmt::join(texts, " "));
  }

 private:
  void make_vocabularies(const std::vector<data::Pronunciations>& dictionary, const std::string& file) {
    std::set<std::string> letters, phonemes;
    for (const data::Pronunciations& entry : dictionary) {
      for (std::string& letter : data::characters(entry.word, file)) letters.insert(std::move(letter));
      for (const auto& way : entry.ways) phonemes.insert(way.begin(), way.end());
    }
    std::vector<std::string> spelled{kUnknown}, said{kStart, kEnd};
    spelled.insert(spelled.end(), letters.begin(), letters.end());
    said.insert(said.end(), phonemes.begin(), phonemes.end());
    set_vocabularies(data::Vocabulary(std::move(spelled)), data::Vocabulary(std::move(said)));
  }

  void set_vocabularies(data::Vocabulary letters, data::Vocabulary phonemes) {
    letters_ = std::move(letters);
    phonemes_ = std::move(phonemes);
    start_ = phonemes_.find(kStart);
    end_ = phonemes_.find(kEnd);
    if (letters_.find(kUnknown) != 0 || start_ < 0 || end_ < 0) {
      throw Error(ErrorKind::file, fmt::format("{} must begin with {}, and {} have {} and {}", kLetters, kUnknown,
                                               kPhonemes, kStart, kEnd));
    }
    model_.source_vocabulary = letters_.size();
    model_.target_vocabulary = phonemes_.size();
  }

  void add(std::size_t part, const data::Pronunciations& entry) {
    Word word{entry.word, {}};
    for (const auto& way : entry.ways) {
      Sequence& numbers = word.ways.emplace_back();
      for (const std::string& phoneme : way) {
        numbers.push_back(phonemes_.find(phoneme));
        if (numbers.back() < 0) {
          throw Error(ErrorKind::file, fmt::format("word '{}' has the phoneme '{}', which the checkpoint does not know",
                                                   printable(entry.word, ""), printable(phoneme, "")));
        }
      }
      if (static_cast<std::int64_t>(numbers.size()) >= longest_target()) {
        word.ways.pop_back();
        continue;
      }
      pairs_[part].push_back({spell(entry.word), numbers});
    }
    words_[part].push_back(std::move(word));
  }

  data::Vocabulary letters_, phonemes_;
  std::vector<Word> words_[3];
  std::int64_t words_limit_ = 0;
};

class G2pPredictor : public Predictor {
 public:
  G2pPredictor(const G2p& task, const Trained& trained) : task_(task), search_(task, trained) {}

  // A word may be said in several ways; the one nearest to the prediction counts.
  std::vector<Score> evaluate(Part part, const SearchOptions& search, std::int64_t limit) override {
    const std::vector<Word>& all_words = task_.words(part);
    const std::vector<Word> words = limit > 0 ? spread(all_words, limit) : all_words;
    const auto found = search_(spelled(words), search.beam);
    double errors = 0, phonemes = 0, wrong = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto [distance, length] = nearest(words[i], found[i].at(0).words);
      errors += static_cast<double>(distance);
      phonemes += static_cast<double>(length);
      wrong += distance > 0;
    }
    const double count = std::max(1.0, static_cast<double>(words.size()));
    return {{"phoneme error rate", errors / std::max(1.0, phonemes), true}, {"word error rate", wrong / count, true}};
  }

  std::string show(const SearchOptions& search, std::int64_t count) override {
    const std::vector<Word> words = spread(task_.words(Part::test), count);
    const auto found = search_(spelled(words), search.beam);
    std::string text = fmt::format("{:<18} {:<34} {}\n", "word", "predicted", "in the dictionary");
    for (std::size_t i = 0; i < words.size(); ++i) {
      const Sequence& predicted = found[i].at(0).words;
      std::vector<std::string> ways;
      for (const Sequence& way : words[i].ways) ways.push_back(task_.say(way));
      const bool is_right = nearest(words[i], predicted).first == 0;
      text += fmt::format("{:<18} {:<34} {}{}\n", printable(words[i].spelling, ""), printable(task_.say(predicted), ""),
                          is_right ? "" : "not ", printable(fmt::format("{}", fmt::join(ways, " | ")), ""));
    }
    return text;
  }

  std::vector<Predictions> predict(std::span<const std::string> lines, const SearchOptions& search) override {
    std::vector<Sequence> sources;
    for (const std::string& line : lines) sources.push_back(task_.spell(lower(line)));
    const auto found = search_(sources, std::max(search.beam, search.best), search.packs);
    auto all = predictions_of(found, search.best, [&](const Sequence& words) { return task_.say(words); });
    say_nothing_of_nothing(sources, &all);
    return all;
  }

  Graphs graphs(const SearchOptions& search) const override { return search_.graphs(search.beam); }
  void prepare(const SearchOptions& search) override { search_.prepare(search.beam); }

  std::string remark(const std::string& line) const override {
    const std::vector<std::string> letters = data::characters(lower(line), "word '" + printable(line, "") + "'");
    std::vector<std::string> unseen;
    for (const std::string& letter : letters) {
      if (task_.letters().find(letter) < 0) unseen.push_back(letter);
    }
    const std::int64_t count = std::ssize(letters), most = task_.most_letters();
    return with_remark(remark_of_unseen(unseen),
                       count > most ? fmt::format("{} letters, only the first {} count", count, most) : "");
  }

 private:
  static std::string lower(std::string text) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return text;
  }
  std::vector<Sequence> spelled(const std::vector<Word>& words) const {
    std::vector<Sequence> sources;
    for (const Word& word : words) sources.push_back(task_.spell(word.spelling));
    return sources;
  }
  // Errors, and phonemes of the way they are counted by.
  static std::pair<std::int64_t, std::int64_t> nearest(const Word& word, const Sequence& predicted) {
    std::pair<std::int64_t, std::int64_t> best{-1, 0};
    for (const Sequence& way : word.ways) {
      const std::int64_t distance = data::edit_distance(predicted, way);
      if (best.first < 0 || distance < best.first) best = {distance, static_cast<std::int64_t>(way.size())};
    }
    return best;
  }

  const G2p& task_;
  PairSearch search_;
};

std::unique_ptr<Predictor> G2p::predictor(const Trained& trained) const {
  return std::make_unique<G2pPredictor>(*this, trained);
}

}  // namespace

std::unique_ptr<Task> make_g2p() { return std::make_unique<G2p>(); }

}  // namespace paoding::models
