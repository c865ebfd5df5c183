// SPDX-License-Identifier: Apache-2.0
// Which launches may run at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace paoding {

/// The bytes that an operand may touch, from the first to the end of the last.
struct MemoryRange {
  std::intptr_t begin = 0, end = 0;
  bool is_written = false;
};
using MemoryRanges = std::vector<MemoryRange>;

/// The memory of an operand of the launch; empty where it has no elements. `bases`: the address of every slot.
MemoryRange range_of(const Launch& launch, std::size_t operand, const std::vector<std::byte*>& bases);
/// The launch's memory beside operands, and that of its operands from `first` on.
MemoryRanges ranges_of(const Launch& launch, const std::vector<std::byte*>& bases, std::size_t first = 0);
/// Whether one writes memory that the other reads or writes.
bool collide(const MemoryRanges& a, const MemoryRanges& b);
/// For each launch, and for the end, whether another place than the one before leads to it.
std::vector<bool> targets_of(const std::vector<Launch>& launches);

/// Segments [begin, end) of two or more consecutive launches of different steps, groups or kernels whose CTAs stay on
/// few of a chip's SMs, none of which writes memory that another reads or writes (workspaces of kernels on a GPU among
/// it), and to the middle of which no branch leads. `bases`: the address of every slot. A segment has at most `most`
/// launches.
std::vector<std::pair<std::size_t, std::size_t>> independent_segments(const std::vector<Launch>& launches,
                                                                      const std::vector<std::byte*>& bases,
                                                                      std::size_t most);

}  // namespace paoding
