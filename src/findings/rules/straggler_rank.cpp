// SPDX-License-Identifier: Apache-2.0
// A rank that comes to collectives after all others, which wait in theirs. No clocks are compared: the last one to come
// waits for nobody, so its collectives are the shortest.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "findings/kernel_rules.h"
#include "findings/wording.h"
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

}  // namespace

void find_straggler_rank(const KernelWorks& works, Candidates* out) {
  const Trace& trace = works.trace();
  const bool has_collectives =
      std::ranges::any_of(works.all(), [](const KernelWork& one) { return one.kind == KernelKind::collective; });
  if (!has_collectives) return;
  const std::vector<RankOf> ranks = collectives_of_ranks(trace);
  if (ranks.size() < 2) {
    out->say_nothing(Kind::straggler_rank, "one rank was recorded: give paoding report a folder with the traces of all");
    return;
  }
  const std::size_t count = ranks.front().collectives.size();
  constexpr std::size_t kLeastCollectives = 10;
  for (const RankOf& rank : ranks) {
    if (rank.collectives.size() == count) continue;
    out->say_nothing(Kind::straggler_rank, "the ranks' traces do not hold the same collectives");
    return;
  }
  if (count < kLeastCollectives) return;
  std::vector<std::size_t> came_last(ranks.size());
  std::vector<std::vector<std::int64_t>> waits(ranks.size());
  std::vector<std::int64_t> shortest(count), second(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::pair<std::int64_t, std::size_t>> ns;
    for (std::size_t r = 0; r < ranks.size(); ++r) ns.push_back({trace.duration(ranks[r].collectives[i]), r});
    std::ranges::sort(ns);
    shortest[i] = ns[0].first;
    second[i] = ns[1].first;
    came_last[ns[0].second] += 1;
    for (const auto& [own, r] : ns) waits[r].push_back(own - ns[0].first);
  }
  const auto worst = static_cast<std::size_t>(std::ranges::max_element(came_last) - came_last.begin());
  constexpr double kLeastShare = 0.7, kLeastZ = 3.5;
  const double share = static_cast<double>(came_last[worst]) / static_cast<double>(count);
  if (share < kLeastShare) return;
  // By the median of the waits of each rank: the modified z of the one that does not wait.
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
    if (own == place.end()) continue;
    const std::int64_t most = shortest[own->second], least = kernel.ns - std::max<std::int64_t>(0, second[own->second] - most);
    if (most >= kernel.ns) continue;
    group.add(kernel, static_cast<double>(kernel.ns - most));
    candidate.most.push_back(Edit::duration(kernel.span, most));
    candidate.least.push_back(Edit::duration(kernel.span, std::max(most, least)));
  }
  if (group.is_empty()) return;
  const std::string name = trace.process_name(ranks[worst].process);
  candidate.title = fmt::format("{} comes last to collectives", name);
  candidate.text = fmt::format(
      "In {} of {} collectives {} is the one that the others wait for; the others' median wait is {} in each. Their "
      "collectives take {} of a step.",
      came_last[worst], count, name, time_text(middle), time_text(group.per_step(group.ns())));
  candidate.where = group.where();
  candidate.evidence = group.evidence();
  candidate.change = change_for(works.steps().source(),
                                {"give every rank as much: a sampler that balances lengths (or drops the uneven rest), the "
                                 "same input pipeline; else look at that GPU's clocks",
                                 "give every device as much: shard evenly", "give every rank as much"});
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
