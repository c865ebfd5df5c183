// SPDX-License-Identifier: Apache-2.0
// The program of docs/guide/training.md [FOLDER]: a classifier of points on spirals, trained as a model is trained in
// earnest: epochs over a data set, a schedule, groups of parameters, held-out scores, checkpoints that it goes on from.
#include <paoding/paoding.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <optional>
#include <random>

namespace pd = paoding;

namespace {

constexpr int kBatch = 64, kTrain = 1600, kHeldOut = 400;

struct Points {
  pd::Tensor places, labels;
};

std::vector<float> places;
std::vector<int> labels;

void make_data() {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> along(0.25f, 1), noise(-0.12f, 0.12f);
  for (int i = 0; i < kTrain + kHeldOut; ++i) {
    const float radius = along(random), angle = 9 * radius + (i % 2 == 0 ? 0.0f : 3.1416f);
    places.insert(places.end(), {radius * std::cos(angle) + noise(random), radius * std::sin(angle) + noise(random)});
    labels.push_back(i % 2);
  }
}

Points points_of(const pd::data::BatchExamples& examples) {
  Points points{pd::Tensor(pd::f32, {std::ssize(examples), 2}), pd::Tensor(pd::i32, {std::ssize(examples)})};
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const auto from = static_cast<std::size_t>(examples[i]);
    points.places.values<float>()[2 * i] = places[2 * from];
    points.places.values<float>()[2 * i + 1] = places[2 * from + 1];
    points.labels.values<int>()[i] = labels[from];
  }
  return points;
}

pd::Value classify(pd::Graph& g, const pd::Value& points, bool training) {
  const pd::nn::Linear first(g, "first", 2, 64), second(g, "second", 64, 64), last(g, "last", 64, 2);
  const pd::nn::Dropout dropout(0.05, training);
  return last(dropout(pd::relu(second(pd::relu(first(4.0 * points))))));
}

struct Scored {
  double loss, right;
};

Scored evaluated(pd::Program& evaluator) {
  std::vector<std::int64_t> held_out(kHeldOut);
  std::iota(held_out.begin(), held_out.end(), kTrain);
  const Points points = points_of(held_out);
  const auto results = evaluator.run({{"places", points.places}, {"labels", points.labels}});
  return {results.at("loss").item<double>(), results.at("right").item<double>() / kHeldOut};
}

}  // namespace

int main(int argc, char** argv) try {
  constexpr int kEpochs = 20, kSteps = kEpochs * kTrain / kBatch;
  make_data();

  pd::Graph training;
  const pd::Value x = training.input("places", pd::f32, {kBatch, 2});
  const pd::Value y = training.input("labels", pd::i32, {kBatch});
  const pd::Value loss = pd::cross_entropy(classify(training, x, true), y, {.label_smoothing = 0.02});
  const pd::AdamW optimizer{.learning_rate = pd::cosine_decay(0.01, kSteps, 1e-4, 20), .weight_decay = 0.01};
  pd::minimize(loss, optimizer,
               {.groups = {{.names = {"*/bias"}, .weight_decay = 0.0}, {.names = {"last/*"}, .rate_factor = 0.5}},
                .clip_norm = 1,
                .skip_nonfinite = true,
                .average_decay = 0.98});
  training.fetch("loss", loss);

  pd::Graph evaluating;
  const pd::Value held_x = evaluating.input("places", pd::f32, {kHeldOut, 2});
  const pd::Value held_y = evaluating.input("labels", pd::i32, {kHeldOut});
  const pd::Value scores = classify(evaluating, held_x, false);
  const pd::Value guess = pd::cast(pd::argmax(scores, -1), pd::i32);
  evaluating.fetch("loss", pd::cross_entropy(scores, held_y));
  evaluating.fetch("right", pd::sum(pd::cast(pd::equal(guess, held_y), pd::f32)));

  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(training, device, {.seed = 3});
  pd::Program trainer(training, {.device = device}, &parameters);
  pd::Program evaluator(evaluating, {.device = device}, &parameters);

  const auto folder =
      argc > 1 ? std::filesystem::path(argv[1]) : std::filesystem::temp_directory_path() / "paoding_guide_spirals";
  pd::CheckpointFolder checkpoints(folder);
  pd::Checkpoint checkpoint{.manifest = {.model = "spirals", .score_name = "loss"}};
  if (!checkpoints.latest().empty()) {
    checkpoint = pd::load_checkpoint(checkpoints.latest());
    pd::restore(&parameters, checkpoint.tensors);
    std::cout << "goes on after epoch " << checkpoint.manifest.epoch << "\n";
  }

  const std::vector<std::int64_t> buckets(kTrain, 0);  // one: every example has the same shape
  for (std::int64_t epoch = checkpoint.manifest.epoch; epoch < kEpochs; ++epoch) {
    const auto batches = pd::data::shuffled_batches(buckets, kBatch, 7, epoch);
    const auto batch = [&](std::int64_t i) { return points_of(batches[static_cast<std::size_t>(i)]); };
    pd::data::Prefetch<Points> reader(std::ssize(batches), batch);
    while (const std::optional<Points> points = reader.next()) {
      trainer.set_input(trainer.input_index("places"), points->places);
      trainer.set_input(trainer.input_index("labels"), points->labels);
      trainer.run();
      ++checkpoint.manifest.step;
    }
    if ((epoch + 1) % 5 != 0) continue;

    const Scored scored = evaluated(evaluator);
    std::cout << "epoch " << epoch + 1 << ": held-out loss " << scored.loss << ", right " << 100 * scored.right
              << "%\n";
    checkpoint.manifest.epoch = epoch + 1;
    checkpoint.manifest.score = scored.loss;
    checkpoint.tensors = pd::values_of(parameters);
    checkpoints.save(checkpoint);
  }

  pd::Parameters averaged(evaluating, device);
  pd::restore(&averaged, pd::averages_of(parameters));
  pd::Program final_evaluator(evaluating, {.device = device}, &averaged);
  std::cout << "the averaged weights: right " << 100 * evaluated(final_evaluator).right << "%\n";
  const auto skipped = parameters.get("optimizer/skipped").item<std::int64_t>();
  std::cout << checkpoint.manifest.step << " steps, " << skipped << " skipped\n";
} catch (const pd::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
