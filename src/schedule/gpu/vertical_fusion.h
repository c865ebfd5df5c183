// SPDX-License-Identifier: Apache-2.0
// Which consecutive launches of groups may be the stages of one (gpu/codegen/vertical_launch.h).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/target.h"
#include "gpu/codegen/vertical_launch.h"
#include "group/partition.h"
#include "plan/plan.h"

namespace paoding {

/// Launches [begin, begin + axes.size()): of each the axis along which it is split, all into as many partitions.
struct VerticalRun {
  std::size_t begin = 0;
  std::vector<int> axes;
  std::int64_t partitions = 0;
  double alone_us = 0, fused_us = 0;  // their expected times as launches of their own, and fused

  std::size_t end() const { return begin + axes.size(); }
};

class VerticalFusion {
 public:
  /// `bases`: the address of every slot. Only neighbours of one `kind` go together, to the middle of which no branch
  /// leads. A launch that reads nothing of the others is left to run beside them (gpu/codegen/grouped_launch.h).
  VerticalFusion(const std::vector<Launch>& launches, const std::vector<std::byte*>& bases,
                 const std::vector<int>& kind, const Target& target);

  const std::vector<VerticalRun>& all() const { return runs_; }
  /// The step as a stage, split along `axis`. Refused where it cannot be one.
  const gpu::FusedStage& stage(const Step* step, int axis);
  /// Why launches `i` and `i + 1` are not stages of one; empty unless they are groups and the second reads of the
  /// first.
  std::string why_not(std::size_t i);

 private:
  // How a step can be split, and its times alone and so.
  struct Way {
    int axis;
    std::int64_t partitions;
    double alone_us, stage_us;
  };
  struct Ways {
    std::vector<Way> all;
    std::string refusal;  // of the first that would take longer, or has too many partitions
  };
  struct Member;

  const Ways& ways_of(const Step& step);
  bool is_stage(const Launch& launch, const Way& way);
  std::string refusal_of(const Launch& launch);
  std::vector<Member> members_of(const Launch& launch);
  VerticalRun longest(std::size_t begin, const Member& first);
  bool may_follow(std::size_t i) const;
  bool reads_of_the_one_before(std::size_t i) const;
  std::vector<PartitionMemory> memory_of(const Launch& launch, int axis) const;

  const std::vector<Launch>& launches_;
  const std::vector<std::byte*>& bases_;
  const std::vector<int>& kind_;
  const Target& target_;
  std::vector<bool> is_target_;
  std::map<std::pair<const Step*, int>, gpu::FusedStage> stages_;
  std::map<const Step*, Ways> ways_;
  std::vector<VerticalRun> runs_;
};

}  // namespace paoding
