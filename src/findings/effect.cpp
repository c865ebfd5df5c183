// SPDX-License-Identifier: Apache-2.0
#include "findings/effect.h"

#include <fmt/format.h>

#include <numeric>

#include "findings/words.h"
#include "profile/step_times.h"

namespace paoding::findings {

namespace {

std::string_view name_of(Side side) { return side == Side::host ? "the host" : "the GPU"; }

const std::vector<std::int64_t>& at_work(const Replay::Outcome& outcome, Side side) {
  return side == Side::host ? outcome.host : outcome.gpu;
}

double mean(const std::vector<std::int64_t>& ns) {
  return static_cast<double>(std::accumulate(ns.begin(), ns.end(), std::int64_t{0})) /
         static_cast<double>(std::max<std::size_t>(ns.size(), 1));
}

// A limit that the change brings about, or one that keeps most of the time that it takes from the other side from
// counting.
std::string bound_of(const Replay::Outcome& before, const Replay::Outcome& after) {
  constexpr double kKept = 1.25;
  const Side limit = after.limit();
  if (limit == Side::neither) return "";
  const Side other = limit == Side::host ? Side::gpu : Side::host;
  const auto gain = static_cast<double>(before.step_ns() - after.step_ns());
  const double taken = mean(at_work(before, other)) - mean(at_work(after, other));
  const bool is_new = limit != before.limit(), keeps = taken > kKept * std::max(gain, 0.0);
  if (!is_new && !keeps) return "";
  const std::int64_t step = profile::median(after.steps), busy = profile::median(at_work(after, limit));
  std::string text =
      fmt::format("with the change {} {} the limit: it is at work for {} of the {} that a step then takes",
                  name_of(limit), is_new ? "becomes" : "stays", time_text(static_cast<double>(std::min(busy, step))),
                  time_text(static_cast<double>(step)));
  if (keeps) {
    text += fmt::format("; {} has {} a step less to do, of which {} shorten it", name_of(other), time_text(taken),
                        time_text(gain));
  }
  return text;
}

}  // namespace

Effect effect_of(const Replay::Outcome& before, const Replay::Outcome& after, std::size_t first_number) {
  constexpr double kLeast = 0.02;    // of a step, that makes it one of those that the change is about
  constexpr double kMostOfIt = 0.8;  // of the gain, that those steps hold
  constexpr double kNearlyAll = 0.75;
  Effect effect;
  const std::size_t count = std::min(before.steps.size(), after.steps.size());
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
  if (are_all) {
    changed.resize(count);
    std::iota(changed.begin(), changed.end(), std::size_t{0});
    effect.before_ns = before.step_ns(), effect.after_ns = after.step_ns();
  }
  std::int64_t before_ns = 0, after_ns = 0;
  for (const std::size_t k : changed) {
    effect.in_steps.push_back(first_number + k);
    before_ns += before.steps[k], after_ns += after.steps[k];
  }
  if (!are_all) {
    const auto number = static_cast<std::int64_t>(changed.size());
    effect.before_ns = before_ns / number, effect.after_ns = after_ns / number;
  }
  effect.limit = after.limit();
  effect.bound = bound_of(before, after);
  return effect;
}

}  // namespace paoding::findings
