// SPDX-License-Identifier: Apache-2.0
#include "findings/steps_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "findings/words.h"
#include "profile/step_parts.h"
#include "profile/step_times.h"

namespace paoding::findings {

using namespace profile;

namespace {

// Beyond so many spans of a trace only the steps in its middle are looked at.
constexpr std::size_t kMostSpans = std::size_t{4} << 20;
constexpr std::size_t kLeastSteps = 32;
constexpr std::size_t kEnoughSteps = 5;  // so many are kept, whether they are warm or not

}  // namespace

void StepsBuilder::build() {
  find_tracks();
  find_launches();
  find_steps();
  if (!made_.thread_times_) {
    made_.thread_times_ = std::make_shared<const std::vector<ThreadTime>>(
        made_.steps_.empty() ? std::vector<ThreadTime>() : profile::thread_times(trace_));
  }
  if (made_.steps_.empty()) return;
  find_device_spans();
  find_lengths();
  find_idle();
  find_waits();
}

bool StepsBuilder::is_work(SpanId i) const {
  const SpanKind kind = trace_.kind(i);
  return trace_.on_gpu(i) &&
         (kind == SpanKind::kernel || kind == SpanKind::replay || kind == SpanKind::memcpy || kind == SpanKind::memset);
}

void StepsBuilder::find_tracks() {
  made_.tracks_.assign(trace_.tracks().size(), {});
  for (SpanId i = 0; i < trace_.size();) {
    const TrackId track = trace_.track_id(i);
    SpanId end = i;
    while (end < trace_.size() && trace_.track_id(end) == track) ++end;
    made_.tracks_[track] = {i, end};
    i = end;
  }
}

void StepsBuilder::find_launches() {
  made_.launched_from_.assign(trace_.size() + 1, 0);
  for (SpanId i = 0; i < trace_.size(); ++i) {
    if (is_work(i) && trace_.cause(i) != kNone) ++made_.launched_from_[trace_.cause(i)];
  }
  std::uint32_t sum = 0;
  for (std::uint32_t& from : made_.launched_from_) sum += from, from = sum;
  made_.launched_.resize(sum);
  for (SpanId i = static_cast<SpanId>(trace_.size()); i-- > 0;) {
    if (is_work(i) && trace_.cause(i) != kNone) made_.launched_[--made_.launched_from_[trace_.cause(i)]] = i;
  }
}

void StepsBuilder::find_steps() {
  profile::Steps found = profile::find_steps(trace_);
  made_.track_ = found.track;
  if (!found.of.empty()) {
    const SpanRange own = made_.tracks_[found.track];
    bool has_marks = false;
    for (SpanId i = own.begin; i < own.end && !has_marks; ++i) has_marks = trace_.kind(i) == SpanKind::step;
    made_.stepped_by_ = has_marks ? "steps as they are marked" : "from one run of a program to the next";
  } else {
    std::string by;
    found.of = repeated_ranges(made_, &made_.track_, &by);
    made_.stepped_by_ = fmt::format("from one '{}' to the next", by);
  }
  if (found.of.empty()) return;
  for (std::size_t i = 0; i + 1 < found.of.size(); ++i)
    found.of[i].end = std::min(found.of[i].end, found.of[i + 1].start);
  std::vector<std::int64_t> ns;
  for (const Interval& step : found.of) ns.push_back(step.end - step.start);
  made_.recorded_ = ns.size();
  const std::size_t to_spare = ns.size() - std::min(ns.size(), kEnoughSteps);
  made_.warm_up_ = std::min(warm_up_steps(ns), to_spare);
  found.of.erase(found.of.begin(), found.of.begin() + static_cast<std::ptrdiff_t>(made_.warm_up_));
  made_.first_number_ = made_.warm_up_ + 1;
  if (trace_.size() > kMostSpans && found.of.size() > kLeastSteps) {
    const auto kept = std::max(kLeastSteps, static_cast<std::size_t>(static_cast<double>(found.of.size()) * kMostSpans /
                                                                     static_cast<double>(trace_.size())));
    const auto from = static_cast<std::ptrdiff_t>((found.of.size() - std::min(kept, found.of.size())) / 2);
    made_.first_number_ += static_cast<std::size_t>(from);
    found.of = {found.of.begin() + from,
                found.of.begin() + from + static_cast<std::ptrdiff_t>(std::min(kept, found.of.size()))};
  }
  made_.steps_ = std::move(found.of);
  const TrackId track = made_.track_;
  made_.process_ = trace_.tracks()[track].process;
  if (made_.process_ < trace_.processes().size()) made_.source_ = trace_.processes()[made_.process_].source;
}

void StepsBuilder::find_device_spans() {
  std::vector<SpanId>& all = made_.device_spans_;
  const auto is_earlier = [&](SpanId a, SpanId b) { return trace_.start(a) < trace_.start(b); };
  std::vector<bool> launches(trace_.tracks().size());
  for (TrackId track = 0; track < trace_.tracks().size(); ++track) {
    const Track& one = trace_.tracks()[track];
    if (one.kind == TrackKind::thread || one.process != made_.process_) continue;
    const auto before = static_cast<std::ptrdiff_t>(all.size());
    for (SpanId i = made_.tracks_[track].begin; i < made_.tracks_[track].end; ++i) {
      if (!is_work(i) || (made_.step_of(i) == Steps::kOutside && made_.at(trace_.start(i)) == Steps::kOutside))
        continue;
      all.push_back(i);
      if (trace_.cause(i) != kNone) launches[trace_.track_id(trace_.cause(i))] = true;
    }
    std::inplace_merge(all.begin(), all.begin() + before, all.end(), is_earlier);
  }
  made_.launchers_.push_back(made_.track_);
  for (TrackId track = 0; track < launches.size(); ++track) {
    if (launches[track] && track != made_.track_) made_.launchers_.push_back(track);
  }
}

void StepsBuilder::find_lengths() {
  std::vector<std::int64_t> ends(made_.steps_.size(), 0);
  for (const SpanId i : made_.device_spans_) {
    const std::size_t step = made_.step_of(i);
    if (step != Steps::kOutside) ends[step] = std::max(ends[step], trace_.end(i));
  }
  made_.lengths_ = lengths_of(made_.steps_, ends);
  if (made_.lengths_.empty()) return;
  made_.median_ns_ = median(made_.lengths_);
  made_.average_ns_ = all_steps_ns(made_.steps_, ends) / static_cast<std::int64_t>(made_.steps_.size());
}

void StepsBuilder::find_idle() {
  std::map<int, std::vector<SpanId>> by_device;
  for (const SpanId i : made_.device_spans_) by_device[trace_.track(i).device].push_back(i);
  std::vector<Interval> any_busy;
  for (auto& [device, spans] : by_device) {
    std::vector<Interval> kernels;
    for (const SpanId i : spans) {
      any_busy.push_back({trace_.start(i), trace_.end(i)});
      const SpanKind kind = trace_.kind(i);
      if (kind == SpanKind::kernel || kind == SpanKind::replay) append(kernels, {trace_.start(i), trace_.end(i)});
    }
    unite(kernels);
    made_.devices_.push_back(device);
    made_.busy_kernels_.push_back(std::move(kernels));
    add_idle(device, spans);
  }
  unite(any_busy);
  if (!by_device.empty()) made_.all_idle_ = gaps(made_.steps_, any_busy);
  std::ranges::stable_sort(made_.idle_, {}, &Idle::start);
}

void StepsBuilder::add_idle(int device, const std::vector<SpanId>& spans) {
  std::vector<Interval> busy;
  for (const SpanId i : spans) append(busy, {trace_.start(i), trace_.end(i)});
  unite(busy);
  std::size_t next = 0;
  SpanId before = kNone;
  for (const Interval& gap : gaps(made_.steps_, busy)) {
    for (; next < spans.size() && trace_.start(spans[next]) < gap.end; ++next) {
      if (before == kNone || trace_.end(spans[next]) >= trace_.end(before)) before = spans[next];
    }
    Idle idle{.start = gap.start, .end = gap.end, .device = device, .before = before, .launched = gap.end};
    if (next < spans.size()) idle.after = spans[next], idle.launch = trace_.cause(spans[next]);
    const bool is_inside = idle.launch != kNone && before != kNone && trace_.cause(before) == idle.launch;
    if (idle.launch != kNone) idle.launched = std::clamp(trace_.start(idle.launch), gap.start, gap.end);
    if (is_inside) idle.launched = gap.start;
    made_.idle_.push_back(idle);
  }
}

void StepsBuilder::find_waits() {
  const WaitFinder finder(made_);
  for (const TrackId track : made_.launchers_) {
    for (std::size_t step = 0; step < made_.count(); ++step) {
      const SpanRange own = made_.spans(track, step);
      for (SpanId i = own.begin; i < own.end; ++i) {
        if (!finder.may_wait(i)) continue;
        const std::vector<SpanId> works = finder.waited_for(i);
        Wait wait{.span = i, .step = step};
        if (!works.empty()) {
          wait.for_work = works.front();
          const std::int64_t ended = std::min(trace_.end(works.front()), trace_.end(i));
          wait.waited_ns = std::max<std::int64_t>(0, ended - trace_.start(i));
          // Until the thread launches again, or waits again: the time behind that is the other wait's.
          const auto is_next = [&](SpanId next) {
            return trace_.start(next) >= trace_.end(i) && (!made_.launched_by(next).empty() || finder.may_wait(next));
          };
          SpanId next = i + 1;
          while (next < made_.tracks_[track].end && !is_next(next)) ++next;
          const std::int64_t until = next < made_.tracks_[track].end ? trace_.start(next) : made_.steps_[step].end;
          wait.idle_ns = made_.idle_in(std::max(trace_.start(i), ended), until);
        } else if (trace_.kind(i) != SpanKind::wait) {
          continue;
        }
        made_.waits_.push_back(wait);
      }
    }
  }
  std::ranges::stable_sort(made_.waits_, {}, [&](const Wait& wait) { return trace_.start(wait.span); });
}

WaitFinder::WaitFinder(const Steps& steps) : steps_(steps), reads_(steps.trace().sites().size()) {
  const Trace& trace = steps.trace();
  for (SiteId id = 0; id < trace.sites().size(); ++id) {
    const Site& site = trace.sites()[id];
    const std::string_view name = trace.text(site.name);
    reads_[id] = site.kind == SpanKind::host &&
                 has_word(name, {"np.asarray(jax.Array)", "block_until_ready", "BlockHostUntilReady",
                                 "PjRtBuffer::Await", "jax.Array.__float__", "jax.Array.item"});
  }
  std::map<TrackId, Stream> streams;
  for (const SpanId i : steps.device_spans()) {
    Stream& stream = streams[trace.track_id(i)];
    const SpanId cause = trace.cause(i);
    std::int64_t launched = cause == kNone ? trace.start(i) : trace.start(cause);
    if (!stream.launched.empty()) launched = std::max(launched, stream.launched.back());
    stream.spans.push_back(i), stream.launched.push_back(launched);
  }
  for (auto& [track, stream] : streams) streams_.push_back(std::move(stream));
}

// Synchronisations, and calls that copy: one that ends no earlier than its copy waited for that.
bool WaitFinder::may_wait(SpanId call) const {
  const Trace& trace = steps_.trace();
  const SpanKind kind = trace.kind(call);
  const SpanId around = trace.parent(call);
  if (reads_[trace.site_id(call)]) return true;
  if (kind == SpanKind::wait) return around == kNone || trace.kind(around) != SpanKind::wait;
  if (kind != SpanKind::launch && kind != SpanKind::memcpy) return false;
  const std::span<const SpanId> works = steps_.launched_by(call);
  return works.size() == 1 && trace.kind(works.front()) == SpanKind::memcpy &&
         trace.end(works.front()) <= trace.end(call);
}

std::vector<SpanId> WaitFinder::waited_for(SpanId call) const {
  constexpr std::int64_t kInexact = 5'000, kNear = 30'000;  // ns between the clocks of host and GPU; after an event
  const Trace& trace = steps_.trace();
  const std::int64_t end = trace.end(call);
  std::vector<SpanId> found;
  const std::span<const SpanId> own = steps_.launched_by(call);
  if (own.size() == 1 && trace.end(own.front()) <= end + kInexact) return {own.front()};
  const std::int64_t until = reads_[trace.site_id(call)] ? end : trace.start(call);
  for (const Stream& stream : streams_) {
    const auto behind = std::ranges::upper_bound(stream.launched, until) - stream.launched.begin();
    if (behind == 0) continue;
    const SpanId last = stream.spans[static_cast<std::size_t>(behind) - 1];
    if (trace.end(last) <= end + kInexact) found.push_back(last);
  }
  const auto ended = [&](SpanId i) { return trace.end(i); };
  if (found.empty() || std::ranges::max(found, {}, ended) == kNone ||
      trace.end(std::ranges::max(found, {}, ended)) < trace.start(call)) {
    // An event in the middle of a stream, perhaps.
    for (const Stream& stream : streams_) {
      auto next = std::ranges::upper_bound(stream.spans, end + kInexact, {}, ended);
      if (next == stream.spans.begin()) continue;
      const SpanId before = *std::prev(next);
      const SpanId cause = trace.cause(before);
      const bool is_launched = cause == kNone || trace.start(cause) <= trace.start(call);
      if (is_launched && trace.end(before) >= std::max(trace.start(call), end - kNear)) found.push_back(before);
    }
  }
  std::ranges::sort(found, std::ranges::greater(), ended);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  if (found.size() > kMost) found.resize(kMost);
  return found;
}

}  // namespace paoding::findings
