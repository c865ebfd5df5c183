// SPDX-License-Identifier: Apache-2.0
// The data of g2p and translate: parts, buckets, batches; scores and searches by other ways.
#include "models/pair_task.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/test_folder.h"
#include "models/symbol_file.h"
#include "paoding/data/batches.h"
#include "paoding/data/corpora.h"
#include "paoding/data/metrics.h"
#include "paoding/data/sentence_pieces.h"
#include "tests/support/small_corpora.h"

namespace paoding::models {
namespace {

using data::refusal;
using Texts = std::vector<std::string>;
using TextPair = std::pair<std::string, std::string>;

constexpr Part kParts[] = {Part::train, Part::validation, Part::test};

std::unique_ptr<Task> small_pair_task(const std::string& name, const std::map<std::string, std::string>& options = {}) {
  auto task = make_task(name);
  const Options all = task->options();
  set(*find(all, "hidden"), "12");
  if (name == "translate") set(*find(all, "vocabulary"), "100");
  for (const auto& [option, text] : options) set(*find(all, option), text);
  return task;
}

std::int64_t smallest(const std::vector<std::int64_t>& bounds, std::int64_t length) {
  return *std::find_if(bounds.begin(), bounds.end(), [&](std::int64_t bound) { return bound >= length; });
}

// Every example of a part as its batches have it; the rest of a batch is checked on the way.
std::vector<Pair> pairs_in_batches(const Task& task, Part part, const std::vector<std::int64_t>& source_bounds,
                                   const std::vector<std::int64_t>& target_bounds, std::int64_t start,
                                   std::int64_t end) {
  constexpr std::int64_t kRows = 6;
  std::vector<Pair> all;
  const auto buckets = task.buckets(part);
  for (const auto& examples : data::batches_in_order(buckets, 4)) {
    const std::int64_t bucket = buckets[static_cast<std::size_t>(examples[0])];
    const Batch batch = task.batch(part, examples, bucket, kRows);
    EXPECT_EQ(batch.bucket, bucket);
    EXPECT_EQ(batch.items, std::ssize(examples));
    Graph graph;
    task.loss(graph, bucket, kRows, true);
    EXPECT_EQ(graph.inputs().size(), batch.feeds.size());
    for (std::size_t i = 0; i < batch.feeds.size(); ++i) {
      EXPECT_EQ(graph.node(graph.inputs()[i]).types[0].shape, batch.feeds[i].shape());
      EXPECT_EQ(graph.node(graph.inputs()[i]).types[0].dtype, batch.feeds[i].dtype());
    }
    const std::int64_t S = batch.feeds[0].shape()[0], T = batch.feeds[2].shape()[0];
    const auto at = [&](std::size_t feed, std::int64_t t, std::int64_t row) {
      return batch.feeds[feed].data<std::int64_t>()[t * kRows + row];
    };
    double words = 0;
    for (std::int64_t row = 0; row < kRows; ++row) {
      const bool is_example = row < std::ssize(examples);
      const std::int64_t length = batch.feeds[1].data<std::int64_t>()[row];
      Pair& pair = all.emplace_back();
      for (std::int64_t t = 0; t < S; ++t) {
        if (t < length) {
          pair.source.push_back(at(0, t, row));
        } else {
          EXPECT_EQ(at(0, t, row), 0);
        }
      }
      std::int64_t t = 0;
      for (; t < T && at(3, t, row) >= 0; ++t) {
        if (at(3, t, row) != end) pair.target.push_back(at(3, t, row));
        EXPECT_EQ(at(2, t, row), t == 0 ? start : at(3, t - 1, row)) << "the word before";
      }
      words += static_cast<double>(t);
      if (!is_example) {
        EXPECT_EQ(length, 0);
        EXPECT_EQ(t, 0) << "a label in a row without an example";
        all.pop_back();
        continue;
      }
      EXPECT_EQ(at(3, t - 1, row), end) << "the last label";
      EXPECT_EQ(std::ssize(pair.target), t - 1) << "an end within";
      for (; t < T; ++t) EXPECT_EQ(at(3, t, row), -1);
      EXPECT_EQ(S, smallest(source_bounds, length)) << "source bucket";
      EXPECT_EQ(T, smallest(target_bounds, std::ssize(pair.target) + 1)) << "target bucket";
    }
    EXPECT_EQ(batch.weight, words);
  }
  EXPECT_EQ(all.size(), buckets.size());
  return all;
}

// ---- g2p ----

class G2pTask : public testing::Test {
 protected:
  G2pTask() { small_corpora::write_g2p(folder_, words_); }

