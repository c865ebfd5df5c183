// SPDX-License-Identifier: Apache-2.0
#include "training.h"

#include <omp.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
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
#include "io/safetensors.h"
#include "model_checkpoint.h"
#include "paoding/data/batches.h"
#include "paoding/debug.h"
#include "paoding/optimizer.h"
#include "paoding/version.h"

namespace paoding::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::int64_t kCurvePoints = 400;  // of the loss, about
// Keys in a checkpoint: the last step that was scored, and the sum of the losses since the curve's last point.
constexpr const char *kScoredStep = "scored_step", *kLossSum = "loss_sum", *kLossCount = "loss_count";
constexpr const char *kMeanLoss = "mean_loss_sum", *kMeanLossWeight = "mean_loss_weight";  // TrainLog::mean_loss()
constexpr const char* kData = "data";                                                      // Task::content()
constexpr const char* kRandomState = "random/state";
// More than any training gets to, and far from where numbers of steps overflow.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

// The sign of a NaN means nothing.
std::string number_text(double number) { return std::isnan(number) ? "nan" : fmt::format("{}", number); }

}  // namespace

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Training::Training(models::Task& task, TaskOptions& options, const TrainRequest& request)
    : task_(task),
      options_(options),
      request_(request),
      ranks_(*request.ranks),
      log_(std::string(task.item()), request.json) {
  request_.compile.communicator = ranks_.communicator();
  const std::optional<Checkpoint> checkpoint = last_checkpoint();
  apply_options();
  parse_dtype(task.settings.dtype, &request_.compile.precision);  // one of three: its option says so
  if (checkpoint) {
    task.set_files(checkpoint->files);
    check_restorable_from(request.folder, *checkpoint, task);
  }

  if (ranks_.are_several() && ranks_.is_first()) log_.keep_in(request.folder + "/ranks/rank0.log");
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
  } else if (ranks_.is_first()) {
    folder_.emplace(request.folder);
    check_free();  // now that nobody else can train into it
  }
  note_surroundings();
  check_ranks(*graph);
  programs_.emplace(
      task.extents(), [this](const Programs::Key& sizes) { return training_graph(task_.bucket_of(sizes)); },
      request_.compile, &*parameters_);
  prepare_programs();
  predictor_ = task.predictor({&*parameters_, request_.compile, check_interrupted});
  const std::int64_t count = parameters_->elements(ParameterRole::model);
  const models::TrainingSettings& settings = task.settings;
  saves_.emplace();
  std::string where = to_string(request.compile.device);
  if (ranks_.are_several()) where = fmt::format("{} ranks, each on {}", ranks_.size(), ranks_.communicator()->name());
  log_.say(fmt::format("{} parameters, {} steps of {} {} in {} epochs on {}, checkpoints in {}", count, last_step_,
                       settings.batch_size, task.item(), settings.epochs, where, request.folder));
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
  if (!ranks_.is_first() || !std::filesystem::is_directory(request_.folder, ignored)) return;
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
  if (ranks_.is_first() && std::filesystem::is_directory(request_.folder, ignored)) folder_.emplace(request_.folder);
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

// All train the same model with the same data, from the same step.
void Training::check_ranks(const Graph& graph) {
  if (!ranks_.are_several()) return;
  const std::string text = to_text(graph);
  ranks_.require_equal("the version of paoding", PAODING_VERSION);
  for (const auto& [name, value] : manifest_.options) ranks_.require_equal("option " + name, value);
  ranks_.require_equal("the data", manifest_.notes[kData]);
  ranks_.require_equal("the step to go on after", std::to_string(manifest_.step));
  ranks_.require_equal("--dtype, --tf32 or --tune", fmt::format("{} {} {}", to_string(request_.compile.precision),
                                                                request_.compile.allow_tf32, request_.compile.tune));
  ranks_.require_equal("the graph", fmt::format("{:016x}", fnv1a(text)));
  ranks_.meet();
}

