// SPDX-License-Identifier: Apache-2.0
// The common part of all tasks, and the list of them.
#include "models/task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "models/all_tasks.h"
#include "paoding/data/batches.h"
#include "paoding/error.h"
#include "paoding/model.h"

namespace paoding::models {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Task> (*make)();
};
constexpr std::array kTasks{
    Entry{"fashion", make_fashion}, Entry{"g2p", make_g2p}, Entry{"gpt", make_gpt},
    Entry{"lm", make_lm},           Entry{"mlm", make_mlm}, Entry{"translate", make_translate},
};

}  // namespace

Options TrainingSettings::options() {
  return {
      {"epochs", "Times that every example is seen", &epochs, 0, 1e9},
      {"steps", "Updates in all; 0: as many as the epochs have", &steps, 0, 1e15},
      {"batch-size", "Examples of a step", &batch_size, 1, 1 << 20},
      {"learning-rate", "Of Adam, at first", &learning_rate, 0, 100},
      {"last-learning-rate", "At the end of the last epoch; half a cosine from the first", &last_learning_rate, 0, 100},
      {"warmup", "Updates over which the learning rate rises from 0", &warmup, 0, 1e12},
      {"clip-norm", "Gradients are scaled down to this norm; 0: no limit", &clip_norm, 0},
      {"weight-decay", "Of AdamW, of matrices alone", &weight_decay, 0, 1},
      {"seed", "Of initial values, dropout, and the order of the examples", &seed, 0, 1e15},
      {"validate", "Validation examples scored after each epoch; 0: all", &validate, 0, 1e15},
      {.name = "dtype",
       .meaning = "Of products and what lies between them: f32, or bf16 or f16 (mixed precision)",
       .value = &dtype,
       .choices = {"f32", "bf16", "f16"},
       .is_fixed = true}};
}

std::string text_of(const Score& score) {
  return score.is_share ? fmt::format("{} {:.2f}%", score.name, 100 * score.value)
                        : fmt::format("{} {:.4g}", score.name, score.value);
}

void check_number(double number, std::string_view name) {
  if (std::isfinite(number)) return;
  throw Error(ErrorKind::argument,
              fmt::format("{} is {}, non-finite: the model's parameters are damaged, or far too large", name,
                          std::isnan(number) ? "NaN" : fmt::format("{}", number)));
}

std::string Task::amount(Part part) const { return fmt::format("{} {}", buckets(part).size(), item()); }

std::unique_ptr<Task> make_task(std::string_view name) {
  for (const Entry& entry : kTasks) {
    if (entry.name == name) return entry.make();
  }
  throw Error(ErrorKind::argument,
              fmt::format("there is no model named '{}'; there are: {}", name, fmt::join(task_names(), ", ")));
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kTasks) names.emplace_back(entry.name);
  return names;
}

Programs::Build Trained::graphs_of(std::string_view entry, Programs::Build build) const {
  if (!stored) return build;
  return [stored = stored, entry = std::string(entry)](const Programs::Key& key) {
    return stored(graph_name(entry, key));
  };
}

std::vector<Predictions> Predictor::predict(std::span<const std::string>, const SearchOptions&) {
  throw Error(ErrorKind::unsupported, "this model predicts from files, not from lines of text");
}

std::vector<Predictions> Predictor::predict_file(const std::string&, const SearchOptions&) {
  throw Error(ErrorKind::unsupported, "this model predicts from lines of text");
}

MeanLoss::MeanLoss(const Task& task, const Trained& trained, std::int64_t rows)
    : task_(task),
      rows_(rows),
      before_run_(trained.before_run),
      programs_(
          task.extents(),
          [&task, rows](const Programs::Key& sizes) {
            auto graph = std::make_unique<Graph>();
            graph->fetch("loss", task.loss(*graph, task.bucket_of(sizes), rows, false));
            return graph;
          },
          trained.compile, trained.parameters) {}

double MeanLoss::operator()(Part part, std::int64_t limit) {
  std::vector<std::int64_t> buckets = task_.buckets(part);
  if (limit > 0 && limit < static_cast<std::int64_t>(buckets.size())) buckets.resize(static_cast<std::size_t>(limit));
  std::vector<Programs::Key> keys;
  for (const std::int64_t bucket : std::set<std::int64_t>(buckets.begin(), buckets.end())) {
    keys.push_back(task_.sizes(bucket));
  }
  programs_.prepare(keys);
  double sum = 0, weight = 0;
  for (const data::BatchExamples& examples : data::batches_in_order(buckets, rows_)) {
    const std::int64_t bucket = buckets[static_cast<std::size_t>(examples[0])];
    const Batch batch = task_.batch(part, examples, bucket, rows_);
    Program& program = programs_.at(task_.sizes(bucket));
    for (std::size_t i = 0; i < batch.feeds.size(); ++i) program.set_input(static_cast<int>(i), batch.feeds[i]);
    if (before_run_) before_run_();
    program.run();
    const double loss = program.fetch(0).to_doubles()[0];
    check_number(loss, "the mean loss of a batch");
    sum += batch.weight * loss;
    weight += batch.weight;
  }
  return weight > 0 ? sum / weight : 0;
}

}  // namespace paoding::models