  std::vector<TextPair> texts(const Task& task, Part part) {
    const auto letters = from_file(task.files(), "letters.txt"), phonemes = from_file(task.files(), "phonemes.txt");
    std::vector<TextPair> all;
    for (const Pair& pair :
         pairs_in_batches(task, part, {4, 5, 6, 7, 8, 9, 10, 12, 14, 18, 36}, {4, 6, 7, 8, 9, 10, 12, 14, 18, 36},
                          phonemes.find("<start>"), phonemes.find("<end>"))) {
      auto& [word, said] = all.emplace_back();
      for (const std::int64_t letter : pair.source) word += letters.symbol(letter);
      for (const std::int64_t phoneme : pair.target) said += (said.empty() ? "" : " ") + phonemes.symbol(phoneme);
    }
    return all;
  }

  std::vector<small_corpora::Word> words_ = small_corpora::words(400);
  TemporaryFolder folder_;
};

TEST_F(G2pTask, HasEveryWordInOnePartWithAllItsWays) {
  words_.push_back({"abcdefghabcdefghabcdefghabcdefghabcd", {"AH"}});     // 36 letters
  words_.push_back({"abcdefghabcdefghabcdefghabcdefghabcde", {"AH B"}});  // 37: too long
  std::string thirty_five = "AH", thirty_six;
  for (int i = 1; i < 35; ++i) thirty_five += i % 2 == 0 ? " AH" : " B";
  thirty_six = thirty_five + " K";
  words_.push_back({"xyz", {thirty_five, thirty_six}});  // with the end, 36 phonemes fit
  small_corpora::write_g2p(folder_, words_);
  const auto task = small_pair_task("g2p");
  task->read(folder_.path());
  std::multiset<TextPair> wanted, found;
  for (const auto& word : words_) {
    for (const auto& way : word.ways) {
      if (word.spelling.size() <= 36 && way != thirty_six) wanted.emplace(word.spelling, way);
    }
  }
  std::set<std::string> seen;
  for (const Part part : kParts) {
    std::set<std::string> here;
    for (const auto& pair : texts(*task, part)) {
      found.insert(pair);
      here.insert(pair.first);
    }
    for (const std::string& word : here) EXPECT_TRUE(seen.insert(word).second) << word << " is in two parts";
    // 93%, 2%, 5% of 402 words.
    EXPECT_NEAR(static_cast<double>(here.size()), part == Part::train ? 374 : part == Part::test ? 20 : 8, 1);
  }
  EXPECT_EQ(found, wanted);
}

TEST_F(G2pTask, TrainsOnAsManyWordsAsAskedFor) {
  for (const std::int64_t count : {1, 7, 371, 372, 5000}) {
    const auto task = small_pair_task("g2p", {{"words", std::to_string(count)}});
    task->read(folder_.path());
    std::set<std::string> here;
    for (const auto& pair : texts(*task, Part::train)) here.insert(pair.first);
    EXPECT_EQ(std::ssize(here), std::min<std::int64_t>(count, 372));
  }
}

TEST_F(G2pTask, KeepsAModelsVocabulary) {
  const auto task = small_pair_task("g2p");
  task->read(folder_.path());
  const auto files = task->files();
  const auto other = small_pair_task("g2p");
  other->set_files(files);
  auto more = words_;
  more.push_back({"ab\u00e9", {"AH B"}});  // a letter that the model does not know
  small_corpora::write_g2p(folder_, more);
  other->read(folder_.path());
  EXPECT_EQ(other->files(), files);
  std::set<std::string> words;
  for (const Part part : kParts) {
    for (const auto& [word, said] : texts(*other, part)) words.insert(word);
  }
  EXPECT_TRUE(words.contains("ab<unknown>"));
  more.push_back({"gab", {"G EH ZH"}});
  small_corpora::write_g2p(folder_, more);
  EXPECT_EQ(refusal([&] { other->read(folder_.path()); }),
            "file: word 'gab' has the phoneme 'ZH', which the checkpoint does not know");
  auto broken = files;
  broken["letters.txt"] = "a\nb\n";
  EXPECT_EQ(refusal([&] { other->set_files(broken); }),
            "file: letters.txt must begin with <unknown>, and phonemes.txt have <start> and <end>");
  broken.erase("phonemes.txt");
  EXPECT_EQ(refusal([&] { other->set_files(broken); }), "file: the checkpoint has no file 'phonemes.txt'");
}

std::int64_t edits(const Texts& a, const Texts& b) {
  std::vector<std::int64_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<std::int64_t>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::int64_t corner = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::int64_t replaced = corner + (a[i - 1] != b[j - 1]);
      corner = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

Texts split_at_blanks(const std::string& text) {
  Texts parts;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

// Predicts words one by one, so in programs of one row, and counts mistakes by itself. The predictions of each word go
// to `said`.
void expect_scores(Predictor& predictor, const std::map<std::string, Texts>& ways, std::int64_t beam,
                   std::map<std::string, std::string>* said) {
  double wrong = 0, distances = 0, phonemes = 0;
  for (const auto& [word, all] : ways) {
    const Texts line{word};
    const Predictions found = predictor.predict(line, {.beam = beam, .best = beam})[0];
    ASSERT_EQ(std::ssize(found), beam);
    for (std::size_t i = 1; i < found.size(); ++i) EXPECT_GE(found[i - 1].log_probability, found[i].log_probability);
    (*said)[word] = found[0].text;
    std::pair<std::int64_t, double> best{1'000'000, 0};
    for (const std::string& way : all) {
      const Texts there = split_at_blanks(way);
      const std::int64_t distance = edits(split_at_blanks(found[0].text), there);
      if (distance < best.first) best = {distance, static_cast<double>(there.size())};
    }
    distances += static_cast<double>(best.first);
    phonemes += best.second;
    wrong += best.first > 0;
  }
  const auto scores = predictor.evaluate(Part::test, {.beam = beam}, 0);
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0].name, "phoneme error rate");
  EXPECT_DOUBLE_EQ(scores[0].value, distances / phonemes);
  EXPECT_DOUBLE_EQ(scores[1].value, wrong / static_cast<double>(ways.size()));
}

TEST_F(G2pTask, ScoresAreWhatPredictionsSay) {
  const auto task = small_pair_task("g2p");
  task->read(folder_.path());
  Graph graph;
  task->loss(graph, task->any_bucket(), 1, false);
  Parameters parameters(graph, Device::cpu(), {.seed = 4});
  const auto predictor = task->predictor({&parameters, {}});
  const auto ways = [&] {  // as the dictionary orders them: of ways equally near the first counts
    std::map<std::string, Texts> made;
    for (const auto& [word, said] : texts(*task, Part::test)) {
      made[word] = std::find_if(words_.begin(), words_.end(), [&, w = word](const auto& known) {
                     return known.spelling == w;
                   })->ways;
    }
    return made;
  };
  std::map<std::string, std::string> said;
  for (const std::int64_t beam : {3, 1}) expect_scores(*predictor, ways(), beam, &said);
  // Now a dictionary in which every other word may be said as it was.
  std::size_t right = 0;
  for (auto& [spelling, known] : words_) {
    if (!said.contains(spelling) || said[spelling].empty() || split_at_blanks(said[spelling]).size() > 35) continue;
    if (++right % 2 == 0) known.push_back(said[spelling]);
  }
  ASSERT_GE(right, 10U);
  small_corpora::write_g2p(folder_, words_);
  task->read(folder_.path());
  expect_scores(*predictor, ways(), 1, &said);
  EXPECT_NEAR(predictor->evaluate(Part::test, {}, 0)[1].value, 0.5, 0.15);
}

TEST_F(G2pTask, PredictsWhateverIsAsked) {
  const auto task = small_pair_task("g2p");
  task->read(folder_.path());
  Graph graph;
  task->loss(graph, task->any_bucket(), 1, false);
  Parameters parameters(graph, Device::cpu(), {.seed = 4});
  const auto predictor = task->predictor({&parameters, {}});
  const Texts lines{"abba", "", "ABBA", "caf\u00e9", std::string(200, 'a'), std::string(36, 'a'), "abba"};
  const auto found = predictor->predict(lines, {.beam = 2, .best = 2});
  ASSERT_EQ(found.size(), lines.size());
  EXPECT_EQ(found[0][0].text, found[2][0].text) << "capitals are small letters";
  EXPECT_EQ(found[0][0].text, found[6][0].text);
  EXPECT_EQ(found[4][0].text, found[5][0].text) << "what is too long is cut";
  EXPECT_TRUE(predictor->predict({}, {}).empty());
  EXPECT_EQ(refusal([&] { predictor->predict(Texts{"caf\xe9"}, {}); }).substr(0, 5), "file:");
  EXPECT_EQ(refusal([&] { predictor->predict_file("x", {}); }), "unsupported: this model predicts from lines of text");
}

TEST(G2pData, OfTheRealDictionaryIsAllThere) {
  FOUND_OR_SKIP(path, data::find_pronunciations(data::test_folder()));
  const auto task = make_task("g2p");
  task->read(data::test_folder());
  std::size_t wanted = 0, found = 0;
  for (const auto& entry : data::read_pronunciations(path)) {
    for (const auto& way : entry.ways) wanted += entry.word.size() <= 36 && way.size() < 36;
  }
  for (const Part part : kParts) {
    const auto buckets = task->buckets(part);
    found += buckets.size();
    for (const auto& examples : data::batches_in_order(buckets, 64)) {
      const Batch batch = task->batch(part, examples, buckets[static_cast<std::size_t>(examples[0])], 64);
      ASSERT_GE(batch.weight, 2 * static_cast<double>(examples.size()));
    }
  }
  EXPECT_EQ(found, wanted);
}

// ---- translate ----

TEST(TranslateTask, HasEveryPairInOnePart) {
  const TemporaryFolder folder;
  small_corpora::write_translate(folder, 500);
  const auto task = small_pair_task("translate");
  task->read(folder.path());
  const std::vector<std::int64_t> bounds{6, 8, 10, 12, 14, 17, 20, 24, 28, 33, 40, 50};
  const auto source = data::SentencePieces::load(task->files().at("source.pieces"), "s");
  const auto target = data::SentencePieces::load(task->files().at("target.pieces"), "t");
  std::multiset<TextPair> wanted, found;
  for (const auto& pair : data::read_translations(data::find_translations(folder.path(), "en", "it"))) {
    if (std::ssize(source.encode(pair.source)) <= 50 && std::ssize(target.encode(pair.target)) < 50) {
      wanted.emplace(pair.source, pair.target);
    }
  }
  ASSERT_GT(wanted.size(), 300U);
  for (const Part part : kParts) {
    for (const Pair& pair : pairs_in_batches(*task, part, bounds, bounds, 1, 2)) {
      found.emplace(source.decode(pair.source), target.decode(pair.target));
    }
  }
  EXPECT_EQ(found, wanted);
  const auto fewer = small_pair_task("translate", {{"sentences", "37"}});
  fewer->read(folder.path());
  EXPECT_LE(fewer->buckets(Part::train).size(), 37U);
  EXPECT_GE(fewer->buckets(Part::train).size(), 30U);
  EXPECT_EQ(fewer->buckets(Part::test).size(), task->buckets(Part::test).size());
}

TEST(TranslateTask, IsScoredOnEveryPart) {
  const TemporaryFolder folder;
  small_corpora::write_translate(folder, 500);
  const auto task = small_pair_task("translate");
  task->read(folder.path());
  Graph graph;
  task->loss(graph, task->any_bucket(), 1, false);
  Parameters parameters(graph, Device::cpu(), {.seed = 4});
  const auto predictor = task->predictor({&parameters, {}});
  for (const Part part : kParts) {
    const auto scores = predictor->evaluate(part, {.beam = 2}, 9);
    ASSERT_EQ(scores.size(), 2U);
    EXPECT_EQ(scores[0].name, "loss");
    EXPECT_NEAR(scores[0].value, MeanLoss(*task, {&parameters, {}}, 5)(part, 9), 1e-5);
    EXPECT_EQ(scores[1].name, "BLEU");
  }
  EXPECT_NE(predictor->show({}, 2).find("\n  there     "), std::string::npos);
  EXPECT_EQ(predictor->show({}, 0), "");
}

}  // namespace
}  // namespace paoding::models
