// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>

#include "base/check.h"
#include "command.h"
#include "io/json_text.h"
#include "loss_curve.h"
#include "paoding/data/batches.h"
#include "paoding/debug.h"
#include "paoding/optimizer.h"

namespace paoding::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kCurvePoints = 400;  // of the loss, about

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Training::Training(models::Task& task, TaskOptions& options, const TrainRequest& request)
    : task_(task), options_(options), request_(request), log_(std::string(task.item()), request.json) {
  std::optional<Checkpoint> checkpoint;
  folder_.emplace(request.folder);
  if (request.resume) {
    checkpoint = load_checkpoint(folder_->path(), true);
    if (checkpoint->manifest.model != task.name()) {
      fail(ErrorKind::argument, "{}: the checkpoint is one of '{}', not of '{}'", folder_->path().string(),
           checkpoint->manifest.model, task.name());
    }
    manifest_ = checkpoint->manifest;
  } else if (!folder_->latest().empty()) {
    fail(ErrorKind::argument,
         "{} has checkpoints already\nhint: --resume goes on with the last of them; or give another --out",
         folder_->path().string());
  }
  options.apply(manifest_.options);
  manifest_.model = task.name();
  manifest_.options = options.texts();
  if (checkpoint) task.set_files(checkpoint->files);

  const auto start = Clock::now();
  show_progress("reading and preparing data ...");
  task.read(request.data_folder);
  buckets_ = task.buckets(models::Part::train);
  if (buckets_.empty()) fail(ErrorKind::file, "{}: no example to train on", request.data_folder);
  const models::TrainingSettings& settings = task.settings;
  steps_per_epoch_ = static_cast<std::int64_t>(data::shuffled_batches(buckets_, settings.batch_size, 0, 0).size());
  last_step_ = settings.epochs * steps_per_epoch_;
  if (request.most_steps > 0) last_step_ = std::min(last_step_, request.most_steps);
  log_.say(fmt::format("{}: {} {} to train on, {} to validate, {} to test (read in {:.1f} s)", task.name(),
                       buckets_.size(), task.item(), task.buckets(models::Part::validation).size(),
                       task.buckets(models::Part::test).size(), seconds_since(start)));

  const std::unique_ptr<Graph> graph = training_graph(buckets_[0]);
  parameters_.emplace(*graph, request.compile.device,
                      ParametersOptions{.seed = static_cast<std::uint64_t>(settings.seed)});
  if (checkpoint) {
    restore(&*parameters_, checkpoint->tensors);
    log_.say(fmt::format("goes on after step {} of {}", manifest_.step, last_step_));
  }
  programs_.emplace([this](const Programs::Key& key) { return training_graph(key[0]); }, request.compile,
                    &*parameters_);
  predictor_ = task.predictor({&*parameters_, request.compile});
  std::int64_t count = 0;
  for (const std::string& name : parameters_->names()) {
    const bool is_state = name.find("optimizer/") == 0 || name.find("adam/") == 0 || name.find("random/") == 0;
    if (!is_state) count += parameters_->get(name).shape().elements();
  }
  log_.say(fmt::format("{} parameters, {} steps of {} {} in {} epochs on {}, checkpoints in {}", count, last_step_,
                       settings.batch_size, task.item(), settings.epochs, to_string(request.compile.device),
                       folder_->path().string()));
}

std::unique_ptr<Graph> Training::training_graph(std::int64_t bucket) const {
  const models::TrainingSettings& s = task_.settings;
  auto graph = std::make_unique<Graph>();
  const Value loss = task_.loss(*graph, bucket, s.batch_size, true);
  const LearningRate rate =
      cosine_decay(s.learning_rate, std::max<std::int64_t>(last_step_, s.warmup + 1), s.last_learning_rate, s.warmup);
  Optimizer optimizer = Adam{.learning_rate = rate};
  if (s.weight_decay > 0) optimizer = AdamW{.learning_rate = rate, .weight_decay = s.weight_decay};
  const TrainingStep step = minimize(loss, optimizer, {.clip_norm = s.clip_norm, .skip_nonfinite = true});
  graph->fetch("loss", loss);
  graph->fetch("norm", step.gradient_norm);
  return graph;
}

