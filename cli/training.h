// SPDX-License-Identifier: Apache-2.0
// Training a task: steps, checkpoints, scores, and the summary at the end.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "command.h"
#include "models/task.h"
#include "paoding/checkpoint.h"
#include "paoding/profile.h"
#include "report_flags.h"
#include "task_options.h"
#include "train_log.h"
#include "training_ranks.h"

namespace paoding::cli {

inline constexpr const char* kCurveFile = "curve.svg";  // in the run's folder

/// Seconds from then to now.
double seconds_since(std::chrono::steady_clock::time_point start);

struct TrainRequest {
  std::string data_folder = "data", folder;  // of data sets; of the run's checkpoints
  bool resume = false, json = false;
  bool other_data = false;                  // goes on though the data differs from the run's
  std::string go_on;                        // the command that goes on with this run
  double save_minutes = 5;                  // between checkpoints within an epoch; 0: one after every step
  std::int64_t read_ahead = 8;              // batches that are made in advance; 0: each when its step begins
  std::int64_t profile = 0;                 // steps at the end whose report is shown
  std::optional<StepWindow> profile_steps;  // or these, counted from 0
  StepWindow cupti_steps;                   // of them, whose kernels CUPTI tells
  ReportFlags report;
  std::int64_t show = 10;  // test examples to show at the end
  bool test = true;        // score the test part at the end
  models::SearchOptions search = {};
  CompileOptions compile = {};
  std::shared_ptr<TrainingRanks> ranks = std::make_shared<TrainingRanks>();
};

class Training {
 public:
  /// Reads data and, to resume, the checkpoint; everything that can be wrong is found here. A new run's folder is made
  /// when all else is well.
  Training(models::Task& task, TaskOptions& options, const TrainRequest& request);
  /// To the end of the last epoch, its scores among it. Saves and throws Interrupted after a Ctrl-C or SIGTERM.
  void run();

 private:
  std::unique_ptr<Graph> training_graph(std::int64_t bucket) const;
  models::Batch batch_of(const data::BatchExamples& examples) const;
  void check_free() const;
  void apply_options();
  void prepare_programs();
  void restore_all(const Checkpoint& checkpoint);
  std::optional<Checkpoint> last_checkpoint();
  void check_data(bool is_resumed);
  void check_ranks(const Graph& graph);
  void note_surroundings();
  void plan_steps();
  void run_epoch();
  void run_step(models::Batch batch);
  void check_stop();
  void finish_step(std::int64_t behind = 0);
  [[noreturn]] void fail_nonfinite(const models::Batch& batch, double loss, double norm, std::int64_t behind);
  void take_back(std::int64_t runs);
  void note_loss(double loss);
  void validate(bool is_end_of_epoch);
  void show_sample();
  void save(double score);
  void stop();
  void finish();
  void write_curve() const;
  std::string shapes_json();
  bool is_last_step() const { return manifest_.step >= last_step_; }
  std::int64_t steps_started() const { return manifest_.step + (under_way_ ? 1 : 0); }
  // A checkpoint of the last step may have been saved before it was scored.
  bool is_finished() const { return is_last_step() && scored_step_ == manifest_.step; }
  TrainState& refreshed();

  models::Task& task_;
  TaskOptions& options_;
  TrainRequest request_;
  TrainingRanks& ranks_;
  TrainLog log_;
  std::vector<std::int64_t> buckets_;  // of the training part
  std::int64_t rows_ = 0;  // of a rank's batch: its part of the batch size, or of fewer when no bucket has that many
  std::int64_t last_step_ = 0;
  std::optional<SavesWhenInterrupted> saves_;  // set when training begins
  std::optional<CheckpointFolder> folder_;
  std::optional<Parameters> parameters_;
  std::optional<Programs> programs_;
  std::unique_ptr<models::Predictor> predictor_;
  std::optional<Profiler> profiler_;
  std::optional<ProfiledSteps> profiled_;
  std::string report_;  // of the last steps
  Manifest manifest_;   // where training is: after the last step whose loss is known
  // A step that has been started. Its loss is read when the next one has been, so that a GPU never waits for the host,
  // unless PAODING_RUN says fetch_later=0.
  struct StartedStep {
    models::Batch batch;
    Fetched loss, norm;
    std::chrono::steady_clock::time_point start;
    std::vector<Fetched> scaled = {};    // with a loss scale: whether a gradient overflowed, and the scale
    std::optional<Fetched> totals = {};  // with several ranks: TrainingRanks::totals_in()
  };
  std::optional<StartedStep> under_way_;
  std::chrono::steady_clock::time_point last_finish_;
  TrainState state_;
  std::int64_t scored_step_ = -1;  // the last that was
  bool is_to_stop_ = false;        // some rank has had a signal when the step began that was finished last
  bool is_saved_ = false;          // whether a checkpoint has the present manifest_ and parameters
  double loss_sum_ = 0;            // since the last point of the curve
  std::int64_t loss_count_ = 0;
  std::map<std::int64_t, std::vector<float>> seconds_of_;  // by bucket, of every step
  double seconds_since_save_ = 0, step_seconds_ = 0, wait_seconds_ = 0, loop_seconds_ = 0;
};

}  // namespace paoding::cli
