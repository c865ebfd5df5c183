// SPDX-License-Identifier: Apache-2.0
// fashion: the kind of clothes on a small grey picture, one of ten (Fashion-MNIST; Xiao, Rasul, Vollgraf 2017).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "models/all_tasks.h"
#include "models/conv_net.h"
#include "paoding/data/batches.h"
#include "paoding/data/corpora.h"
#include "paoding/error.h"
#include "paoding/model.h"

namespace paoding::models {
namespace {

constexpr std::array kClasses{"T-shirt", "trousers", "pullover", "dress", "coat",
                              "sandal",  "shirt",    "sneaker",  "bag",   "ankle boot"};
constexpr std::int64_t kImageRows = 500;                            // of a run that predicts many
constexpr std::array<std::int64_t, 3> kBatches{1, 64, kImageRows};  // of one, of those that a server answers together

class Fashion : public Task {
 public:
  Fashion() { settings = {.epochs = 10, .batch_size = 128, .learning_rate = 2e-3, .last_learning_rate = 1e-5}; }
  std::string_view name() const override { return "fashion"; }
  std::string_view summary() const override { return "Kinds of clothes on pictures: conv net on Fashion-MNIST"; }
  std::string_view item() const override { return "images"; }
  bool predicts_lines() const override { return false; }
  std::int64_t input_bytes() const override { return kSide * kSide; }
  std::int64_t most_predictions(std::int64_t) const override { return std::ssize(kClasses); }
  Options options() override {
    return {{.name = "channels",
             .meaning = "Of the first block; twice as many in the others",
             .value = &width_,
             .least = 1,
             .most = 4096,
             .is_fixed = true},
            {"dropout", "Share of the dense layer's inputs that is dropped", &dropout_, 0, 0.99}};
  }

  void read(const std::filesystem::path& folder) override {
    const data::ImageFiles files = data::find_fashion(folder);
    sets_[0] = data::read_images(files.train_images, files.train_labels);
    sets_[1] = data::read_images(files.test_images, files.test_labels);
    content_ = {};
    for (const bool is_test : {false, true}) {
      const data::ImageSet& set = sets_[is_test];
      for (const Tensor* part : {&set.images, &set.labels}) {
        content_.add(to_string(part->shape()));
        content_.add({reinterpret_cast<const char*>(part->bytes()), static_cast<std::size_t>(part->size_bytes())});
      }
      const std::uint8_t* labels = set.labels.data<std::uint8_t>();
      check(set.images.shape(), (is_test ? files.test_images : files.train_images).string());
      if (std::any_of(labels, labels + set.labels.shape()[0], [](std::uint8_t l) { return l >= kClasses.size(); })) {
        throw Error(ErrorKind::file,
                    fmt::format("{}: a label is above 9", (is_test ? files.test_labels : files.train_labels).string()));
      }
    }
    auto parts = data::split(sets_[0].images.shape()[0], std::array{0.95, 0.05}, 1);
    numbers_[0] = std::move(parts[0]);
    numbers_[1] = std::move(parts[1]);
    numbers_[2].resize(static_cast<std::size_t>(sets_[1].images.shape()[0]));
    std::iota(numbers_[2].begin(), numbers_[2].end(), 0);
  }

  std::vector<std::int64_t> buckets(Part part) const override {
    return std::vector<std::int64_t>(numbers(part).size(), 0);
  }

  Batch batch(Part part, std::span<const std::int64_t> examples, std::int64_t bucket,
              std::int64_t rows) const override {
    const data::ImageSet& set = sets_[part == Part::test];
    Tensor images(u8, {rows, 1, kSide, kSide}), labels(i32, {rows});
    std::memset(images.bytes(), 0, static_cast<std::size_t>(images.size_bytes()));
    std::fill_n(labels.data<std::int32_t>(), rows, -1);
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const std::int64_t at = numbers(part)[static_cast<std::size_t>(examples[i])];
      std::memcpy(images.bytes() + i * kPixels, set.images.bytes() + at * kPixels, kPixels);
      labels.data<std::int32_t>()[i] = set.labels.data<std::uint8_t>()[at];
    }
    const auto count = static_cast<std::int64_t>(examples.size());
    return {.bucket = bucket, .feeds = {images, labels}, .weight = static_cast<double>(count), .items = count};
  }

