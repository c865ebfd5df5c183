// SPDX-License-Identifier: Apache-2.0
// reroll_loops: a loop that was unrolled before the graph came here, as tracing a Python loop leaves it, becomes a scan
// again. All that is done for scans is done for it then: products leave it, it is recognised as a recurrent layer, and
// neither the plan nor the launches grow with its turns.
//
//   h1 = tanh(matmul(x[0], w) + matmul(h0, u));  h2 = tanh(matmul(x[1], w) + matmul(h1, u));  ..
// becomes
//   h, hs = scan(h0, x, w, u) [ h = tanh(matmul(x, w) + matmul(h, u)) ]
//
// Nodes of a turn come again after a period (repeats.h). Each operand must come from the same place in every turn: the
// same turn, the turn before (a carry), or outside (loop_turns.h). Values of outside that differ from turn to
// turn are slices of one value, or computed ones that are stacked (stacked_values.h); where they would be inputs or
// parameters, as the weights of equal layers, the nodes stay as they are.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/cancel_poll.h"
#include "graph/formula.h"
#include "graph/keep_names.h"
#include "ops/scan/scan.h"
#include "ops/views.h"
#include "paoding/ops.h"
#include "passes/loop_turns.h"
#include "passes/pass.h"
#include "passes/stacked_values.h"

namespace paoding {
namespace {

using From = TurnOperand::From;
using Place = std::pair<int, std::int32_t>;  // position and output

// Passes move products out of loops and make recurrent layers of them; elementwise ops of all turns become one kernel,
// which a loop is slower than. Kernels of other ops gain nothing by a loop but that many turns are planned as one.
constexpr std::int64_t kManyTurns = 32;

bool is_worth_a_loop(const Graph& graph, const Repeat& repeat) {
  const bool are_many = std::ssize(repeat.nodes) / repeat.period >= kManyTurns;
  return std::any_of(repeat.nodes.begin(), repeat.nodes.begin() + repeat.period, [&](NodeId id) {
    const Node& node = graph.node(id);
    const bool is_moved = node.op->contracts || node.op->kind == OpKind::composed || !node.bodies.empty();
    return is_moved || (node.op->is_run_by_kernel() && are_many);
  });
}

std::vector<Repeat> likely_loops(const Graph& graph, const NodeKinds& kinds) {
  std::vector<Repeat> repeats = find_repeats(graph, kinds);
  std::erase_if(repeats, [&](const Repeat& repeat) { return !is_worth_a_loop(graph, repeat); });
  return repeats;
}

// A loop keeps a value of every turn where one is read after it. More bytes than this of values that nobody reads, and
// more than of those that are read, are memory that the user saved: blocks of layers that are computed again for their
// gradients.
constexpr std::int64_t kMostUnread = 64 << 10;

class Roller {
 public:
  Roller(Graph& graph, const LoopTurns& loop) : graph_(graph), loop_(loop) {}

  // Writes the scan and gives the uses of the turns' values to its results. False where it cannot be written: the graph
  // has a few nodes more then, which nobody reads.
  bool roll(const Users& users) {
    find_elements();
    is_reverse_ = votes_ < 0;
    const std::vector<Place> stacked = find_read_places(users);
    if (unread_bytes_ > kMostUnread && unread_bytes_ >= read_bytes_) return false;
    if (!make_sequences()) return false;
    write_body();
    Values initial;
    for (const auto& [place, ref] : loop_.carries) initial.push_back(graph_.value(ref));
    for (const auto& [place, ref] : loop_.carries) fetch("next", place);
    for (const Place& place : stacked) fetch("out", place);
    const Values made = add_scan(graph_, initial, sequences_, constants_, loop_.count(), is_reverse_, body_);
    redirect(made, stacked);
    return true;
  }

 private:
  const Node& node(std::size_t turn, int position) const { return loop_.node(graph_, turn, position); }
  std::size_t last_turn() const { return loop_.turns.size() - 1; }

