// SPDX-License-Identifier: Apache-2.0
// Groups that read each other's results partition by partition (group/partition.h), in one launch: a CTA does its
// partition of the first, then of the second, and so on. Between two kernels lies a microsecond in which the chip
// empties and fills again, between two stages of a CTA a barrier of its own threads; and data that one stage has read
// or written is in the cache of its SM for the next. Attention of one step to 50 places was five kernels of 1 to 3 us
// each (H200).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/target.h"
#include "gpu/codegen/fused_launch.h"
#include "group/group.h"

namespace paoding::gpu {

/// A group as a stage: the kernel of its first partition, and how far the other partitions are from that.
struct FusedStage {
  TextLaunch launch;
  std::vector<std::int64_t> steps;        // bytes, per operand
  std::vector<std::int64_t> index_steps;  // per index of the group
  std::string refusal;                    // why it cannot be one; empty when it can
};

/// Plans the stage for partitions of the group along `axis` (group/partition.h). `alignment`: bytes that each operand's
/// address is a multiple of.
FusedStage plan_stage(const Group& group, int axis, std::span<const int> alignment, const Target& target);

/// Estimated time of a group as a kernel of its own, and as a stage, in us; and the time of the launch besides its
/// stages.
double alone_us(const Group& group, const Target& target);
double stage_us(const Group& group, int axis, const Target& target);
inline constexpr double kVerticalLaunchUs = 1.1;

/// Partitions that a launch may have: all at work at the same time.
std::int64_t most_partitions(const Target& target);

class VerticalLaunch final : public FusedLaunch {
 public:
  /// Takes stages that can share a launch, in their order, with `partitions` each.
  VerticalLaunch(std::span<const FusedStage* const> stages, std::int64_t partitions, const Target& target);

  void place(std::size_t member, void* const* operands, void* workspace, void* tickets) override;

 private:
  std::vector<std::size_t> operands_at_, operand_count_;  // words of each stage's addresses among the sizes
};

}  // namespace paoding::gpu
