// SPDX-License-Identifier: Apache-2.0
// The turns of an unrolled loop: which nodes of each correspond, and where their operands come from.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "passes/repeats.h"

namespace paoding {

/// Where a node of a turn has an operand from, the same in every turn.
struct TurnOperand {
  enum class From : std::uint8_t {
    turn,       // the node at `position` of the same turn
    last_turn,  // that of the turn before: a carry. In the first turn a value of outside, the carry's first.
    outside,    // values of outside, one a turn
    constant,   // the same value of outside in every turn
  };
  From from;
  int position = -1;  // of turn and last_turn
  std::int32_t output = 0;
};

/// The nodes that read each node.
using Users = std::vector<std::vector<NodeId>>;
Users users_of(const Graph& graph);

struct LoopTurns {
  /// turns[t][i] is the node at position i of turn t. A position's operands stand at lower positions of its turn.
  std::vector<std::vector<NodeId>> turns;
  /// The operands of each position, one an input.
  std::vector<std::vector<TurnOperand>> operands;
  /// The value of outside with which the first turn begins, for each carried position and output.
  std::map<std::pair<int, std::int32_t>, Ref> carries;

  int period() const { return static_cast<int>(operands.size()); }
  std::int64_t count() const { return static_cast<std::int64_t>(turns.size()); }
  const Node& node(const Graph& graph, std::size_t turn, int position) const {
    return graph.node(turns[turn][static_cast<std::size_t>(position)]);
  }
  /// The operand of each turn.
  std::vector<Ref> values(const Graph& graph, int position, std::size_t input) const;
};

/// The longest run of turns of `repeat` that a loop could be: each operand comes from the same place in all of them,
/// and nothing of outside that a turn reads follows from one. Turns before and after it may have their nodes in another
/// order, as a first turn does that makes the weights for all of them: the values that are carried lead to these.
/// nullopt where fewer than four are left, or nothing is carried.
std::optional<LoopTurns> turns_of(const Graph& graph, const NodeKinds& kinds, const Users& users, const Repeat& repeat);

}  // namespace paoding
