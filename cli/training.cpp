// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include <omp.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "base/check.h"
#include "base/hash.h"
#include "base/run_switches.h"
#include "command.h"
#include "interruption.h"
#include "io/checkpoint_names.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/safetensors.h"
#include "loss_curve.h"
#include "model_checkpoint.h"
#include "paoding/data/batches.h"
#include "paoding/debug.h"
#include "paoding/optimizer.h"

namespace paoding::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kCurvePoints = 400;  // of the loss, about
constexpr const char* kCurveFile = "curve.svg";
// Keys in a checkpoint: the last step that was scored, and the sum of the losses since the curve's last point.
constexpr const char *kScoredStep = "scored_step", *kLossSum = "loss_sum", *kLossCount = "loss_count";
constexpr const char *kMeanLoss = "mean_loss_sum", *kMeanLossWeight = "mean_loss_weight";  // TrainLog::mean_loss()
constexpr const char* kData = "data";                                                      // Task::content()
constexpr const char* kRandomState = "random/state";
// More than any training gets to, and far from where numbers of steps overflow.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

// The sign of a NaN means nothing.
std::string number_text(double number) { return std::isnan(number) ? "nan" : fmt::format("{}", number); }

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Training::Training(models::Task& task, TaskOptions& options, const TrainRequest& request)
    : task_(task), options_(options), request_(request), log_(std::string(task.item()), request.json) {
  const std::optional<Checkpoint> checkpoint = last_checkpoint();
  apply_options();
  parse_dtype(task.settings.dtype, &request_.compile.precision);  // one of three: its option says so
  if (checkpoint) {
    task.set_files(checkpoint->files);
    check_restorable_from(request.folder, *checkpoint, task);
  }

  const auto start = Clock::now();
  show_progress("reading and preparing data ...");
  task.read(request.data_folder);
  check_data(checkpoint.has_value());
  buckets_ = task.buckets(models::Part::train);
  if (buckets_.empty()) fail(ErrorKind::file, "{}: no example to train on", request.data_folder);
  log_.say(fmt::format("{}: {} to train on, {} to validate, {} to test (read in {:.1f} s)", task.name(),
                       task.amount(models::Part::train), task.amount(models::Part::validation),
                       task.amount(models::Part::test), seconds_since(start)));
  plan_steps();

  const std::unique_ptr<Graph> graph = training_graph(buckets_[0]);
  parameters_.emplace(*graph, request_.compile.device,
                      ParametersOptions{.seed = static_cast<std::uint64_t>(task.settings.seed)});
  if (checkpoint) {
    restore_all(*checkpoint);
    if (is_finished()) check_finite(request.folder, *checkpoint);  // else training finds it
    log_.say(is_finished()
                 ? fmt::format("step {} was the last: --epochs or --steps make this training longer", last_step_)
                 : fmt::format("goes on after step {} of {}", manifest_.step, last_step_));
    if (request_.compile.precision == f16) {
      state_.overflows = *parameters_->get("optimizer/overflows").data<std::int64_t>();
    }
  } else {
    folder_.emplace(request.folder);
    check_free();  // now that nobody else can train into it
  }
  note_surroundings();
  programs_.emplace(
      task.extents(), [this](const Programs::Key& sizes) { return training_graph(task_.bucket_of(sizes)); },
      request_.compile, &*parameters_);
  prepare_programs();
  predictor_ = task.predictor({&*parameters_, request_.compile, check_interrupted});
  const std::int64_t count = parameters_->elements(ParameterRole::model);
  const models::TrainingSettings& settings = task.settings;
  saves_.emplace();
  log_.say(fmt::format("{} parameters, {} steps of {} {} in {} epochs on {}, checkpoints in {}", count, last_step_,
                       settings.batch_size, task.item(), settings.epochs, to_string(request.compile.device),
                       folder_->path().string()));
}

