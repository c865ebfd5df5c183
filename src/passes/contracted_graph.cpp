// SPDX-License-Identifier: Apache-2.0
#include "passes/contracted_graph.h"

#include <algorithm>
#include <numeric>

namespace paoding {
namespace {

std::size_t slot(int i) { return static_cast<std::size_t>(i); }

}  // namespace

ContractedGraph::ContractedGraph(const Graph& graph) : graph_(graph) {
  const std::size_t size = slot(graph.size());
  unit_of_.resize(size);
  std::iota(unit_of_.begin(), unit_of_.end(), 0);
  place_ = unit_of_;
  visited_.assign(size, 0);
  users_.resize(size);
  members_.resize(size);
  for (NodeId id = 0; id < graph.size(); ++id) {
    members_[slot(id)] = {id};
    for (const Ref& ref : graph.node(id).inputs) {
      auto& list = users_[slot(ref.node)];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
}

// The units that reach `last` and stand after `first`, as far as a short walk shows: most of those that make a cycle
// stand right before `last`, while `first` may have any number of users.
ContractedGraph::Found ContractedGraph::look_before(int first, int last, std::vector<int>* before) {
  constexpr std::size_t kMostSeen = 64;
  std::vector<int> open{last};
  for (std::size_t next = 0; next < open.size(); ++next) {
    for (const NodeId member : members(open[next])) {
      for (const Ref& ref : graph_.node(member).inputs) {
        const int unit = unit_of(ref.node);
        if (unit == first && open[next] != last) return Found::cycle;
        if (unit == first || unit == last || place_[slot(unit)] < place_[slot(first)] || is_visited(unit)) continue;
        if (open.size() > kMostSeen) return Found::too_far;
        visited_[slot(unit)] = round_;
        open.push_back(unit);
      }
    }
  }
  before->assign(open.begin() + 1, open.end());
  return Found::none;
}

// The units that `first` reaches and that stand before `last`; a cycle when one of them reaches `last`.
ContractedGraph::Answer ContractedGraph::find_behind(int first, int last, std::vector<int>* behind) {
  std::size_t steps = 0;
  const auto visit_users = [&](int unit) {
    for (const NodeId member : members(unit)) {
      for (const NodeId user : users(member)) {
        const int next = unit_of(user);
        if (next == last && unit != first) return Answer::cycle;
        if (++steps > kMostSteps) return Answer::too_far;
        if (next == first || next == last || place_[slot(next)] > place_[slot(last)] || is_visited(next)) continue;
        if (behind->size() == kMostVisited) return Answer::too_far;
        visited_[slot(next)] = round_;
        behind->push_back(next);
      }
    }
    return Answer::merged;
  };
  if (const Answer answer = visit_users(first); answer != Answer::merged) return answer;
  for (std::size_t next = 0; next < behind->size(); ++next) {
    if (const Answer answer = visit_users((*behind)[next]); answer != Answer::merged) return answer;
  }
  return Answer::merged;
}

// The units that reach `last` and stand after `first`; false when there are too many.
bool ContractedGraph::find_before(int first, int last, std::vector<int>* before) {
  std::size_t steps = 0;
  const auto visit_inputs = [&](int unit) {
    for (const NodeId member : members(unit)) {
      for (const Ref& ref : graph_.node(member).inputs) {
        const int next = unit_of(ref.node);
        if (++steps > kMostSteps) return false;
        if (next == first || next == last || place_[slot(next)] < place_[slot(first)] || is_visited(next)) continue;
        if (before->size() == kMostVisited) return false;
        visited_[slot(next)] = round_;
        before->push_back(next);
      }
    }
    return true;
  };
  if (!visit_inputs(last)) return false;
  for (std::size_t next = 0; next < before->size(); ++next) {
    if (!visit_inputs((*before)[next])) return false;
  }
  return true;
}

// Units that reach `last` come before the merged unit and those that `first` reaches after it, in the same places.
void ContractedGraph::reorder(int first, int last, int into, std::vector<int> before, std::vector<int> behind) {
  const auto by_place = [&](int a, int b) { return place_[slot(a)] < place_[slot(b)]; };
  std::sort(before.begin(), before.end(), by_place);
  std::sort(behind.begin(), behind.end(), by_place);
  std::vector<int> units = before;
  units.push_back(into);
  units.insert(units.end(), behind.begin(), behind.end());
  std::vector<int> places{place_[slot(first)], place_[slot(last)]};
  for (const auto* list : {&before, &behind}) {
    for (const int unit : *list) places.push_back(place_[slot(unit)]);
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 0; i < units.size(); ++i) place_[slot(units[i])] = places[i];
}

ContractedGraph::Answer ContractedGraph::merge(int from, int into) {
  const bool is_in_order = place_[slot(from)] < place_[slot(into)];
  const int first = is_in_order ? from : into, last = is_in_order ? into : from;
  std::vector<int> behind, before;
  ++round_;
  const Found found = look_before(first, last, &before);
  if (found == Found::cycle) return Answer::cycle;
  if (found == Found::none && before.empty()) {
    place_[slot(into)] = place_[slot(first)];
  } else {
    ++round_;
    if (const Answer answer = find_behind(first, last, &behind); answer != Answer::merged) return answer;
    if (behind.empty()) {
      place_[slot(into)] = place_[slot(last)];
    } else {
      ++round_;
      if (found == Found::too_far && !find_before(first, last, &before)) return Answer::too_far;
      reorder(first, last, into, std::move(before), std::move(behind));
    }
  }
  std::vector<NodeId> merged;
  std::merge(members(from).begin(), members(from).end(), members(into).begin(), members(into).end(),
             std::back_inserter(merged));
  for (const NodeId id : members(from)) unit_of_[slot(id)] = into;
  members_[slot(from)].clear();
  members_[slot(into)] = std::move(merged);
  return Answer::merged;
}

}  // namespace paoding
