// SPDX-License-Identifier: Apache-2.0
#include "passes/repeats.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>

#include "graph/equal_attrs.h"
#include "paoding/op.h"

namespace paoding {
namespace {

constexpr int kMostPeriods = 64;        // that are tried
constexpr int kFurthestRecurrence = 4;  // two equal layers in a turn: a period has each of their nodes twice

bool may_be_in_a_turn(const Graph& graph, NodeId id, const std::vector<char>& is_outside) {
  const Node& node = graph.node(id);
  const OpDef& op = *node.op;
  if (op.is(OpRole::source) || op.is(OpRole::generated) || op.is(OpRole::constant) || has_effect(node)) return false;
  if (op.passes_on()) return false;  // a barrier orders what is computed again to save memory
  if (op.view == ViewForm::none) return true;
  return !std::ranges::all_of(node.inputs,
                              [&](Ref ref) { return is_outside[static_cast<std::size_t>(ref.node)] != 0; });
}

// A slice's range differs from turn to turn; its extents are in its type.
bool has_range(const Node& node) { return node.op->view == ViewForm::sliced; }

std::size_t hash_of_kind(const Graph& graph, const Node& node) {
  std::size_t hash = std::hash<const void*>()(node.op);
  if (!has_range(node)) mix(&hash, hash_of(node.attrs));
  const auto put = [&](const Type& type) {
    mix(&hash, static_cast<std::size_t>(type.dtype));
    for (const std::int64_t extent : type.shape) mix(&hash, static_cast<std::size_t>(extent));
  };
  for (const Type& type : node.types) put(type);
  for (const Ref& ref : node.inputs) put(graph.type(ref)), mix(&hash, static_cast<std::size_t>(ref.output));
  for (const auto& body : node.bodies) {
    for (NodeId id = 0; id < body->size(); ++id) {
      mix(&hash, hash_of_kind(*body, body->node(id)));
      for (const Ref& ref : body->node(id).inputs) mix(&hash, static_cast<std::size_t>(ref.node));
    }
  }
  return hash;
}

bool is_same_kind(const Graph& graph, const Node& a, const Node& b) {
  if (a.op != b.op || a.types != b.types || a.placement != b.placement || a.inputs.size() != b.inputs.size() ||
      a.bodies.size() != b.bodies.size() || (!has_range(a) && !equal_attrs(a.attrs, b.attrs))) {
    return false;
  }
  for (std::size_t k = 0; k < a.inputs.size(); ++k) {
    if (a.inputs[k].output != b.inputs[k].output || graph.type(a.inputs[k]) != graph.type(b.inputs[k])) return false;
  }
  for (std::size_t k = 0; k < a.bodies.size(); ++k) {
    if (to_text(*a.bodies[k]) != to_text(*b.bodies[k])) return false;
  }
  return true;
}

std::vector<int> periods_of(const std::vector<int>& kinds) {
  std::map<int, int> count_of;
  std::unordered_map<int, std::vector<int>> places_of;
  for (int i = 0; i < static_cast<int>(kinds.size()); ++i) places_of[kinds[static_cast<std::size_t>(i)]].push_back(i);
  for (const auto& [kind, places] : places_of) {
    for (std::size_t k = 1; k <= kFurthestRecurrence; ++k) {
      for (std::size_t i = k; i < places.size(); ++i) ++count_of[places[i] - places[i - k]];
    }
  }
  std::vector<std::pair<int, int>> most;
  for (const auto& [period, count] : count_of) {
    if (count >= kFewestTurns - 1) most.emplace_back(-count, period);
  }
  std::ranges::sort(most);
  if (most.size() > kMostPeriods) most.resize(kMostPeriods);
  std::vector<int> periods;
  for (const auto& [count, period] : most) periods.push_back(period);
  std::ranges::sort(periods);
  return periods;
}

}  // namespace

NodeKinds::NodeKinds(const Graph& graph) : kinds_(static_cast<std::size_t>(graph.size()), -1) {
  std::vector<char> is_outside(kinds_.size(), 0);
  std::unordered_multimap<std::size_t, NodeId> first_of;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const auto at = static_cast<std::size_t>(id);
    is_outside[at] = !may_be_in_a_turn(graph, id, is_outside);
    if (is_outside[at]) continue;
    const std::size_t hash = hash_of_kind(graph, graph.node(id));
    for (auto [it, end] = first_of.equal_range(hash); it != end && kinds_[at] < 0; ++it) {
      if (is_same_kind(graph, graph.node(id), graph.node(it->second))) kinds_[at] = it->second;
    }
    if (kinds_[at] < 0) kinds_[at] = id, first_of.emplace(hash, id);
  }
}

std::vector<Repeat> find_repeats(const Graph& graph, const NodeKinds& kinds) {
  std::vector<NodeId> nodes;
  std::vector<int> of;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (kinds.of(id) >= 0) nodes.push_back(id), of.push_back(kinds.of(id));
  }
  std::vector<Repeat> repeats;
  for (const int period : periods_of(of)) {
    const auto step = static_cast<std::size_t>(period);
    for (std::size_t begin = 0; begin + step < of.size();) {
      std::size_t end = begin;
      while (end + step < of.size() && of[end] == of[end + step]) ++end;
      if (end - begin >= (kFewestTurns - 1) * step) {
        const auto first = nodes.begin() + static_cast<std::ptrdiff_t>(begin);
        repeats.push_back({{first, nodes.begin() + static_cast<std::ptrdiff_t>(end + step)}, period});
      }
      begin = end + 1;
    }
  }
  return repeats;
}

}  // namespace paoding