  Value loss(Graph& graph, std::int64_t, std::int64_t rows, bool is_training) const override {
    const Value scores = logits(graph, rows, is_training);
    return cross_entropy(scores, graph.input("labels", i32, {rows}));
  }

  std::unique_ptr<Predictor> predictor(const Trained& trained) const override;

  static constexpr std::int64_t kSide = 28;
  static constexpr std::size_t kPixels = kSide * kSide;

  static void check(const Shape& images, const std::string& file) {
    if (images.rank() == 3 && images[1] == kSide && images[2] == kSide) return;
    throw Error(ErrorKind::file, fmt::format("{}: images are {}, needed are [N, 28, 28]", file, to_string(images)));
  }

  // Bytes become numbers around 0.
  Value logits(Graph& graph, std::int64_t rows, bool is_training) const {
    const Value images = graph.input("images", u8, {rows, 1, kSide, kSide});
    const Value x = (cast(images, f32) * (1 / 255.0) - 0.286) * (1 / 0.353);
    return ConvNet(graph, {.channels = {width_, 2 * width_, 2 * width_}, .dropout = is_training ? dropout_ : 0})(x);
  }

  const data::ImageSet& test() const { return sets_[1]; }
  const std::vector<std::int64_t>& numbers(Part part) const { return numbers_[static_cast<std::size_t>(part)]; }

 private:
  data::ImageSet sets_[2];                // as the files are: to train, to test
  std::vector<std::int64_t> numbers_[3];  // of a part's examples in their set
  std::int64_t width_ = 16;
  double dropout_ = 0;
};

class FashionPredictor : public Predictor {
 public:
  FashionPredictor(const Fashion& task, const Trained& trained)
      : task_(task),
        before_run_(trained.before_run),
        build_([&task](const Programs::Key& key) {
          auto graph = std::make_unique<Graph>();
          graph->fetch("log_probabilities", log_softmax(task.logits(*graph, key[0], false)));
          return graph;
        }),
        programs_({{"images", 1, kImageRows, bucket_sizes({kBatches.begin(), kBatches.end()})}},
                  trained.graphs_of("classify", build_), trained.compile, trained.parameters) {}

  Graphs graphs(const SearchOptions&) const override {
    Graphs all;
    for (const std::int64_t rows : kBatches) all[graph_name("classify", {rows})] = build_({rows});
    return all;
  }
  void prepare(const SearchOptions&) override {
    std::vector<Programs::Key> keys;
    for (const std::int64_t rows : kBatches) keys.push_back({rows});
    programs_.prepare(keys);
    for (const Programs::Key& key : keys) programs_.at(key);
  }

  std::vector<Score> evaluate(Part part, const SearchOptions&, std::int64_t limit) override {
    std::vector<std::int64_t> examples(task_.numbers(part).size());
    std::iota(examples.begin(), examples.end(), 0);
    if (limit > 0 && limit < static_cast<std::int64_t>(examples.size())) {
      examples.resize(static_cast<std::size_t>(limit));
    }
    double wrong = 0;
    for (std::size_t start = 0; start < examples.size(); start += kImageRows) {
      const std::size_t count = std::min<std::size_t>(kImageRows, examples.size() - start);
      const Batch batch = task_.batch(part, std::span(examples).subspan(start, count), 0, kImageRows);
      const auto rows = run(batch.feeds[0]);
      for (std::size_t i = 0; i < count; ++i) {
        wrong += static_cast<std::int32_t>(rows[i][0].first) != batch.feeds[1].data<std::int32_t>()[i];
      }
    }
    return {{"error rate", wrong / std::max(1.0, static_cast<double>(examples.size())), true}};
  }

