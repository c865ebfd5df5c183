// SPDX-License-Identifier: Apache-2.0
#include "findings/effect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "findings/words.h"
#include "profile/step_times.h"

namespace paoding::findings {

namespace {

std::string_view name_of(Side side) { return side == Side::host ? "the host" : "the GPU"; }

const std::vector<std::int64_t>& at_work(const Replay::Outcome& outcome, Side side) {
  return side == Side::host ? outcome.host : outcome.gpu;
}

// A limit that the change brings about, or one that keeps most of the time that it takes from the other side from
// counting.
std::string bound_of(const Replay::Outcome& before, const Replay::Outcome& after, std::int64_t average_ns) {
  constexpr double kKept = 1.25;
  const Side limit = after.limit();
  if (limit == Side::neither) return "";
  const Side other = limit == Side::host ? Side::gpu : Side::host;
  const auto gain = static_cast<double>(before.step_ns() - after.step_ns());
  const double taken = mean(at_work(before, other)) - mean(at_work(after, other));
  const bool is_new = limit != before.limit(), keeps = taken > kKept * std::max(gain, 0.0);
  if (!is_new && !keeps) return "";
  // The step is the measured one, which replays miss by a little.
  const auto step = static_cast<double>(average_ns) - gain;
  std::string text =
      fmt::format("with the change {} {} the limit: on average it is at work for {} of the {} that a step then takes",
                  name_of(limit), is_new ? "becomes" : "stays", time_text(std::min(mean(at_work(after, limit)), step)),
                  time_text(step));
  if (keeps) {
    text += fmt::format("; {} has {} a step less to do, of which {} shorten it", name_of(other), time_text(taken),
                        time_text(gain));
  }
  return text;
}

// No step is shorter than a side's work in it; the time that the change takes from that is as uncertain as a gain.
std::int64_t most_to_gain(const Replay::Outcome& before, const Replay::Outcome& after) {
  if (before.host.empty() || before.gpu.empty()) return before.step_ns();
  double least = 0;
  for (const Side side : {Side::host, Side::gpu}) {
    const double work = mean(at_work(before, side)), taken = work - mean(at_work(after, side));
    least = std::max(least, work - kGainAbove * std::max(taken, 0.0));
  }
  return before.step_ns() - std::llround(least);
}

}  // namespace

Effect effect_of(const Replay::Outcome& before, const Replay::Outcome& after, const MeasuredSteps& measured) {
  constexpr double kLeast = 0.02;    // of a step, that makes it one of those that the change is about
  constexpr double kMostOfIt = 0.8;  // of the gain, that those steps hold
  constexpr double kNearlyAll = 0.75;
  Effect effect;
  const std::size_t count = std::min({before.steps.size(), after.steps.size(), measured.lengths.size()});
  std::vector<std::size_t> changed;
  double saved = 0, saved_in_changed = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const auto whole = static_cast<double>(before.steps[k]), less = whole - static_cast<double>(after.steps[k]);
    saved += std::max(less, 0.0);
    if (less <= kLeast * whole) continue;
    changed.push_back(k);
    saved_in_changed += less;
  }
  const bool are_all = changed.empty() || saved_in_changed < kMostOfIt * saved ||
                       static_cast<double>(changed.size()) > kNearlyAll * static_cast<double>(count);
  std::int64_t before_ns = measured.average_ns, less_ns = before.step_ns() - after.step_ns();
  if (are_all) {
    changed.resize(count);
    std::iota(changed.begin(), changed.end(), std::size_t{0});
  } else {
    before_ns = less_ns = 0;
    for (const std::size_t k : changed) {
      before_ns += measured.lengths[k], less_ns += before.steps[k] - after.steps[k];
    }
    const auto number = static_cast<std::int64_t>(changed.size());
    before_ns /= number, less_ns /= number;
  }
  for (const std::size_t k : changed) effect.in_steps.push_back(measured.first_number + k);
  effect.before_ns = before_ns, effect.after_ns = std::max<std::int64_t>(0, before_ns - less_ns);
  effect.most_ns = most_to_gain(before, after);
  effect.limit = after.limit();
  effect.bound = bound_of(before, after, measured.average_ns);
  return effect;
}

}  // namespace paoding::findings
