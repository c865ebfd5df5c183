// SPDX-License-Identifier: Apache-2.0
// The end of a training: the picture of its loss, the scores of the test part, the summary.
#include <algorithm>
#include <chrono>

#include "command.h"
#include "io/files.h"
#include "io/json_text.h"
#include "loss_curve.h"
#include "training.h"

namespace paoding::cli {

void Training::write_curve() const {
  if (!ranks_.is_first()) return;
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
  ranks_.meet();  // none is gone before the last step has ended on all
  if (!ranks_.is_first()) return;
  write_curve();
  std::vector<std::pair<std::string, std::string>> members;
  const auto best = folder_->best();
  if (!best.empty() && best != folder_->latest()) {
    restore(&*parameters_, load_checkpoint(best).tensors);
    log_.say(fmt::format("the best checkpoint is {}", best.string()));
  }
  const bool has_test = !task_.buckets(models::Part::test).empty();
  if (request_.test && has_test) {
    const auto start = std::chrono::steady_clock::now();
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
