// SPDX-License-Identifier: Apache-2.0
// The step waits for its input: the thread of the loop is in a data loader while GPUs are idle.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "findings/rules.h"
#include "findings/words.h"

namespace paoding::findings {

using namespace profile;

namespace {

// Feeds of paoding's hand over values that are there already; waiting for those is a range of the user's.
bool brings_input(const Trace& trace, SpanId i) {
  const SpanKind kind = trace.kind(i);
  if (kind == SpanKind::feed) return trace.source(i) != Source::paoding;
  const std::string_view name = trace.name(i);
  if (kind == SpanKind::frame) return has_word(name, {"dataloader.py("}) && has_word(name, {"__next__"});
  if (kind != SpanKind::range && kind != SpanKind::host && kind != SpanKind::op) return false;
  return has_word(name, {"dataloader", "data_loader", "load_data", "data loading", "next_batch", "get_batch", "## data",
                         "wait for a batch", "read a batch", "load batch", "IteratorGetNext", "Iterator::GetNext"});
}

// When another thread of a program of ours was reading, and how many times it did.
struct ReadBeside {
  std::vector<Interval> united;
  std::size_t count = 0;
};

ReadBeside read_beside(const Steps& steps) {
  const Trace& trace = steps.trace();
  ReadBeside reading;
  if (steps.source() != Source::paoding) return reading;
  for (TrackId track = 0; track < trace.tracks().size(); ++track) {
    const Track& of = trace.tracks()[track];
    if (of.kind != TrackKind::thread || of.process != steps.process() || track == steps.track()) continue;
    for (SpanId i = steps.spans(track).begin; i < steps.spans(track).end; ++i) {
      if (trace.kind(i) != SpanKind::range || !brings_input(trace, i)) continue;
      reading.united.push_back({trace.start(i), trace.end(i)});
      reading.count += 1;
    }
  }
  unite(reading.united);
  return reading;
}

std::int64_t covered_by_reading(const std::vector<Interval>& united, std::int64_t start, std::int64_t end) {
  std::int64_t sum = 0;
  auto next = std::ranges::upper_bound(united, start, {}, &Interval::end);
  for (; next != united.end() && next->start < end; ++next)
    sum += std::min(next->end, end) - std::max(next->start, start);
  return sum;
}

// The step's input, as the loop's thread gets it.
struct LoopInput {
  SpanId span;
  std::size_t step;
};

std::vector<LoopInput> inputs_of_loop(const Steps& steps) {
  const Trace& trace = steps.trace();
  std::vector<signed char> brings(trace.sites().size(), -1);
  std::vector<LoopInput> inputs;
  for (std::size_t step = 0; step < steps.count(); ++step) {
    const SpanRange own = steps.spans(steps.track(), step);
    std::int64_t until = 0;
    for (SpanId i = own.begin; i < own.end; ++i) {
      signed char& is_one = brings[trace.site_id(i)];
      if (is_one < 0) is_one = brings_input(trace, i) ? 1 : 0;
      if (is_one == 0 || trace.start(i) < until) continue;
      until = trace.end(i);
      inputs.push_back({i, step});
    }
  }
  return inputs;
}

// `*must_be_faster`: a reader beside the step would not do, or is there already and does not keep up.
Candidate made_of_loader(const Steps& steps, bool* must_be_faster) {
  const Trace& trace = steps.trace();
  const bool has_gpu = !steps.device_spans().empty(), has_one_reader = steps.source() == Source::paoding;
  const std::vector<LoopInput> inputs = inputs_of_loop(steps);
  double inside = 0;
  for (const LoopInput& input : inputs) inside += static_cast<double>(trace.duration(input.span));
  const auto each = inside / static_cast<double>(steps.count()), rest = static_cast<double>(steps.average_ns()) - each;
  const ReadBeside beside = read_beside(steps);
  const bool is_ahead = 2 * beside.count >= steps.count();
  *must_be_faster = is_ahead || (has_one_reader && 2 * rest < each);
  Candidate found{.kind = Kind::late_data};
  Evidence evidence;
  std::set<std::size_t> steps_with;
  for (const LoopInput& input : inputs) {
    const SpanId i = input.span;
    const std::int64_t ns = trace.duration(i), idle = has_gpu ? steps.idle_in(trace.start(i), trace.end(i)) : ns;
    std::int64_t lost = idle;
    if (is_ahead) {  // only a faster reader would shorten the wait, and only while it reads
      const std::int64_t read = covered_by_reading(beside.united, trace.start(i), trace.end(i));
      lost = std::min(idle, read);
      found.most.push_back(Edit::duration(i, ns - read));
    } else {
      found.least.push_back(Edit::move(i));
      // A reader of ours is one thread; others have as many as are wanted.
      found.most.push_back(has_one_reader && !*must_be_faster ? Edit::move(i) : Edit::remove(i));
    }
    evidence.add(i, static_cast<double>(lost));
    if (lost > 0) steps_with.insert(input.step);
  }
  if (evidence.sum() <= 0) return {};
  found.evidence = evidence.examples(steps);
  found.lost_is = has_gpu ? "idle time of the GPU meanwhile" : "its own time";
  found.title = has_gpu ? "the GPU waits for data" : "the loop waits for data";
  found.text = fmt::format(
      "In {} of {} steps {} while the thread of the loop is in {}: {}; the longest {} {}. The thread is there for {} "
      "a step on average of all of them.",
      steps_with.size(), steps.count(), has_gpu ? "GPUs are idle" : "nothing is computed",
      quoted(trace.name(found.evidence.spans.front().span)),
      affected(steps, {steps_with.begin(), steps_with.end()}).part(evidence.sum()),
      has_gpu ? "idle time in one of them is" : "one takes", time_text(evidence.longest()),
      time_text(inside / static_cast<double>(steps.count())));
  if (is_ahead) {
    found.text += " A thread of its own reads meanwhile, and does not keep up.";
  } else if (has_one_reader && each > rest) {
    found.text += fmt::format(
        " A reader beside the step takes longer than the rest of it, and has to become faster too: "
        "the loop would still wait for {} a step.",
        time_text(each - rest));
  }
  found.where = steps.where(found.evidence.spans.front().span);
  return found;
}

// Where no loader is to be seen: code that is no op, in front of a copy to the GPU, which the GPU has to wait for.
Candidate made_by_the_loop(const Steps& steps) {
  constexpr double kMost = 0.8;  // of the idle time
  const Trace& trace = steps.trace();
  Candidate found{.kind = Kind::late_data};
  Evidence evidence;
  std::set<std::size_t> in_steps;
  for (const Idle& idle : steps.idle()) {
    const bool is_copy = idle.after != kNone && trace.kind(idle.after) == SpanKind::memcpy &&
                         trace.site(idle.after).copy == Copy::host_to_device;
    if (!is_copy || idle.launch == kNone || trace.track_id(idle.launch) != steps.track()) continue;
    const std::vector<UseSegment>& host = steps.thread_times()[steps.track()].segments;
    auto next = std::ranges::upper_bound(host, idle.start, {}, &UseSegment::end);
    UseSegment longest{0, 0, HostUse::yours, kNone};
    for (; next != host.end() && next->start < idle.launched; ++next) {
      UseSegment part = *next;
      part.start = std::max(part.start, idle.start), part.end = std::min(part.end, idle.launched);
      if (is_users(part.use) && part.end - part.start > longest.end - longest.start) longest = part;
    }
    const auto ns = static_cast<double>(longest.end - longest.start);
    if (ns < kMost * static_cast<double>(idle.late_ns()) || ns <= 0) continue;
    evidence.add(idle.after, ns);
    in_steps.insert(steps.at(idle.start));
    found.least.push_back(Edit::move_host(steps.track(), longest.start, longest.end));
    found.most.push_back(Edit::host(steps.track(), longest.start, longest.end, 0));
  }
  if (2 * in_steps.size() < steps.count()) return {};
  found.evidence = evidence.examples(steps);
  found.lost_is = "idle time of the GPU in front of it";
  found.title = "the GPU waits for data that the loop's own thread makes";
  found.text = fmt::format(
      "In {} of {} steps GPUs are idle while the thread of the loop is in code that is no op, in front of the copy "
      "that "
      "brings the next input: {}; the longest such stretch is {}.",
      in_steps.size(), steps.count(), affected(steps, {in_steps.begin(), in_steps.end()}).part(evidence.sum()),
      time_text(evidence.longest()));
  found.where = steps.where(found.evidence.spans.front().span);
  return found;
}

}  // namespace

void find_late_data(const Steps& steps, Candidates* out) {
  bool must_be_faster = false;
  const Candidate by_loader = made_of_loader(steps, &must_be_faster);
  for (Candidate found : {by_loader, made_by_the_loop(steps)}) {
    if (found.most.empty()) continue;
    const bool is_slow = must_be_faster && found.title == by_loader.title;
    const bool has_workers = has_word(steps.trace().name(found.evidence.spans.front().span), {"MultiProcessing"});
    found.change =
        Changes{.pytorch = has_workers ? "DataLoader: more num_workers, a larger prefetch_factor or cheaper "
                                         "transforms: its workers do not keep up"
                                       : "DataLoader(..., num_workers=4, persistent_workers=True, pin_memory=True)",
                .jax = "prefetch: make the next batch on another thread, and jax.device_put it while this step runs",
                .paoding = is_slow ? "make the reader faster, or read with several threads beside the step"
                                   : "read the next batch on a thread of its own while this step runs",
                .others = "prepare the next batch on another thread while this step runs"}
            .of(steps.source());
    found.verify = steps.source() == Source::paoding && !is_slow ? "reader-ahead" : "";
    out->add(std::move(found));
  }
}

}  // namespace paoding::findings