// The most frequent first, which are likely to come first. A training of a few steps asks for a few only.
void Training::prepare_programs() {
  std::map<std::int64_t, std::int64_t> examples;
  for (const std::int64_t bucket : buckets_) ++examples[bucket];
  if (last_step_ - manifest_.step < std::ssize(examples)) return;
  std::vector<std::int64_t> buckets;
  for (const auto& [bucket, count] : examples) buckets.push_back(bucket);
  std::ranges::stable_sort(buckets, std::greater(), [&](std::int64_t bucket) { return examples.at(bucket); });
  std::vector<Programs::Key> keys;
  for (const std::int64_t bucket : buckets) keys.push_back(task_.sizes(bucket));
  programs_->prepare(keys);
}

// Takes options from the checkpoint, if there is one, then from the user.
void Training::apply_options() {
  options_.apply(manifest_.options);
  for (const std::string& change : options_.changes()) log_.say("note: " + change);
  manifest_.model = task_.name();
  manifest_.options = options_.texts();
}

// A model that dropout is new to, or that has none any more, draws from the beginning, or from nothing.
void Training::restore_all(const Checkpoint& checkpoint) {
  std::map<std::string, Tensor> tensors = checkpoint.tensors;
  const std::vector<std::string> names = parameters_->names();
  const bool draws = std::find(names.begin(), names.end(), kRandomState) != names.end();
  if (!draws) tensors.erase(kRandomState);
  if (draws && !tensors.contains(kRandomState)) tensors.emplace(kRandomState, parameters_->get(kRandomState));
  restore_from(request_.folder, tensors, &*parameters_);
}

// Nothing is overwritten.
void Training::check_free() const {
  std::error_code ignored;
  if (!std::filesystem::is_directory(request_.folder, ignored)) return;
  if (!checkpoints::latest_in(request_.folder).empty()) {
    fail(ErrorKind::argument,
         "{} has checkpoints already\nhint: --resume goes on with the last of them; or give another --out",
         request_.folder);
  }
  const auto curve = std::filesystem::path(request_.folder) / kCurveFile;
  if (std::filesystem::exists(std::filesystem::symlink_status(curve, ignored))) {
    fail(ErrorKind::argument, "{} is there already\nhint: give another --out", curve.string());
  }
}

// That of the run to go on with; where it is goes into manifest_.
std::optional<Checkpoint> Training::last_checkpoint() {
  if (!request_.resume) {
    check_free();
    return std::nullopt;
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(request_.folder, ignored)) folder_.emplace(request_.folder);
  const auto curve = std::filesystem::symlink_status(std::filesystem::path(request_.folder) / kCurveFile, ignored);
  if (std::filesystem::exists(curve) && !is_regular_file(curve) && !is_symlink(curve)) {
    fail(ErrorKind::file, "{}/{} is there and is no file: delete it, the curve goes there", request_.folder,
         kCurveFile);
  }
  Checkpoint checkpoint = load_checkpoint_of(task_, request_.folder, true);
  manifest_ = checkpoint.manifest;
  is_saved_ = true;
  const auto number = [&](const char* name, auto none) {
    const auto found = manifest_.notes.find(name);
    auto value = none;
    if (found == manifest_.notes.end()) return none;
    const std::string& text = found->second;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? value : none;
  };
  scored_step_ = number(kScoredStep, std::int64_t{-1});
  loss_sum_ = number(kLossSum, 0.0);
  loss_count_ = number(kLossCount, std::int64_t{0});
  const RunningMean mean{number(kMeanLoss, 0.0), number(kMeanLossWeight, 0.0)};
  log_.set_mean_loss(mean);
  for (const auto& [what, value] :
       {std::pair(kLossSum, loss_sum_), std::pair(kMeanLoss, mean.sum), std::pair(kMeanLossWeight, mean.weight)}) {
    if (std::isfinite(value)) continue;
    fail(ErrorKind::file, "{}: its manifest: {} is {}, must be a finite number", request_.folder, what, value);
  }
  for (const auto& [what, count] : {std::pair("step", manifest_.step), std::pair("epoch", manifest_.epoch),
                                    std::pair("batch", manifest_.batch), std::pair(kLossCount, loss_count_)}) {
    if (count < 0 || count > kMostSteps) {
      fail(ErrorKind::file, "{}: its manifest: {} is {}, must be 0 .. {}", request_.folder, what, count, kMostSteps);
    }
  }
  return checkpoint;
}

