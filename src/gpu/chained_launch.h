// SPDX-License-Identifier: Apache-2.0
// Groups that read each other's results share by share (group/share.h), in one launch: a CTA does its share of the
// first, then of the second, and so on. Between two kernels lies a microsecond in which the chip empties and fills
// again, between two phases of a CTA a barrier of its own threads; and what one phase has read or written the next
// finds in the cache of its SM. Attention of one step to 50 places was five kernels of 1 to 3 us each (H200).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/target.h"
#include "gpu/shared_launch.h"
#include "group/group.h"

namespace paoding::gpu {

/// A group as a phase: the kernel of its first share, and how far the other shares are from that.
struct ChainPhase {
  TextLaunch launch;
  std::vector<std::int64_t> steps;        // bytes, per operand
  std::vector<std::int64_t> index_steps;  // per index of the group
  std::string refusal;                    // why it cannot be one; empty when it can
};

/// Of the group's shares along `axis` (group/share.h). `alignment`: bytes that each operand's address is a multiple of.
ChainPhase plan_phase(const Group& group, int axis, std::span<const int> alignment, const Target& target);

/// About how long a group takes as a kernel of its own, and as a phase, in us; and a chain beside its phases.
double alone_us(const Group& group, const Target& target);
double phase_us(const Group& group, int axis, const Target& target);
inline constexpr double kChainUs = 1.1;

/// Shares that a chain may have: all at work at the same time.
std::int64_t most_shares(const Target& target);

class ChainedLaunch final : public SharedLaunch {
 public:
  /// Of phases that can be one, in their order, with `shares` each.
  ChainedLaunch(std::span<const ChainPhase* const> phases, std::int64_t shares, const Target& target);

  void place(std::size_t member, void* const* operands, void* workspace, void* tickets) override;

 private:
  std::vector<std::size_t> operands_at_, operand_count_;  // words of each phase's addresses among the sizes
};

}  // namespace paoding::gpu
