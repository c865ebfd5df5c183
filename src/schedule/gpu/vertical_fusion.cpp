// SPDX-License-Identifier: Apache-2.0
#include "schedule/gpu/vertical_fusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace paoding {
namespace {

constexpr std::size_t kMostStages = 16;

// A step that is one kernel of our own, of a group.
bool is_group(const Launch& launch) {
  return launch.kind == Launch::Kind::run && launch.step->kind == Step::Kind::group && launch.step->text != nullptr &&
         launch.step->text->launches.size() == 1;
}

bool reads(const std::vector<PartitionMemory>& reader, const std::vector<PartitionMemory>& writer) {
  return std::ranges::any_of(reader, [&](const PartitionMemory& mine) {
    return !mine.is_written && std::ranges::any_of(writer, [&](const PartitionMemory& its) {
      return its.is_written && mine.begin < its.end && its.begin < mine.end;
    });
  });
}

}  // namespace

// A launch split one way.
struct VerticalFusion::Member {
  Way way;
  std::vector<PartitionMemory> memory;  // per operand

  // Whether no partition of one of them touches memory that another partition of the other writes, or the other way
  // round.
  bool keeps_apart(const Member& other) const {
    if (way.partitions == 1) return true;
    return std::ranges::all_of(memory, [&](const PartitionMemory& mine) {
      return std::ranges::all_of(other.memory,
                                 [&](const PartitionMemory& its) { return stay_within_partitions(mine, its); });
    });
  }
  bool reads_of(const Member& other) const { return reads(memory, other.memory); }
};

VerticalFusion::VerticalFusion(const std::vector<Launch>& launches, const std::vector<std::byte*>& bases,
                               const std::vector<int>& kind, const Target& target)
    : launches_(launches), bases_(bases), kind_(kind), target_(target), is_target_(launches.size() + 1) {
  for (const Launch& launch : launches) {
    for (const std::size_t to : launch.targets) is_target_[to] = true;
  }
  for (std::size_t i = 0; i < launches.size();) {
    VerticalRun best;
    if (is_group(launches[i])) {
      for (const Member& first : members_of(launches[i])) {
        if (!may_follow(i + 1)) break;
        VerticalRun found = longest(i, first);
        if (found.alone_us - found.fused_us > best.alone_us - best.fused_us) best = std::move(found);
      }
    }
    i = best.axes.empty() ? i + 1 : best.end();
    if (!best.axes.empty()) runs_.push_back(std::move(best));
  }
}

// Those that take no longer than the step alone. Whether a way is a stage takes its kernel's text to say, so that is
// asked where everything else suits.
const VerticalFusion::Ways& VerticalFusion::ways_of(const Step& step) {
  const auto [known, is_new] = ways_.try_emplace(&step);
  if (!is_new) return known->second;
  std::vector<int> axes = partition_axes(step.group);
  axes.push_back(kWholeGroup);
  const double alone_us = gpu::alone_us(step.group, target_);
  for (const int axis : axes) {
    const Way way{axis, partition_count(step.group, axis), alone_us, gpu::stage_us(step.group, axis, target_)};
    std::string refusal;
    if (way.partitions > gpu::most_partitions(target_)) {
      refusal = fmt::format("{} partitions, more than the {} at work at a time", way.partitions,
                            gpu::most_partitions(target_));
    } else if (way.stage_us > way.alone_us) {
      refusal = fmt::format("{:.1f} us expected of {} partition{}, {:.1f} of a kernel of its own", way.stage_us,
                            way.partitions, way.partitions == 1 ? "" : "s", way.alone_us);
    } else {
      known->second.all.push_back(way);
    }
    if (known->second.refusal.empty()) known->second.refusal = std::move(refusal);
  }
  return known->second;
}

const gpu::FusedStage& VerticalFusion::stage(const Step* step, int axis) {
  const auto [known, is_new] = stages_.try_emplace({step, axis});
  if (is_new) {
    std::vector<int> alignment;
    for (const Operand& operand : step->operands) alignment.push_back(static_cast<int>(alignment_of(operand)));
    known->second = gpu::plan_stage(step->group, axis, alignment, target_);
  }
  return known->second;
}

bool VerticalFusion::is_stage(const Launch& launch, const Way& way) {
  return stage(launch.step, way.axis).refusal.empty();
}