// To go on means with the data that the run began with.
void Training::check_data(bool is_resumed) {
  const std::string now = task_.content().text();
  std::string& before = manifest_.notes[kData];
  if (is_resumed && before.empty()) {
    log_.say(
        "note: the checkpoint does not say what data it was trained on, for an earlier paoding made it: whether the "
        "data has changed is not known");
  } else if (is_resumed && before != now) {
    const std::string changed =
        fmt::format("{}: what is there for {} is not what this run was trained on: its content is {}, and was {}",
                    request_.data_folder, task_.name(), now, safetensors::shown(before));
    if (!request_.other_data) {
      fail(ErrorKind::file,
           "{}\nhint: put the data of before back, or name its folder with --data; --other-data goes on with what is "
           "there; "
           "a new run needs another --out",
           changed);
    }
    log_.say("note: " + changed);
  }
  before = now;
}

// Notes the examples, the threads and the device, on which a bitwise equal result depends besides the options. A change
// is no error, but the user is told.
void Training::note_surroundings() {
  std::uint64_t hash = kFnvStart;  // over the values that decide the order of examples
  for (const std::int64_t bucket : buckets_) hash = fnv1a(hash, static_cast<std::uint64_t>(bucket));
  const std::pair<const char*, std::string> all[] = {
      {"examples", fmt::format("{} ({:016x})", buckets_.size(), hash)},
      {"threads", std::to_string(omp_get_max_threads())},
      {"device", to_string(request_.compile.device)},
      {"products of f32", request_.compile.allow_tf32 ? "in TF32" : "exact"},
  };
  for (const auto& [name, now] : all) {
    std::string& before = manifest_.notes[name];
    if (!before.empty() && before != now) {
      log_.say(
          fmt::format("note: {} were {}, and are {} now: training goes on, but not with the same bits as without "
                      "a stop",
                      name, safetensors::shown(before), now));
    }
    before = now;
  }
}

// From where manifest_ is to the end.
void Training::plan_steps() {
  const models::TrainingSettings& settings = task_.settings;
  const auto batches = data::shuffled_batches(buckets_, settings.batch_size, 0, 0);
  for (const data::BatchExamples& batch : batches) rows_ = std::max(rows_, static_cast<std::int64_t>(batch.size()));
  const auto in_epoch = static_cast<std::int64_t>(batches.size());
  const std::int64_t epochs_left = std::max<std::int64_t>(0, settings.epochs - manifest_.epoch);
  const std::int64_t left = std::max<std::int64_t>(0, epochs_left * in_epoch - std::min(manifest_.batch, in_epoch));
  last_step_ = manifest_.step + left;
  if (settings.steps > 0) last_step_ = std::min(last_step_, std::max(settings.steps, manifest_.step));
}

std::unique_ptr<Graph> Training::training_graph(std::int64_t bucket) const {
  const models::TrainingSettings& s = task_.settings;
  auto graph = std::make_unique<Graph>();
  const Value loss = task_.loss(*graph, bucket, rows_, true);
  const LearningRate rate =
      cosine_decay(s.learning_rate, std::max<std::int64_t>(last_step_, s.warmup + 1), s.last_learning_rate, s.warmup);
  Optimizer optimizer = Adam{.learning_rate = rate};
  if (s.weight_decay > 0) optimizer = AdamW{.learning_rate = rate, .weight_decay = s.weight_decay};
  // Biases, and the scales of norms, are not pulled to 0.
  const ParameterGroup no_matrices{
      .predicate = [](const std::string&, const Type& type) { return type.shape.rank() < 2; }, .weight_decay = 0};
  MinimizeOptions options{.clip_norm = s.clip_norm, .skip_nonfinite = true, .stop_at_nonfinite = true};
  if (s.weight_decay > 0) options.groups = {no_matrices};
  if (request_.compile.precision == f16) options.loss_scale = LossScale{};
  const TrainingStep step = minimize(loss, optimizer, options);
  graph->fetch("loss", loss);
  graph->fetch("norm", step.gradient_norm);
  if (options.loss_scale) {
    graph->fetch("is_overflow", step.is_overflow);
    graph->fetch("loss_scale", step.loss_scale);
  }
  return graph;
}

