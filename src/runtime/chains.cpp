// SPDX-License-Identifier: Apache-2.0
#include "runtime/chains.h"

#include <algorithm>
#include <optional>

#include "group/share.h"

namespace paoding {
namespace {

constexpr std::size_t kMostPhases = 16;

// A step that is one kernel of our own, of a group.
bool is_group(const Launch& launch) {
  return launch.kind == Launch::Kind::run && launch.step->kind == Step::Kind::group && launch.step->text != nullptr &&
         launch.step->text->launches.size() == 1;
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
  bool reads_of(const Member& other) const {
    return std::ranges::any_of(memory, [&](const SharedMemory& mine) {
      return !mine.is_written && std::ranges::any_of(other.memory, [&](const SharedMemory& its) {
        return its.is_written && mine.begin < its.end && its.begin < mine.end;
      });
    });
  }
};

struct Chains::Candidate {
  Chain chain;
  double gained_us = 0;
};

Chains::Chains(const std::vector<Launch>& launches, const std::vector<std::byte*>& bases, const std::vector<int>& kind,
               const Target& target)
    : launches_(launches), bases_(bases), kind_(kind), target_(target), is_target_(launches.size() + 1) {
  for (const Launch& launch : launches) {
    for (const std::size_t to : launch.targets) is_target_[to] = true;
  }
  for (std::size_t i = 0; i < launches.size();) {
    Candidate best;
    if (is_group(launches[i])) {
      for (const Member& first : members_of(launches[i])) {
        Candidate found = longest(i, first);
        if (found.gained_us > best.gained_us) best = std::move(found);
      }
    }
    i = best.chain.axes.empty() ? i + 1 : best.chain.end();
    if (!best.chain.axes.empty()) chains_.push_back(std::move(best.chain));
  }
}

// Those that take no longer than the step alone.
const std::vector<Chains::Way>& Chains::ways_of(const Step& step) {
  const auto [known, is_new] = ways_.try_emplace(&step);
  if (!is_new) return known->second;
  std::vector<int> axes = share_axes(step.group);
  axes.push_back(kWholeGroup);
  std::vector<int> alignment;
  for (const Operand& operand : step.operands) alignment.push_back(static_cast<int>(alignment_of(operand)));
  const double alone_us = gpu::alone_us(step.group, target_);
  for (const int axis : axes) {
    const Way way{axis, share_count(step.group, axis), alone_us, gpu::phase_us(step.group, axis, target_)};
    if (way.shares > gpu::most_shares(target_) || way.phase_us > way.alone_us) continue;
    gpu::ChainPhase phase = gpu::plan_phase(step.group, axis, alignment, target_);
    if (!phase.refusal.empty()) continue;
    phases_.emplace(std::pair(&step, axis), std::move(phase));
    known->second.push_back(way);
  }
  return known->second;
}

std::vector<Chains::Member> Chains::members_of(const Launch& launch) {
  const Step& step = *launch.step;
  std::vector<Member> members;
  for (const Way& way : ways_of(step)) {
    Member member{way, {}};
    for (std::size_t k = 0; k < launch.addresses.size(); ++k) {
      const auto& [slot, offset] = launch.addresses[k];
      const auto address = reinterpret_cast<std::intptr_t>(bases_[static_cast<std::size_t>(slot)] + offset);
      member.memory.push_back(shared_memory(step.group, k, way.axis, address));
    }
    members.push_back(std::move(member));
  }
  return members;
}

bool Chains::may_follow(std::size_t i) const {
  return i < launches_.size() && is_group(launches_[i]) && !is_target_[i] && kind_[i] == kind_[i - 1];
}

// As far as every launch reads something of those before it; those in a row that do not are left to run side by side.
Chains::Candidate Chains::longest(std::size_t begin, const Member& first) {
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
  Candidate candidate{{begin, {}, first.way.shares}, 0};
  double alone_us = 0, chain_us = gpu::kChainUs;
  for (const Member& member : members) {
    candidate.chain.axes.push_back(member.way.axis);
    alone_us += member.way.alone_us, chain_us += member.way.phase_us;
  }
  if (members.size() >= 2 && chain_us < alone_us) candidate.gained_us = alone_us - chain_us;
  return candidate;
}

}  // namespace paoding
