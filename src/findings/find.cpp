// SPDX-License-Identifier: Apache-2.0
// From a trace to its findings: steps, whether to abstain, the replay, rules, claims.
#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <system_error>

#include "findings/abstention.h"
#include "findings/claims.h"
#include "findings/finding.h"
#include "findings/kernel_group.h"
#include "findings/replay.h"
#include "findings/replays_apart.h"
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

std::string_view title_of(Kind kind) {
  static constexpr std::array<std::string_view, kKinds + 1> kTitles = {"",
                                                                       "the step waits for its input",
                                                                       "the GPU waits for launches",
                                                                       "the host waits for the GPU inside of a step",
                                                                       "copies from or to pageable memory",
                                                                       "copies that hold up kernels",
                                                                       "small elementwise kernels in a row",
                                                                       "kernels that only cast, copy or transpose",
                                                                       "fills and sums of gradients",
                                                                       "kernels too small for the GPU",
                                                                       "f32 without tensor cores",
                                                                       "sizes that tensor cores do not like",
                                                                       "kernels far below the memory's bandwidth",
                                                                       "products that are slow for their size",
                                                                       "collectives that hold up kernels",
                                                                       "a rank that the others wait for",
                                                                       "memory allocated inside of steps",
                                                                       "code compiled or loaded inside of steps",
                                                                       "a few steps far slower than the others",
                                                                       "clocks that sink",
                                                                       "CUDA graphs made anew in steps"};
  return kTitles[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Side side) {
  static constexpr std::array<std::string_view, 3> kWords = {"", "host", "GPU"};
  return kWords[static_cast<std::size_t>(side)];
}

namespace {

// Lines come from frames of Python and from the metadata of XLA's programs; a trace without either has none.
std::string how_to_record_lines(const Steps& steps, const std::vector<Finding>& found) {
  const profile::Trace& trace = steps.trace();
  if (found.empty() || std::ranges::any_of(found, [](const Finding& one) { return !one.line.empty(); })) return "";
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == profile::SpanKind::frame) return "";
  }
  switch (steps.source()) {
    case profile::Source::pytorch: return "torch.profiler.profile(with_stack=True) records lines of the user's code";
    case profile::Source::jax:
    case profile::Source::tensorflow:
      return "jax.profiler.ProfileOptions with python_tracer_level = 1 records lines of the user's code";
    case profile::Source::paoding:
      return "recordings of paoding have no lines: scopes (Scope, layers of nn) and ranges (ProfileRange) name parts "
             "of "
             "the user's code";
    case profile::Source::nsight_systems: return "NVTX ranges name parts of the user's code: the database has no lines";
    default: return "ranges name parts of the user's code: the trace has no lines";
  }
}

}  // namespace

std::span<const Rule> rules() {
  static constexpr Rule kRules[] = {
      find_late_data,          find_late_launches, find_sync_in_step,    find_pageable_copies, find_exposed_copies,
      find_allocation_in_step, find_late_compile,  find_rare_slow_steps, find_rebuilt_graph,   find_in_kernels};
  return kRules;
}

namespace {

Findings find_in(const profile::Trace& trace, const FindOptions& options) {
  Findings made;
  const Steps steps(trace, options.thread_times);
  made.steps = static_cast<int>(steps.count());
  made.stepped_by = steps.stepped_by();
  made.step_ns = steps.median_ns(), made.host_ns = steps.host_median_ns();
  made.base_ns = steps.average_ns(), made.host_mean_ns = steps.host_average_ns();
  made.first_step = static_cast<int>(steps.first_number()), made.recorded_steps = static_cast<int>(steps.recorded());
  made.warm_up_steps = static_cast<int>(steps.warm_up());
  made.step_lengths = steps.lengths(), made.have_gpus = !steps.device_spans().empty();
  std::optional<Replay> made_beside;
  std::future<void> beside;
  constexpr std::size_t kWorthTwo = std::size_t{1} << 16;  // spans, for which another thread is started
  if (options.two_threads && trace.size() >= kWorthTwo && steps.count() >= options.least_steps) {
    try {
      beside = std::async(std::launch::async, [&] {
        if (options.other_work.valid()) options.other_work.wait();
        made_beside.emplace(steps);
      });
    } catch (const std::system_error&) {  // no more threads are to be had
    }
  }
  made.abstained = reason_to_abstain(steps, options);
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
  const Replay::Outcome unchanged = replay.outcome();
  made.limit = unchanged.limit(), made.limit_of_median = unchanged.limit_of_median();
  made.found = claim(replay, steps, std::move(candidates.all), unchanged, made.base_ns, options);
  made.no_lines = how_to_record_lines(steps, made.found);
  const bool has_ops = std::ranges::any_of(made.found, [](const Finding& one) { return !one.op.empty(); });
  const bool has_operands = std::ranges::any_of(made.found, [](const Finding& one) { return !one.operands.empty(); });
  if (has_ops && !has_operands) made.no_shapes = how_to_record_shapes(steps.source());
  return made;
}

// Spans that were recorded stand in front of those that a replay was taken apart into, which all stand for it.
void name_originals(const profile::Trace& trace, const std::vector<SpanId>& original, std::vector<Example>* examples) {
  std::vector<Example> found;
  for (const bool are_replays : {false, true}) {
    for (Example one : *examples) {
      one.span = original[one.span];
      const bool is_replay = trace.kind(one.span) == profile::SpanKind::replay;
      if (is_replay == are_replays && std::ranges::find(found, one.span, &Example::span) == found.end())
        found.push_back(one);
    }
  }
  *examples = std::move(found);
}

}  // namespace

Findings find(const profile::Trace& trace, const FindOptions& options) {
  const std::optional<ReplaysApart> apart = take_replays_apart(trace);
  if (!apart) return find_in(trace, options);
  FindOptions of_apart = options;
  of_apart.thread_times.reset();
  Findings made = find_in(apart->trace, of_apart);
  for (Finding& finding : made.found) name_originals(trace, apart->original, &finding.evidence.spans);
  return made;
}

}  // namespace paoding::findings
