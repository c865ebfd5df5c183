// SPDX-License-Identifier: Apache-2.0
#include "cpu/group_batch.h"

#include <gtest/gtest.h>

#include <deque>

namespace paoding {
namespace {

// One update of a parameter: p -= 0.1 * g, and the sum of g beside it.
Group update(std::int64_t elements) {
  Group group;
  group.extents = {elements};
  group.loads = {{f32, {1}}, {f32, {1}}};
  const Scalar p = make_input(&group.expr, 0, f32), g = make_input(&group.expr, 1, f32);
  group.outputs = {{f32, (p - g * 0.1).id(), 0, Combine::none, {1}}, {f32, g.id(), 1, Combine::sum, {0}}};
  return group;
}

TEST(CpuGroupBatch, GivesTheBitsOfOneMemberAfterTheOther) {
  const std::int64_t sizes[] = {1, 40000, 17, 300, 90000, 64, 1000, 5};
  for (const int threads : {1, 2, 3}) {
    std::deque<CpuGroupKernel> kernels;
    std::deque<std::vector<float>> memory;
    std::deque<std::vector<void*>> together, apart;
    std::vector<CpuGroupBatch::Member> members;
    double total = 0;
    for (const std::int64_t size : sizes) total += estimated_cost(update(size));
    for (const std::int64_t size : sizes) {
      const Group group = update(size);
      const double cost = estimated_cost(group);
      kernels.emplace_back(group, CpuGroupBatch::threads_of(cost, total, threads));
      const auto n = static_cast<std::size_t>(size);
      std::vector<float>&p = memory.emplace_back(n), &g = memory.emplace_back(n);
      for (std::size_t i = 0; i < n; ++i) p[i] = float(i % 13), g[i] = 0.37f * float(i % 101);
      for (auto* operands : {&together, &apart}) {
        std::vector<float>& out = memory.emplace_back(n, -1.0f);
        std::vector<float>& sum = memory.emplace_back(1, -1.0f);
        operands->push_back({p.data(), g.data(), out.data(), sum.data()});
      }
      members.push_back({&kernels.back(), together.back().data(), cost});
    }
    const CpuGroupBatch batch(members, threads);
    EXPECT_EQ(batch.size(), std::size(sizes));
    batch.run();
    for (std::size_t m = 0; m < kernels.size(); ++m) {
      kernels[m].run(apart[m].data());
      const auto* got = static_cast<const float*>(together[m][2]);
      const auto* want = static_cast<const float*>(apart[m][2]);
      for (std::int64_t i = 0; i < sizes[m]; ++i) ASSERT_EQ(got[i], want[i]) << "member " << m << " element " << i;
      EXPECT_EQ(*static_cast<const float*>(together[m][3]), *static_cast<const float*>(apart[m][3])) << m;
    }
  }
}

TEST(CpuGroupBatch, LeavesSmallMembersWhole) {
  EXPECT_EQ(CpuGroupBatch::threads_of(100, 100000, 2), 1);
  EXPECT_EQ(CpuGroupBatch::threads_of(90000, 100000, 2), 2);
}

}  // namespace
}  // namespace paoding
