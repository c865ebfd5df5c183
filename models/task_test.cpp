// SPDX-License-Identifier: Apache-2.0
// The promises of every task: losses that do not depend on how examples are batched, models that files and parameters
// make again; and the feeds of fashion and lm.
#include "models/task.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "data/test_folder.h"
#include "models/conv_net.h"
#include "models/symbol_file.h"
#include "paoding/autodiff.h"
#include "paoding/data/batches.h"
#include "paoding/data/corpora.h"
#include "tests/support/program_check.h"
#include "tests/support/small_corpora.h"

namespace paoding::models {
namespace {

using data::refusal;
using testing_program::Dense;
using testing_program::expect_close;

constexpr const char* kTransformer = "_transformer";  // after the name of a task that has one

std::unique_ptr<Task> small_task(const std::string& name) {
  auto task = make_task(name.substr(0, name.find('_')));
  const Options all = task->options();
  if (name.ends_with(kTransformer)) set(*find(all, "model"), "transformer");
  for (const auto& [option, text] : std::map<std::string, std::string>{{"hidden", "10"},
                                                                       {"vocabulary", "100"},
                                                                       {"width", "3"},
                                                                       {"continue", "5"},
                                                                       {"dropout", "0.3"},
                                                                       {"heads", "2"},
                                                                       {"layers", "2"},
                                                                       {"context", "16"}}) {
    if (const Option* found = find(all, option)) set(*found, text);
  }
  return task;
}

Parameters parameters_of(const Task& task) {
  Graph graph;
  task.loss(graph, task.any_bucket(), 1, false);
  return Parameters(graph, Device::cpu(), {.seed = 12});
}

struct TaskResult {
  double loss = 0;
  std::map<std::string, Dense> gradients;
};

TaskResult run(const Task& task, const Parameters& parameters, Part part, const std::vector<std::int64_t>& examples,
               std::int64_t rows) {
  const std::int64_t bucket = task.buckets(part)[static_cast<std::size_t>(examples[0])];
  Graph graph;
  const Value loss = task.loss(graph, bucket, rows, false);
  graph.fetch("loss", loss);
  Values wanted;
  for (const NodeId id : graph.parameters()) wanted.push_back(graph.value({id, 0}));
  const Values grads = gradients(std::array{loss}, wanted);
  for (std::size_t i = 0; i < grads.size(); ++i) graph.fetch("d" + std::to_string(i), grads[i]);
  Program program(graph, {}, &parameters);
  const Batch batch = task.batch(part, examples, bucket, rows);
  for (std::size_t i = 0; i < batch.feeds.size(); ++i) program.set_input(static_cast<int>(i), batch.feeds[i]);
  program.run();
  TaskResult result{program.fetch(0).to_doubles()[0], {}};
  for (std::size_t i = 0; i < grads.size(); ++i) {
    result.gradients["d" + std::to_string(i)] = program.fetch(static_cast<int>(i + 1)).to_doubles();
  }
  return result;
}

class EveryTask : public testing::TestWithParam<std::string> {
 protected:
  EveryTask() : task_(small_task(GetParam())) {
    task_->read(small_corpora::all().path());
    parameters_.emplace(parameters_of(*task_));
  }
  std::unique_ptr<Task> task_;
  std::optional<Parameters> parameters_;
};

class EveryTaskOfLines : public EveryTask {};

TEST_P(EveryTask, LosesTheMeanOfItsExamples) {
  for (const Part part : {Part::validation, Part::test}) {
    const auto buckets = task_->buckets(part);
    ASSERT_GE(buckets.size(), 8U);
    for (const std::int64_t count : {1, 3, 8}) {
      double sum = 0, weight = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t bucket = buckets[static_cast<std::size_t>(i)];
        const std::vector<std::int64_t> one{i};
        const double counts = task_->batch(part, one, bucket, 1).weight;
        sum += counts * run(*task_, *parameters_, part, one, 1).loss;
        weight += counts;
      }
      for (const std::int64_t rows : {1, 4}) {
        EXPECT_NEAR(MeanLoss(*task_, {&*parameters_, {}}, rows)(part, count), sum / weight, 2e-6)
            << count << " examples in batches of " << rows;
      }
    }
  }
}

TEST_P(EveryTask, RowsWithoutAnExampleCountForNothing) {
  const auto buckets = task_->buckets(Part::train);
  const auto batches = data::batches_in_order(buckets, 3);
  for (const std::size_t at : {std::size_t{0}, batches.size() / 2}) {
    const std::vector<std::int64_t>& examples = batches[at];
    const TaskResult tight = run(*task_, *parameters_, Part::train, examples, std::ssize(examples));
    const TaskResult loose = run(*task_, *parameters_, Part::train, examples, std::ssize(examples) + 4);
    EXPECT_NEAR(loose.loss, tight.loss, 1e-6);
    for (const auto& [name, values] : tight.gradients) expect_close(name, loose.gradients.at(name), values, 1e-6);
  }
}

TEST_P(EveryTask, DeclaresTheSameParametersForEveryBucket) {
  const auto names_of = [&](std::int64_t bucket, std::int64_t rows, bool is_training) {
    Graph graph;
    task_->loss(graph, bucket, rows, is_training);
    std::map<std::string, Shape> shapes;
    bool draws = false;  // for dropout, and that in training alone
    for (const NodeId id : graph.parameters()) {
      const std::string& name = graph.node(id).name.str();
      draws = draws || name.starts_with("random/");
      if (!name.starts_with("random/")) shapes.emplace(name, graph.node(id).types[0].shape);
    }
    EXPECT_EQ(draws, is_training);
    return shapes;
  };
  const auto wanted = names_of(task_->any_bucket(), 1, false);
  EXPECT_FALSE(wanted.empty());
  const auto buckets = task_->buckets(Part::train);
  for (const std::int64_t bucket : std::set<std::int64_t>(buckets.begin(), buckets.end())) {
    EXPECT_EQ(names_of(bucket, 5, true), wanted);
  }
}

TEST_P(EveryTask, IsMadeAgainByItsFiles) {
  const auto other = small_task(GetParam());
  other->set_files(task_->files());
  const auto before = task_->predictor({&*parameters_, {}}), after = other->predictor({&*parameters_, {}});
  if (task_->predicts_lines()) {
    const std::vector<std::string> lines{"abc", "And the light", "small library", "", "\u00e9"};
    const auto wanted = before->predict(lines, {.beam = 2, .best = 2}),
               got = after->predict(lines, {.beam = 2, .best = 2});
    for (std::size_t i = 0; i < lines.size(); ++i) {
      ASSERT_EQ(got[i].size(), wanted[i].size());
      ASSERT_GE(got[i].size(), lines[i] == "abc" ? 2U : 1U);
      for (std::size_t k = 0; k < got[i].size(); ++k) {
        EXPECT_EQ(got[i][k].text, wanted[i][k].text);
        EXPECT_EQ(got[i][k].log_probability, wanted[i][k].log_probability);
      }
    }
  }
  // With its files a task reads the same data as before.
  other->read(small_corpora::all().path());
  EXPECT_EQ(other->files(), task_->files());
  for (const Part part : {Part::train, Part::validation, Part::test})
    EXPECT_EQ(other->buckets(part), task_->buckets(part));
}

// This holds for any weights: lines beside an empty one, and their number, make no difference.
TEST_P(EveryTaskOfLines, SaysNothingOfNothingAndRemarksWhatItNeverSaw) {
  const auto predictor = task_->predictor({&*parameters_, {}});
  const std::string known = GetParam() == "g2p"                   ? "abba"
                            : GetParam().starts_with("translate") ? "small library"
                                                                  : "the light";
  for (const bool packs : {false, true}) {
    for (const std::vector<std::string>& lines : {std::vector<std::string>{""}, {"", known, ""}, {known, ""}}) {
      const auto found = predictor->predict(lines, {.beam = 3, .best = 2, .packs = packs});
      for (std::size_t i = 0; i < lines.size(); ++i) {
        ASSERT_EQ(found[i].size(), lines[i].empty() ? 1U : 2U);
        if (!lines[i].empty()) continue;
        EXPECT_EQ(found[i][0].text, "");
        EXPECT_EQ(found[i][0].log_probability, 0);
      }
    }
  }
  EXPECT_EQ(predictor->remark(""), "");
  EXPECT_EQ(predictor->remark(known), "");
  EXPECT_EQ(predictor->remark(known + " \u00e9 \u00e9").substr(0, 22), "never seen in training");
  EXPECT_NE(predictor->remark(known + " \u00e9").find("'\u00e9'"), std::string::npos);
  std::string many = known;
  for (int i = 0; i < 25; ++i) many += std::string(" \xf0\x9f\x98") + static_cast<char>(0x80 + i);
  EXPECT_NE(predictor->remark(many).find(" more"), std::string::npos) << predictor->remark(many);
}

TEST_P(EveryTask, IsScoredOnEveryPart) {
  const auto predictor = task_->predictor({&*parameters_, {}});
  for (const Part part : {Part::train, Part::validation, Part::test}) {
    const auto scores = predictor->evaluate(part, {.beam = 2}, 5);
    ASSERT_FALSE(scores.empty());
    EXPECT_TRUE(std::isfinite(scores[0].value));
    EXPECT_GT(scores[0].value, 0);
    EXPECT_EQ(predictor->evaluate(part, {.beam = 2}, 5)[0].value, scores[0].value);
  }
  EXPECT_FALSE(predictor->show({}, 3).empty());
  EXPECT_FALSE(predictor->show({.beam = 2}, 100'000).empty()) << "more than there are";
}

TEST_P(EveryTask, SaysWhatDataIsMissing) {
  const TemporaryFolder empty;
  const std::string said = refusal([&] { small_task(GetParam())->read(empty.path()); });
  if (said.empty()) GTEST_SKIP() << "NOT CHECKED: needs a machine without the data set, and its package is installed";
  EXPECT_NE(said.find("paoding fetch "), std::string::npos) << said;
}

std::vector<std::string> tested_tasks() {
  std::vector<std::string> names = task_names();
  names.push_back(std::string("translate") + kTransformer);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, EveryTask, testing::ValuesIn(tested_tasks()),
                         [](const auto& tested) { return tested.param; });
INSTANTIATE_TEST_SUITE_P(Models, EveryTaskOfLines, testing::ValuesIn([] {
                           std::vector<std::string> names = tested_tasks();
                           std::erase_if(names, [](const auto& name) { return !small_task(name)->predicts_lines(); });
                           return names;
                         }()),
                         [](const auto& tested) { return tested.param; });

// ---- fashion ----

TEST(FashionTask, FeedsThePicturesOfItsParts) {
  const auto task = small_task("fashion");
  task->read(small_corpora::all().path());
  const data::ImageFiles files = data::find_fashion(small_corpora::all().path());
  const data::ImageSet sets[] = {data::read_images(files.train_images, files.train_labels),
                                 data::read_images(files.test_images, files.test_labels)};
  std::set<std::int64_t> seen;  // of the training file
  for (const Part part : {Part::train, Part::validation, Part::test}) {
    const data::ImageSet& set = sets[part == Part::test];
    const auto count = std::ssize(task->buckets(part));
    EXPECT_EQ(count, part == Part::train ? 190 : part == Part::validation ? 10 : 30);
    for (std::int64_t i = 0; i + 1 < count; i += 2) {
      const std::vector<std::int64_t> two{i + 1, i};
      const Batch batch = task->batch(part, two, 0, 4);
      EXPECT_EQ(batch.weight, 2);
      EXPECT_EQ(batch.items, 2);
      for (std::size_t row = 0; row < 4; ++row) {
        const std::uint8_t* pixels = batch.feeds[0].data<std::uint8_t>() + row * 784;
        const std::int32_t label = batch.feeds[1].data<std::int32_t>()[row];
        if (row >= 2) {
          EXPECT_EQ(label, -1);
          EXPECT_TRUE(std::all_of(pixels, pixels + 784, [](std::uint8_t p) { return p == 0; }));
          continue;
        }
        std::int64_t at = 0;
        while (at < set.images.shape()[0] &&
               !std::equal(pixels, pixels + 784, set.images.data<std::uint8_t>() + at * 784))
          ++at;
        ASSERT_LT(at, set.images.shape()[0]) << "no such picture";
        EXPECT_EQ(label, set.labels.data<std::uint8_t>()[at]);
        if (part == Part::test) {
          EXPECT_EQ(at, two[row]);
        } else {
          EXPECT_TRUE(seen.insert(at).second) << "picture " << at << " is in two parts";
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 200U);
}

TEST(FashionTask, ScoresArePredictionsOfTheFile) {
  const auto task = small_task("fashion");
  task->read(small_corpora::all().path());
  const Parameters parameters = parameters_of(*task);
  const auto predictor = task->predictor({&parameters, {}});
  const data::ImageFiles files = data::find_fashion(small_corpora::all().path());
  const auto found = predictor->predict_file(files.test_images.string(), {.best = 10});
  const char* const names[] = {"T-shirt", "trousers", "pullover", "dress", "coat",
                               "sandal",  "shirt",    "sneaker",  "bag",   "ankle boot"};
  const data::ImageSet set = data::read_images(files.test_images, files.test_labels);
  double wrong = 0;
  ASSERT_EQ(found.size(), 30U);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), 10U);
    double sum = 0;
    for (const Prediction& p : found[i]) sum += std::exp(p.log_probability);
    EXPECT_NEAR(sum, 1, 1e-5);
    wrong += found[i][0].text != names[set.labels.data<std::uint8_t>()[i]];
  }
  EXPECT_DOUBLE_EQ(predictor->evaluate(Part::test, {}, 0)[0].value, wrong / 30);
  EXPECT_EQ(refusal([&] { predictor->predict(std::vector<std::string>{"x"}, {}); }),
            "argument: an image has 1 bytes, needed are 784 (28 rows of 28 grey pixels)");
}

TEST(FashionTask, RefusesOtherPictures) {
  const TemporaryFolder folder;
  small_corpora::write_fashion(folder, 20, 10);
  for (const std::string name : {"train", "t10k"}) {
    const auto labels = folder.path() / ("fashion/" + name + "-labels-idx1-ubyte.gz");
    const std::string bytes = slurp(labels);
    spill(labels, bytes.substr(0, bytes.size() - 1) + '\x0a');
    EXPECT_EQ(refusal([&] { small_task("fashion")->read(folder.path()); }),
              "file: " + labels.string() + ": a label is above 9");
    spill(labels, bytes);
  }
  const auto task = small_task("fashion");
  const Parameters parameters = parameters_of(*task);
  const auto file = folder.write("small.pgm", "P5 2 1 255\nab").string();
  EXPECT_EQ(refusal([&] {
              task->predictor({&parameters, {}})->predict_file(file, {});
            }),
            "file: " + file + ": images are [1, 1, 2], needed are [N, 28, 28]");
}

TEST(ConvNet, HalvesPicturesBlockByBlock) {
  for (const auto& [height, width, channels] :
       {std::tuple{28L, 28L, std::vector<std::int64_t>{16, 32, 32}}, {9L, 14L, {3, 5}}, {4L, 3L, {}}, {2L, 2L, {7}}}) {
    Graph g;
    const Value images = g.input("images", f32, {3, 2, height, width});
    const ConvNet net(g, {.image_channels = 2, .height = height, .width = width, .classes = 6, .channels = channels});
    EXPECT_EQ(net(images).shape(), (Shape{3, 6}));
    std::int64_t h = height, w = width, planes = 2;
    std::map<std::string, Shape> wanted;
    for (std::size_t i = 0; i < channels.size(); ++i) {
      const std::string name = "conv" + std::to_string(i + 1);
      wanted.emplace(name + "/weight", Shape{channels[i], planes, 3, 3});
      wanted.emplace(name + "/bias", Shape{channels[i]});
      planes = channels[i];
      h /= 2, w /= 2;
    }
    wanted.emplace("dense/weight", Shape{planes * h * w, 6});
    wanted.emplace("dense/bias", Shape{6});
    std::map<std::string, Shape> got;
    for (const NodeId id : g.parameters()) got.emplace(g.node(id).name.str(), g.node(id).types[0].shape);
    EXPECT_EQ(got, wanted);
  }
}

// ---- lm ----

TEST(LmTask, FeedsVersesWithTheirStartsAndEnds) {
  const auto task = small_task("lm");
  task->read(small_corpora::all().path());
  const auto words = from_file(task->files(), "words.txt");
  EXPECT_EQ(words.find("number1000"), -1) << "once is too rare";
  EXPECT_EQ(words.find("<unknown>"), 0);
  const std::int64_t start = words.find("<start>"), end = words.find("<end>");
  std::multiset<std::string> wanted, found;
  for (int i = 0; i < 31'102; ++i) {
    std::string text;
    for (const char c : small_corpora::verse(i)) text += c == '.' ? " ." : std::string(1, c);
    const std::size_t rare = text.find("number");
    if (rare != std::string::npos) text = text.substr(0, rare) + "<unknown> .";
    if (i == small_corpora::kLongVerse) {
      std::size_t end = 0;  // of the 100th word
      for (int word = 0; word < 100; ++word) end = text.find(' ', end + 1);
      text.resize(end);
    }
    wanted.insert(text);
  }
  for (const Part part : {Part::train, Part::validation, Part::test}) {
    const auto buckets = task->buckets(part);
    for (const auto& examples : data::batches_in_order(buckets, 30)) {
      const std::int64_t T = buckets[static_cast<std::size_t>(examples[0])];
      const Batch batch = task->batch(part, examples, T, 32);
      ASSERT_EQ(batch.feeds[0].shape(), (Shape{T, 32}));
      double weight = 0;
      for (std::int64_t row = 0; row < 32; ++row) {
        const auto at = [&](std::size_t feed, std::int64_t t) {
          return batch.feeds[feed].data<std::int64_t>()[t * 32 + row];
        };
        std::string text;
        std::int64_t t = 0;
        for (; t < T && at(1, t) >= 0; ++t) {
          ASSERT_EQ(at(0, t), t == 0 ? start : at(1, t - 1));
          if (at(1, t) != end) text += (t == 0 ? "" : " ") + words.symbol(at(1, t));
        }
        weight += static_cast<double>(t);
        for (std::int64_t later = t; later < T; ++later) ASSERT_EQ(at(1, later), -1);
        if (row >= std::ssize(examples)) {
          ASSERT_EQ(t, 0);
          continue;
        }
        ASSERT_EQ(at(1, t - 1) == end, T != 100) << "a verse that is cut has no end";
        ASSERT_EQ(T, t <= 12 ? 12 : t <= 16 ? 16 : t <= 20 ? 20 : 100) << "the bucket";
        found.insert(text);
      }
      ASSERT_EQ(batch.weight, weight);
    }
  }
  EXPECT_TRUE(found == wanted);
}

TEST(LmTask, PerplexityIsThatOfTheMeanLoss) {
  const auto task = small_task("lm");
  task->read(small_corpora::all().path());
  const Parameters parameters = parameters_of(*task);
  const auto scores = task->predictor({&parameters, {}})->evaluate(Part::test, {}, 40);
  EXPECT_NEAR(scores[0].value, std::exp(MeanLoss(*task, {&parameters, {}}, 7)(Part::test, 40)), 1e-4);
}

TEST(LmTask, GoesOnFromBeginningsOfAnyLength) {
  const auto task = small_task("lm");
  task->read(small_corpora::all().path());
  const Parameters parameters = parameters_of(*task);
  const auto predictor = task->predictor({&parameters, {}});
  std::string longer = "light", last = "light";  // 150 words; the last 99 of them
  for (int i = 1; i < 150; ++i) longer += i % 3 == 0 ? " the" : " water";
  for (int i = 52; i < 150; ++i) last += i % 3 == 0 ? " the" : " water";
  last.replace(0, 5, "the");
  const std::vector<std::string> lines{longer, last, "And the", "", "And the"};
  const auto found = predictor->predict(lines, {.beam = 2, .best = 1});
  for (const Predictions& p : found) ASSERT_EQ(p.size(), 1U);
  EXPECT_EQ(found[0][0].log_probability, found[1][0].log_probability) << "of what is too long the end counts";
  EXPECT_EQ(found[2][0].log_probability, found[4][0].log_probability);
  const auto alone = predictor->predict(std::vector<std::string>{"And the"}, {.beam = 2, .best = 1});
  EXPECT_EQ(alone[0][0].text, found[2][0].text);
  EXPECT_NEAR(alone[0][0].log_probability, found[2][0].log_probability, 1e-5);
}

// ---- the real data, where it is ----

TEST(RealData, MakesBatchesOfEveryPart) {
  int tried = 0;
  for (const char* name : {"fashion", "lm", "translate"}) {
    const auto task = make_task(name);
    const Options all = task->options();
    if (const Option* sentences = find(all, "sentences")) set(*sentences, "2000");
    if (const Option* pieces = find(all, "vocabulary")) set(*pieces, "1000");
    if (!refusal([&] { task->read(data::test_folder()); }).empty()) continue;
    ++tried;
    for (const Part part : {Part::train, Part::validation, Part::test}) {
      const auto buckets = task->buckets(part);
      ASSERT_GT(buckets.size(), 500U);
      double items = 0;
      for (const auto& examples : data::batches_in_order(buckets, task->settings.batch_size)) {
        const Batch batch =
            task->batch(part, examples, buckets[static_cast<std::size_t>(examples[0])], task->settings.batch_size);
        items += static_cast<double>(batch.items);
        ASSERT_GE(batch.weight, static_cast<double>(examples.size()));
      }
      EXPECT_EQ(items, static_cast<double>(buckets.size()));
    }
  }
  if (tried == 0) GTEST_SKIP() << "NOT CHECKED: needs data sets: paoding fetch all";
}

// ---- hashes of the data ----

TEST(TaskContent, IsAnotherWhereverTheDataIs) {
  const TemporaryFolder folder;
  small_corpora::write_g2p(folder, small_corpora::words(400));
  small_corpora::write_fashion(folder, 200, 30);
  small_corpora::write_translate(folder, 900);
  small_corpora::write_kjv(folder);
  const auto content = [&](const char* name, const char* option = nullptr) {
    const auto task = small_task(name);
    if (option != nullptr) set(*find(task->options(), option), "100");
    task->read(folder.path());
    const std::string first = task->content().text();
    task->read(folder.path());
    EXPECT_EQ(task->content().text(), first) << "read once more";
    return first;
  };
  struct Change {
    const char *task, *file;
    std::function<void(std::string*)> change;
  };
  const auto swap_letters = [](std::size_t at) {
    return [at](std::string* text) {
      ASSERT_NE((*text)[at], (*text)[at + 1]);
      std::swap((*text)[at], (*text)[at + 1]);
    };
  };
  const auto flip_last = [](std::string* bytes) { bytes->back() ^= 1; };
  const std::string italian = slurp(folder / "translate/Translation-it"),
                    said = slurp(folder / "g2p/cmudict-en-us.dict");
  const std::vector<Change> changes = {
      {"g2p", "g2p/cmudict-en-us.dict", swap_letters(said.rfind("EH"))},
      {"translate", "translate/Translation-it", swap_letters(italian.rfind("documenti"))},
      {"lm", "kjv/modules/kjv/nt.bzv",  // the last two verses change places
       [](std::string* entries) {
         const std::size_t size = entries->size();
         std::swap_ranges(entries->begin() + static_cast<std::ptrdiff_t>(size - 20),
                          entries->begin() + static_cast<std::ptrdiff_t>(size - 10),
                          entries->begin() + static_cast<std::ptrdiff_t>(size - 10));
       }},
      {"fashion", "fashion/t10k-images-idx3-ubyte.gz", flip_last},
      {"fashion", "fashion/train-images-idx3-ubyte.gz", flip_last},
      {"fashion", "fashion/train-labels-idx1-ubyte.gz", flip_last},
  };
  for (const Change& c : changes) {
    const std::string before = content(c.task), whole = slurp(folder / c.file);
    std::string changed = whole;
    c.change(&changed);
    spill(folder / c.file, changed);
    EXPECT_NE(content(c.task), before) << c.task << ": " << c.file;
    spill(folder / c.file, whole);
    EXPECT_EQ(content(c.task), before) << c.task;
  }
  // Data that options leave out is read all the same, and so is packed data.
  EXPECT_EQ(content("g2p", "words"), content("g2p"));
  const std::string before = content("fashion"), images = slurp(folder / "fashion/train-images-idx3-ubyte.gz");
  const gzFile packed = gzopen((folder / "fashion/train-images-idx3-ubyte.gz").c_str(), "wb");
  gzwrite(packed, images.data(), static_cast<unsigned>(images.size()));
  gzclose(packed);
  EXPECT_EQ(content("fashion"), before);
}

}  // namespace
}  // namespace paoding::models