TrainState& Training::refreshed() {
  state_.epoch = manifest_.epoch;
  state_.is_within_epoch = manifest_.batch > 0;
  state_.epochs = task_.settings.epochs;
  state_.step = manifest_.step;
  state_.steps_left = std::max<std::int64_t>(0, last_step_ - manifest_.step);
  return state_;
}

void Training::run() {
  refreshed();
  try {
    const CancelScope scope(interruption());  // a step that takes long is called off, and leaves no trace
    while (!is_finished()) run_epoch();
    finish();
  } catch (const Interrupted&) {
    stop();
    throw;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::cancelled) throw;
    stop();
    check_interrupted();
    throw;
  }
}

// After a signal.
void Training::stop() {
  finish_step();
  if (!is_saved_) save(std::nan(""));
  write_curve();
  log_.say(fmt::format("stopped after step {} of {}; this goes on: {}", manifest_.step, last_step_, request_.go_on));
}

void Training::run_epoch() {
  const models::TrainingSettings& s = task_.settings;
  const auto batches =
      data::shuffled_batches(buckets_, s.batch_size, static_cast<std::uint64_t>(s.seed), manifest_.epoch);
  const std::int64_t first = manifest_.batch, count = static_cast<std::int64_t>(batches.size()) - first;
  data::Prefetch<models::Batch> ahead(
      std::max<std::int64_t>(0, count),
      [&](std::int64_t i) {
        const ProfileRange seen("read a batch");
        const data::BatchExamples& examples = batches[static_cast<std::size_t>(first + i)];
        return task_.batch(models::Part::train, examples, buckets_[static_cast<std::size_t>(examples[0])], rows_);
      },
      static_cast<std::size_t>(request_.read_ahead));
  while (true) {
    const auto start = Clock::now();
    if (request_.profile_steps && !profiled_) {
      profiled_.emplace(*request_.profile_steps, ReportFlags::state_of(request_.compile.device),
                        request_.report.level(), request_.cupti_steps);
    }
    if (profiled_) profiled_->before(steps_started());
    std::optional<models::Batch> batch;
    {
      const ProfileRange seen("wait for a batch");
      if (steps_started() < last_step_) batch = ahead.next();
    }
    if (!batch) break;
    wait_seconds_ += seconds_since(start);
    const std::int64_t left = last_step_ - steps_started();
    const bool is_last_epoch =
        left <= static_cast<std::int64_t>(batches.size()) - manifest_.batch - (under_way_ ? 1 : 0);
    if (is_last_epoch && left <= request_.profile && !profiler_) {
      profiler_.emplace(ReportFlags::state_of(request_.compile.device), request_.report.level());
    }
    run_step(std::move(*batch));
    const double seconds = seconds_since(start);
    loop_seconds_ += seconds;
    seconds_since_save_ += seconds;
    if (seconds_since_save_ >= 60 * request_.save_minutes) save(std::nan(""));
    check_interrupted();
  }
  finish_step();
  Profiler* profiler = profiler_ ? &*profiler_ : profiled_ ? profiled_->profiler() : nullptr;
  const bool is_over = profiler_ || is_last_step();
  if (profiler != nullptr && is_over && report_.empty()) {
    report_ = profiler->stop(request_.report.sort_by(), "", request_.report.layout);
  }
  validate(manifest_.batch >= static_cast<std::int64_t>(batches.size()));
}

