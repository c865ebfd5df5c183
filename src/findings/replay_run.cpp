// SPDX-License-Identifier: Apache-2.0
// Running the graph again with edits: one pass over its nodes.
#include <algorithm>

#include "findings/replay.h"
#include "profile/step_times.h"

namespace paoding::findings {

using namespace profile;

namespace {

constexpr std::uint8_t kNoWait = 1, kRemoved = 2, kMoved = 4, kDeferred = 8, kGap = 16;

}  // namespace

struct Replay::Run {
  std::vector<std::int64_t> durations, delays;  // delays: Node::first_ns
  std::vector<std::uint8_t> flags;
  std::vector<std::pair<NodeId, NodeId>> deferred;     // a wait, and the one whose work it waits for
  std::vector<std::pair<NodeId, std::int64_t>> moved;  // of the host: in front of this node; so long
  std::vector<std::pair<NodeId, std::int64_t>> gaps;
  std::vector<Cut> cuts;
};

std::int64_t Replay::measured_step_ns() const {
  return steps_.count() == 0 ? 0 : measured_ns_ / static_cast<std::int64_t>(steps_.count());
}

double mean(const std::vector<std::int64_t>& ns) {
  double sum = 0;
  for (const std::int64_t one : ns) sum += static_cast<double>(one);
  return ns.empty() ? 0 : sum / static_cast<double>(ns.size());
}

namespace {

Side limit_of(double step, double on_host, double on_gpu) {
  constexpr double kNearlyAll = 0.9;
  if (std::max(on_host, on_gpu) < kNearlyAll * step) return Side::neither;
  return on_gpu >= on_host ? Side::gpu : Side::host;
}

}  // namespace

Side Replay::Outcome::limit() const {
  if (steps.empty() || host.empty() || gpu.empty()) return Side::neither;
  return limit_of(static_cast<double>(step_ns()), mean(host), mean(gpu));
}

Side Replay::Outcome::limit_of_median() const {
  if (steps.empty() || host.empty() || gpu.empty()) return Side::neither;
  return limit_of(static_cast<double>(median(steps)), static_cast<double>(median(host)),
                  static_cast<double>(median(gpu)));
}

Replay::Outcome Replay::outcome(std::initializer_list<std::span<const Edit>> edits) const {
  if (steps_.count() == 0) return {};
  Run run;
  run.durations = durations_;
  run.delays.resize(nodes_.size());
  for (NodeId i = 0; i < nodes_.size(); ++i) run.delays[i] = nodes_[i].first_ns;
  run.flags.assign(nodes_.size(), 0);
  for (const std::span<const Edit> some : edits) apply(some, &run);
  apply_cuts(&run);
  return simulate(&run);
}

void Replay::add_cut(TrackId track, std::int64_t start, std::int64_t end, std::int64_t ns, Run* run) const {
  if (track >= host_of_.size() || host_of_[track] == kNone || end <= start) return;
  const double kept = std::clamp(static_cast<double>(ns) / static_cast<double>(end - start), 0.0, 1.0);
  run->cuts.push_back({host_of_[track], start, end, kept});
}

// Its time goes from the thread; the node behind it waits for the worker.
void Replay::move_host(TrackId track, std::int64_t start, std::int64_t end, Run* run) const {
  if (host_of_[track] == kNone) return;
  const Host& host = hosts_[host_of_[track]];
  const auto next = std::ranges::lower_bound(host.times, end);
  if (next == host.times.end()) return;
  add_cut(track, start, end, 0, run);
  run->moved.emplace_back(host.nodes[static_cast<std::size_t>(next - host.times.begin())], end - start);
}

// A copy that its call had to stage first begins as much sooner as the call is shorter.
void Replay::start_sooner(SpanId call, std::int64_t ns, Run* run) const {
  const std::span<const SpanId> works = steps_.launched_by(call);
  if (works.size() != 1 || node_of_[works.front()] == kNone) return;
  std::int64_t& delay = run->delays[node_of_[works.front()]];
  delay = std::min(delay, std::max(ns, latency_));
}

void Replay::apply(std::span<const Edit> edits, Run* run) const {
  const Trace& trace = steps_.trace();
  for (const Edit& edit : edits) {
    if (edit.what == Edit::What::host) {
      add_cut(edit.track, edit.start, edit.end, edit.ns, run);
      continue;
    }
    if (edit.what == Edit::What::move && edit.span == kNone) {
      move_host(edit.track, edit.start, edit.end, run);
      continue;
    }
    const SpanId span = edit.span;
    if (span >= node_of_.size()) continue;
    const NodeId node = node_of_[span];
    const bool is_work = trace.on_gpu(span);
    if (is_work && node == kNone) continue;
    switch (edit.what) {
      case Edit::What::duration:
        if (is_work) {
          run->durations[node] = edit.ns;
        } else {
          add_cut(trace.track_id(span), trace.start(span), trace.end(span), edit.ns, run);
          start_sooner(span, edit.ns, run);
        }
        break;
      case Edit::What::remove:
        if (is_work) {
          run->durations[node] = 0;
          run->flags[node] |= kRemoved;
          const SpanId launch = trace.cause(span);
          if (launch != kNone && steps_.launched_by(launch).size() == 1 && node_of_[launch] == kNone) {
            add_cut(trace.track_id(launch), trace.start(launch), trace.end(launch), 0, run);
          }
        } else {
          if (node != kNone) run->flags[node] |= kNoWait;
          add_cut(trace.track_id(span), trace.start(span), trace.end(span), 0, run);
          start_sooner(span, 0, run);
        }
        break;
      case Edit::What::no_wait:
        if (!is_work && node != kNone) run->flags[node] |= kNoWait;
        break;
      case Edit::What::defer_wait:
        if (is_work || node == kNone) break;
        if (edit.other == kNone || node_of_[edit.other] == kNone) {
          run->flags[node] |= kNoWait;
        } else {
          run->flags[node] |= kDeferred;
          run->deferred.emplace_back(node, node_of_[edit.other]);
        }
        break;
      case Edit::What::move:
        if (is_work) {
          run->flags[node] |= kMoved;
        } else {
          move_host(trace.track_id(span), trace.start(span), trace.end(span), run);
        }
        break;
      case Edit::What::gap:
        if (!is_work) break;
        run->flags[node] |= kGap;
        run->gaps.emplace_back(node, edit.ns);
        break;
      case Edit::What::host: break;
    }
  }
}

// Where cuts overlap, the one that keeps least counts.
void Replay::apply_cuts(Run* run) const {
  std::vector<Cut>& cuts = run->cuts;
  const auto order = [](const Cut& cut) { return std::pair(cut.host, cut.start); };
  if (!std::ranges::is_sorted(cuts, {}, order)) std::ranges::stable_sort(cuts, {}, order);
  std::size_t at = 0;
  const auto shorten = [&](const Host& host, std::int64_t start, std::int64_t end, double kept) {
    if (end <= start || kept >= 1) return;
    while (at < host.times.size() && host.times[at] <= start) ++at;
    // From behind the node before to this node is its delay. Nothing is known of the time in front of the first.
    for (std::size_t n = std::max<std::size_t>(at, 1); n < host.times.size() && host.times[n - 1] < end; ++n) {
      const std::int64_t inside = std::min(end, host.times[n]) - std::max(start, host.times[n - 1]);
      if (inside <= 0) continue;
      const std::int64_t measured = host.times[n] - host.times[n - 1];
      std::int64_t& delay = run->delays[host.nodes[n]];
      const double part = static_cast<double>(nodes_[host.nodes[n]].first_ns) / static_cast<double>(measured);
      delay -= static_cast<std::int64_t>(static_cast<double>(inside) * std::min(1.0, part) * (1 - kept));
      delay = std::max<std::int64_t>(delay, 0);
    }
  };
  for (std::size_t i = 0; i < cuts.size();) {
    const std::uint32_t of = cuts[i].host;
    at = 0;
    // Stretches that are cut, with the strongest of the cuts that are open.
    std::vector<Cut> open;
    std::int64_t from = cuts[i].start;
    const auto advance = [&](std::int64_t until) {
      while (!open.empty() && from < until) {
        const auto first_end = std::ranges::min(open, {}, &Cut::end).end;
        const double kept = std::ranges::min(open, {}, &Cut::kept).kept;
        const std::int64_t to = std::min(first_end, until);
        shorten(hosts_[of], from, to, kept);
        from = to;
        std::erase_if(open, [&](const Cut& cut) { return cut.end <= from; });
      }
      from = until;
    };
    std::int64_t last = 0;
    for (; i < cuts.size() && cuts[i].host == of; ++i) {
      advance(cuts[i].start);
      // One that lies within a stronger one says nothing.
      const bool is_within =
          std::ranges::any_of(open, [&](const Cut& cut) { return cut.end >= cuts[i].end && cut.kept <= cuts[i].kept; });
      if (!is_within) open.push_back(cuts[i]);
      last = std::max(last, cuts[i].end);
    }
    advance(last);
  }
}

Replay::Outcome Replay::simulate(Run* run) const {
  std::ranges::sort(run->moved), std::ranges::sort(run->deferred), std::ranges::sort(run->gaps);
  std::vector<std::int64_t> starts(nodes_.size()), ends(nodes_.size());
  std::vector<std::int64_t> work_ends(steps_.count(), 0), latest(groups_.size(), 0);
  std::size_t next_moved = 0, next_deferred = 0, next_gap = 0;
  std::int64_t worker = 0, copier = 0;  // until when those that work beside are busy; from the first step on
  std::int64_t gpu_until = 0;
  std::vector<std::int64_t> gpu(steps_.count(), 0);
  for (NodeId i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const std::uint8_t flags = run->flags[i];
    if (node.type != Type::work) {
      std::int64_t at = node.first == kNone ? fixed_[i] : starts[node.first] + run->delays[i];
      if (node.type == Type::resume && (flags & kNoWait) == 0) {
        const Node* waits = &node;
        if ((flags & kDeferred) != 0) {
          while (run->deferred[next_deferred].first < i) ++next_deferred;
          waits = &nodes_[run->deferred[next_deferred].second];
        }
        for (std::uint32_t m = waits->more; m < waits->more_end; ++m)
          at = std::max(at, ends[more_[m].work] + more_[m].ns);
      }
      for (; next_moved < run->moved.size() && run->moved[next_moved].first == i; ++next_moved) {
        worker += run->moved[next_moved].second;
        at = std::max(at, worker);
      }
      starts[i] = ends[i] = at;
      continue;
    }
    const bool has_none = node.first == kNone && node.second == kNone && node.more == node.more_end;
    std::int64_t at = has_none || node.is_behind_unseen ? fixed_[i] : 0;
    if (node.first != kNone) at = std::max(at, starts[node.first] + run->delays[i]);
    if (node.second != kNone) {
      std::int64_t gap = node.second_ns;
      if ((flags & kRemoved) != 0) gap = std::min<std::int64_t>(gap, 0);
      if ((flags & kGap) != 0) {
        while (run->gaps[next_gap].first < i) ++next_gap;
        gap = run->gaps[next_gap].second;
      }
      // A dependent launch begins no earlier than the work that it overlaps, however short that has become.
      at = std::max(at, std::max(ends[node.second] + gap, starts[node.second]));
    }
    for (std::uint32_t m = node.more; m < node.more_end; ++m) at = std::max(at, ends[more_[m].work] + more_[m].ns);
    starts[i] = at;
    if ((flags & kMoved) != 0) {
      copier += run->durations[i];
      ends[i] = std::max(at, copier);
    } else {
      ends[i] = at + run->durations[i];
    }
    if (node.step != kNone) {  // works of several streams are nearly in the order of their starts
      gpu[node.step] += std::max<std::int64_t>(0, ends[i] - std::max(at, gpu_until));
      gpu_until = std::max(gpu_until, ends[i]);
    }
    if (node.group != kNone) {
      const Group& group = groups_[node.group];
      latest[node.group] = std::max(latest[node.group], at);
      if (group.last == i) {
        for (const NodeId member : group.members) {
          const std::int64_t ns = std::min(group.ns, run->durations[member]);
          ends[member] = std::max(starts[member], latest[node.group] + ns);
          if (nodes_[member].step != kNone)
            work_ends[nodes_[member].step] = std::max(work_ends[nodes_[member].step], ends[member]);
        }
      }
    } else if (node.step != kNone) {
      work_ends[node.step] = std::max(work_ends[node.step], ends[i]);
    }
  }
  std::vector<Interval> steps;
  for (std::size_t k = 0; k < steps_.count(); ++k) steps.push_back({starts[begin_of_[k]], starts[end_of_[k]]});
  Outcome made{.all_ns = all_steps_ns(steps, work_ends), .steps = lengths_of(steps, work_ends), .gpu = std::move(gpu)};
  made.host.assign(steps.size(), 0);
  std::size_t step = 0;
  for (const NodeId i : hosts_[host_of_[steps_.track()]].nodes) {
    while (step < steps.size() && i > end_of_[step]) ++step;
    if (step < steps.size() && i > begin_of_[step]) made.host[step] += run->delays[i];
  }
  return made;
}

}  // namespace paoding::findings
