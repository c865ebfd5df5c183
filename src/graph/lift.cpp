// SPDX-License-Identifier: Apache-2.0
#include "graph/lift.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "graph/follow_by_none.h"
#include "graph/formula.h"
#include "graph/keep_names.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

// An elementwise op over time: lifted inputs of lower rank get axes of extent 1 after the time axis, so that axes
// aligned at the last one still are.
Values lift_formula(const Node& node, const std::vector<Lifted>& inputs) {
  const int rank = node.types[0].shape.rank() + 1;
  Values aligned;
  for (const Lifted& input : inputs) {
    const Shape& shape = input.value.shape();
    if (!input.has_time || shape.rank() == rank) {
      aligned.push_back(input.value);
      continue;
    }
    std::vector<std::int64_t> dims(shape.begin(), shape.end());
    dims.insert(dims.begin() + 1, static_cast<std::size_t>(rank - shape.rank()), 1);
    aligned.push_back(reshape(input.value, dims));
  }
  return call(*node.op, aligned, node.attrs);
}

// The parts of a composed op that a kernel has claimed, over time.
std::optional<std::vector<Lifted>> lift_composed(Graph& graph, const Node& node, const std::vector<Lifted>& inputs,
                                                 std::int64_t length, std::string* why_not) {
  Graph step;
  Values given;
  std::map<Ref, Lifted> lifted;
  for (const Lifted& input : inputs) {
    const Shape& shape = input.value.shape();
    given.push_back(step.input(fmt::format("in{}", given.size()), input.value.dtype(),
                               input.has_time ? shape.with_removed(0) : shape));
    lifted[given.back().ref()] = input;
  }
  const Values made = expand_composed(step, *node.op, given, node.attrs);
  for (NodeId id = 0; id < step.size(); ++id) {
    if (lifted.contains({id, 0})) continue;
    std::vector<Lifted> read;
    for (const Ref& ref : step.node(id).inputs) read.push_back(lifted.at(ref));
    const auto results = lift_node(graph, step.node(id), read, length, why_not);
    if (!results) return std::nullopt;
    for (std::size_t k = 0; k < results->size(); ++k) lifted[{id, static_cast<std::int32_t>(k)}] = (*results)[k];
  }
  std::vector<Lifted> results;
  for (const Value& value : made) results.push_back(lifted.at(value.ref()));
  return results;
}

// A length of -1: there is no axis of time.
void check_lifted(const Node& node, const Values& made, std::int64_t length) {
  if (made.size() != node.types.size()) {
    fail(ErrorKind::argument, "{}: its lift rule gives {} values, the op {}", node.op->name, made.size(),
         node.types.size());
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    Type needed = node.types[i];
    if (length >= 0) needed.shape = needed.shape.with_inserted(0, length);
    if (made[i].type() == needed) continue;
    fail(ErrorKind::argument, "{}: its lift rule gives {}, needed is {}", node.op->name, to_string(made[i].type()),
         to_string(needed));
  }
}

}  // namespace

std::optional<std::vector<Lifted>> lift_node(Graph& graph, const Node& node, const std::vector<Lifted>& inputs,
                                             std::int64_t length, std::string* why_not) {
  const KeepNames keep(graph, node);
  if (node.op->kind == OpKind::composed) return lift_composed(graph, node, inputs, length, why_not);
  const bool has_time = std::any_of(inputs.begin(), inputs.end(), [](const Lifted& l) { return l.has_time; });
  bool is_too_deep = false;
  for (const Lifted& input : inputs) is_too_deep |= !input.has_time && input.value.shape().rank() == Shape::kMaxRank;
  for (const Type& type : node.types) is_too_deep |= has_time && type.shape.rank() == Shape::kMaxRank;
  Values made;
  if (is_too_deep && has_time) {
    *why_not = node.op->name + " has as many axes as there may be";
  } else if (!node.bodies.empty()) {
    *why_not = node.op->name + " has a body";
  } else if (!has_time) {
    Values values;
    for (const Lifted& input : inputs) values.push_back(input.value);
    made = call(*node.op, values, node.attrs, {}, &graph);
  } else if (node.op->kind == OpKind::formula) {
    made = lift_formula(node, inputs);
  } else if (node.op->lift) {
    LiftCall lift{node, {}, {}, length};
    for (const Lifted& input : inputs) {
      lift.inputs.push_back(input.value);
      lift.lifted.push_back(input.has_time);
    }
    follow_by_none(&lift.inputs);
    follow_by_none(&lift.lifted);
    made = node.op->lift(lift);
  }
  if (made.empty() || std::any_of(made.begin(), made.end(), [](const Value& value) { return !value.valid(); })) {
    if (why_not->empty()) *why_not = node.op->name + " has no rule for all steps at once";
    return std::nullopt;
  }
  check_lifted(node, made, has_time ? length : -1);
  std::vector<Lifted> results;
  for (const Value& value : made) results.push_back({value, has_time});
  return results;
}

}  // namespace paoding
