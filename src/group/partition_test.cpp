// SPDX-License-Identifier: Apache-2.0
// Shares of groups: by which axes, where they lie, and when two groups keep to theirs, against the elements that each
// partition touches, one by one.
#include "group/partition.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "gpu/codegen/group_cases.h"

namespace paoding {
namespace {

// A group of one load and one output with these strides; the output reduces the axes of `mask`.
Group copy_of(std::vector<std::int64_t> extents, std::vector<std::int64_t> load, std::vector<std::int64_t> output,
              std::uint32_t mask = 0) {
  Group group;
  group.extents = std::move(extents);
  group.loads = {{f32, std::move(load)}};
  const Scalar x = make_input(&group.expr, 0, f32);
  group.outputs = {{f32, x.id(), mask, mask != 0 ? Combine::sum : Combine::none, std::move(output)}};
  return group;
}

// The bytes of each partition of operand i.
std::vector<std::set<std::intptr_t>> touched(const Group& group, std::size_t i, int axis, std::intptr_t address) {
  std::vector<std::set<std::intptr_t>> partitions(static_cast<std::size_t>(partition_count(group, axis)));
  const auto& strides = i == 0 ? group.loads[0].strides : group.outputs[0].strides;
  std::vector<std::int64_t> at(group.extents.size(), 0);
  for (std::int64_t point = 0; point < group.points(); ++point) {
    std::int64_t rest = point, offset = 0;
    for (std::size_t a = group.extents.size(); a-- > 0;) {
      at[a] = rest % group.extents[a], rest /= group.extents[a];
      offset += at[a] * strides[a];
    }
    for (int byte = 0; byte < 4; ++byte)
      partitions[static_cast<std::size_t>(at[static_cast<std::size_t>(axis)])].insert(address + 4 * offset + byte);
  }
  return partitions;
}

TEST(Partitions, AreAlongAxesThatNoReductionIsOver) {
  const Group rows = copy_of({8, 1, 5, 3}, {15, 15, 3, 1}, {3, 3, 0, 1}, 0b100);
  EXPECT_EQ(partition_axes(rows), (std::vector<int>{0, 3}));
  EXPECT_EQ(partition_count(rows, 0), 8);
  EXPECT_EQ(partition_count(rows, kWholeGroup), 1);
  EXPECT_EQ(partition_step(rows, 0, 0), 15);
  EXPECT_EQ(first_partition(rows, 3).extents, (std::vector<std::int64_t>{8, 1, 5, 1}));
  EXPECT_TRUE(partition_axes(copy_of({4}, {1}, {0}, 0b1)).empty());
}

// Whatever stay_within_partitions() lets through is so; of layouts as graphs have them it lets most through.
TEST(Partitions, ThatAreSaidToKeepApartDo) {
  std::mt19937 random(5);
  const auto of = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)); };
  int kept = 0, apart = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::int64_t partitions = 2 + of(3), inner = 1 + of(4), outer = 1 + of(3);
    const auto any = [&] {
      std::vector<std::int64_t> extents{outer, partitions, inner};
      // Dense, or with room between, or with the axes the other way round.
      std::vector<std::int64_t> strides{partitions * inner, inner, 1};
      const auto kind = of(4);
      if (kind == 1) strides = {partitions * (inner + 2), inner + 2, 1};
      if (kind == 2) strides = {inner, inner * outer, 1};
      if (kind == 3) strides = {1 + of(9), of(9), 1 + of(3)};
      return copy_of(extents, strides, strides);
    };
    const Group a = any(), b = any();
    const std::intptr_t from_a = 4096, from_b = 4096 + 4 * of(24);
    const PartitionMemory mine = partition_memory(a, 1, 1, from_a), its = partition_memory(b, 0, 1, from_b);
    const auto x = touched(a, 1, 1, from_a), y = touched(b, 0, 1, from_b);
    bool do_keep = true;
    for (std::size_t s = 0; s < x.size(); ++s) {
      for (std::size_t t = 0; t < y.size(); ++t) {
        for (const std::intptr_t byte : x[s]) do_keep = do_keep && (s == t || !y[t].contains(byte));
      }
    }
    const bool are_said = stay_within_partitions(mine, its);
    EXPECT_TRUE(do_keep || !are_said) << "round " << round;
    kept += are_said ? 1 : 0, apart += do_keep ? 1 : 0;
  }
  EXPECT_GT(kept, 200);
  EXPECT_GT(apart, kept) << "none was refused that could be let through";
}

TEST(Partitions, OfWhatTheOneWritesAndTheOtherReadsInItsOwnLayoutKeepApart) {
  const Group makes = copy_of({50, 128, 8}, {1024, 8, 1}, {128, 1, 0}, 0b100);  // scores of places and rows
  const Group reads = copy_of({1, 128, 50}, {0, 1, 128}, {0, 50, 1});           // of a row all places
  const PartitionMemory scores = partition_memory(makes, 1, 1, 1 << 20);
  EXPECT_EQ(scores.step, 4);
  EXPECT_EQ(scores.period, 512);
  EXPECT_TRUE(stay_within_partitions(scores, partition_memory(reads, 0, 1, 1 << 20)));
  EXPECT_FALSE(stay_within_partitions(scores, partition_memory(reads, 0, 1, (1 << 20) + 4))) << "its neighbour's";
  EXPECT_FALSE(stay_within_partitions(scores, partition_memory(reads, 0, 2, 1 << 20))) << "along the places";
  EXPECT_TRUE(stay_within_partitions(scores, partition_memory(reads, 0, 1, (1 << 20) + 50 * 512))) << "after it";
}

}  // namespace
}  // namespace paoding
