// SPDX-License-Identifier: Apache-2.0
// Collectives while no other kernel of the GPU is under way: the step waits for them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"

namespace paoding::findings {

using namespace profile;

namespace {

std::int64_t covered_by(const std::vector<Interval>& united, std::int64_t start, std::int64_t end) {
  std::int64_t sum = 0;
  auto next = std::ranges::upper_bound(united, start, {}, &Interval::end);
  for (; next != united.end() && next->start < end; ++next) {
    sum += std::min(next->end, end) - std::max(next->start, start);
  }
  return sum;
}

// Collectives of all ranks in the steps, and the part of each that other kernels of its GPU cover.
struct RankCollective {
  SpanId span = kNone;
  std::int64_t hidden_ns = 0;
  bool is_late = false;  // began when nothing was computed; not the last of a step that hides others
};

std::vector<RankCollective> collectives_of_all(const KernelWorks& works) {
  const Trace& trace = works.trace();
  const Steps& steps = works.steps();
  const std::int64_t begin = steps.of().front().start, end = steps.of().back().end;
  std::map<SiteId, bool> known;
  std::map<std::pair<ProcessId, int>, std::vector<Interval>> computing;
  std::vector<RankCollective> all;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.kind(i) != SpanKind::kernel || trace.end(i) < begin || trace.start(i) > end) continue;
    const auto [found, is_new] = known.try_emplace(trace.site_id(i), false);
    if (is_new) found->second = kind_of_kernel(trace.name(i)) == KernelKind::collective;
    if (found->second) {
      all.push_back({i});
    } else {
      append(computing[{trace.track(i).process, trace.track(i).device}], {trace.start(i), trace.end(i)});
    }
  }
  for (auto& [where, intervals] : computing) unite(intervals);
  std::map<std::tuple<ProcessId, int, std::size_t>, std::size_t> last;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const SpanId span = all[i].span;
    const Track& track = trace.track(span);
    all[i].hidden_ns = covered_by(computing[{track.process, track.device}], trace.start(span), trace.end(span));
    const auto [found, is_new] = last.try_emplace({track.process, track.device, steps.at(trace.start(span))}, i);
    if (trace.end(span) > trace.end(all[found->second].span)) found->second = i;
  }
  // The end of those that began beside computation is left when all is done right, and so is the last one.
  constexpr std::int64_t kHidden = 20;  // a twentieth
  std::set<std::tuple<ProcessId, int, std::size_t>> hiding;
  const auto place = [&](const RankCollective& one) {
    const Track& track = trace.track(one.span);
    return std::tuple(track.process, track.device, steps.at(trace.start(one.span)));
  };
  for (RankCollective& one : all) {
    one.is_late = one.hidden_ns * kHidden < trace.duration(one.span);
    if (!one.is_late) hiding.insert(place(one));
  }
  for (const auto& [where, i] : last) all[i].is_late = all[i].is_late && !hiding.contains(where);
  return all;
}

}  // namespace

void find_exposed_collectives(const KernelWorks& works, Candidates* out) {
  const Trace& trace = works.trace();
  std::unordered_map<SpanId, const KernelWork*> own;
  for (const KernelWork& kernel : works.all()) {
    if (kernel.kind == KernelKind::collective) own[kernel.span] = &kernel;
  }
  if (own.empty()) return;
  Candidate candidate{.kind = Kind::exposed_collectives};
  KernelGroup group(works);
  double all_ns = 0, exposed_ns = 0;
  // Hidden collectives take multiprocessors and memory from the kernels that hide them, and some stay exposed: where it
  // was measured a fifth to a half was gained.
  constexpr std::int64_t kLeastPart = 5;
  for (const RankCollective& one : collectives_of_all(works)) {
    const auto kernel = own.find(one.span);
    const std::int64_t exposed = trace.duration(one.span) - one.hidden_ns;
    if (kernel != own.end()) all_ns += static_cast<double>(kernel->second->ns);
    constexpr std::int64_t kLeastNs = 1'000;
    if (exposed < kLeastNs) continue;
    if (kernel != own.end()) exposed_ns += static_cast<double>(exposed);
    if (!one.is_late) continue;
    if (kernel != own.end()) group.add(*kernel->second, static_cast<double>(exposed));
    candidate.most.push_back(Edit::duration(one.span, one.hidden_ns));
    candidate.least.push_back(Edit::duration(one.span, trace.duration(one.span) - exposed / kLeastPart));
  }
  if (group.is_empty()) return;
  candidate.title = "collectives that no computation hides";
  candidate.text =
      group.in_steps() +
      fmt::format(
          "Collectives take {} a step, {} of it ({}) while no other kernel of the GPU runs. A collective also lasts "
          "while it "
          "waits for the last rank.",
          time_text(group.per_step(all_ns)), time_text(group.per_step(exposed_ns)), percent_text(exposed_ns / all_ns));
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "time in which no other kernel runs";
  candidate.change = change_for(
      works.steps().source(),
      {"DistributedDataParallel(model, bucket_cap_mb=..., gradient_as_bucket_view=True): smaller "
       "buckets start earlier in the backward pass; FSDP: forward_prefetch=True",
       "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true", "start collectives as gradients become ready"});
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
