// SPDX-License-Identifier: Apache-2.0
// Few steps that take far longer than the median, and the stretch of the loop's thread in which they do.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "findings/rules.h"
#include "findings/words.h"
#include "profile/step_times.h"

namespace paoding::findings {

using namespace profile;

namespace {

constexpr std::size_t kLeastOfAll = 20;  // steps, of which a few can be rare
constexpr double kMostRare = 0.25, kSlow = 1.25, kSpreads = 6;
constexpr double kAftermath = 1.0 / 16;  // of the longest step's time beyond the median

// How long each gap or span of the thread is usually cannot be told; a use of its time can.
using Uses = std::array<std::int64_t, kHostUses>;

// Code of the user's that waits is code of the user's.
HostUse use_of(const UseSegment& segment) { return is_users(segment.use) ? HostUse::yours : segment.use; }

Uses uses_in(const std::vector<UseSegment>& segments, Interval of) {
  Uses uses{};
  auto next = std::ranges::upper_bound(segments, of.start, {}, &UseSegment::end);
  for (; next != segments.end() && next->start < of.end; ++next) {
    uses[static_cast<std::size_t>(use_of(*next))] += std::min(next->end, of.end) - std::max(next->start, of.start);
  }
  return uses;
}

// The program that a step runs, where steps are the time from one run of ours to the next: its first op or kernel.
SiteId program_of(const Steps& steps, std::size_t step) {
  const Trace& trace = steps.trace();
  if (steps.source() != Source::paoding) return kNone;
  const SpanRange own = steps.spans(steps.track(), step);
  for (SpanId i = own.begin; i < own.end; ++i) {
    const std::span<const SpanId> works = steps.launched_by(i);
    if (!works.empty()) return trace.site_id(works.front());
    if (trace.kind(i) == SpanKind::op) return trace.site_id(i);
  }
  return kNone;
}

// Steps of the program that most of them run: a training scores with another one now and then.
std::vector<std::size_t> steps_of_one_program(const Steps& steps) {
  std::map<SiteId, std::vector<std::size_t>> programs;
  for (std::size_t k = 0; k < steps.count(); ++k) programs[program_of(steps, k)].push_back(k);
  return std::ranges::max_element(programs, {}, [](const auto& one) { return one.second.size(); })->second;
}

// Bytes that come from the GPU in a slow step that has any such copy, and in one of the others, on average.
std::pair<double, double> bytes_to_host(const Steps& steps, const std::vector<std::size_t>& slow) {
  const Trace& trace = steps.trace();
  double in_slow = 0, in_others = 0;
  std::set<std::size_t> copying;
  for (const SpanId i : steps.device_spans()) {
    if (trace.kind(i) != SpanKind::memcpy || trace.site(i).copy != Copy::device_to_host) continue;
    const bool is_slow = std::ranges::binary_search(slow, steps.step_of(i));
    if (is_slow) copying.insert(steps.step_of(i));
    (is_slow ? in_slow : in_others) += static_cast<double>(std::max<std::int64_t>(trace.bytes(i), 0));
  }
  const auto others = static_cast<double>(std::max<std::size_t>(1, steps.count() - slow.size()));
  return {in_slow / static_cast<double>(std::max<std::size_t>(1, copying.size())), in_others / others};
}

// ", 10 steps apart" where slow steps begin as far apart each time; "" otherwise.
std::string period_text(const std::vector<std::size_t>& slow) {
  constexpr std::size_t kLeastTimes = 3;
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < slow.size(); ++i) {
    if (i == 0 || slow[i] > slow[i - 1] + 1) begins.push_back(slow[i]);
  }
  if (begins.size() < kLeastTimes) return "";
  std::size_t least = ~std::size_t{0}, most = 0;
  for (std::size_t i = 1; i < begins.size(); ++i) {
    least = std::min(least, begins[i] - begins[i - 1]), most = std::max(most, begins[i] - begins[i - 1]);
  }
  if (most > least + 1) return "";
  return least == most ? fmt::format(", {} steps apart", least) : fmt::format(", {} or {} steps apart", least, most);
}

enum class Cause : std::uint8_t { unknown, saving, collector, reading };

// The name of the span in which most is lost tells, or that a slow step brings much to the host, and the others do not.
Cause cause_of(std::string_view name, double to_host, double to_host_of_others) {
  constexpr double kMuch = 1 << 16, kTimes = 4;
  if (has_word(name, {"checkpoint", "save", "serializ", "pickle"})) return Cause::saving;
  if (has_word(name, {"gc.collect", "garbage"})) return Cause::collector;
  if (has_word(name,
               {"read_batch", "read a batch", "load_batch", "load batch", "get_batch", "next_batch", "fetch_batch",
                "dataloader", "data_loader", "load_data", "data loading", "wait for a batch", "GetNext"})) {
    return Cause::reading;
  }
  return to_host > kMuch && to_host > kTimes * to_host_of_others ? Cause::saving : Cause::unknown;
}

std::string change_of(Cause cause, Source source) {
  switch (cause) {
    case Cause::saving:
      return Changes{.pytorch =
                         "if they save a checkpoint: copy the state into pinned memory (non_blocking=True) and "
                         "write it on another thread, as torch.distributed.checkpoint.async_save does, or save "
                         "less often. A recording with stacks (with_stack=True) names the lines",
                     .jax =
                         "if they save a checkpoint: orbax's AsyncCheckpointer writes it on another thread; or save "
                         "less often",
                     .others = "if they save a checkpoint: write it from a copy on another thread, or less often"}
          .of(source);
    case Cause::collector:
      return Changes{.pytorch = "gc.freeze() before the loop and gc.disable() in it",
                     .jax = "gc.freeze() before the loop",
                     .others = "no garbage collection in the loop"}
          .of(source);
    case Cause::reading:
      return Changes{.pytorch =
                         "read ahead, so that batches are ready while one takes long: DataLoader(..., num_workers=4, "
                         "prefetch_factor=8, persistent_workers=True), with as many batches ahead as a pause lasts",
                     .jax = "read ahead on another thread, with as many batches in its queue as a pause lasts",
                     .others = "read ahead on another thread, with as many batches in its queue as a pause lasts"}
          .of(source);
    case Cause::unknown: break;
  }
  return Changes{.pytorch =
                     "a recording with stacks (with_stack=True) says which code it is. Checkpoints, logs and "
                     "evaluation belong on another thread; if it is Python's garbage collector: gc.freeze() "
                     "before the loop and gc.disable() in it",
                 .jax =
                     "checkpoints, logs and evaluation belong on another thread; if it is Python's garbage "
                     "collector: gc.freeze() before the loop",
                 .others = "move the stretch off the loop's thread: checkpoints, logs, garbage collection"}
      .of(source);
}

}  // namespace

