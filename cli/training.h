// SPDX-License-Identifier: Apache-2.0
// Training a task: steps, checkpoints, scores, and what is shown at the end.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/task.h"
#include "paoding/checkpoint.h"
#include "paoding/profile.h"
#include "report_flags.h"
#include "task_options.h"
#include "train_log.h"

namespace paoding::cli {

struct TrainRequest {
  std::string data_folder = "data", folder;  // of data sets; of the run's checkpoints
  bool resume = false, json = false;
  std::int64_t most_steps = 0;   // updates in all; 0: as many as the epochs have
  double save_minutes = 5;       // between checkpoints within an epoch
  std::int64_t validate = 2000;  // examples of the validation part after each epoch; 0: all
  std::int64_t profile = 0;      // steps at the end whose report is shown
  ReportFlags report;
  std::int64_t show = 10;  // test examples to show at the end
  bool test = true;        // score the test part at the end
  models::SearchOptions search = {};
  CompileOptions compile = {};
};

class Training {
 public:
  /// Reads data and, to resume, the checkpoint; everything that can be wrong is found here.
  Training(models::Task& task, TaskOptions& options, const TrainRequest& request);
  /// To the end of the last epoch. Saves and throws Interrupted after a Ctrl-C or SIGTERM.
  void run();

 private:
  struct Step;
  std::unique_ptr<Graph> training_graph(std::int64_t bucket) const;
  void restore_state(const Checkpoint& checkpoint);
  void run_epoch();
  void run_step(const models::Batch& batch);
  [[noreturn]] void fail_not_finite(const models::Batch& batch, double loss, double norm);
  void note_loss(double loss);
  void validate();
  void save(double score);
  void finish();
  void write_curve() const;
  std::string shapes_json() const;
  bool is_last_step() const { return state_.step >= last_step_; }
  TrainState& refreshed();

  models::Task& task_;
  TaskOptions& options_;
  const TrainRequest request_;
  TrainLog log_;
  std::vector<std::int64_t> buckets_;  // of the training part
  std::int64_t steps_per_epoch_ = 0, last_step_ = 0;
  std::optional<CheckpointFolder> folder_;
  std::optional<Parameters> parameters_;
  std::optional<Programs> programs_;
  std::unique_ptr<models::Predictor> predictor_;
  std::optional<Profiler> profiler_;
  std::string report_;  // of the last steps
  Manifest manifest_;   // where training is
  TrainState state_;
  double loss_sum_ = 0;  // since the last point of the curve
  std::int64_t loss_count_ = 0;
  std::map<std::int64_t, std::vector<float>> seconds_of_;  // by bucket, of every step
  double seconds_since_save_ = 0, step_seconds_ = 0, wait_seconds_ = 0, loop_seconds_ = 0;
};

}  // namespace paoding::cli
