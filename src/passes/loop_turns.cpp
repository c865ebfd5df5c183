// SPDX-License-Identifier: Apache-2.0
#include "passes/loop_turns.h"

#include <algorithm>
#include <unordered_map>

#include "paoding/op.h"

namespace paoding {
namespace {

using From = TurnOperand::From;

class TurnFinder {
 public:
  TurnFinder(const Graph& graph, const NodeKinds& kinds, const Users& users, const Repeat& repeat)
      : graph_(graph), kinds_(kinds), users_(users), nodes_(repeat.nodes), period_(repeat.period) {}

  std::optional<LoopTurns> find() {
    cut_into_turns(best_phase());
    if (made_.count() < kFewestTurns || !classify() || !keep_agreeing_turns()) return std::nullopt;
    while (grow_backward()) {
    }
    while (grow_forward()) {
    }
    if (made_.count() < kFewestTurns || made_.carries.empty() || !is_independent()) return std::nullopt;
    return std::move(made_);
  }

 private:
  // A turn begins where the fewest bytes go from one turn to the next, and in front of a product where several places
  // are as good: a user's step reads its carries by one more often than by anything else.
  std::size_t best_phase() const {
    const auto period = static_cast<std::size_t>(period_);
    std::unordered_map<NodeId, std::size_t> place_of;
    for (std::size_t i = 0; i < nodes_.size(); ++i) place_of[nodes_[i]] = i;
    const std::size_t middle = nodes_.size() / period / 2 * period;
    std::map<std::pair<std::size_t, std::int32_t>, std::size_t> furthest;  // by producer within a period
    for (std::size_t reader = middle; reader < middle + period; ++reader) {
      for (const Ref& ref : graph_.node(nodes_[reader]).inputs) {
        const auto it = place_of.find(ref.node);
        if (it == place_of.end() || it->second >= reader) continue;
        std::size_t& distance = furthest[{it->second % period, ref.output}];
        distance = std::max(distance, std::min(reader - it->second, period));
      }
    }
    std::vector<std::int64_t> change(2 * period + 1, 0);  // of the bytes carried, from one phase to the next
    for (const auto& [producer, distance] : furthest) {
      const std::int64_t bytes = size_bytes(graph_.type({nodes_[producer.first], producer.second}));
      change[producer.first + 1] += bytes, change[producer.first + 1 + distance] -= bytes;
    }
    std::vector<std::int64_t> carried(period, 0);
    std::int64_t sum = 0;
    for (std::size_t phase = 0; phase < 2 * period; ++phase) carried[phase % period] += sum += change[phase];
    std::size_t best = 0;
    const auto cost = [&](std::size_t phase) {
      return std::pair(carried[phase], !graph_.node(nodes_[phase]).op->is_run_by_kernel());
    };
    for (std::size_t phase = 1; phase < period; ++phase) {
      if (cost(phase) < cost(best)) best = phase;
    }
    return best;
  }

  void cut_into_turns(std::size_t phase) {
    const auto period = static_cast<std::size_t>(period_);
    for (std::size_t begin = phase; begin + period <= nodes_.size(); begin += period) {
      const auto first = nodes_.begin() + static_cast<std::ptrdiff_t>(begin);
      made_.turns.emplace_back(first, first + period_);
    }
    note_places();
  }

  void note_places() {
    place_of_.clear();
    for (std::size_t t = 0; t < made_.turns.size(); ++t) {
      for (int i = 0; i < period_; ++i) place_of_[made_.turns[t][static_cast<std::size_t>(i)]] = {t, i};
    }
  }

  // From a turn in the middle; the others are compared with it afterwards.
  bool classify() {
    const std::size_t middle = made_.turns.size() / 2;
    for (int i = 0; i < period_; ++i) {
      const Node& node = made_.node(graph_, middle, i);
      std::vector<TurnOperand>& operands = made_.operands.emplace_back();
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const Ref ref = node.inputs[k];
        const auto it = place_of_.find(ref.node);
        if (it == place_of_.end()) {
          const bool is_constant = made_.node(graph_, middle - 1, i).inputs[k] == ref;
          operands.push_back({is_constant ? From::constant : From::outside});
          continue;
        }
        const auto [turn, position] = it->second;
        if (turn != middle && turn + 1 != middle) return false;
        operands.push_back({turn == middle ? From::turn : From::last_turn, position, ref.output});
      }
    }
    return true;
  }

  bool is_member(Ref ref) const { return place_of_.contains(ref.node); }

