// SPDX-License-Identifier: Apache-2.0
#include "group/partition.h"

#include <algorithm>

#include "group/operands.h"

namespace paoding {
std::vector<int> partition_axes(const Group& group) {
  std::vector<int> axes;
  for (int axis = 0; axis < group.rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    const auto reduces = [&](std::uint32_t mask) { return ((mask >> axis) & 1u) != 0; };
    const bool is_kept =
        std::ranges::none_of(group.reductions, [&](const auto& each) { return reduces(each.reduce_mask); }) &&
        std::ranges::none_of(group.outputs,
                             [&](const auto& each) { return reduces(each.reduce_mask) || each.strides[at] == 0; });
    if (is_kept && group.extents[at] > 1) axes.push_back(axis);
  }
  return axes;
}

std::int64_t partition_count(const Group& group, int axis) {
  return axis == kWholeGroup ? 1 : group.extents[static_cast<std::size_t>(axis)];
}

Group first_partition(const Group& group, int axis) {
  Group partition = group;
  if (axis != kWholeGroup) partition.extents[static_cast<std::size_t>(axis)] = 1;
  return partition;
}

std::int64_t partition_step(const Group& group, std::size_t operand, int axis) {
  return axis == kWholeGroup ? 0 : operand_strides(group, operand)[static_cast<std::size_t>(axis)];
}

PartitionMemory partition_memory(const Group& group, std::size_t i, int axis, std::intptr_t address) {
  const std::vector<std::int64_t>& strides = operand_strides(group, i);
  const std::int64_t size = size_bytes(operand_dtype(group, i)), step = partition_step(group, i, axis) * size;
  const std::int64_t period = step * partition_count(group, axis);
  PartitionMemory memory{address, address + size, step, size, 0, i >= group.loads.size()};
  bool is_apart = step > 0;
  for (int other = 0; other < group.rank(); ++other) {
    const auto at = static_cast<std::size_t>(other);
    const std::int64_t stride = strides[at] * size, span = std::max<std::int64_t>(group.extents[at] - 1, 0) * stride;
    (span < 0 ? memory.begin : memory.end) += span;
    if (other == axis || span == 0) continue;
    if (is_apart && stride >= period && stride % period == 0) {
      memory.period = period;
    } else {
      memory.bytes += span;
      is_apart = is_apart && stride > 0;
    }
  }
  if (!is_apart || memory.bytes > step) memory.step = 0;
  return memory;
}

bool stay_within_partitions(const PartitionMemory& a, const PartitionMemory& b) {
  if (!a.is_written && !b.is_written) return true;
  if (a.end <= b.begin || b.end <= a.begin) return true;
  if (a.step == 0 || a.step != b.step) return false;
  // Both from where the one that begins first has its first partition.
  const PartitionMemory &first = a.begin <= b.begin ? a : b, &second = a.begin <= b.begin ? b : a;
  const std::intptr_t apart = second.begin - first.begin;
  if (first.period == 0 && second.period == 0) return apart + second.bytes <= a.step;
  // Shares come round again: every `period` bytes, the same of both as they have as many.
  const std::int64_t period = std::max(first.period, second.period), behind = apart % period;
  return behind + second.bytes <= a.step || (period - behind) + first.bytes <= a.step;
}

}  // namespace paoding
