// SPDX-License-Identifier: Apache-2.0
#include "passes/scan_parts.h"

#include <algorithm>

#include "base/check.h"
#include "graph/keep_names.h"
#include "graph/replacements.h"
#include "ops/scan/scan.h"

namespace paoding {

namespace {
std::string free_name(Graph& body, std::string_view kind) {
  std::string name = fmt::format("{}_{}", kind, body.size());
  while (body.find(name).valid()) name += "_";  // the user's
  return name;
}
}  // namespace

ScanParts::ScanParts(Graph& outer, NodeId id)
    : graph(outer), body(*outer.node(id).bodies[0]), scan(id), length(0), is_reverse(false) {
  const ScanView view(outer.node(id));
  length = view.length;
  is_reverse = view.is_reverse;
  const auto argument = [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    return Argument{view.node.inputs[at], {body.inputs()[at], 0}};
  };
  for (int i = 0; i < view.carries; ++i) {
    const Argument start = argument(i);
    carries.push_back({start.outer, start.input, body.fetches()[static_cast<std::size_t>(i)].ref, {id, i}});
  }
  for (int i = 0; i < view.sequences; ++i) sequences.push_back(argument(view.first_sequence() + i));
  for (int i = 0; i < view.constants; ++i) constants.push_back(argument(view.first_constant() + i));
  for (int i = 0; i < view.outputs; ++i) {
    const Graph::Fetch& fetch = body.fetches()[static_cast<std::size_t>(view.carries + i)];
    outputs.push_back({fetch.ref, {id, view.carries + i}, fetch.name});
  }
}

void ScanParts::index_arguments() {
  if (are_arguments_indexed_) return;
  are_arguments_indexed_ = true;
  for (const Argument& each : sequences) sequence_of_.try_emplace(each.outer, each.input);
  for (const Argument& each : constants) constant_of_.try_emplace(each.outer, each.input);
}

Ref ScanParts::new_input(std::string_view kind, const Type& type) {
  return body.input(free_name(body, kind), type.dtype, type.shape).ref();
}

Ref ScanParts::add_sequence(Ref outer) {
  index_arguments();
  const auto [it, is_new] = sequence_of_.try_emplace(outer);
  if (!is_new) return it->second;
  const Type& type = graph.type(outer);
  it->second = new_input("element", {type.dtype, type.shape.with_removed(0)});
  sequences.push_back({outer, it->second});
  return it->second;
}

Ref ScanParts::add_constant(Ref outer) {
  index_arguments();
  const auto [it, is_new] = constant_of_.try_emplace(outer);
  if (!is_new) return it->second;
  const Type& type = graph.type(outer);
  it->second = new_input("constant", type);
  constants.push_back({outer, it->second});
  return it->second;
}

std::size_t ScanParts::add_output(Ref value) {
  const auto known = index_of_.find(value);
  const bool is_stale =
      known != index_of_.end() && (known->second >= outputs.size() || !(outputs[known->second].value == value));
  if (indexed_ != outputs.size() || is_stale) {  // a pass has changed the list itself
    index_of_.clear();
    for (std::size_t i = 0; i < outputs.size(); ++i) index_of_.try_emplace(outputs[i].value, i);
  }
  const auto [it, is_new] = index_of_.try_emplace(value, outputs.size());
  if (is_new) outputs.push_back({value, {}, ""});
  indexed_ = outputs.size();
  return it->second;
}

namespace {
template <class Each>
const Each* find_by(const std::vector<Each>& list, Ref Each::*member, Ref ref) {
  const auto it = std::find_if(list.begin(), list.end(), [&](const Each& each) { return each.*member == ref; });
  return it == list.end() ? nullptr : &*it;
}
}  // namespace

const ScanParts::Carry* ScanParts::carry_read_as(Ref input) const { return find_by(carries, &Carry::input, input); }
const ScanParts::Argument* ScanParts::sequence_read_as(Ref input) const {
  return find_by(sequences, &Argument::input, input);
}
const ScanParts::Argument* ScanParts::constant_read_as(Ref input) const {
  return find_by(constants, &Argument::input, input);
}
const ScanParts::Output* ScanParts::output_of(Ref value) const { return find_by(outputs, &Output::value, value); }
const ScanParts::Output* ScanParts::output_stacked_as(Ref stacked) const {
  return find_by(outputs, &Output::stacked, stacked);
}

NodeId ScanParts::rebuild(std::map<Ref, Ref>* replaced) {
  if (carries.empty() && outputs.empty()) return scan;  // all has moved out of the loop: the old node goes unread
  // Finds the nodes of the body that the carries and outputs need.
  std::vector<char> needed(static_cast<std::size_t>(body.size()), 0);
  std::vector<NodeId> open;
  const auto is_needed = [&](Ref ref) -> char& { return needed[static_cast<std::size_t>(ref.node)]; };
  const auto need = [&](Ref ref) {
    if (!is_needed(ref)) is_needed(ref) = 1, open.push_back(ref.node);
  };
  for (const Carry& carry : carries) need(carry.next), need(carry.input);
  for (const Output& output : outputs) need(output.value);
  for (NodeId id : body.effects()) need({id, 0});
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    for (const Ref& ref : body.node(id).inputs) need(ref);
  }
  const auto drop_unread = [&](std::vector<Argument>* arguments) {
    std::erase_if(*arguments, [&](const Argument& argument) { return !is_needed(argument.input); });
  };
  // A scan has at least one input, even when nothing that it stacks depends on any.
  const auto is_read = [&](const Argument& argument) { return is_needed(argument.input) != 0; };
  if (carries.empty() && std::none_of(sequences.begin(), sequences.end(), is_read) &&
      std::none_of(constants.begin(), constants.end(), is_read)) {
    if (sequences.empty() && constants.empty()) add_constant(graph.node(scan).inputs[0]);
    needed.resize(static_cast<std::size_t>(body.size()), 0);
    is_needed((sequences.empty() ? constants : sequences)[0].input) = 1;
  }
  drop_unread(&sequences);
  drop_unread(&constants);