  const Ref* constant_at(int position, std::size_t input) const {
    return &made_.node(graph_, made_.turns.size() / 2, position).inputs[input];
  }

  // Whether the operands of `nodes` come from where they should, with `before` as the turn before; without one it is
  // the first turn, whose carries are put into `first`.
  bool agrees(const std::vector<NodeId>& nodes, const std::vector<NodeId>* before,
              std::map<std::pair<int, std::int32_t>, Ref>* first) const {
    for (int i = 0; i < period_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Node& node = graph_.node(nodes[at]);
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const TurnOperand& from = made_.operands[at][k];
        const Ref ref = node.inputs[k];
        const auto is_of = [&](const std::vector<NodeId>& turn) {
          return ref == Ref{turn[static_cast<std::size_t>(from.position)], from.output};
        };
        switch (from.from) {
          case From::turn:
            if (!is_of(nodes)) return false;
            break;
          case From::last_turn:
            if (before != nullptr && !is_of(*before)) return false;
            if (before == nullptr && !(first->try_emplace({from.position, from.output}, ref).first->second == ref))
              return false;
            break;
          case From::outside:
            if (is_member(ref)) return false;
            break;
          case From::constant:
            if (!(ref == *constant_at(i, k))) return false;
            break;
        }
      }
    }
    return true;
  }

  // The turns around the one in the middle that agree with it.
  bool keep_agreeing_turns() {
    auto& turns = made_.turns;
    const std::size_t middle = turns.size() / 2;
    const auto follows = [&](std::size_t t) { return agrees(turns[t], &turns[t - 1], nullptr); };
    if (!follows(middle)) return false;
    std::size_t first = middle - 1, last = middle;
    while (last + 1 < turns.size() && follows(last + 1)) ++last;
    while (first > 0 && follows(first)) --first;
    std::map<std::pair<int, std::int32_t>, Ref> carries;
    const auto begins = [&](std::size_t t) {
      carries.clear();
      return agrees(turns[t], nullptr, &carries) && std::ranges::none_of(carries, [&](const auto& carry) {
               const auto it = place_of_.find(carry.second.node);
               return it != place_of_.end() && it->second.first >= t;
             });
    };
    if (!begins(first) && !begins(++first)) return false;
    turns.erase(turns.begin() + static_cast<std::ptrdiff_t>(last) + 1, turns.end());
    turns.erase(turns.begin(), turns.begin() + static_cast<std::ptrdiff_t>(first));
    note_places();
    made_.carries = std::move(carries);
    return turns.size() >= 2;
  }

  // ---- turns whose nodes stand elsewhere ----

  // Nodes of a turn that is looked for, by position; -1 where none is known yet.
  struct Sought {
    std::vector<NodeId> nodes;
    const std::vector<NodeId>* before;  // nullptr: it is the one in front of the first
    bool is_possible = true;
  };

