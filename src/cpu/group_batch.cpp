// SPDX-License-Identifier: Apache-2.0
#include "cpu/group_batch.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "cpu/parallel.h"

namespace paoding {

CpuGroupBatch::CpuGroupBatch(std::vector<Member> members, int threads)
    : members_(std::move(members)), shares_(static_cast<std::size_t>(threads)) {
  // Whole members go to whoever has least to do, dearest first.
  std::vector<std::size_t> order(members_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return members_[a].cost > members_[b].cost; });
  std::vector<double> load(shares_.size(), 0);
  for (const std::size_t m : order) {
    const Member& member = members_[m];
    PD_ASSERT(member.kernel->regions() == 1, "a member runs in one region");
    if (member.kernel->threads() == threads) {
      for (std::vector<std::size_t>& share : shares_) share.push_back(m);
      continue;
    }
    PD_ASSERT(member.kernel->threads() == 1, "a member is whole or for all threads");
    const auto least = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    shares_[least].push_back(m);
    load[least] += member.cost;
  }
}

void CpuGroupBatch::work(std::size_t thread) const {
  for (const std::size_t m : shares_[thread]) {
    const Member& member = members_[m];
    member.kernel->run_part(member.kernel->threads() == 1 ? 0 : static_cast<int>(thread), member.operands);
  }
}

void CpuGroupBatch::run() const {
  parallel(
      threads(),
      [](int thread, void* state) { static_cast<const CpuGroupBatch*>(state)->work(static_cast<std::size_t>(thread)); },
      const_cast<CpuGroupBatch*>(this));
  for (const Member& member : members_) member.kernel->finish(member.operands);
}

int CpuGroupBatch::threads_of(double cost, double batch_cost, int threads) {
  return cost > 0.25 * batch_cost / threads ? threads : 1;
}

}  // namespace paoding