  // Positions whose value is an element of a sequence: slices whose place differs from turn to turn, and views of them.
  void find_elements() {
    is_element_.assign(static_cast<std::size_t>(loop_.period()), 0);
    for (int i = 0; i < loop_.period(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      std::vector<Ref> values;
      for (const auto& turn : loop_.turns) values.push_back({turn[at], 0});
      const Node& first = node(0, i);
      if (first.op->view == ViewForm::sliced) {
        const SliceRange range = slice_range(first);
        is_element_[at] =
            std::ranges::any_of(values, [&](Ref ref) { return !(slice_range(graph_.node(ref.node)) == range); });
      }
      if (is_element_[at]) values_of_.emplace_back(values), element_of_[{i, 0}] = values_of_.size() - 1;
      for (std::size_t k = 0; k < first.inputs.size() && !is_element_[at]; ++k) {
        if (loop_.operands[at][k].from != From::outside) continue;
        const std::vector<Ref> read = loop_.values(graph_, i, k);
        const auto known = std::ranges::find(values_of_, read);
        element_at_[{i, k}] = static_cast<std::size_t>(known - values_of_.begin());
        if (known == values_of_.end()) values_of_.push_back(read);
      }
    }
    for (const auto& values : values_of_) votes_ += direction_of(graph_, values);
  }

  bool make_sequences() {
    for (int i = 0; i < loop_.period(); ++i) {
      // A slice with another range in every turn of a value that is made in the turn.
      const auto& operands = loop_.operands[static_cast<std::size_t>(i)];
      if (!is_element_[static_cast<std::size_t>(i)]) continue;
      if (operands[0].from == From::turn || operands[0].from == From::last_turn) return false;
    }
    for (std::vector<Ref> values : values_of_) {
      if (is_reverse_) std::ranges::reverse(values);
      const auto sequence = stack_turns(graph_, values);
      if (!sequence) return false;
      sequences_.push_back(*sequence);
    }
    return true;
  }

  void write_body() {
    body_ = std::make_shared<Graph>();
    for (const auto& [place, ref] : loop_.carries) {
      const Type& type = graph_.type(ref);
      carried_[place] = body_->input(fmt::format("carry{}", carried_.size()), type.dtype, type.shape).ref();
    }
    std::vector<Ref> elements;
    for (const Value& sequence : sequences_) {
      elements.push_back(
          body_->input(fmt::format("element{}", elements.size()), sequence.dtype(), sequence.shape().with_removed(0))
              .ref());
    }
    std::map<Ref, Ref> constant_of;
    for (int i = 0; i < loop_.period(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      for (std::size_t k = 0; k < loop_.operands[at].size() && !is_element_[at]; ++k) {
        if (loop_.operands[at][k].from != From::constant) continue;
        const Ref outer = node(0, i).inputs[k];
        const Type type = graph_.type(outer);
        if (constant_of.contains(outer)) continue;
        constant_of[outer] = body_->input(fmt::format("constant{}", constant_of.size()), type.dtype, type.shape).ref();
        constants_.push_back(graph_.value(outer));
      }
    }
    for (int i = 0; i < loop_.period(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (is_element_[at]) {
        inside_[{i, 0}] = elements[element_of_.at({i, 0})];
        continue;
      }
      Node copy = node(0, i);
      for (std::size_t k = 0; k < copy.inputs.size(); ++k) {
        const TurnOperand& from = loop_.operands[at][k];
        Ref& ref = copy.inputs[k];
        ref = from.from == From::turn        ? inside_.at({from.position, from.output})
              : from.from == From::last_turn ? carried_.at({from.position, from.output})
              : from.from == From::outside   ? elements[element_at_.at({i, k})]
                                             : constant_of.at(ref);
      }
      const std::vector<Ref> made = put_into_body(std::move(copy));
      for (std::size_t k = 0; k < made.size(); ++k) inside_[{i, static_cast<std::int32_t>(k)}] = made[k];
    }
  }

  // The node, or its composition where a user's scan has that.
  std::vector<Ref> put_into_body(Node node) {
    std::vector<Ref> results;
    if (node.op->is_open_in_bodies) {
      const KeepNames names(*body_, node);
      Values inputs;
      for (const Ref& ref : node.inputs) inputs.push_back(body_->value(ref));
      for (const Value& value : expand_composed(*body_, *node.op, inputs, node.attrs)) results.push_back(value.ref());
      return results;
    }
    for (auto& inner : node.bodies) inner = inner->clone();
    node.decision = nullptr;
    const auto outputs = static_cast<std::int32_t>(node.types.size());
    const NodeId made = body_->add(std::move(node));
    for (std::int32_t k = 0; k < outputs; ++k) results.push_back({made, k});
    return results;
  }

  void fetch(const char* kind, const Place& place) {
    body_->fetch(fmt::format("{}{}", kind, body_->fetches().size()), body_->value(inside_.at(place)));
  }

  bool is_inside(NodeId id) const { return members_.contains(id); }

  // The values that are read after the loop, less those that are only read of the last turn and carried out of it.
  std::vector<Place> find_read_places(const Users& users) {
    for (const auto& turn : loop_.turns) members_.insert(turn.begin(), turn.end());
    std::set<Ref> fetched;
    for (const Graph::Fetch& each : graph_.fetches()) fetched.insert(each.ref);
    std::vector<Place> places;
    for (int i = 0; i < loop_.period(); ++i) {
      if (is_element_[static_cast<std::size_t>(i)]) continue;  // its readers of outside read it as before
      for (std::int32_t k = 0; k < static_cast<std::int32_t>(node(0, i).types.size()); ++k) {
        bool is_read_early = false, is_read_last = false;
        std::int64_t reads = 0;
        for (std::size_t t = 0; t < loop_.turns.size(); ++t) {
          const Ref ref{loop_.turns[t][static_cast<std::size_t>(i)], k};
          const bool is_read =
              fetched.contains(ref) || std::ranges::any_of(users[static_cast<std::size_t>(ref.node)], [&](NodeId user) {
                return !is_inside(user) &&
                       std::ranges::find(graph_.node(user).inputs, ref) != graph_.node(user).inputs.end();
              });
          (t == last_turn() ? is_read_last : is_read_early) |= is_read;
          reads += is_read;
        }
        if (!is_read_early && (!is_read_last || loop_.carries.contains({i, k}))) continue;
        places.emplace_back(i, k);
        const std::int64_t bytes = size_bytes(node(0, i).types[static_cast<std::size_t>(k)]);
        read_bytes_ += reads * bytes, unread_bytes_ += (loop_.count() - reads) * bytes;
      }
    }
    return places;
  }

  void redirect(const Values& made, const std::vector<Place>& stacked) {
    std::map<Ref, Ref> replaced;
    for (std::size_t s = 0; s < stacked.size(); ++s) {
      const Value all = made[loop_.carries.size() + s];
      const Shape shape = all.shape().with_removed(0);
      for (std::size_t t = 0; t < loop_.turns.size(); ++t) {
        const auto place = static_cast<std::int64_t>(is_reverse_ ? last_turn() - t : t);
        const Ref old{loop_.turns[t][static_cast<std::size_t>(stacked[s].first)], stacked[s].second};
        replaced[old] = reshape(slice(all, 0, place, place + 1), shape).ref();
      }
    }
    std::size_t carry = 0;
    for (const auto& [place, ref] : loop_.carries) {
      // Where it is stacked as well its readers get the slice, so that all slices together are seen to be the stack.
      const Ref old{loop_.turns[last_turn()][static_cast<std::size_t>(place.first)], place.second};
      replaced.try_emplace(old, made[carry++].ref());
    }
    graph_.replace(replaced);
  }

  Graph& graph_;
  const LoopTurns& loop_;
  std::vector<char> is_element_;                                   // by position
  std::vector<std::vector<Ref>> values_of_;                        // of each sequence, by turn
  std::map<Place, std::size_t> element_of_;                        // positions that are an element: of which sequence
  std::map<std::pair<int, std::size_t>, std::size_t> element_at_;  // operands that are one, by position and input
  std::int64_t read_bytes_ = 0, unread_bytes_ = 0;                 // of the stacked values
  int votes_ = 0;                                                  // of sequences for their direction
  bool is_reverse_ = false;
  Values sequences_, constants_;
  std::shared_ptr<Graph> body_;
  std::map<Place, Ref> carried_, inside_;
  std::set<NodeId> members_;
};

// A concatenation or sum of the results of all turns is one of the stacked value, without its slices.
void gather_turns(Graph& graph) {
  const KeepNames names(graph);
  std::map<Ref, Ref> replaced;
  const NodeId size = graph.size();
  for (NodeId id = 0; id < size; ++id) {
    const Node& node = graph.node(id);
    const bool is_concat = node.op->view == ViewForm::concatenated, is_sum = node.op->is(OpRole::sum);
    if (node.inputs.size() < kFewestTurns || (!is_concat && !is_sum)) continue;
    const Type& type = graph.type(node.inputs[0]);
    if (std::ranges::any_of(node.inputs, [&](Ref ref) { return graph.type(ref) != type; })) continue;
    graph.scope = node.scope, graph.origin = node.origin, graph.placement = node.placement;
    const auto together = as_view_of_one(graph, node.inputs);
    if (!together) continue;
    const Value made =
        is_sum ? sum(*together, std::array<std::int64_t, 1>{0}) : side_by_side(*together, concat_axis(node));
    replaced[{id, 0}] = made.ref();
  }
  if (replaced.empty()) return;
  graph.replace(replaced);
  graph.compact();
}

// How deep loops stand in each other in a node.
int loops_in(const Graph& graph, NodeId id) {
  int depth = 0;
  for (const auto& body : graph.node(id).bodies) {
    depth = std::max(depth, 1);
    for (NodeId inner = 0; inner < body->size(); ++inner) depth = std::max(depth, 1 + loops_in(*body, inner));
  }
  return depth;
}

int loops_in(const Graph& graph, const Repeat& repeat) {
  int depth = 0;
  for (int i = 0; i < repeat.period; ++i) {
    depth = std::max(depth, loops_in(graph, repeat.nodes[static_cast<std::size_t>(i)]));
  }
  return depth;
}

bool has_repeats(const Graph& graph) { return !likely_loops(graph, NodeKinds(graph)).empty(); }

bool roll_one(Graph& graph, PassNotes& notes) {
  const NodeKinds kinds(graph);
  std::vector<Repeat> repeats = likely_loops(graph, kinds);
  const NodeId size = graph.size();
  // Loops within turns first: until all of them are written, not all turns look alike.
  std::ranges::stable_sort(repeats, {}, [&](const Repeat& repeat) { return loops_in(graph, repeat); });
  const Users users = users_of(graph);
  const CancelPoll poll;
  for (const Repeat& repeat : repeats) {
    poll();
    const auto loop = turns_of(graph, kinds, users, repeat);
    if (!loop) continue;
    const KeepNames names(graph);
    const Node& first = graph.node(loop->turns[0][0]);
    const std::string scope = first.scope.empty() ? "" : fmt::format(" of {}", first.scope.str());
    graph.scope = first.scope, graph.placement = first.placement;
    if (!Roller(graph, *loop).roll(users)) continue;
    notes.add(fmt::format("{} turns of {} nodes{} are one loop, which carries {} value{}", loop->count(),
                          loop->period(), scope, loop->carries.size(), loop->carries.size() == 1 ? "" : "s"));
    graph.compact();
    gather_turns(graph);
    return true;
  }
  if (graph.size() > size) graph.compact();
  return false;
}

}  // namespace

void reroll_loops(Graph& graph, PassNotes& notes) {
  bool is_any = false;
  for_each_graph(graph, [&](Graph& each) { is_any |= has_repeats(each); });
  if (!is_any) return;
  merge_duplicates(graph, notes);  // a weight that each turn transposes anew is the same value in all of them
  for_each_graph(graph, [&](Graph& each) {
    while (roll_one(each, notes)) {
    }
  });
}

}  // namespace paoding