  void take(Sought* sought, int position, NodeId id) const {
    std::vector<std::pair<int, NodeId>> open{{position, id}};
    while (!open.empty() && sought->is_possible) {
      const auto [i, node_id] = open.back();
      open.pop_back();
      const auto at = static_cast<std::size_t>(i);
      if (sought->nodes[at] == node_id) continue;
      sought->is_possible = sought->nodes[at] < 0 && !place_of_.contains(node_id) &&
                            kinds_.of(node_id) == kinds_.of(made_.turns[0][at]) && kinds_.of(node_id) >= 0;
      if (!sought->is_possible) return;
      sought->nodes[at] = node_id;
      const Node& node = graph_.node(node_id);
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const TurnOperand& from = made_.operands[at][k];
        if (from.from == From::turn) open.emplace_back(from.position, node.inputs[k].node);
      }
    }
  }

  // A node that reads all operands of a position that are known, at least one; -1 where there is none.
  NodeId reader_at(const Sought& sought, int position) const {
    const auto at = static_cast<std::size_t>(position);
    const std::vector<TurnOperand>& operands = made_.operands[at];
    const auto known = [&](const TurnOperand& from) -> Ref {
      const std::vector<NodeId>* turn = from.from == From::turn        ? &sought.nodes
                                        : from.from == From::last_turn ? sought.before
                                                                       : nullptr;
      if (turn == nullptr) return {};
      return {(*turn)[static_cast<std::size_t>(from.position)], from.output};
    };
    for (const TurnOperand& from : operands) {
      const Ref ref = known(from);
      if (!ref.valid()) continue;
      for (const NodeId reader : users_[static_cast<std::size_t>(ref.node)]) {
        if (kinds_.of(reader) != kinds_.of(made_.turns[0][at]) || place_of_.contains(reader)) continue;
        const Node& node = graph_.node(reader);
        bool fits = true;
        for (std::size_t k = 0; k < operands.size() && fits; ++k) {
          const Ref wanted = operands[k].from == From::constant ? *constant_at(position, k) : known(operands[k]);
          fits = !wanted.valid() || node.inputs[k] == wanted;
        }
        if (fits) return reader;
      }
      return -1;
    }
    return -1;
  }

  bool complete(Sought* sought) const {
    for (bool is_more = true; is_more && sought->is_possible;) {
      is_more = false;
      for (int i = 0; i < period_; ++i) {
        if (sought->nodes[static_cast<std::size_t>(i)] >= 0) continue;
        const NodeId reader = reader_at(*sought, i);
        if (reader < 0) continue;
        take(sought, i, reader);
        is_more = true;
      }
    }
    return sought->is_possible && std::ranges::none_of(sought->nodes, [](NodeId id) { return id < 0; });
  }

  bool grow_backward() {
    Sought sought{std::vector<NodeId>(static_cast<std::size_t>(period_), -1), nullptr};
    for (const auto& [carry, initial] : made_.carries) {
      if (initial.output != carry.second) return false;
      take(&sought, carry.first, initial.node);
    }
    std::map<std::pair<int, std::int32_t>, Ref> carries;
    if (!complete(&sought) || !agrees(sought.nodes, nullptr, &carries)) return false;
    made_.turns.insert(made_.turns.begin(), sought.nodes);
    made_.carries = std::move(carries);
    note_places();
    return true;
  }

  bool grow_forward() {
    const std::vector<NodeId> last = made_.turns.back();
    Sought sought{std::vector<NodeId>(static_cast<std::size_t>(period_), -1), &last};
    if (!complete(&sought) || !agrees(sought.nodes, &last, nullptr)) return false;
    made_.turns.push_back(sought.nodes);
    note_places();
    return true;
  }

  // Whether nothing that a turn reads of outside follows from a turn: it could stand neither in front of the loop nor
  // after it.
  bool is_independent() const {
    NodeId first = graph_.size();
    for (const auto& [id, place] : place_of_) first = std::min(first, id);
    std::vector<char> follows(static_cast<std::size_t>(graph_.size()), 0);
    for (NodeId id = first; id < graph_.size(); ++id) {
      const auto& inputs = graph_.node(id).inputs;
      follows[static_cast<std::size_t>(id)] = place_of_.contains(id) || std::ranges::any_of(inputs, [&](Ref ref) {
                                                return follows[static_cast<std::size_t>(ref.node)] != 0;
                                              });
    }
    const auto is_free = [&](Ref ref) { return follows[static_cast<std::size_t>(ref.node)] == 0; };
    for (const auto& turn : made_.turns) {
      for (int i = 0; i < period_; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const Node& node = graph_.node(turn[at]);
        for (std::size_t k = 0; k < node.inputs.size(); ++k) {
          const From from = made_.operands[at][k].from;
          if ((from == From::outside || from == From::constant) && !is_free(node.inputs[k])) return false;
        }
      }
    }
    return std::ranges::all_of(made_.carries, [&](const auto& carry) { return is_free(carry.second); });
  }

  const Graph& graph_;
  const NodeKinds& kinds_;
  const Users& users_;
  const std::vector<NodeId>& nodes_;
  const int period_;
  LoopTurns made_;
  std::unordered_map<NodeId, std::pair<std::size_t, int>> place_of_;  // turn and position
};

}  // namespace

Users users_of(const Graph& graph) {
  Users users(static_cast<std::size_t>(graph.size()));
  for (NodeId id = 0; id < graph.size(); ++id) {
    for (const Ref& ref : graph.node(id).inputs) users[static_cast<std::size_t>(ref.node)].push_back(id);
  }
  return users;
}

std::vector<Ref> LoopTurns::values(const Graph& graph, int position, std::size_t input) const {
  std::vector<Ref> refs;
  for (const auto& turn : turns) refs.push_back(graph.node(turn[static_cast<std::size_t>(position)]).inputs[input]);
  return refs;
}

std::optional<LoopTurns> turns_of(const Graph& graph, const NodeKinds& kinds, const Users& users,
                                  const Repeat& repeat) {
  return TurnFinder(graph, kinds, users, repeat).find();
}

}  // namespace paoding
