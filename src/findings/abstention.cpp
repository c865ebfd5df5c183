// SPDX-License-Identifier: Apache-2.0
#include "findings/abstention.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/one_line.h"
#include "findings/words.h"
#include "profile/step_times.h"
#include "profile/trace_counts.h"

namespace paoding::findings {

using namespace profile;

namespace {

constexpr double kLeastAttributed = 0.95, kMostLost = 0.05, kMostUnsound = 0.01;

// The share of GPU time in the steps whose launch or op is known.
double attributed_share(const Steps& steps) {
  const Trace& trace = steps.trace();
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const SpanId i : steps.device_spans()) {
    const SpanId cause = trace.cause(i);
    if (cause != kNone && trace.start(cause) >= steps.of().front().start) first = std::min(first, trace.start(i));
  }
  double all = 0, known = 0;
  for (const SpanId i : steps.device_spans()) {
    if (trace.start(i) < first) continue;  // launched in front of the window
    const auto ns = static_cast<double>(trace.duration(i));
    all += ns;
    if (trace.cause(i) != kNone || trace.site(i).op != 0) known += ns;
  }
  return all > 0 ? known / all : 1;
}

// The recorder's share of the time of the thread that steps, by its own account, which may be on a track of its own.
double recording_share(const Steps& steps) {
  const Trace& trace = steps.trace();
  double recording = 0, spans = 0, whole = 0;
  for (TrackId track = 0; track < trace.tracks().size(); ++track) {
    if (trace.text(trace.tracks()[track].name) != kOverheadTrack) continue;
    std::vector<Interval> busy;
    const SpanRange own = steps.spans(track);
    for (SpanId i = own.begin; i < own.end; ++i) {
      if (trace.kind(i) == SpanKind::recording && steps.at(trace.start(i)) != Steps::kOutside) {
        append(busy, {trace.start(i), trace.end(i)});
      }
    }
    recording += united_length(std::move(busy));
  }
  for (std::size_t step = 0; step < steps.count(); ++step) {
    const Interval of = steps.of()[step];
    whole += static_cast<double>(of.end - of.start);
    const SpanRange own = steps.spans(steps.track(), step);
    spans += static_cast<double>(own.end - own.begin);
    for (SpanId i = own.begin; i < own.end; ++i) {
      if (trace.kind(i) == SpanKind::recording) recording += static_cast<double>(trace.duration(i));
    }
  }
  recording += spans * static_cast<double>(trace.span_cost_ns());
  return whole > 0 ? recording / whole : 0;
}

// In the words of who recorded: the process with a thread that launches may be unknown, so the first other framework's.
std::string_view how_to_mark_steps(const Trace& trace) {
  for (const Process& process : trace.processes()) {
    switch (process.source) {
      case Source::paoding: continue;
      case Source::pytorch: return "With torch.profiler, prof.step() behind each step of the loop marks them";
      case Source::jax: return "With jax.profiler.StepTraceAnnotation around each step of the loop they are marked";
      case Source::nsight_systems: return "An NVTX range of one name around each step of the loop marks them";
      default: break;
    }
  }
  return "A range of one name around each step of the loop marks them";
}

// The first note that says that the trace is not whole.
std::string_view note_of_damage(const Trace& trace) {
  for (const Note& note : trace.notes()) {
    if (has_word(note.text,
                 {"the file's rest", "broken or cut off", "contradict themselves", "the recording ends early"})) {
      return note.text;
    }
  }
  return "";
}

// Steps in which next to nothing stands, where others are full.
std::size_t empty_steps(const Steps& steps) {
  constexpr double kNextToNothing = 0.2;
  constexpr std::int64_t kFull = 10;
  std::vector<std::int64_t> spans(steps.count());
  for (const TrackId track : steps.launchers()) {
    for (std::size_t k = 0; k < steps.count(); ++k) {
      const SpanRange own = steps.spans(track, k);
      spans[k] += own.end - own.begin;
    }
  }
  const std::int64_t middle = median(spans);
  const double least = kNextToNothing * static_cast<double>(middle);
  return middle < kFull ? 0 : static_cast<std::size_t>(std::ranges::count_if(spans, [&](std::int64_t n) {
    return static_cast<double>(n) < least;
  }));
}

// The share of launches whose work is not in the trace; launches into a graph that is being captured have none.
double lost_work_share(const Steps& steps) {
  const Trace& trace = steps.trace();
  double launches = 0, lost = 0;
  std::vector<std::uint8_t> kinds(trace.sites().size(), 0);  // 1: another, 2: a launch, 3, 4: a capture begins, ends
  for (const TrackId track : steps.launchers()) {
    bool captures = false;
    for (std::size_t k = 0; k < steps.count(); ++k) {
      const SpanRange own = steps.spans(track, k);
      for (SpanId i = own.begin; i < own.end; ++i) {
        std::uint8_t& kind = kinds[trace.site_id(i)];
        if (kind == 0) {
          const std::string_view name = trace.name(i);
          const bool is_launch = trace.kind(i) == SpanKind::launch && has_word(name, {"LaunchKernel", "GraphLaunch"});
          kind = is_launch                                ? 2
                 : has_word(name, {"StreamBeginCapture"}) ? 3
                 : has_word(name, {"StreamEndCapture"})   ? 4
                                                          : 1;
        }
        if (kind == 3 || kind == 4) captures = kind == 3;
        if (kind != 2 || captures) continue;
        launches += 1, lost += steps.launched_by(i).empty() ? 1 : 0;
      }
    }
  }
  return launches > 0 ? lost / launches : 0;
}

// The share of launched work that begins before its launch, by more than clocks differ as a rule.
double unsound_share(const Steps& steps) {
  constexpr std::int64_t kInexact = 2'000;
  const Trace& trace = steps.trace();
  double launched = 0, early = 0;
  for (const SpanId i : steps.device_spans()) {
    if (trace.cause(i) == kNone) continue;
    launched += 1;
    early += trace.start(i) + kInexact < trace.start(trace.cause(i)) ? 1 : 0;
  }
  return launched > 0 ? early / launched : 0;
}

// Works of one stream that are under way together for longer than dependent launches and branches of a graph are.
double overlapping_share(const Steps& steps) {
  constexpr std::int64_t kMostTogether = 50'000;
  const Trace& trace = steps.trace();
  double all = 0, long_ones = 0;
  for (TrackId track = 0; track < trace.tracks().size(); ++track) {
    if (trace.tracks()[track].kind == TrackKind::thread || trace.tracks()[track].process != steps.process()) continue;
    const SpanRange own = steps.spans(track);
    for (SpanId i = own.begin; i + 1 < own.end; ++i) {
      const bool is_one_launch = trace.cause(i) != kNone && trace.cause(i) == trace.cause(i + 1);
      const bool are_works = trace.kind(i) == SpanKind::kernel && trace.kind(i + 1) == SpanKind::kernel;
      all += 1;
      if (are_works && !is_one_launch && trace.end(i) > trace.start(i + 1) + kMostTogether) long_ones += 1;
    }
  }
  return all > 0 ? long_ones / all : 0;
}

}  // namespace

