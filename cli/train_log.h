// SPDX-License-Identifier: Apache-2.0
// Messages of a training: a line that is rewritten on a terminal, plain lines elsewhere, or JSON lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "models/task.h"

namespace paoding::cli {

struct TrainState {
  std::int64_t epoch = 0, epochs = 0;           // those done, and all
  bool is_within_epoch = false;                 // updates of the next one are made
  std::int64_t step = 0;                        // updates made
  std::int64_t steps_done = 0, steps_left = 0;  // in this process, and to the end
  double loss = 0;                              // the mean of the last steps
  double loss_scale = 0;                        // in f16, of the last step
  std::int64_t overflows = 0;                   // steps that changed nothing, since a gradient overflowed
};

/// A mean in which old values are forgotten by and by: sums of values and of their weights.
struct RunningMean {
  double sum = 0, weight = 0;
  void add(double number);
  double value() const { return sum / weight; }
};

class TrainLog {
 public:
  TrainLog(std::string item, bool is_json);

  /// The mean of the last losses: a part of where training is, so that one that goes on says the same.
  const RunningMean& mean_loss() const { return mean_loss_; }
  void set_mean_loss(const RunningMean& mean) { mean_loss_ = mean; }

  /// Lines go to the file as well. Error (file) when it cannot be written.
  void keep_in(const std::string& path);
  /// A line about how things are: text, or for JSON an event with a message.
  void say(const std::string& text);
  /// After every step; shows something when it is time for it. `items` and `seconds` are the step's.
  void step(const TrainState& state, double loss, std::int64_t items, double seconds);
  void scores(const TrainState& state, const std::string& part, const std::vector<models::Score>& scores,
              double seconds);
  /// A text that the model made.
  void sample(const TrainState& state, const std::string& text);
  void saved(const TrainState& state, const std::string& path);
  /// Everything that JSON's reader should have at the end: key and JSON.
  void end(const std::vector<std::pair<std::string, std::string>>& members);
  bool is_json() const { return is_json_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::string progress(const TrainState& state) const;
  double items_per_second() const;
  void print_line(const std::string& line);

  const std::string item_;
  const bool is_json_, is_terminal_;
  Clock::time_point start_ = Clock::now(), shown_ = start_, said_ = start_;
  double items_ = 0, seconds_ = 0;  // of steps, old ones forgotten by and by
  double all_seconds_ = 0;          // of steps alone
  RunningMean mean_loss_;
  std::ofstream kept_;
};

/// "2:13" or "1:02:13".
std::string clock_text(double seconds);

}  // namespace paoding::cli
