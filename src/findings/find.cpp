// SPDX-License-Identifier: Apache-2.0
// From a trace to its findings: steps, whether to abstain, the replay, rules, claims.
#include <array>
#include <future>
#include <optional>
#include <system_error>

#include "findings/abstention.h"
#include "findings/claims.h"
#include "findings/finding.h"
#include "findings/replay.h"
#include "findings/rules.h"

namespace paoding::findings {

std::string_view to_string(Kind kind) {
  static constexpr std::array<std::string_view, kKinds + 1> kWords = {"",
                                                                      "late_data",
                                                                      "late_launches",
                                                                      "sync_in_step",
                                                                      "pageable_copies",
                                                                      "exposed_copies",
                                                                      "pointwise_chain",
                                                                      "layout_kernels",
                                                                      "gradient_fills",
                                                                      "small_grid",
                                                                      "exact_f32_product",
                                                                      "odd_dimensions",
                                                                      "far_from_bandwidth",
                                                                      "slow_product",
                                                                      "exposed_collectives",
                                                                      "straggler_rank",
                                                                      "allocation_in_step",
                                                                      "late_compile",
                                                                      "rare_slow_steps",
                                                                      "sinking_clocks",
                                                                      "rebuilt_graph"};
  return kWords[static_cast<std::size_t>(kind)];
}

std::span<const Rule> rules() {
  static constexpr Rule kRules[] = {
      find_late_data,          find_late_launches, find_sync_in_step,    find_pageable_copies, find_exposed_copies,
      find_allocation_in_step, find_late_compile,  find_rare_slow_steps, find_rebuilt_graph,   find_in_kernels};
  return kRules;
}

Findings find(const profile::Trace& trace, const FindOptions& options) {
  Findings made;
  const Steps steps(trace);
  made.steps = static_cast<int>(steps.count());
  made.stepped_by = steps.stepped_by();
  made.step_ns = steps.median_ns();
  std::optional<Replay> made_beside;
  std::future<void> beside;
  constexpr std::size_t kWorthTwo = std::size_t{1} << 16;  // spans, for which another thread is started
  if (options.two_threads && trace.size() >= kWorthTwo && steps.count() >= options.least_steps) {
    try {
      beside = std::async(std::launch::async, [&] { made_beside.emplace(steps); });
    } catch (const std::system_error&) {  // no more threads are to be had
    }
  }
  made.abstained = reason_to_abstain(steps, options.least_steps);
  if (!made.abstained.empty()) return made;  // once the other thread has ended
  if (!beside.valid()) made_beside.emplace(steps);
  Candidates candidates;
  for (const Rule rule : rules()) rule(steps, &candidates);
  if (beside.valid()) beside.get();
  const Replay& replay = *made_beside;
  made.replay_error = replay.error();
  made.abstained = reason_to_abstain(replay.error(), options.most_replay_error);
  if (!made.abstained.empty()) return made;
  made.silent = std::move(candidates.silent);
  made.found =
      claim(replay, steps, std::move(candidates.all), std::max(made.step_ns, replay.measured_step_ns()), options);
  return made;
}

}  // namespace paoding::findings
