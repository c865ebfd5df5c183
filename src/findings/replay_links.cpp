// SPDX-License-Identifier: Apache-2.0
// The edges of the graph: why work of a GPU began when it did, and which work a wait waited for.
#include <algorithm>
#include <cstdlib>

#include "findings/replay_builder.h"

namespace paoding::findings {

using namespace profile;

namespace {

constexpr std::int64_t kOverlap = 20'000;           // by which dependent launches overlap at most, in ns
constexpr std::int64_t kBehind = 20'000;            // work begins so soon after the work that it waited for
constexpr std::int64_t kBehindOfGraph = 1'000'000;  // where both are of one graph
constexpr std::int64_t kInexactly = 2'000;

constexpr std::uint8_t kNothing = 0, kRecords = 1, kWaits = 2, kNotKnown = 3;  // of a call, with events

std::uint8_t event_call(std::string_view name) {
  if (name.find("EventRecord") != name.npos) return kRecords;
  return name.find("StreamWaitEvent") != name.npos ? kWaits : kNothing;
}

bool is_collective(const Trace& trace, SpanId i) {
  if (trace.kind(i) != SpanKind::kernel) return false;
  const std::string_view name = trace.name(i);
  return name.starts_with("ncclDevKernel") || name.starts_with("ncclKernel") || name.starts_with("rcclDevKernel") ||
         name.starts_with("ncclKernel_");
}

}  // namespace

// An event is recorded behind the last launch of its thread, as a rule; a stream that is told to wait for it does so in
// front of the thread's next launch.
void ReplayBuilder::find_events(TrackId track) {
  std::vector<std::uint8_t> calls(trace_.sites().size(), kNotKnown);
  SpanId newest = kNone, recorded = kNone, waited = kNone;
  for (SpanId i = steps_.spans(track).begin; i < steps_.spans(track).end; ++i) {
    if (!is_in_window(i)) continue;
    std::uint8_t& call = calls[trace_.site_id(i)];
    if (call == kNotKnown) call = event_call(trace_.name(i));
    if (call == kRecords) recorded = newest;
    if (call == kWaits) waited = recorded;
    const std::span<const SpanId> works = steps_.launched_by(i);
    if (works.empty()) continue;
    if (waited != kNone) events_.emplace(i, waited);
    newest = works.back(), waited = kNone;
  }
}

// Work of another stream, or of another branch of its graph, that ended just before it began.
ReplayBuilder::NodeId ReplayBuilder::ended_before(NodeId node, SpanId span, std::int64_t* ns) const {
  constexpr std::size_t kFurthest = 64;
  const std::int64_t start = trace_.start(span);
  NodeId best = kNone;
  const SpanId cause = trace_.cause(span);
  std::int64_t best_end = start - kBehindOfGraph;
  for (std::size_t back = 0; back < std::min(kFurthest, recent_.size()); ++back) {
    const NodeId other = recent_[recent_.size() - 1 - back];
    const SpanId work = entries_[other].span;
    const std::int64_t end = trace_.end(work);
    const bool is_of_process = trace_.track(work).process == trace_.track(span).process;
    const bool is_near = end > start - kBehind || (cause != kNone && trace_.cause(work) == cause);
    if (other == node || !is_of_process || !is_near || end > start + kInexactly || end <= best_end) continue;
    best = other, best_end = end;
  }
  if (best != kNone) *ns = start - best_end;
  return best;
}

void ReplayBuilder::link_work(NodeId n, SpanId span) {
  Node& node = made_.nodes_[n];
  const TrackId track = trace_.track_id(span);
  const SpanId cause = trace_.cause(span);
  StreamEnd& stream = streams_[track];
  const std::int64_t start = trace_.start(span);
  const NodeId launch = cause == kNone ? kNone : launch_node_[cause];
  const NodeId before = stream.recent.empty() ? kNone : stream.recent.back();
  const SpanId before_span = before == kNone ? kNone : entries_[before].span;
  if (launch != kNone && trace_.track(span).process == steps_.process()) {
    const std::size_t step = steps_.at(trace_.start(cause));
    if (step != Steps::kOutside) node.step = static_cast<std::uint32_t>(step);
  }
  // The first works of a window may have to wait for those of before; and these are where they are.
  const bool is_behind_window = before == kNone || made_.nodes_[before].first == kNone;
  node.is_behind_unseen = launch == kNone;
  std::vector<Replay::More> more;
  const std::int64_t launched = launch == kNone ? 0 : trace_.start(cause);
  const bool is_same = before != kNone && cause != kNone && trace_.cause(before_span) == cause;
  const bool is_queued =
      before != kNone && (launch == kNone || is_same || trace_.end(before_span) >= launched + made_.latency_);
  if (launch != kNone) node.first = launch, node.first_ns = std::min(made_.latency_, start - launched);
  if (before != kNone) {
    const std::int64_t gap = start - trace_.end(before_span);
    node.second = before, node.second_ns = std::min(made_.gap_, gap);
    bool is_explained = gap <= most_gap();
    if (gap < -kOverlap) {  // a branch beside it: it follows work of the stream that had ended
      node.second = kNone;
      is_explained = false;
      for (std::size_t back = 1; back < stream.recent.size(); ++back) {
        const NodeId other = stream.recent[stream.recent.size() - 1 - back];
        const std::int64_t apart = start - trace_.end(entries_[other].span);
        if (apart < -kOverlap) continue;
        node.second = other, node.second_ns = std::min(apart, most_gap());
        is_explained = apart <= most_gap();
        break;
      }
    } else if (is_queued && is_explained) {
      node.second_ns = gap;
    }
    if (is_queued && !is_explained) {
      std::int64_t ns = 0;
      if (const NodeId other = ended_before(n, span, &ns); other != kNone) more.push_back({other, ns});
    }
  }
  if (launch != kNone && !is_queued) {
    const std::int64_t latency = start - launched;
    // A copy that is staged begins somewhere in its call.
    const bool is_staged = trace_.kind(span) == SpanKind::memcpy && start <= trace_.end(cause);
    if (latency <= most_latency() || is_staged) {
      node.first_ns = latency;
    } else {
      std::int64_t ns = 0;
      const NodeId other = ended_before(n, span, &ns);
      if (other != kNone) more.push_back({other, ns});
      node.is_behind_unseen = other == kNone && is_behind_window;
    }
  }
  // Its thread may have told the stream to wait for an event.
  if (launch != kNone) {
    const auto event = events_.find(cause);
    const NodeId waited = event == events_.end() ? kNone : made_.node_of_[event->second];
    if (waited != kNone && trace_.track_id(event->second) != track) {
      const std::int64_t apart = start - trace_.end(event->second);
      if (apart >= -kInexactly) more.push_back({waited, std::min(apart, made_.gap_)});
    }
  }
  node.more = static_cast<std::uint32_t>(made_.more_.size());
  made_.more_.insert(made_.more_.end(), more.begin(), more.end());
  node.more_end = static_cast<std::uint32_t>(made_.more_.size());
  stream.recent.push_back(n);
  if (stream.recent.size() > 2 * StreamEnd::kRecent) {
    stream.recent.erase(stream.recent.begin(), stream.recent.end() - StreamEnd::kRecent);
  }
  recent_.push_back(n);
}

void ReplayBuilder::link_wait(NodeId n, SpanId span) {
  Node& node = made_.nodes_[n];
  made_.node_of_[span] = n;
  constexpr std::int64_t kCall = 2'000, kMostWake = 1'000'000;
  const std::int64_t start = trace_.start(span), end = trace_.end(span), whole = node.first_ns;
  std::vector<SpanId> works = waits_.waited_for(span);
  std::erase_if(works, [&](SpanId work) { return made_.node_of_[work] == kNone; });
  node.more = static_cast<std::uint32_t>(made_.more_.size());
  for (std::size_t w = 0; w < works.size(); ++w) {
    const std::int64_t behind = end - trace_.end(works[w]);
    const bool is_reason = w == 0 && trace_.end(works[w]) > start;
    if (is_reason) node.first_ns = std::min(whole, kCall);
    const bool is_usual = is_reason && (behind <= kMostWake || waits_.reads_value(span));
    made_.more_.push_back({made_.node_of_[works[w]], is_usual ? behind : std::min(behind, made_.wake_)});
  }
  node.more_end = static_cast<std::uint32_t>(made_.more_.size());
}

// The collectives of a rank that are those of the first, which end together; where ranks do not have as many, some of
// them are at an end of the window. Empty where they are not told apart.
void ReplayBuilder::align_with(const std::vector<NodeId>& first, std::vector<NodeId>* own) const {
  if (own->size() == first.size()) return;
  constexpr std::int64_t kMostApart = 1'000'000;
  std::vector<NodeId> found;
  std::size_t next = 0;
  for (const NodeId node : first) {
    const std::int64_t end = trace_.end(entries_[node].span);
    const auto apart = [&](std::size_t i) { return std::abs(trace_.end(entries_[(*own)[i]].span) - end); };
    while (next + 1 < own->size() && apart(next + 1) < apart(next)) ++next;
    const bool is_one = next < own->size() && apart(next) < kMostApart;
    found.push_back(is_one ? (*own)[next++] : kNone);
  }
  *own = std::move(found);
}

// The n-th collective of every rank is one.
void ReplayBuilder::link_collectives() {
  std::map<ProcessId, std::vector<NodeId>> by_process;
  for (NodeId n = 0; n < entries_.size(); ++n) {
    const SpanId span = entries_[n].span;
    if (entries_[n].type == Type::work && is_collective(trace_, span))
      by_process[trace_.track(span).process].push_back(n);
  }
  if (by_process.size() < 2) return;
  const std::vector<NodeId> first = by_process.begin()->second;
  for (auto& [process, nodes] : by_process) align_with(first, &nodes);
  for (std::size_t c = 0; c < first.size(); ++c) {
    Replay::Group group;
    std::int64_t last_start = 0, first_end = 0;
    const bool is_of_all = std::ranges::none_of(by_process, [&](const auto& one) { return one.second[c] == kNone; });
    if (!is_of_all) continue;
    for (const auto& [process, nodes] : by_process) {
      const SpanId span = entries_[nodes[c]].span;
      last_start = group.members.empty() ? trace_.start(span) : std::max(last_start, trace_.start(span));
      first_end = group.members.empty() ? trace_.end(span) : std::min(first_end, trace_.end(span));
      group.members.push_back(nodes[c]);
      if (group.last == kNone || nodes[c] > group.last) group.last = nodes[c];
    }
    if (first_end <= last_start) continue;  // clocks apart, or not the same one
    group.ns = first_end - last_start;
    for (const NodeId member : group.members)
      made_.nodes_[member].group = static_cast<std::uint32_t>(made_.groups_.size());
    made_.groups_.push_back(std::move(group));
  }
}

}  // namespace paoding::findings