  std::string show(const SearchOptions&, std::int64_t count) override {
    const data::ImageSet& test = task_.test();
    count = std::min(count, test.images.shape()[0]);
    std::string text = fmt::format("{:<6} {:<22} {}\n", "image", "predicted", "labelled");
    const auto all = classify(test.images, count);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto [kind, log_probability] = all[static_cast<std::size_t>(i)][0];
      const std::string said = fmt::format("{} ({:.0f}%)", kClasses[kind], 100 * std::exp(log_probability));
      text += fmt::format("{:<6} {:<22} {}\n", i, said, kClasses[test.labels.data<std::uint8_t>()[i]]);
    }
    return text;
  }

  std::vector<Predictions> predict_file(const std::string& path, const SearchOptions& search) override {
    const Tensor images = data::read_image_file(path);
    Fashion::check(images.shape(), path);
    return predictions(images, search);
  }

  // The pixels of each image, row by row.
  std::vector<Predictions> predict(std::span<const std::string> inputs, const SearchOptions& search) override {
    Tensor images(u8, {std::ssize(inputs), Fashion::kSide, Fashion::kSide});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].size() != Fashion::kPixels) {
        throw Error(ErrorKind::argument, fmt::format("an image has {} bytes, needed are {} (28 rows of 28 grey pixels)",
                                                     inputs[i].size(), Fashion::kPixels));
      }
      std::memcpy(images.bytes() + i * Fashion::kPixels, inputs[i].data(), Fashion::kPixels);
    }
    return predictions(images, search);
  }

 private:
  using Ranked = std::vector<std::pair<std::size_t, double>>;  // kinds, the most likely first

  // The predictions for images [N, 28, 28].
  std::vector<Predictions> predictions(const Tensor& images, const SearchOptions& search) {
    std::vector<Predictions> all;
    for (const Ranked& ranked : classify(images, images.shape()[0])) {
      Predictions& of_image = all.emplace_back();
      for (const auto& [kind, log_probability] : ranked) {
        if (static_cast<std::int64_t>(of_image.size()) < search.best) {
          of_image.push_back({kClasses[kind], log_probability});
        }
      }
    }
    return all;
  }

  std::vector<Ranked> run(const Tensor& images) {
    Program& program = programs_.at({images.shape()[0]});
    program.set_input(0, images);
    if (before_run_) before_run_();
    program.run();
    const Tensor scores = program.fetch(0);
    std::vector<Ranked> rows(static_cast<std::size_t>(images.shape()[0]));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t kind = 0; kind < kClasses.size(); ++kind) {
        rows[i].emplace_back(kind, scores.data<float>()[i * kClasses.size() + kind]);
        check_number(rows[i].back().second, "the log probability of a kind");
      }
      std::stable_sort(rows[i].begin(), rows[i].end(), [](auto& a, auto& b) { return a.second > b.second; });
    }
    return rows;
  }

  // The first `count` of images [N, 28, 28].
  std::vector<Ranked> classify(const Tensor& images, std::int64_t count) {
    std::vector<Ranked> all;
    for (std::int64_t start = 0; start < count; start += kImageRows) {
      const std::int64_t rows = std::min(kImageRows, count - start);
      const std::int64_t room = programs_.bucket_of({{"images", rows}})[0];
      Tensor part(u8, {room, 1, Fashion::kSide, Fashion::kSide});
      std::memset(part.bytes(), 0, static_cast<std::size_t>(part.size_bytes()));
      const auto pixels = static_cast<std::int64_t>(Fashion::kPixels);
      std::memcpy(part.bytes(), images.bytes() + start * pixels, static_cast<std::size_t>(rows * pixels));
      auto ranked = run(part);
      all.insert(all.end(), ranked.begin(), ranked.begin() + rows);
    }
    return all;
  }

  const Fashion& task_;
  std::function<void()> before_run_;
  Programs::Build build_;
  Programs programs_;
};

std::unique_ptr<Predictor> Fashion::predictor(const Trained& trained) const {
  return std::make_unique<FashionPredictor>(*this, trained);
}

}  // namespace

std::unique_ptr<Task> make_fashion() { return std::make_unique<Fashion>(); }

}  // namespace paoding::models