std::string reason_to_abstain(const Steps& steps, const FindOptions& options) {
  const std::size_t least_steps = options.least_steps;
  const Trace& trace = steps.trace();
  if (trace.size() == 0) return "nothing was recorded";
  if (steps.count() == 0) {
    return fmt::format(
        "the trace has no steps: none are marked, nothing of paoding's ran, and no range repeats often enough. {}",
        how_to_mark_steps(trace));
  }
  if (steps.count() < least_steps) {
    const std::string warm = steps.warm_up() == 0 ? "" : fmt::format(" after {} of warming up", steps.warm_up());
    return fmt::format("the trace has {} step{}{}, and a median needs {}: record more steps of the loop", steps.count(),
                       steps.count() == 1 ? "" : "s", warm, least_steps);
  }
  const Records records = count_records(trace);
  if (records.dropped > 0) return fmt::format("{} records were lost", records.dropped);
  if (records.timeless > 0) return fmt::format("{} records have no time that can be used", records.timeless);
  if (const std::string_view note = note_of_damage(trace); !note.empty()) {
    return fmt::format("the trace is not whole: {}", one_line(note));
  }
  // Our recordings count their losses, and a run of another program may be a small one.
  if (const std::size_t empty = empty_steps(steps); empty > 0 && steps.source() != Source::paoding) {
    return fmt::format("next to nothing was recorded of {} of {} steps", empty, steps.count());
  }
  if (const double lost = lost_work_share(steps); lost > kMostLost) {
    return fmt::format("{:.3g}% of the launches in the steps have no work of a GPU in the trace: it was not recorded",
                       100 * lost);
  }
  if (const double known = attributed_share(steps); known < kLeastAttributed) {
    return fmt::format(
        "{:.3g}% of the GPU's time in the steps is the work of no launch and no op that the trace has, more than {:g}%",
        100 * (1 - known), 100 * (1 - kLeastAttributed));
  }
  if (const double share = recording_share(steps); share > options.most_recording) {
    return fmt::format("recording took {:.3g}% of the steps, more than {:g}%", 100 * share,
                       100 * options.most_recording);
  }
  if (const double early = unsound_share(steps); early > kMostUnsound) {
    return fmt::format("{:.3g}% of the GPU's work begins before its launch: the clocks of host and GPU do not agree",
                       100 * early);
  }
  if (const double together = overlapping_share(steps); together > kMostUnsound) {
    return fmt::format("{:.3g}% of a stream's kernels overlap the next by more than 50 us: their times cannot be right",
                       100 * together);
  }
  return "";
}

std::string reason_to_abstain(double replay_error, double most) {
  if (replay_error <= most) return "";
  return fmt::format(
      "replaying the unchanged steps misses their measured time by {:.2g}%, more than {:g}%: something that the trace "
      "does "
      "not show decides when work begins",
      100 * replay_error, 100 * most);
}

}  // namespace paoding::findings
