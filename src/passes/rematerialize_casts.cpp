// SPDX-License-Identifier: Apache-2.0
// rematerialize_casts: a value that a kernel casts to f32 from its 16-bit input is not stored in f32; its readers read
// the 16 bits and cast them as well.
//
//   w, n = group(g) [ w = cast(g); fetch w; fetch sum(w * w) ];  m = group(w, n, ..) [ .. w * n .. ]
// becomes
//   n = group(g) [ w = cast(g); fetch sum(w * w) ];  m = group(g, n, ..) [ w = cast(g); .. w * n .. ]
//
// with g a gradient in 16 bits, whose norm is clipped: all gradients are read for it before the first is applied.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "graph/keep_names.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"

namespace paoding {
namespace {

bool is_group(const Node& node) { return node.op->is_fusion_group(); }

// The operand of a cast from 16 bits to f32.
Ref cast_from(const Graph& graph, Ref ref) {
  const Node& node = graph.node(ref.node);
  if (node.op->conversion != Conversion::value || node.types[0].dtype != f32) return {};
  return size_bytes(graph.type(node.inputs[0]).dtype) == 2 ? node.inputs[0] : Ref();
}

// The 16 bits that a result of a kernel is in f32, where the kernel reads them; invalid for others.
Ref source_of(const Graph& graph, Ref result) {
  const Node& node = graph.node(result.node);
  if (!is_group(node)) return cast_from(graph, result);
  const Graph& body = *node.bodies[0];
  const Ref inside = cast_from(body, body.fetches()[static_cast<std::size_t>(result.output)].ref);
  const auto& inputs = body.inputs();
  const auto it = inside.valid() ? std::find(inputs.begin(), inputs.end(), inside.node) : inputs.end();
  return it == inputs.end() ? Ref() : node.inputs[static_cast<std::size_t>(it - inputs.begin())];
}

// Has the group read `source` in place of `wide`.
void narrow(Graph& graph, NodeId group, Ref wide, Ref source) {
  Node& node = graph.mutable_node(group);
  Graph& body = *node.bodies[0];
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!(node.inputs[i] == wide)) continue;
    node.inputs[i] = source;
    const Ref input{body.inputs()[i], 0};
    body.mutable_node(input.node).types[0].dtype = graph.type(source).dtype;
    const KeepNames keep(body);
    const Ref again = cast(body.value(input), f32).ref();
    body.replace(input, again);
    body.mutable_node(again.node).inputs[0] = input;
    body.compact();
  }
}

// Without the results that nobody reads any more.
void drop_results(Graph& graph, NodeId group, const std::set<Ref>& gone, std::map<Ref, Ref>* moved) {
  const Node node = graph.node(group);
  auto& fetches = node.bodies[0]->mutable_fetches();
  std::vector<Ref> kept;
  auto next = fetches.begin();
  for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) {
    if (gone.contains({group, k})) {
      next = fetches.erase(next);
    } else {
      kept.push_back({group, k}), ++next;
    }
  }
  if (kept.empty()) return;  // it goes
  node.bodies[0]->compact();
  const KeepNames keep(graph, node);
  Values inputs;
  for (const Ref& ref : node.inputs) inputs.push_back(graph.value(ref));
  const Values made = call(*node.op, inputs, node.attrs, {node.bodies[0]}, &graph);
  for (std::size_t k = 0; k < kept.size(); ++k) (*moved)[kept[k]] = made[k].ref();
}

int rematerialize_in(Graph& graph) {
  std::map<Ref, std::vector<NodeId>> users;
  std::set<Ref> fetched;
  for (const Graph::Fetch& fetch : graph.fetches()) fetched.insert(fetch.ref);
  const NodeId size = graph.size();
  for (NodeId id = 0; id < size; ++id) {
    for (const Ref& ref : graph.node(id).inputs) users[ref].push_back(id);
  }
  std::set<Ref> gone;
  std::set<NodeId> makers;
  for (const auto& [ref, readers] : users) {
    const Ref source = source_of(graph, ref);
    const auto is_of_group = [&](NodeId id) { return is_group(graph.node(id)); };
    if (!source.valid() || fetched.contains(ref) || !std::ranges::all_of(readers, is_of_group)) continue;
    for (const NodeId reader : readers) narrow(graph, reader, ref, source);
    gone.insert(ref);
    if (is_group(graph.node(ref.node))) makers.insert(ref.node);
  }
  std::map<Ref, Ref> moved;
  for (const NodeId group : makers) drop_results(graph, group, gone, &moved);
  graph.replace(moved);
  graph.compact();
  return static_cast<int>(gone.size());
}

}  // namespace

void rematerialize_casts(Graph& graph, PassNotes& notes) {
  if (!notes.target().is_gpu()) return;
  int rematerialized = 0;
  for_each_graph(graph, [&](Graph& each) { rematerialized += rematerialize_in(each); });
  if (rematerialized > 0)
    notes.add(fmt::format("{} values of 16 bits are cast by each kernel that reads them", rematerialized));
}

}  // namespace paoding
