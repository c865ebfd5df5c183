// SPDX-License-Identifier: Apache-2.0
// Groups of a run on the CPU that start as one (cpu/group_batch.h): where one parallel region for all of them takes
// less than a region for each.
#include <map>
#include <vector>

#include "cpu/group_kernel.h"
#include "schedule/independent.h"
#include "schedule/schedule.h"

namespace paoding {

void batch_groups(const Plan& plan, Schedule* schedule) {
  constexpr std::size_t kMostMembers = 64;
  std::map<const Step*, double> costs;
  std::map<std::vector<const Step*>, std::size_t> numbers;
  const std::vector<Launch>& launches = schedule->launches;
  for (const auto& [begin, end] : independent_segments(launches, pretended_addresses(plan), kMostMembers)) {
    double together = 0, apart = 0;
    FusedLaunch batch;
    std::vector<const Step*> steps;
    for (std::size_t i = begin; i < end; ++i) {
      const Step* const step = launches[i].step;
      const auto [cost, is_new] = costs.try_emplace(step, 0);
      if (is_new) cost->second = estimated_cost(step->group);
      together += cost->second;
      apart += parallel_cost(cost->second, useful_threads(cost->second));
      batch.launches.push_back(i);
      steps.push_back(step);
    }
    const int threads = useful_threads(together);
    if (threads == 1 || parallel_cost(together, threads) >= apart) continue;
    batch.kernel = numbers.try_emplace(std::move(steps), numbers.size()).first->second;
    schedule->fused.push_back(std::move(batch));
  }
}

}  // namespace paoding