  // The new body: inputs in positional order, then the needed nodes in an order that stands. Nodes that a pass
  // appended may stand after their users, so the order is found anew.
  auto made = std::make_shared<Graph>();
  std::vector<NodeId> inside(static_cast<std::size_t>(body.size()), -1);  // by the old node
  const auto add_input = [&](Ref old) {
    const Node& node = body.node(old.node);
    const Value value = made->input(node.name.str(), node.types[0].dtype, node.types[0].shape);
    inside[static_cast<std::size_t>(old.node)] = value.ref().node;
  };
  for (const Carry& carry : carries) add_input(carry.input);
  for (const Argument& argument : sequences) add_input(argument.input);
  for (const Argument& argument : constants) add_input(argument.input);
  std::vector<std::pair<NodeId, std::size_t>> stack;
  const auto is_done = [&](NodeId id) { return inside[static_cast<std::size_t>(id)] >= 0; };
  const auto now = [&](Ref ref) { return Ref{inside[static_cast<std::size_t>(ref.node)], ref.output}; };
  for (NodeId root = 0; root < body.size(); ++root) {
    if (!needed[static_cast<std::size_t>(root)] || is_done(root)) continue;
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      const Node& node = body.node(id);
      if (next < node.inputs.size()) {
        const NodeId input = node.inputs[next++].node;
        if (!is_done(input)) stack.emplace_back(input, 0);
        continue;
      }
      if (!is_done(id)) {
        PD_ASSERT(!node.op->is(OpRole::source), "a body input that is no argument of the scan");
        Node copy = node;
        for (Ref& ref : copy.inputs) ref = now(ref);
        inside[static_cast<std::size_t>(id)] = made->add(std::move(copy));
      }
      stack.pop_back();
    }
  }
  for (std::size_t i = 0; i < carries.size(); ++i) {
    made->fetch(fmt::format("next{}", i), made->value(now(carries[i].next)));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    made->fetch(fmt::format("out{}", i), made->value(now(outputs[i].value)));
  }

  const Node& old = graph.node(scan);
  const KeepNames keep(graph, old);
  Values initial, elements, whole;
  for (const Carry& carry : carries) initial.push_back(graph.value(carry.initial));
  for (const Argument& argument : sequences) elements.push_back(graph.value(argument.outer));
  for (const Argument& argument : constants) whole.push_back(graph.value(argument.outer));
  const Values results = add_scan(graph, initial, elements, whole, length, is_reverse, made);
  graph.forget_effect(scan);
  for (std::size_t i = 0; i < carries.size(); ++i) {
    if (carries[i].last.valid()) (*replaced)[carries[i].last] = results[i].ref();
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].stacked.valid()) (*replaced)[outputs[i].stacked] = results[carries.size() + i].ref();
  }
  return results[0].ref().node;
}

void for_each_scan(Graph& graph, const std::function<void(NodeId, std::map<Ref, Ref>*)>& edit) {
  Replacements replaced;
  const NodeId size = graph.size();
  for (NodeId id = 0; id < size; ++id) {
    if (!graph.node(id).op->is_scan()) continue;
    if (!replaced.empty()) {
      for (Ref& ref : graph.mutable_node(id).inputs) ref = replaced.now(ref);
    }
    std::map<Ref, Ref> made;
    edit(id, &made);
    for (const auto& [from, to] : made) replaced.add(from, to);
  }
  graph.replace(replaced);
  graph.compact();
}

std::vector<char> depends_on_carries(const ScanParts& parts) {
  std::vector<char> depends(static_cast<std::size_t>(parts.body.size()), 0);
  for (const ScanParts::Carry& carry : parts.carries) depends[static_cast<std::size_t>(carry.input.node)] = 1;
  for (NodeId id = 0; id < parts.body.size(); ++id) {
    for (const Ref& ref : parts.body.node(id).inputs) {
      if (depends[static_cast<std::size_t>(ref.node)]) depends[static_cast<std::size_t>(id)] = 1;
    }
  }
  return depends;
}

std::vector<char> feeds_carries(const ScanParts& parts) {
  std::vector<char> feeds(static_cast<std::size_t>(parts.body.size()), 0);
  for (const ScanParts::Carry& carry : parts.carries) feeds[static_cast<std::size_t>(carry.next.node)] = 1;
  for (NodeId id = parts.body.size() - 1; id >= 0; --id) {
    if (!feeds[static_cast<std::size_t>(id)]) continue;
    for (const Ref& ref : parts.body.node(id).inputs) feeds[static_cast<std::size_t>(ref.node)] = 1;
  }
  return feeds;
}

}  // namespace paoding