// Starts the step before it reads the loss of the previous one, so that the device never waits for the host.
void Training::run_step(models::Batch batch) {
  const auto start = Clock::now();
  std::optional<StartedStep> next;
  try {
    Program& program = programs_->at(task_.sizes(batch.bucket));
    for (std::size_t i = 0; i < batch.feeds.size(); ++i) program.set_input(static_cast<int>(i), batch.feeds[i]);
    program.run();
    next = StartedStep{std::move(batch), program.fetch_later(0), program.fetch_later(1), start};
    if (program.fetch_names().size() == 4) next->scaled = {program.fetch_later(2), program.fetch_later(3)};
  } catch (...) {
    finish_step();  // it was whole
    throw;
  }
  finish_step(1);
  under_way_ = std::move(next);
  if (!run_switches().fetch_later.value_or(true)) finish_step();
}

// `behind`: steps that have been started since.
void Training::finish_step(std::int64_t behind) {
  const std::optional<StartedStep> step = std::exchange(under_way_, std::nullopt);
  if (!step) return;
  const double loss = step->loss.value().to_doubles()[0], norm = step->norm.value().to_doubles()[0];
  const bool is_overflow = !step->scaled.empty() && step->scaled[0].value().to_doubles()[0] != 0;
  if (!step->scaled.empty()) {
    state_.loss_scale = step->scaled[1].value().to_doubles()[0];
    state_.overflows += is_overflow ? 1 : 0;
  }
  if (!std::isfinite(loss) || (!std::isfinite(norm) && !is_overflow)) {
    fail_nonfinite(step->batch, loss, norm, behind);
  }
  const double seconds = seconds_since(std::max(step->start, last_finish_));
  last_finish_ = Clock::now();
  step_seconds_ += seconds;
  seconds_of_[step->batch.bucket].push_back(static_cast<float>(seconds));
  manifest_.step += 1;
  manifest_.batch += 1;
  is_saved_ = false;
  state_.steps_done += 1;
  note_loss(loss);
  log_.step(refreshed(), loss, step->batch.items, seconds);
}

// The step left parameters and the optimizer's state as they were, and so did those after it: it is run again and
// looked at.
void Training::fail_nonfinite(const models::Batch& batch, double loss, double norm, std::int64_t behind) {
  const auto graph = training_graph(batch.bucket);
  std::map<std::string, Tensor> feeds;
  for (std::size_t i = 0; i < batch.feeds.size(); ++i) {
    feeds[graph->node(graph->inputs()[i]).name.str()] = batch.feeds[i];
  }
  take_back(1 + behind);
  const auto found = find_nonfinite(*graph, *parameters_, feeds, request_.compile);
  if (!is_saved_) save(std::nan(""));
  fail(ErrorKind::argument,
       "training stopped at step {}: the loss is {}, the norm of its gradients {}; no parameter was changed by it, and "
       "what was trained before is in {}\n{}",
       manifest_.step + 1, number_text(loss), number_text(norm), folder_->latest().string(),
       found ? to_text(*found) : "run again step by step, everything is finite");
}

// Undoes the counters that skipped steps advanced, so that the state is as if they had never run.
void Training::take_back(std::int64_t runs) {
  const std::vector<std::string> names = parameters_->names();
  for (const auto& [name, at] : {std::pair(kRandomState, 1), std::pair("optimizer/skipped", 0)}) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    const Tensor counted = parameters_->get(name);
    Tensor before(counted.type());
    std::copy_n(counted.data<std::int64_t>(), counted.shape().elements(), before.data<std::int64_t>());
    before.data<std::int64_t>()[at] -= runs;
    parameters_->set(name, before);
  }
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

// Scores are made before the next epoch begins in manifest_: a stop while they are made leaves them to be made.
void Training::validate(bool is_end_of_epoch) {
  const auto start = Clock::now();
  std::vector<models::Score> scores;
  if (!task_.buckets(models::Part::validation).empty()) {
    try {
      scores = predictor_->evaluate(models::Part::validation, {}, task_.settings.validate);
    } catch (const Error&) {
      if (!is_saved_) save(std::nan(""));  // the trained parameters are kept though they have no score
      throw;
    }
  }
  if (is_end_of_epoch) {
    manifest_.epoch += 1;
    manifest_.batch = 0;
  }
  scored_step_ = manifest_.step;
  if (!scores.empty()) {
    manifest_.score_name = scores[0].name;
    manifest_.scores.emplace_back(manifest_.step, scores[0].value);
    log_.scores(refreshed(), "validation", scores, seconds_since(start));
    show_sample();
  }
  save(scores.empty() ? std::nan("") : scores[0].value);
}

