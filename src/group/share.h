// SPDX-License-Identifier: Apache-2.0
// A group's shares: what it computes at each index along an axis that it does not reduce. A group that reads, share by
// share, what another writes can run behind it without waiting for all of it (gpu/chained_launch.h).
#pragma once

#include <cstdint>
#include <vector>

#include "group/group.h"

namespace paoding {

/// Stands for no axis: the whole group is one share.
inline constexpr int kWholeGroup = -1;

/// The axes of two or more indices by which the group can be shared out, outermost first: every output moves along
/// them, and no reduction is over them.
std::vector<int> share_axes(const Group& group);

/// Shares along an axis; one of kWholeGroup.
std::int64_t share_count(const Group& group, int axis);

/// The first share as a group. The others' operands begin share_step() elements farther each, and its indices with
/// numbers that are their strides along the axis larger.
Group first_share(const Group& group, int axis);

/// Elements from an operand's share to the next; 0 where all shares read the same, and of kWholeGroup.
std::int64_t share_step(const Group& group, std::size_t operand, int axis);

/// Where an operand's shares lie in memory, in bytes.
struct SharedMemory {
  std::intptr_t begin = 0, end = 0;  // of all shares
  std::int64_t step = 0;             // from a share to the next; 0 where all are the same memory
  std::int64_t bytes = 0;            // from the first of a share to behind the last, but for what is `period` away
  std::int64_t period = 0;           // shares lie again so far apart, along axes outside of the shares'; 0 without such
  bool is_written = false;
};

/// Of operand `i`, which begins at `address`. A step of 0 where shares overlap, or a stride is negative.
SharedMemory shared_memory(const Group& group, std::size_t i, int axis, std::intptr_t address);

/// Whether share s of the one touches, for every s, no memory that another share than s of the other touches, or
/// neither writes it.
bool keep_to_their_shares(const SharedMemory& a, const SharedMemory& b);

}  // namespace paoding