void find_rare_slow_steps(const Steps& steps, Candidates* out) {
  if (steps.count() < kLeastOfAll) {
    return out->say_nothing(Kind::rare_slow_steps, fmt::format("the trace has {} steps, and rare ones show in {}",
                                                               steps.count(), kLeastOfAll));
  }
  const Trace& trace = steps.trace();
  const std::vector<std::size_t> alike = steps_of_one_program(steps);
  if (alike.size() < kLeastOfAll) {
    return out->say_nothing(Kind::rare_slow_steps,
                            "steps are runs of several programs, which take as long as they take");
  }
  const std::vector<std::int64_t>& ns = steps.lengths();
  std::vector<std::int64_t> lengths, off;
  for (const std::size_t k : alike) lengths.push_back(ns[k]);
  const std::int64_t usual = median(std::move(lengths));
  for (const std::size_t k : alike) off.push_back(std::abs(ns[k] - usual));
  const double spread = 1.4826 * static_cast<double>(median(std::move(off)));
  // A GPU and a host that stood still take some steps to run ahead again, which are a little longer too.
  std::int64_t longest = usual;
  for (const std::size_t k : alike) longest = std::max(longest, ns[k]);
  const double slow = std::max({kSlow * static_cast<double>(usual), static_cast<double>(usual) + kSpreads * spread,
                                static_cast<double>(usual) + kAftermath * static_cast<double>(longest - usual)});
  std::vector<std::size_t> slow_ones;
  for (const std::size_t k : alike) {
    if (static_cast<double>(ns[k]) > slow) slow_ones.push_back(k);
  }
  if (slow_ones.empty() || static_cast<double>(slow_ones.size()) > kMostRare * static_cast<double>(alike.size()))
    return;
  const std::vector<UseSegment>& segments = steps.thread_times()[steps.track()].segments;
  std::array<std::vector<std::int64_t>, kHostUses> all_uses;
  for (const Interval& step : steps.of()) {
    const Uses uses = uses_in(segments, step);
    for (std::size_t use = 0; use < kHostUses; ++use) all_uses[use].push_back(uses[use]);
  }
  Uses middle{};
  for (std::size_t use = 0; use < kHostUses; ++use) {
    std::vector<std::int64_t> of_alike;
    for (const std::size_t k : alike) of_alike.push_back(all_uses[use][k]);
    middle[use] = median(std::move(of_alike));
  }

  Candidate found{.kind = Kind::rare_slow_steps};
  Evidence evidence;
  std::map<std::string, double> grown;
  double more = 0;
  for (const std::size_t k : slow_ones) {
    const Interval step = steps.of()[k];
    std::size_t use = 0;
    for (std::size_t u = 0; u < kHostUses; ++u) {
      if (all_uses[u][k] - middle[u] > all_uses[use][k] - middle[use]) use = u;
    }
    // A longer wait is a GPU's affair, and code that is compiled another finding's.
    const auto grew_in = static_cast<HostUse>(use);
    if (grew_in == HostUse::wait || grew_in == HostUse::compile) continue;
    std::vector<UseSegment> of_use;
    auto next = std::ranges::upper_bound(segments, step.start, {}, &UseSegment::end);
    for (; next != segments.end() && next->start < step.end; ++next) {
      UseSegment part = *next;
      part.start = std::max(part.start, step.start), part.end = std::min(part.end, step.end);
      if (use_of(part) == grew_in) of_use.push_back(part);
    }
    std::ranges::stable_sort(of_use, std::ranges::greater(), [](const UseSegment& s) { return s.end - s.start; });
    std::int64_t excess = std::min(all_uses[use][k] - middle[use], ns[k] - usual);
    // A pause is one stretch or a few; more of them are a step with more to do.
    constexpr std::size_t kMostStretches = 3;
    double more_of_step = 0;
    for (std::size_t s = 0; s < std::min(kMostStretches, of_use.size()) && excess > 0; ++s) {
      const std::int64_t cut = std::min(excess, of_use[s].end - of_use[s].start);
      excess -= cut, more_of_step += static_cast<double>(cut);
      found.most.push_back(
          Edit::host(steps.track(), of_use[s].start, of_use[s].end, of_use[s].end - of_use[s].start - cut));
      if (2 * cut > ns[k] - usual) found.least.push_back(found.most.back());
      const SpanId in = of_use[s].span;
      const bool is_named = in != kNone && trace.kind(in) != SpanKind::step;
      const std::string where = is_named            ? quoted(trace.name(in))
                                : is_users(grew_in) ? "code that is no op"
                                                    : std::string(to_string(grew_in));
      grown[where] += static_cast<double>(cut);
    }
    // A step is one example, however many stretches it has: at the longest.
    if (of_use.empty() || more_of_step <= 0) continue;
    more += more_of_step;
    const SpanId in = of_use.front().span, near = in != kNone ? in : steps.spans(steps.track(), k).begin;
    if (near < trace.size()) evidence.add(near, more_of_step);
  }
  if (found.most.empty() || evidence.count() == 0) return;
  const auto most = std::ranges::max_element(grown, {}, [](const auto& one) { return one.second; });
  found.evidence = evidence.examples(steps);
  found.lost_is = "time beyond that of other steps";
  found.where = steps.where(found.evidence.spans.front().span);
  found.title = "a few steps take far longer than the others";
  found.text = fmt::format(
      "{} of {} steps take more than {} where the median is {}{}; {} of it all is in single stretches of the loop's "
      "thread, most in {}.",
      slow_ones.size(), alike.size(), time_text(slow), time_text(static_cast<double>(usual)), period_text(slow_ones),
      time_text(more), most->first);
  const auto [to_host, to_host_of_others] = bytes_to_host(steps, slow_ones);
  const Cause cause = cause_of(most->first, to_host, to_host_of_others);
  if (to_host > 0 && cause == Cause::saving) {
    found.text += fmt::format(" {:.3g} MB come from the GPU in one of them, {:.3g} MB in one of the others.",
                              to_host / 1e6, to_host_of_others / 1e6);
  }
  found.change = change_of(cause, steps.source());
  out->add(std::move(found));
}

}  // namespace paoding::findings