// Another text at each step, and the same one where a run goes on.
void Training::show_sample() {
  if (request_.show == 0) return;
  const std::string text = predictor_->sample(static_cast<std::uint64_t>(task_.settings.seed + manifest_.step));
  if (!text.empty()) log_.sample(refreshed(), text);
}

void Training::save(double score) {
  finish_step();
  manifest_.score = score;
  manifest_.notes[kScoredStep] = std::to_string(scored_step_);
  manifest_.notes[kLossSum] = fmt::format("{}", loss_sum_);
  manifest_.notes[kLossCount] = std::to_string(loss_count_);
  manifest_.notes[kMeanLoss] = fmt::format("{}", log_.mean_loss().sum);
  manifest_.notes[kMeanLossWeight] = fmt::format("{}", log_.mean_loss().weight);
  const auto path = folder_->save({manifest_, values_of(*parameters_), task_.files()});
  seconds_since_save_ = 0;
  is_saved_ = true;
  log_.saved(refreshed(), path.string());
}

void Training::write_curve() const {
  LossCurve curve;
  curve.title = fmt::format("{}: {} steps", task_.name(), manifest_.step);
  for (const auto& [step, loss] : manifest_.losses) curve.losses.emplace_back(static_cast<double>(step), loss);
  for (const auto& [step, score] : manifest_.scores) curve.scores.emplace_back(static_cast<double>(step), score);
  curve.score_name = manifest_.score_name;
  const std::string svg = to_svg(curve);
  files::AtomicFile file(folder_->path() / kCurveFile, [](std::string_view) { return true; });  // the name is ours
  file.write(svg.data(), svg.size());
  file.commit();
}

// Times of the steps by shape: its inputs, the number of steps, and their median.
std::string Training::shapes_json() {
  std::vector<std::string> items;
  for (const auto& [bucket, all] : seconds_of_) {
    std::vector<float> sorted = all;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    const Program& program = programs_->at(task_.sizes(bucket));
    std::vector<std::string> inputs;
    for (const std::string& name : program.input_names()) {
      inputs.push_back(name + " " + to_string(program.input_type(program.input_index(name))));
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
  const bool has_test = !task_.buckets(models::Part::test).empty();
  if (request_.test && has_test) {
    const auto start = Clock::now();
    const auto scores = predictor_->evaluate(models::Part::test, request_.search, 0);
    log_.scores(refreshed(), "test", scores, seconds_since(start));
    for (const models::Score& score : scores) members.emplace_back(score.name, json_number(score.value));
  }
  if (request_.show > 0 && !log_.is_json() && has_test) {
    log_.say("\n" + predictor_->show(request_.search, request_.show));
  }
  if (!report_.empty())
    log_.say(log_.is_json() ? report_ : (request_.profile_steps ? "" : "The last steps:\n\n") + report_);
  const std::string work =
      state_.steps_done == 0
          ? "nothing was left to train"
          : fmt::format("{} steps took {} (of it {:.1f} s waiting for data); {} programs bound in {:.1f} s",
                        state_.steps_done, clock_text(step_seconds_), wait_seconds_, programs_->size(),
                        programs_->milliseconds() / 1e3);
  log_.say(fmt::format("{}; loss curve {}", work, (folder_->path() / kCurveFile).string()));
  members.emplace_back("step_seconds", json_number(step_seconds_));
  members.emplace_back("loop_seconds", json_number(loop_seconds_));
  members.emplace_back("wait_seconds", json_number(wait_seconds_));
  members.emplace_back("bind_seconds", json_number(programs_->milliseconds() / 1e3));
  members.emplace_back("checkpoint", json_string(best.string()));
  if (log_.is_json()) members.emplace_back("shapes", shapes_json());
  log_.end(members);
}

}  // namespace paoding::cli