TrainState& Training::refreshed() {
  state_.epoch = manifest_.epoch;
  state_.epochs = task_.settings.epochs;
  state_.step = manifest_.step;
  state_.steps_left = std::max<std::int64_t>(0, last_step_ - manifest_.step);
  return state_;
}

void Training::run() {
  refreshed();
  while (manifest_.epoch < task_.settings.epochs && !is_last_step()) run_epoch();
  finish();
}

void Training::run_epoch() {
  const models::TrainingSettings& s = task_.settings;
  const auto batches =
      data::shuffled_batches(buckets_, s.batch_size, static_cast<std::uint64_t>(s.seed), manifest_.epoch);
  const std::int64_t first = manifest_.batch, count = static_cast<std::int64_t>(batches.size()) - first;
  data::Prefetch<models::Batch> ahead(
      std::max<std::int64_t>(0, count),
      [&](std::int64_t i) {
        const data::BatchExamples& examples = batches[static_cast<std::size_t>(first + i)];
        return task_.batch(models::Part::train, examples, buckets_[static_cast<std::size_t>(examples[0])],
                           s.batch_size);
      },
      8);
  while (true) {
    const auto start = Clock::now();
    const std::optional<models::Batch> batch = is_last_step() ? std::nullopt : ahead.next();
    if (!batch) break;
    wait_seconds_ += seconds_since(start);
    if (request_.profile > 0 && !profiler_ && last_step_ - manifest_.step <= request_.profile) {
      profiler_.emplace(ReportFlags::state_of(request_.compile.device), request_.report.level());
    }
    run_step(*batch);
    manifest_.batch += 1;
    const double seconds = seconds_since(start);
    loop_seconds_ += seconds;
    seconds_since_save_ += seconds;
    if (seconds_since_save_ > 60 * request_.save_minutes) save(std::nan(""));
    try {
      check_interrupted();
    } catch (const Interrupted&) {
      save(std::nan(""));
      log_.say(fmt::format("stopped after step {}; `paoding train {} --out {} --resume` goes on", manifest_.step,
                           task_.name(), folder_->path().string()));
      throw;
    }
  }
  if (profiler_ && report_.empty()) report_ = profiler_->stop(request_.report.sort_by(), "", request_.report.layout);
  if (manifest_.batch < static_cast<std::int64_t>(batches.size()) && !is_last_step()) return;
  if (manifest_.batch >= static_cast<std::int64_t>(batches.size())) {
    manifest_.epoch += 1;
    manifest_.batch = 0;
  }
  validate();
}

void Training::run_step(const models::Batch& batch) {
  Program& program = programs_->at({batch.bucket});
  const auto start = Clock::now();
  for (std::size_t i = 0; i < batch.feeds.size(); ++i) program.set_input(static_cast<int>(i), batch.feeds[i]);
  program.run();
  const double loss = program.fetch(0).to_doubles()[0], norm = program.fetch(1).to_doubles()[0];
  if (!std::isfinite(loss) || !std::isfinite(norm)) fail_not_finite(batch, loss, norm);
  const double seconds = seconds_since(start);
  step_seconds_ += seconds;
  seconds_of_[batch.bucket].push_back(static_cast<float>(seconds));
  manifest_.step += 1;
  state_.steps_done += 1;
  note_loss(loss);
  log_.step(refreshed(), loss, batch.items, seconds);
}

// The step left parameters and the optimizer's state as they were: it is run again and looked at.
void Training::fail_not_finite(const models::Batch& batch, double loss, double norm) {
  const auto graph = training_graph(batch.bucket);
  std::map<std::string, Tensor> feeds;
  for (std::size_t i = 0; i < batch.feeds.size(); ++i) {
    feeds[graph->node(graph->inputs()[i]).name.str()] = batch.feeds[i];
  }
  const auto found = find_nonfinite(*graph, *parameters_, feeds, request_.compile, {.rewind_random = 1});
  fail(ErrorKind::argument,
       "training stopped at step {}: the loss is {}, the norm of its gradients {}; no parameter was changed by it\n{}",
       manifest_.step + 1, loss, norm, found ? to_text(*found) : "run again step by step, everything is finite");
}