// Notes the examples, the threads and the device, on which a bitwise equal result depends besides the options. A change
// is no error, but the user is told.
void Training::note_surroundings() {
  std::uint64_t hash = kFnvStart;  // over the values that decide the order of examples
  for (const std::int64_t bucket : buckets_) hash = fnv1a(hash, static_cast<std::uint64_t>(bucket));
  const std::pair<const char*, std::string> all[] = {
      {"examples", fmt::format("{} ({:016x})", buckets_.size(), hash)},
      {"threads", std::to_string(omp_get_max_threads())},
      {"ranks", std::to_string(ranks_.size())},
      {"device", to_string(request_.compile.device)},
      {"products of f32", request_.compile.allow_tf32 ? "in TF32" : "exact"},
  };
  for (const auto& [name, now] : all) {
    if (now == "1" && name == std::string_view("ranks") && !manifest_.notes.contains(name)) continue;
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
  rows_ = ranks_.rows_of(rows_);
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
  Value rank;
  if (ranks_.are_several()) {
    rank = TrainingRanks::add_input(*graph);
    options.data_parallel = true;
    options.loss_weight = TrainingRanks::weight_in(rank);
  }
  const TrainingStep step = minimize(loss, optimizer, options);
  graph->fetch("loss", step.loss);
  graph->fetch("norm", step.gradient_norm);
  if (options.loss_scale) {
    graph->fetch("is_overflow", step.is_overflow);
    graph->fetch("loss_scale", step.loss_scale);
  }
  if (ranks_.are_several()) graph->fetch("totals", TrainingRanks::totals_in(rank));
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
    // A step that takes long is called off, and leaves no trace; of several ranks none may stop by itself.
    const CancelScope scope(ranks_.are_several() ? Cancellation() : interruption());
    while (!is_finished()) run_epoch();
    finish();
  } catch (const Interrupted&) {
    stop();
    throw;
  } catch (const Error& error) {
    if (ranks_.are_several() && error.kind() == ErrorKind::device) check_interrupted();  // others have stopped before
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
        return batch_of(batches[static_cast<std::size_t>(first + i)]);
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
    check_stop();
  }
  finish_step();
  Profiler* profiler = profiler_ ? &*profiler_ : profiled_ ? profiled_->profiler() : nullptr;
  const bool is_over = profiler_ || is_last_step();
  if (profiler != nullptr && is_over && report_.empty()) {
    report_ = profiler->stop(request_.report.sort_by(), "", request_.report.layout);
  }
  validate(manifest_.batch >= static_cast<std::int64_t>(batches.size()));
}

// The rank's part.
models::Batch Training::batch_of(const data::BatchExamples& examples) const {
  bool counts = true;
  const auto part = ranks_.part_of(examples, &counts);
  models::Batch batch = task_.batch(models::Part::train, part, buckets_[static_cast<std::size_t>(examples[0])], rows_);
  if (!counts) batch.weight = 0, batch.items = 0;
  return batch;
}

// All ranks stop after the same step: the one that began after some rank had had a signal.
void Training::check_stop() {
  if (!ranks_.are_several()) return check_interrupted();
  if (!is_to_stop_) return;
  check_interrupted();
  throw Interrupted{kSignal + SIGTERM};
}

// Starts the step before it reads the loss of the previous one, so that the device never waits for the host.
void Training::run_step(models::Batch batch) {
  const auto start = Clock::now();
  std::optional<StartedStep> next;
  try {
    Program& program = programs_->at(task_.sizes(batch.bucket));
    if (ranks_.are_several()) {
      batch.feeds.push_back(TrainingRanks::value_of(batch.weight, interruption().is_cancelled(), batch.items));
    }
    for (std::size_t i = 0; i < batch.feeds.size(); ++i) program.set_input(static_cast<int>(i), batch.feeds[i]);
    program.run();
    next = StartedStep{std::move(batch), program.fetch_later(0), program.fetch_later(1), start};
    if (request_.compile.precision == f16) next->scaled = {program.fetch_later(2), program.fetch_later(3)};
    if (ranks_.are_several()) next->totals = program.fetch_later(program.fetch_index("totals"));
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
  std::optional<StartedStep> step = std::exchange(under_way_, std::nullopt);
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
  if (step->totals) {
    const std::vector<double> totals = step->totals->value().to_doubles();
    is_to_stop_ |= totals[0] > 0;
    step->batch.items = std::llround(totals[1]);
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
  if (ranks_.are_several() && !is_saved_) save(std::nan(""));  // a rank that finds it ends, and with it the others
  const auto found = find_nonfinite(*graph, *parameters_, feeds, request_.compile);
  if (!is_saved_) save(std::nan(""));
  fail(ErrorKind::argument,
       "training stopped at step {}: the loss is {}, the norm of its gradients {}; no parameter was changed by it, and "
       "what was trained before is in {}\n{}",
       manifest_.step + 1, number_text(loss), number_text(norm),
       ranks_.is_first() ? folder_->latest().string() : request_.folder,
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
  if (ranks_.is_first() && !task_.buckets(models::Part::validation).empty()) {
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
  if (!ranks_.is_first()) {
    seconds_since_save_ = 0;
    is_saved_ = true;
    return;
  }
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

}  // namespace paoding::cli
