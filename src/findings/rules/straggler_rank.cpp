// SPDX-License-Identifier: Apache-2.0
// A rank that comes to collectives after all others, which wait in theirs. No clocks are compared: the last one to come
// waits for nobody, so its collectives are the shortest.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"
#include "profile/step_times.h"

namespace paoding::findings {

using namespace profile;

namespace {

struct RankOf {
  ProcessId process = 0;
  std::vector<SpanId> collectives;  // in order of start
};

std::vector<RankOf> collectives_of_ranks(const Trace& trace) {
  std::map<ProcessId, RankOf> ranks;
  std::map<SiteId, bool> is_collective;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.kind(i) != SpanKind::kernel) continue;
    const auto [found, is_new] = is_collective.try_emplace(trace.site_id(i), false);
    if (is_new) found->second = kind_of_kernel(trace.name(i)) == KernelKind::collective;
    if (!found->second) continue;
    RankOf& rank = ranks[trace.track(i).process];
    rank.process = trace.track(i).process;
    rank.collectives.push_back(i);
  }
  std::vector<RankOf> all;
  for (auto& [process, rank] : ranks) {
    std::ranges::stable_sort(rank.collectives, {}, [&](SpanId i) { return trace.start(i); });
    all.push_back(std::move(rank));
  }
  return all;
}

// Traces of ranks do not begin with the same collective. Those of a pair end together, so the shift is the one by which
// ends are nearest to each other. Leaves as many of each, the same ones; returns how many.
std::size_t align_collectives(const Trace& trace, std::vector<RankOf>* ranks) {
  constexpr std::ptrdiff_t kMostShift = 64;
  constexpr std::int64_t kMostApart = 1'000'000;  // ns, by clocks of a host or such that were set beside each other
  std::ptrdiff_t begin = 0, end = static_cast<std::ptrdiff_t>(ranks->front().collectives.size());
  std::vector<std::ptrdiff_t> shifts(ranks->size(), 0);
  const std::vector<SpanId>& first = ranks->front().collectives;
  for (std::size_t r = 1; r < ranks->size(); ++r) {
    const std::vector<SpanId>& own = (*ranks)[r].collectives;
    std::int64_t nearest = kMostApart;
    bool is_found = false;
    for (std::ptrdiff_t shift = -kMostShift; shift <= kMostShift; ++shift) {
      std::vector<std::int64_t> apart;
      for (std::ptrdiff_t i = 0; i < std::ssize(first); ++i) {
        if (i + shift < 0 || i + shift >= std::ssize(own)) continue;
        const SpanId a = first[static_cast<std::size_t>(i)], b = own[static_cast<std::size_t>(i + shift)];
        apart.push_back(std::abs(trace.end(a) - trace.end(b)));
      }
      if (apart.empty()) continue;
      const std::int64_t middle = median(std::move(apart));
      if (middle >= nearest) continue;
      nearest = middle;
      shifts[r] = shift;
      is_found = true;
    }
    if (!is_found) return 0;
    begin = std::max(begin, -shifts[r]);
    end = std::min(end, std::ssize(own) - shifts[r]);
  }
  if (begin >= end) return 0;
  for (std::size_t r = 0; r < ranks->size(); ++r) {
    std::vector<SpanId>& own = (*ranks)[r].collectives;
    own = {own.begin() + begin + shifts[r], own.begin() + end + shifts[r]};
  }
  return static_cast<std::size_t>(end - begin);
}

// The rank is as fast as the next one: its host's time and its GPU's work shrink by the share that the others waited.
// Where its surplus is dealt out among all, `shared_out` of that is gained.
void shrink_rank(const Trace& trace, ProcessId process, Interval of, double share, double shared_out,
                 Candidate* candidate) {
  const auto shrunk = [&](std::int64_t ns, double by) {
    return static_cast<std::int64_t>(static_cast<double>(ns) * (1 - by));
  };
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.track(i).process != process || !trace.on_gpu(i) || trace.start(i) < of.start || trace.end(i) > of.end)
      continue;
    if (trace.kind(i) != SpanKind::kernel || kind_of_kernel(trace.name(i)) == KernelKind::collective) continue;
    candidate->most.push_back(Edit::duration(i, shrunk(trace.duration(i), share)));
    candidate->least.push_back(Edit::duration(i, shrunk(trace.duration(i), share * shared_out)));
  }
  for (TrackId track = 0; track < trace.tracks().size(); ++track) {
    if (trace.tracks()[track].process != process || trace.tracks()[track].kind != TrackKind::thread) continue;
    candidate->most.push_back(Edit::host(track, of.start, of.end, shrunk(of.end - of.start, share)));
    candidate->least.push_back(Edit::host(track, of.start, of.end, shrunk(of.end - of.start, share * shared_out)));
  }
}

}  // namespace

