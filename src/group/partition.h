// SPDX-License-Identifier: Apache-2.0
// A group's partitions: the work at each index along an axis that it does not reduce. A group that reads another's
// results partition by partition can run after it without waiting for all of it (gpu/codegen/vertical_launch.h).
#pragma once

#include <cstdint>
#include <vector>

#include "group/group.h"

namespace paoding {

/// Stands for no axis: the whole group is one partition.
inline constexpr int kWholeGroup = -1;

/// The axes of two or more indices by which the group can be split, outermost first: every output moves along
/// them, and no reduction is over them.
std::vector<int> partition_axes(const Group& group);

/// Shares along an axis; one of kWholeGroup.
std::int64_t partition_count(const Group& group, int axis);

/// The first partition as a group. The others' operands begin partition_step() elements farther each, and its indices
/// with numbers that are their strides along the axis larger.
Group first_partition(const Group& group, int axis);

/// Elements from an operand's partition to the next; 0 where all partitions read the same, and of kWholeGroup.
std::int64_t partition_step(const Group& group, std::size_t operand, int axis);

/// Where an operand's partitions lie in memory, in bytes.
struct PartitionMemory {
  std::intptr_t begin = 0, end = 0;  // of all partitions
  std::int64_t step = 0;             // from a partition to the next; 0 where all are the same memory
  std::int64_t bytes = 0;   // from the first of a partition to the end of the last, except those that are `period` away
  std::int64_t period = 0;  // partitions lie again so far apart, along axes outside of the partitions'; 0 without such
  bool is_written = false;
};

/// The memory of operand `i`, which begins at `address`. A step of 0 where partitions overlap, or a stride is negative.
PartitionMemory partition_memory(const Group& group, std::size_t i, int axis, std::intptr_t address);

/// Whether partition s of the one touches, for every s, no memory that another partition than s of the other touches,
/// or neither writes it.
bool stay_within_partitions(const PartitionMemory& a, const PartitionMemory& b);

}  // namespace paoding
