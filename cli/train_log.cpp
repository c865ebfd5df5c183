// SPDX-License-Identifier: Apache-2.0
#include "train_log.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "io/json_text.h"

namespace paoding::cli {
namespace {

constexpr double kShowEvery = 0.2;  // seconds, on a terminal
constexpr double kPrintEvery = 10;  // elsewhere
constexpr double kMemory = 0.98;    // of the rate and the loss, per step
constexpr int kBarWidth = 24;

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string bar(double share) {
  const int full = std::clamp(static_cast<int>(std::lround(share * kBarWidth)), 0, kBarWidth);
  std::string text(static_cast<std::size_t>(full), '=');
  if (full < kBarWidth) text += '>';
  text.resize(kBarWidth, ' ');
  return text;
}

// 12345 as "12,345".
std::string grouped(double number) {
  std::string digits = fmt::format("{:.0f}", number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

// The loss scale of training in f16, which is logged beside the loss.
std::string scale_text(const TrainState& s) {
  if (s.loss_scale == 0) return "";
  return fmt::format("loss scale {:g}, {} step{} skipped, ", s.loss_scale, s.overflows, s.overflows == 1 ? "" : "s");
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::lround(std::max(0.0, seconds)));
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

void RunningMean::add(double number) {
  sum = sum * kMemory + number;
  weight = weight * kMemory + 1;
}

TrainLog::TrainLog(std::string item, bool is_json)
    : item_(std::move(item)), is_json_(is_json), is_terminal_(isatty(STDERR_FILENO) == 1) {}

void TrainLog::print_line(const std::string& line) {
  show_progress("");
  print("{}\n", line);
  flush_output();  // who reads a log wants to see where it is
  if (kept_.is_open()) kept_ << line << std::endl;
}

void TrainLog::keep_in(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  kept_.open(path);
  if (!kept_) fail(ErrorKind::file, "{}: it cannot be written", path);
}

void TrainLog::say(const std::string& text) {
  print_line(is_json_ ? JsonObject().add("event", "message").add("text", text).text() : text);
}

double TrainLog::items_per_second() const { return seconds_ > 0 ? items_ / seconds_ : 0; }

std::string TrainLog::progress(const TrainState& s) const {
  const double all = static_cast<double>(s.step + s.steps_left);
  const double left =
      s.steps_done > 0 ? all_seconds_ / static_cast<double>(s.steps_done) * static_cast<double>(s.steps_left) : 0;
  const double share = all > 0 ? static_cast<double>(s.step) / all : 1;
  return fmt::format("epoch {} of {} [{}] {:3.0f}%  loss {:.4f}  {}{} {}/s  {} left", std::min(s.epoch + 1, s.epochs),
                     s.epochs, bar(share), 100 * share, s.loss, scale_text(s), grouped(items_per_second()), item_,
                     clock_text(left));
}

void TrainLog::step(const TrainState& given, double loss, std::int64_t items, double seconds) {
  items_ = items_ * kMemory + static_cast<double>(items);
  seconds_ = seconds_ * kMemory + seconds;
  all_seconds_ += seconds;
  mean_loss_.add(loss);
  TrainState state = given;
  state.loss = mean_loss_.value();
  const auto now = Clock::now();
  if (is_terminal_ && !is_json_ && seconds_between(shown_, now) > kShowEvery) {
    show_progress(progress(state));
    shown_ = now;
  }
  if (is_terminal_ && !is_json_) return;
  const bool is_last = is_json_ && state.steps_left == 0;
  if (!is_last && seconds_between(said_, now) < (is_json_ ? 1 : kPrintEvery)) return;
  said_ = now;
  if (!is_json_) return print_line(progress(state));
  JsonObject json;
  json.add("event", "step")
      .add("step", state.step)
      .add("epoch", state.epoch)
      .add("loss", loss)
      .add("mean_loss", state.loss)
      .add("items_per_second", items_per_second())
      .add("seconds", seconds_between(start_, now));
  if (state.loss_scale > 0) json.add("loss_scale", state.loss_scale).add("skipped", state.overflows);
  print_line(json.text());
}

void TrainLog::scores(const TrainState& state, const std::string& part, const std::vector<models::Score>& scores,
                      double seconds) {
  if (is_json_) {
    JsonObject json;
    json.add("event", "scores").add("part", part).add("step", state.step).add("epoch", state.epoch);
    for (const models::Score& score : scores) json.add(score.name, score.value);
    return print_line(json.add("seconds", seconds).text());
  }
  std::vector<std::string> texts;
  for (const models::Score& score : scores) texts.push_back(models::text_of(score));
  // There is no loss before the first step, and no speed when the command only scored.
  const std::string loss = mean_loss_.weight > 0 ? fmt::format("loss {:.4f}, ", mean_loss_.value()) : "";
  const std::string speed = state.steps_done > 0 ? fmt::format("{} {}/s; ", grouped(items_per_second()), item_) : "";
  print_line(fmt::format("epoch {:2} of {}, step {:6}: {}{}{}: {} ({}{})",
                         state.epoch + (state.is_within_epoch ? 1 : 0), state.epochs, state.step, loss,
                         scale_text(state), part, fmt::join(texts, ", "), speed,
                         clock_text(seconds_between(start_, Clock::now()))));
}

void TrainLog::sample(const TrainState& state, const std::string& text) {
  if (is_json_) {
    return print_line(JsonObject().add("event", "sample").add("step", state.step).add("text", text).text());
  }
  print_line(fmt::format("  sample: {}", one_line(text)));
}

void TrainLog::saved(const TrainState& state, const std::string& path) {
  if (is_json_) {
    print_line(JsonObject().add("event", "checkpoint").add("step", state.step).add("path", path).text());
  }
}

void TrainLog::end(const std::vector<std::pair<std::string, std::string>>& members) {
  if (!is_json_) return;
  JsonObject json;
  json.add("event", "end").add("seconds", seconds_between(start_, Clock::now()));
  for (const auto& [key, value] : members) json.add_json(key, value);
  print_line(json.text());
}

}  // namespace paoding::cli
