// SPDX-License-Identifier: Apache-2.0
// Something is compiled or loaded behind the steps of warming up, while GPUs are idle.
#include <fmt/format.h>

#include "findings/rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

namespace {

bool compiles(const Trace& trace, SpanId i) {
  const SpanKind kind = trace.kind(i);
  if (kind == SpanKind::compile) return true;
  if (kind != SpanKind::host && kind != SpanKind::range && kind != SpanKind::op) return false;
  return has_word(trace.name(i), {"cuModuleLoad", "cuLibraryLoad", "hipModuleLoad", "cudaLibraryLoad",
                                  "nvrtcCompileProgram", "dynamo_timed", "backend_compile", "entire_frame_compile",
                                  "XlaCompile", "PjRtCompile", "triton_compile"});
}

// Ops that are called in one step only, for long, most of it themselves: their first call compiles or loads something.
std::vector<bool> slow_first_calls(const Steps& steps) {
  constexpr std::int64_t kLong = 5'000'000;
  const Trace& trace = steps.trace();
  std::vector<bool> found(trace.sites().size());
  std::vector<std::size_t> in_step(trace.sites().size(), Steps::kOutside), more(trace.sites().size(), 0);
  std::vector<std::int64_t> longest(trace.sites().size(), 0);
  for (const TrackId track : steps.launchers()) {
    for (SpanId i = steps.spans(track).begin; i < steps.spans(track).end; ++i) {
      if (trace.kind(i) != SpanKind::op || trace.source(i) == Source::paoding) continue;
      const SiteId site = trace.site_id(i);
      const std::size_t step = steps.at(trace.start(i));
      if (in_step[site] != Steps::kOutside && in_step[site] != step) more[site] += 1;
      in_step[site] = step;
      std::int64_t own = trace.duration(i);
      if (own < kLong || step == Steps::kOutside) continue;
      std::int64_t until = trace.start(i);
      for (SpanId child = i + 1; child < steps.spans(track).end && trace.start(child) < trace.end(i); ++child) {
        const bool is_work = trace.kind(child) == SpanKind::op || trace.kind(child) == SpanKind::wait;
        if (!is_work || trace.start(child) < until) continue;
        own -= std::min(trace.end(child), trace.end(i)) - trace.start(child), until = trace.end(child);
      }
      longest[site] = std::max(longest[site], own);
    }
  }
  for (SiteId site = 0; site < found.size(); ++site) found[site] = more[site] == 0 && longest[site] >= kLong;
  return found;
}

// A compiler that records nothing of itself (Triton's) shows by its end alone: no thread that launches recorded
// anything for long, and then the driver loads the code. Returns the start of such a stretch; `load` where there is
// none.
std::int64_t start_of_silence(const Steps& steps, std::int64_t load) {
  constexpr std::int64_t kLong = 5'000'000;
  const std::size_t step = steps.at(load);
  if (step == Steps::kOutside) return load;
  std::int64_t start = steps.of()[step].start;
  for (const TrackId track : steps.launchers()) {
    const std::vector<UseSegment>& segments = steps.thread_times()[track].segments;
    const auto in = std::ranges::upper_bound(segments, load - 1, {}, &UseSegment::end);
    if (in == segments.end() || !is_users(in->use)) return load;
    start = std::max(start, in->start);
  }
  return load - start >= kLong ? start : load;
}

}  // namespace

void find_late_compile(const Steps& steps, Candidates* out) {
  const Trace& trace = steps.trace();
  Candidate found{.kind = Kind::late_compile};
  Evidence evidence;
  double steps_with = 0, idle = 0, compiled = 0;
  std::vector<signed char> compiling(trace.sites().size(), -1);
  const std::vector<bool> is_first_call = slow_first_calls(steps);
  for (std::size_t step = 0; step < steps.count(); ++step) {
    const std::size_t before = evidence.count();
    for (TrackId track = 0; track < trace.tracks().size(); ++track) {
      const Track& of = trace.tracks()[track];
      if (of.kind != TrackKind::thread || of.process != steps.process()) continue;
      const bool launches = std::ranges::find(steps.launchers(), track) != steps.launchers().end();
      const bool is_overhead = trace.text(of.name) == kOverheadTrack;
      if (!launches && !is_overhead) continue;  // it compiles beside the loop
      const SpanRange own = steps.spans(track, step);
      std::int64_t until = 0;
      for (SpanId i = own.begin; i < own.end; ++i) {
        signed char& is_one = compiling[trace.site_id(i)];
        if (is_one < 0) is_one = compiles(trace, i) || is_first_call[trace.site_id(i)] ? 1 : 0;
        if (is_one == 0 || trace.start(i) < until) continue;
        until = trace.end(i);
        const std::int64_t start = start_of_silence(steps, trace.start(i)), ns = until - start;
        if (start < trace.start(i)) compiled += static_cast<double>(trace.start(i) - start);
        const std::int64_t lost = steps.idle_in(start, until);
        evidence.add(i, static_cast<double>(ns));
        idle += static_cast<double>(lost);
        // The driver's own account does not name the thread; the one that steps is in the call then, or it waits.
        const TrackId host = launches ? track : steps.track();
        found.least.push_back(Edit::host(host, start, until, ns - lost));
        found.most.push_back(Edit::host(host, start, until, 0));
      }
    }
    steps_with += evidence.count() > before ? 1 : 0;
  }
  if (evidence.count() == 0) return;
  found.evidence = evidence.examples(steps);
  found.lost_is = "its own time";
  found.where = steps.where(found.evidence.spans.front().span);
  found.title = "code is compiled or loaded inside of steps";
  found.text = fmt::format(
      "{} such as {} in {:.0f} of {} steps after the first take {} together, the longest {}; GPUs are idle for {} of "
      "that. "
      "Spread over all steps it is {}.",
      count_text(static_cast<double>(evidence.count()), "stretch", "stretches"),
      quoted(trace.name(found.evidence.spans.front().span)), steps_with, steps.count(), time_text(evidence.sum()),
      time_text(evidence.longest()), time_text(idle), of_a_step(steps, evidence.sum()));
  if (compiled > 0) {
    found.text += fmt::format(" {} of it is time before a load in which no call was recorded, as a compiler takes it.",
                              time_text(compiled));
  }
  found.change =
      Changes{
          .pytorch = "run the shapes once before the loop; torch.compile(..., dynamic=True); CUDA_MODULE_LOADING=EAGER",
          .jax = "keep shapes alike, and compile before the loop: jax.jit(f).lower(...).compile()",
          .paoding = "compile the program for its shapes before the loop",
          .others = "run the shapes once before the loop; CUDA_MODULE_LOADING=EAGER"}
          .of(steps.source());
  out->add(std::move(found));
}

}  // namespace paoding::findings