void find_straggler_rank(const KernelWorks& works, Candidates* out) {
  const Trace& trace = works.trace();
  const bool has_collectives =
      std::ranges::any_of(works.all(), [](const KernelWork& one) { return one.kind == KernelKind::collective; });
  if (!has_collectives) return;
  std::vector<RankOf> ranks = collectives_of_ranks(trace);
  if (ranks.size() < 2) {
    out->say_nothing(Kind::straggler_rank,
                     "one rank was recorded: give paoding report a folder with the traces of all");
    return;
  }
  constexpr std::size_t kLeastCollectives = 5;
  const std::size_t count = align_collectives(trace, &ranks);
  if (count < kLeastCollectives) {
    out->say_nothing(Kind::straggler_rank, "the ranks' traces do not hold the same collectives");
    return;
  }
  std::vector<std::size_t> came_last(ranks.size());
  std::size_t decisive = 0;
  std::vector<std::vector<std::int64_t>> waits(ranks.size());
  std::vector<std::int64_t> shortest(count), second(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::pair<std::int64_t, std::size_t>> ns;
    for (std::size_t r = 0; r < ranks.size(); ++r) ns.push_back({trace.duration(ranks[r].collectives[i]), r});
    std::ranges::sort(ns);
    shortest[i] = ns[0].first;
    second[i] = ns[1].first;
    // Where all came together, nobody came last.
    constexpr std::int64_t kLeastWait = 20'000;
    const std::int64_t longest = ns.back().first;
    if (longest - ns[0].first < std::max(kLeastWait, longest / 5)) continue;
    ++decisive;
    came_last[ns[0].second] += 1;
    for (const auto& [own, r] : ns) waits[r].push_back(own - ns[0].first);
  }
  if (decisive < kLeastCollectives) return;
  const auto worst = static_cast<std::size_t>(std::ranges::max_element(came_last) - came_last.begin());
  constexpr double kLeastShare = 0.7, kLeastZ = 3.5;
  const double share = static_cast<double>(came_last[worst]) / static_cast<double>(decisive);
  if (share < kLeastShare) return;
  // From the median of the waits of each rank: the modified z of the one that does not wait.
  std::vector<double> medians;
  for (std::vector<std::int64_t>& own : waits) medians.push_back(static_cast<double>(median(own)));
  std::vector<double> sorted = medians;
  std::ranges::sort(sorted);
  const double middle = sorted[sorted.size() / 2];
  std::vector<double> away;
  for (const double one : medians) away.push_back(std::fabs(one - middle));
  std::ranges::sort(away);
  const double spread = away[away.size() / 2];
  constexpr double kToDeviation = 0.6745;
  const bool stands_out = ranks.size() == 2 || middle * kToDeviation > kLeastZ * spread;
  if (!stands_out || middle <= 0) return;
  Candidate candidate{.kind = Kind::straggler_rank};
  KernelGroup group(works);
  std::map<SpanId, std::size_t> place;
  for (const RankOf& rank : ranks) {
    if (rank.process != works.steps().process()) continue;
    for (std::size_t i = 0; i < count; ++i) place[rank.collectives[i]] = i;
  }
  for (const KernelWork& kernel : works.all()) {
    const auto own = place.find(kernel.span);
    if (own == place.end() || kernel.ns <= shortest[own->second]) continue;
    group.add(kernel, static_cast<double>(kernel.ns - shortest[own->second]));
  }
  const std::vector<SpanId>& last = ranks[worst].collectives;
  const Interval all{works.steps().of().front().start, works.steps().of().back().end};
  double waited = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (trace.end(last[i]) < all.start || trace.start(last[i]) > all.end) continue;
    waited += static_cast<double>(second[i] - shortest[i]);
  }
  constexpr double kMostShare = 0.9;
  const double longer =
      std::min(kMostShare, waited / std::max(works.all_steps_ns(), static_cast<double>(all.end - all.start)));
  constexpr double kLeastWaited = 0.05;
  if (longer < kLeastWaited) return;
  shrink_rank(trace, ranks[worst].process, all, longer, 1 - 1 / static_cast<double>(ranks.size()), &candidate);
  const std::string name = trace.process_name(ranks[worst].process);
  candidate.title = fmt::format("{} comes last to collectives", name);
  candidate.text = fmt::format(
      "In {} of {} collectives to which ranks came apart, {} is the one that the others wait for, {} each at the "
      "median.",
      came_last[worst], decisive, name, time_text(middle));
  candidate.where = group.where();
  Evidence lost = group.lost();
  for (std::size_t i = 0; i < count && group.is_empty(); ++i) {
    lost.add(last[i], static_cast<double>(second[i] - shortest[i]));
  }
  candidate.evidence = lost.examples(works.steps());
  candidate.lost_is = "time in which it waits for the last rank";
  candidate.change =
      change_for(works.steps().source(),
                 {"give every rank as much: a sampler that balances lengths (or drops the uneven rest), the "
                  "same input pipeline; else look at that GPU's clocks",
                  "give every device as much: shard evenly", "give every rank as much"});
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
