// SPDX-License-Identifier: Apache-2.0
#include "findings/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <system_error>

#include "findings/effect.h"

namespace paoding::findings {

namespace {

struct Gain {
  std::int64_t low = 0, high = 0;
  std::int64_t alone = 0;  // the high one, before others have claimed time
  Effect effect = {};
};

// All edits together take away so much, and no replay saves more; without a wait it may save anything.
double most_to_save(const Steps& steps, const std::vector<Edit>& edits) {
  const profile::Trace& trace = steps.trace();
  double sum = 0;
  for (const Edit& edit : edits) {
    switch (edit.what) {
      case Edit::What::no_wait:
      case Edit::What::defer_wait:
      case Edit::What::gap:
      case Edit::What::move: return static_cast<double>(trace.wall_ns());
      case Edit::What::host: sum += static_cast<double>(edit.end - edit.start - edit.ns); break;
      case Edit::What::duration: sum += static_cast<double>(trace.duration(edit.span) - edit.ns); break;
      case Edit::What::remove: {
        sum += static_cast<double>(trace.duration(edit.span));
        const SpanId launch = trace.on_gpu(edit.span) ? trace.cause(edit.span) : kNone;
        if (launch != kNone) sum += static_cast<double>(trace.duration(launch));
        break;
      }
    }
  }
  return sum;
}

// Alone, on the trace as it is.
std::vector<Gain> gains_alone(const Replay& replay, const Steps& steps, const std::vector<Candidate>& candidates,
                              const Replay::Outcome& unchanged, bool two_threads) {
  std::vector<Gain> gains(candidates.size());
  const std::int64_t whole = unchanged.step_ns();
  const MeasuredSteps measured{steps.first_number(), steps.lengths(), steps.average_ns()};
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < candidates.size(); i = next++) {
      const Replay::Outcome changed = replay.outcome({candidates[i].most});
      const std::int64_t most = whole - changed.step_ns(), least = whole - replay.step_ns(candidates[i].least);
      gains[i].effect = effect_of(unchanged, changed, measured);
      gains[i].high = gains[i].alone = std::max<std::int64_t>(0, std::max(most, least));
      gains[i].low = std::clamp<std::int64_t>(std::min(most, least), 0, gains[i].high);
    }
  };
  std::future<void> beside;
  if (two_threads && candidates.size() > 1 && replay.size() > 10'000) {
    try {
      beside = std::async(std::launch::async, work);
    } catch (const std::system_error&) {  // no more threads are to be had
    }
  }
  work();
  if (beside.valid()) beside.get();
  return gains;
}

void set_gain(Gain&& gain, std::int64_t step_ns, Finding* finding) {
  finding->replayed_low_ns = gain.low, finding->replayed_high_ns = gain.high;
  finding->gain_low_ns = std::llround(kGainBelow * static_cast<double>(gain.low));
  finding->gain_high_ns = std::clamp<std::int64_t>(std::llround(kGainAbove * static_cast<double>(gain.high)), gain.high,
                                                   std::max(std::min(step_ns, gain.effect.most_ns), gain.high));
  finding->claimed_ns = gain.alone - gain.high;
  const auto share_of = [&](std::int64_t ns) { return static_cast<double>(ns) / static_cast<double>(step_ns); };
  finding->share = share_of(gain.high);
  finding->share_low = share_of(finding->gain_low_ns), finding->share_high = share_of(finding->gain_high_ns);
  finding->effect = std::move(gain.effect);
}

// A finding, and the whole of its change.
struct Claimed {
  Finding finding;
  std::vector<Edit> edits;
  bool is_part = false;  // of another one
};

Claimed made_of(Candidate&& candidate, Gain&& gain, std::int64_t step_ns) {
  Finding finding;
  finding.kind = candidate.kind;
  finding.title = std::move(candidate.title), finding.text = std::move(candidate.text);
  set_gain(std::move(gain), step_ns, &finding);
  finding.op = std::move(candidate.where.op), finding.scope = std::move(candidate.where.scope);
  finding.line = std::move(candidate.where.line), finding.operands = std::move(candidate.where.operands);
  finding.evidence = std::move(candidate.evidence);
  for (ExampleKind& kind : finding.evidence.kinds) kind.is = candidate.lost_is;
  finding.change = std::move(candidate.change), finding.verify = std::move(candidate.verify);
  return {std::move(finding), std::move(candidate.most), false};
}