// Empty where the step is a stage one way at least.
std::string VerticalFusion::refusal_of(const Launch& launch) {
  const Ways& ways = ways_of(*launch.step);
  std::string refusal = ways.refusal;
  for (const Way& way : ways.all) {
    const std::string& own = stage(launch.step, way.axis).refusal;
    if (own.empty()) return "";
    if (refusal.empty()) refusal = own;
  }
  return refusal;
}

std::vector<VerticalFusion::Member> VerticalFusion::members_of(const Launch& launch) {
  std::vector<Member> members;
  for (const Way& way : ways_of(*launch.step).all) members.push_back({way, memory_of(launch, way.axis)});
  return members;
}

// The memory of every operand.
std::vector<PartitionMemory> VerticalFusion::memory_of(const Launch& launch, int axis) const {
  std::vector<PartitionMemory> memory;
  for (std::size_t k = 0; k < launch.addresses.size(); ++k) {
    const auto& [slot, offset] = launch.addresses[k];
    const auto address = reinterpret_cast<std::intptr_t>(bases_[static_cast<std::size_t>(slot)] + offset);
    memory.push_back(partition_memory(launch.step->group, k, axis, address));
  }
  return memory;
}

bool VerticalFusion::may_follow(std::size_t i) const {
  return i < launches_.size() && is_group(launches_[i]) && !is_target_[i] && kind_[i] == kind_[i - 1];
}

// The longest run in which every launch reads something of those before it; launches in a row that do not are left to
// run side by side. Empty where they would take as long alone.
VerticalRun VerticalFusion::longest(std::size_t begin, const Member& first) {
  std::vector<Member> members{first};
  for (std::size_t i = begin + 1; members.size() < kMostStages && may_follow(i); ++i) {
    std::optional<Member> next;
    for (Member& member : members_of(launches_[i])) {
      const bool fits = member.way.partitions == first.way.partitions &&
                        std::ranges::any_of(members, [&](const Member& each) { return member.reads_of(each); }) &&
                        std::ranges::all_of(members, [&](const Member& each) { return member.keeps_apart(each); });
      const bool is_better = fits && (!next || member.way.stage_us < next->way.stage_us);
      if (is_better && is_stage(launches_[i], member.way)) next = std::move(member);
    }
    if (!next) break;
    members.push_back(std::move(*next));
  }
  VerticalRun run{begin, {}, first.way.partitions, 0, gpu::kVerticalLaunchUs};
  for (const Member& member : members) {
    run.axes.push_back(member.way.axis);
    run.alone_us += member.way.alone_us, run.fused_us += member.way.stage_us;
  }
  const bool gains = members.size() >= 2 && run.fused_us < run.alone_us;
  return gains && is_stage(launches_[begin], first.way) ? run : VerticalRun{};
}

bool VerticalFusion::reads_of_the_one_before(std::size_t i) const {
  return is_group(launches_[i - 1]) && is_group(launches_[i]) &&
         reads(memory_of(launches_[i], kWholeGroup), memory_of(launches_[i - 1], kWholeGroup));
}

std::string VerticalFusion::why_not(std::size_t i) {
  if (i + 1 >= launches_.size() || !reads_of_the_one_before(i + 1)) return "";
  if (is_target_[i + 1]) return "a branch leads between them";
  if (kind_[i] != kind_[i + 1]) return "a commit guard is between them, or one polls another word before it writes";
  for (const std::size_t k : {i, i + 1}) {
    const std::string refusal = refusal_of(launches_[k]);
    if (!refusal.empty()) return fmt::format("step {} is no stage: {}", launches_[k].step->position, refusal);
  }
  std::optional<std::pair<double, double>> best;  // us alone and as a vertically fused launch
  bool have_partitions_in_common = false;
  for (const Member& first : members_of(launches_[i])) {
    for (const Member& second : members_of(launches_[i + 1])) {
      if (first.way.partitions != second.way.partitions) continue;
      if (!is_stage(launches_[i], first.way) || !is_stage(launches_[i + 1], second.way)) continue;
      have_partitions_in_common = true;
      if (!second.keeps_apart(first)) continue;
      const double fused_us = gpu::kVerticalLaunchUs + first.way.stage_us + second.way.stage_us;
      if (!best || fused_us < best->second) best = {first.way.alone_us + second.way.alone_us, fused_us};
    }
  }
  if (!have_partitions_in_common) return "they are not split into as many partitions";
  if (!best) return "a partition of one touches what another partition of the other writes";
  if (best->second >= best->first) {
    return fmt::format("{:.1f} us expected of a vertically fused launch, {:.1f} of two kernels", best->second,
                       best->first);
  }
  return "what is in front goes on with others";
}

}  // namespace paoding
