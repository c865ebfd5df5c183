// SPDX-License-Identifier: Apache-2.0
// Which consecutive launches of groups may be the phases of one (gpu/chained_launch.h).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/target.h"
#include "gpu/chained_launch.h"
#include "group/share.h"
#include "plan/plan.h"

namespace paoding {

/// Launches [begin, begin + axes.size()): of each the axis by which it is shared out, all into as many shares.
struct Chain {
  std::size_t begin = 0;
  std::vector<int> axes;
  std::int64_t shares = 0;
  double alone_us = 0, chain_us = 0;  // what they are expected to take as launches of their own, and so

  std::size_t end() const { return begin + axes.size(); }
};

class Chains {
 public:
  /// `bases`: the address of every slot. Only neighbours of one `kind` go together, to the middle of which no branch
  /// leads. What does not read anything of the others is left to run beside them (gpu/joined_launch.h).
  Chains(const std::vector<Launch>& launches, const std::vector<std::byte*>& bases, const std::vector<int>& kind,
         const Target& target);

  const std::vector<Chain>& all() const { return chains_; }
  const gpu::ChainPhase& phase(const Step* step, int axis) { return phases_.at({step, axis}); }
  /// Why launches `i` and `i + 1` are not phases of one; empty unless they are groups and the second reads of the
  /// first.
  std::string why_not(std::size_t i);

 private:
  // How a step can be shared out, and what it takes alone and so.
  struct Way {
    int axis;
    std::int64_t shares;
    double alone_us, phase_us;
  };
  struct Ways {
    std::vector<Way> all;
    std::string refusal;  // of the first that was tried
  };
  struct Member;

  const Ways& ways_of(const Step& step);

  std::vector<Member> members_of(const Launch& launch);
  Chain longest(std::size_t begin, const Member& first);
  bool may_follow(std::size_t i) const;
  bool reads_of_the_one_before(std::size_t i) const;
  std::vector<SharedMemory> memory_of(const Launch& launch, int axis) const;

  const std::vector<Launch>& launches_;
  const std::vector<std::byte*>& bases_;
  const std::vector<int>& kind_;
  const Target& target_;
  std::vector<bool> is_target_;
  std::map<std::pair<const Step*, int>, gpu::ChainPhase> phases_;
  std::map<const Step*, Ways> ways_;
  std::vector<Chain> chains_;
};

}  // namespace paoding