void Training::note_loss(double loss) {
  loss_sum_ += loss;
  loss_count_ += 1;
  const std::int64_t every = std::max<std::int64_t>(1, last_step_ / kCurvePoints);
  if (manifest_.step % every != 0 && !is_last_step()) return;
  manifest_.losses.emplace_back(manifest_.step, loss_sum_ / static_cast<double>(loss_count_));
  loss_sum_ = 0;
  loss_count_ = 0;
}

void Training::validate() {
  const auto start = Clock::now();
  if (task_.buckets(models::Part::validation).empty()) return save(std::nan(""));
  const auto scores = predictor_->evaluate(models::Part::validation, {}, request_.validate);
  manifest_.score_name = scores.at(0).name;
  manifest_.scores.emplace_back(manifest_.step, scores[0].value);
  log_.scores(refreshed(), "validation", scores, seconds_since(start));
  save(scores[0].value);
}

void Training::save(double score) {
  manifest_.score = score;
  const auto path = folder_->save({manifest_, values_of(*parameters_), task_.files()});
  seconds_since_save_ = 0;
  log_.saved(refreshed(), path.string());
}

void Training::write_curve() const {
  LossCurve curve;
  curve.title = fmt::format("{}: {} steps", task_.name(), manifest_.step);
  for (const auto& [step, loss] : manifest_.losses) curve.losses.emplace_back(static_cast<double>(step), loss);
  for (const auto& [step, score] : manifest_.scores) curve.scores.emplace_back(static_cast<double>(step), score);
  curve.score_name = manifest_.score_name;
  const auto path = folder_->path() / "curve.svg";
  std::ofstream file(path, std::ios::binary);
  file << to_svg(curve);
  if (!file.flush()) fail(ErrorKind::file, "{}: cannot write: {}", path.string(), std::strerror(errno));
}

// What the steps of every shape took: its inputs, how many, and their median.
std::string Training::shapes_json() const {
  std::vector<std::string> items;
  for (const auto& [bucket, all] : seconds_of_) {
    std::vector<float> sorted = all;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    const auto graph = training_graph(bucket);
    std::vector<std::string> inputs;
    for (const NodeId id : graph->inputs()) {
      inputs.push_back(graph->node(id).name.str() + " " + to_string(graph->node(id).types[0]));
    }
    items.push_back(JsonObject()
                        .add("inputs", fmt::format("{}", fmt::join(inputs, ", ")))
                        .add("steps", static_cast<std::int64_t>(all.size()))
                        .add("median_ms", 1e3 * static_cast<double>(*middle))
                        .text());
  }
  return json_array(items);
}

void Training::finish() {
  write_curve();
  std::vector<std::pair<std::string, std::string>> members;
  const auto best = folder_->best();
  if (!best.empty() && best != folder_->latest()) {
    restore(&*parameters_, load_checkpoint(best).tensors);
    log_.say(fmt::format("the best checkpoint is {}", best.string()));
  }
  if (request_.test && !task_.buckets(models::Part::test).empty()) {
    const auto start = Clock::now();
    const auto scores = predictor_->evaluate(models::Part::test, request_.search, 0);
    log_.scores(refreshed(), "test", scores, seconds_since(start));
    for (const models::Score& score : scores) members.emplace_back(score.name, json_number(score.value));
  }
  if (request_.show > 0 && !log_.is_json() && !task_.buckets(models::Part::test).empty()) {
    log_.say("\n" + predictor_->show(request_.search, request_.show));
  }
  if (!report_.empty()) log_.say(log_.is_json() ? report_ : "The last steps:\n\n" + report_);
  log_.say(
      fmt::format("{} steps took {} (of it {:.1f} s waiting for data); {} programs bound in {:.1f} s; loss curve {}",
                  state_.steps_done, clock_text(step_seconds_), wait_seconds_, programs_->size(),
                  programs_->milliseconds() / 1e3, (folder_->path() / "curve.svg").string()));
  members.emplace_back("step_seconds", json_number(step_seconds_));
  members.emplace_back("loop_seconds", json_number(loop_seconds_));
  members.emplace_back("wait_seconds", json_number(wait_seconds_));
  members.emplace_back("bind_seconds", json_number(programs_->milliseconds() / 1e3));
  members.emplace_back("checkpoint", json_string(best.string()));
  if (log_.is_json()) members.emplace_back("shapes", shapes_json());
  log_.end(members);
}

}  // namespace paoding::cli
