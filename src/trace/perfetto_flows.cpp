// SPDX-License-Identifier: Apache-2.0
#include "trace/perfetto_flows.h"

#include <algorithm>
#include <numeric>

namespace paoding::trace {

std::uint32_t PerfettoFlows::insert(std::uint64_t flow, std::size_t at) {
  const auto number = static_cast<std::uint32_t>(flows_.size());
  flows_.push_back(flow);
  slots_[at] = number;
  if (flows_.size() * 2 <= slots_.size()) return number;
  slots_.assign(slots_.size() * 2, kEmpty);
  for (std::uint32_t i = 1; i < flows_.size(); ++i) slots_[find(flows_[i])] = i;
  return number;
}

void PerfettoFlows::link(profile::Trace& trace) const {
  std::vector<std::size_t> place(flows_.size() + 1);
  for (const End& end : ends_) ++place[end.flow + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<End> by_flow(ends_.size());
  for (const End& end : ends_) by_flow[place[end.flow]++] = end;

  const auto comes_before = [](const End& a, const End& b) { return a.ns < b.ns; };
  for (auto from = by_flow.begin(); from != by_flow.end();) {
    const auto to = std::find_if(from, by_flow.end(), [&](const End& end) { return end.flow != from->flow; });
    if (!std::is_sorted(from, to, comes_before)) std::stable_sort(from, to, comes_before);
    for (auto end = std::next(from); end != to; ++end) {
      if (std::prev(end)->span != end->span) trace.add_flow(std::prev(end)->span, end->span);
    }
    from = to;
  }
}

}  // namespace paoding::trace