// Where a finding is about a few steps, others that are about no other steps show the same event: a checkpoint's
// copies, the waits for them, its file. They become parts of it, and their gains one gain.
void join_parts(const Replay& replay, const Replay::Outcome& unchanged, const MeasuredSteps& measured,
                std::int64_t step_ns, std::vector<Claimed>* all) {
  const auto head = std::ranges::find(*all, Kind::rare_slow_steps, [](const Claimed& one) { return one.finding.kind; });
  if (head == all->end() || head->finding.effect.in_steps.size() == measured.lengths.size()) return;
  const std::vector<std::size_t>& slow = head->finding.effect.in_steps;
  const auto is_part = [&](const Claimed& one) {
    return &one != &*head && std::ranges::includes(slow, one.finding.effect.in_steps);
  };
  Gain gain{head->finding.replayed_low_ns, head->finding.replayed_high_ns, 0, {}};
  Finding& whole = head->finding;
  for (Claimed& one : *all) {
    one.is_part = is_part(one);
    if (!one.is_part) continue;
    Finding& part = one.finding;
    gain.low += part.replayed_low_ns, gain.high += part.replayed_high_ns;
    head->edits.insert(head->edits.end(), one.edits.begin(), one.edits.end());
    whole.parts.push_back({part.kind, std::move(part.title), std::move(part.text), part.replayed_high_ns});
    if (whole.line.empty()) whole.line = part.line;
    if (whole.op.empty()) whole.op = part.op;
    for (Example example : part.evidence.spans) {
      example.kind += whole.evidence.kinds.size();
      whole.evidence.spans.push_back(example);
    }
    whole.evidence.kinds.insert(whole.evidence.kinds.end(), part.evidence.kinds.begin(), part.evidence.kinds.end());
  }
  if (whole.parts.empty()) return;
  const Replay::Outcome changed = replay.outcome({head->edits});
  gain.effect = effect_of(unchanged, changed, measured);
  gain.high = std::max<std::int64_t>(0, unchanged.step_ns() - changed.step_ns());
  gain.low = std::min(gain.low, gain.high), gain.alone = gain.high;
  set_gain(std::move(gain), step_ns, &whole);
}

// Copies of one op, and the waits for them, are one thing in the program: the smaller finding says so.
void name_same_op(std::vector<Finding>* found) {
  const auto is_of_copies = [](const Finding& one) {
    return !one.op.empty() &&
           (one.kind == Kind::pageable_copies || one.kind == Kind::exposed_copies || one.kind == Kind::sync_in_step);
  };
  for (auto one = found->begin(); one != found->end(); ++one) {
    if (!is_of_copies(*one)) continue;
    const auto same = std::find_if(found->begin(), one, [&](const Finding& other) {
      return is_of_copies(other) && other.kind != one->kind && other.op == one->op;
    });
    if (same == one) continue;
    one->text += fmt::format(" It is the op of finding {}, whose change may take this along.", same->number);
  }
}

}  // namespace

std::vector<Finding> claim(const Replay& replay, const Steps& steps, std::vector<Candidate> candidates,
                           const Replay::Outcome& unchanged, std::int64_t step_ns, const FindOptions& options) {
  const double least = options.least_share * static_cast<double>(step_ns);
  const double of_all = least * static_cast<double>(steps.count());
  std::erase_if(candidates, [&](const Candidate& one) { return most_to_save(steps, one.most) < of_all; });
  const std::vector<Gain> alone = gains_alone(replay, steps, candidates, unchanged, options.two_threads);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (static_cast<double>(alone[i].high) >= least) order.push_back(i);
  }
  // Launches are late for reasons that may have a finding of their own: these come first.
  const auto rank = [&](std::size_t i) {
    return std::pair(candidates[i].kind == Kind::late_launches ? 0 : 1, alone[i].high);
  };
  std::ranges::stable_sort(order, std::ranges::greater(), rank);
  std::vector<Edit> claimed;  // by those that come first, all of it
  std::int64_t whole = unchanged.step_ns();
  std::vector<Claimed> made;
  for (const std::size_t i : order) {
    if (made.size() >= options.most) break;
    Gain gain = alone[i];
    std::int64_t with_it = 0;
    if (!made.empty()) {
      with_it = replay.step_ns({claimed, candidates[i].most});
      gain.high = std::min(gain.high, std::max<std::int64_t>(0, whole - with_it));
      if (static_cast<double>(gain.high) < least) continue;
      gain.low = std::min(
          {gain.low, gain.high, std::max<std::int64_t>(0, whole - replay.step_ns({claimed, candidates[i].least}))});
    } else {
      with_it = whole - gain.high;
    }
    whole = with_it;
    claimed.insert(claimed.end(), candidates[i].most.begin(), candidates[i].most.end());
    made.push_back(made_of(std::move(candidates[i]), std::move(gain), step_ns));
  }
  join_parts(replay, unchanged, {steps.first_number(), steps.lengths(), steps.average_ns()}, step_ns, &made);
  std::vector<Finding> found;
  for (Claimed& one : made) {
    if (!one.is_part) found.push_back(std::move(one.finding));
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &Finding::replayed_high_ns);
  for (std::size_t i = 0; i < found.size(); ++i) found[i].number = static_cast<int>(i) + 1;
  name_same_op(&found);
  return found;
}

}  // namespace paoding::findings
