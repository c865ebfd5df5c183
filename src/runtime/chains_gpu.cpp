// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "runtime/chains.h"

namespace paoding {
namespace {

constexpr std::size_t kMostPhases = 16;

// A step that is one kernel of our own, of a group.
bool is_group(const Launch& launch) {
  return launch.kind == Launch::Kind::run && launch.step->kind == Step::Kind::group && launch.step->text != nullptr &&
         launch.step->text->launches.size() == 1;
}

bool reads(const std::vector<SharedMemory>& reader, const std::vector<SharedMemory>& writer) {
  return std::ranges::any_of(reader, [&](const SharedMemory& mine) {
    return !mine.is_written && std::ranges::any_of(writer, [&](const SharedMemory& its) {
      return its.is_written && mine.begin < its.end && its.begin < mine.end;
    });
  });
}

}  // namespace

// A launch shared out one way.
struct Chains::Member {
  Way way;
  std::vector<SharedMemory> memory;  // per operand

  // Whether no share of one of them touches what another share of the other writes, or the other way round.
  bool keeps_apart(const Member& other) const {
    if (way.shares == 1) return true;
    return std::ranges::all_of(memory, [&](const SharedMemory& mine) {
      return std::ranges::all_of(other.memory,
                                 [&](const SharedMemory& its) { return keep_to_their_shares(mine, its); });
    });
  }
  bool reads_of(const Member& other) const { return reads(memory, other.memory); }
};

Chains::Chains(const std::vector<Launch>& launches, const std::vector<std::byte*>& bases, const std::vector<int>& kind,
               const Target& target)
    : launches_(launches), bases_(bases), kind_(kind), target_(target), is_target_(launches.size() + 1) {
  for (const Launch& launch : launches) {
    for (const std::size_t to : launch.targets) is_target_[to] = true;
  }
  for (std::size_t i = 0; i < launches.size();) {
    Chain best;
    if (is_group(launches[i])) {
      for (const Member& first : members_of(launches[i])) {
        Chain found = longest(i, first);
        if (found.alone_us - found.chain_us > best.alone_us - best.chain_us) best = std::move(found);
      }
    }
    i = best.axes.empty() ? i + 1 : best.end();
    if (!best.axes.empty()) chains_.push_back(std::move(best));
  }
}

// Those that take no longer than the step alone.
const Chains::Ways& Chains::ways_of(const Step& step) {
  const auto [known, is_new] = ways_.try_emplace(&step);
  if (!is_new) return known->second;
  std::vector<int> axes = share_axes(step.group);
  axes.push_back(kWholeGroup);
  std::vector<int> alignment;
  for (const Operand& operand : step.operands) alignment.push_back(static_cast<int>(alignment_of(operand)));
  const double alone_us = gpu::alone_us(step.group, target_);
  for (const int axis : axes) {
    const Way way{axis, share_count(step.group, axis), alone_us, gpu::phase_us(step.group, axis, target_)};
    std::string refusal;
    if (way.shares > gpu::most_shares(target_)) {
      refusal = fmt::format("{} shares, more than the {} at work at a time", way.shares, gpu::most_shares(target_));
    } else if (way.phase_us > way.alone_us) {
      refusal = fmt::format("{:.1f} us expected of {} share{}, {:.1f} of a kernel of its own", way.phase_us, way.shares,
                            way.shares == 1 ? "" : "s", way.alone_us);
    } else {
      gpu::ChainPhase phase = gpu::plan_phase(step.group, axis, alignment, target_);
      refusal = phase.refusal;
      if (refusal.empty()) {
        phases_.emplace(std::pair(&step, axis), std::move(phase));
        known->second.all.push_back(way);
      }
    }
    if (known->second.refusal.empty()) known->second.refusal = std::move(refusal);
  }
  return known->second;
}

std::vector<Chains::Member> Chains::members_of(const Launch& launch) {
  std::vector<Member> members;
  for (const Way& way : ways_of(*launch.step).all) members.push_back({way, memory_of(launch, way.axis)});
  return members;
}

// Of every operand.
std::vector<SharedMemory> Chains::memory_of(const Launch& launch, int axis) const {
  std::vector<SharedMemory> memory;
  for (std::size_t k = 0; k < launch.addresses.size(); ++k) {
    const auto& [slot, offset] = launch.addresses[k];
    const auto address = reinterpret_cast<std::intptr_t>(bases_[static_cast<std::size_t>(slot)] + offset);
    memory.push_back(shared_memory(launch.step->group, k, axis, address));
  }
  return memory;
}

bool Chains::may_follow(std::size_t i) const {
  return i < launches_.size() && is_group(launches_[i]) && !is_target_[i] && kind_[i] == kind_[i - 1];
}

// As far as every launch reads something of those before it; those in a row that do not are left to run side by side.
// Of no launches where they would take as long alone.
Chain Chains::longest(std::size_t begin, const Member& first) {
  std::vector<Member> members{first};
  for (std::size_t i = begin + 1; members.size() < kMostPhases && may_follow(i); ++i) {
    std::optional<Member> next;
    for (Member& member : members_of(launches_[i])) {
      const bool fits = member.way.shares == first.way.shares &&
                        std::ranges::any_of(members, [&](const Member& each) { return member.reads_of(each); }) &&
                        std::ranges::all_of(members, [&](const Member& each) { return member.keeps_apart(each); });
      if (fits && (!next || member.way.phase_us < next->way.phase_us)) next = std::move(member);
    }
    if (!next) break;
    members.push_back(std::move(*next));
  }
  Chain chain{begin, {}, first.way.shares, 0, gpu::kChainUs};
  for (const Member& member : members) {
    chain.axes.push_back(member.way.axis);
    chain.alone_us += member.way.alone_us, chain.chain_us += member.way.phase_us;
  }
  return members.size() >= 2 && chain.chain_us < chain.alone_us ? chain : Chain{};
}

bool Chains::reads_of_the_one_before(std::size_t i) const {
  return is_group(launches_[i - 1]) && is_group(launches_[i]) &&
         reads(memory_of(launches_[i], kWholeGroup), memory_of(launches_[i - 1], kWholeGroup));
}

std::string Chains::why_not(std::size_t i) {
  if (i + 1 >= launches_.size() || !reads_of_the_one_before(i + 1)) return "";
  if (is_target_[i + 1]) return "a branch leads between them";
  if (kind_[i] != kind_[i + 1]) return "a gate stands between them, or one looks at another word before it writes";
  for (const std::size_t k : {i, i + 1}) {
    const Step& step = *launches_[k].step;
    if (ways_of(step).all.empty()) return fmt::format("step {} is no phase: {}", step.position, ways_of(step).refusal);
  }
  std::optional<std::pair<double, double>> best;  // us alone and as a chain
  bool have_shares_in_common = false;
  for (const Member& first : members_of(launches_[i])) {
    for (const Member& second : members_of(launches_[i + 1])) {
      if (first.way.shares != second.way.shares) continue;
      have_shares_in_common = true;
      if (!second.keeps_apart(first)) continue;
      const double chain_us = gpu::kChainUs + first.way.phase_us + second.way.phase_us;
      if (!best || chain_us < best->second) best = {first.way.alone_us + second.way.alone_us, chain_us};
    }
  }
  if (!have_shares_in_common) return "they are not shared out into as many shares";
  if (!best) return "a share of one touches what another share of the other writes";
  if (best->second >= best->first) {
    return fmt::format("{:.1f} us expected of a chain, {:.1f} of two kernels", best->second, best->first);
  }
  return "what is in front goes on with others";
}

}  // namespace paoding
