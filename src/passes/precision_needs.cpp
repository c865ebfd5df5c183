// SPDX-License-Identifier: Apache-2.0
#include "passes/precision_needs.h"

#include "ops/scan/scan.h"
#include "paoding/op.h"

namespace paoding {
namespace {

// Whether a value of a loop's body is a product's result, perhaps moved, chosen or kept from the step before.
bool is_from_product(const Graph& graph, Ref ref, Ref kept) {
  const Node& node = graph.node(ref.node);
  const PrecisionRole role = precision_role(node);
  if (role == PrecisionRole::product) return true;
  if (role != PrecisionRole::mover || node.types[0].dtype != f32) return false;
  bool is_any = false;
  for (const Ref& input : node.inputs) {
    if (graph.type(input).dtype != f32 || input == kept || graph.node(input.node).op->is(OpRole::generated)) continue;
    if (!is_from_product(graph, input, kept)) return false;
    is_any = true;
  }
  return is_any;
}

// A value that is exact on one side of a loop is wide on the other.
unsigned through_loop(unsigned bits) { return (bits & kExact) != 0 ? (bits & ~kExact) | kWide : bits; }

}  // namespace

PrecisionRole precision_role(const Node& node) {
  const OpDef& op = *node.op;
  if (op.is(OpRole::source) || op.is(OpRole::generated)) return PrecisionRole::none;
  switch (op.precision) {
    case PrecisionRule::product: return node.types[0].dtype == f32 ? PrecisionRole::product : PrecisionRole::other;
    case PrecisionRule::moves: return PrecisionRole::mover;
    case PrecisionRule::accumulates: return PrecisionRole::adder;
    case PrecisionRule::exact: return PrecisionRole::other;
    case PrecisionRule::by_kind: break;
  }
  if (op.kind == OpKind::view) return PrecisionRole::mover;
  if (op.conversion == Conversion::in_memory) return PrecisionRole::storage;
  if (op.is(OpRole::passed_on)) return PrecisionRole::barrier;
  if (op.kind == OpKind::formula) return PrecisionRole::formula;
  if (op.kind == OpKind::reduction) return PrecisionRole::reduction;
  return op.is_scan() ? PrecisionRole::scan : PrecisionRole::other;
}

PrecisionNeeds::PrecisionNeeds(Graph& graph) {
  prepare(graph);
  do {  // a carry has the needs of its start, and the other way round
    has_changed_ = false;
    walk(graph, kExact);
  } while (has_changed_);
}

void PrecisionNeeds::prepare(Graph& graph) {
  auto& all = needs_[&graph];
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    all.emplace_back(node.types.size(), std::uint8_t{0});
    for (const auto& body : node.bodies) prepare(*body);
  }
}

void PrecisionNeeds::need(const Graph& graph, Ref ref, unsigned bits) {
  if (graph.type(ref).dtype != f32) return;
  std::uint8_t& known = needs_[&graph][static_cast<std::size_t>(ref.node)][static_cast<std::size_t>(ref.output)];
  const auto now = static_cast<std::uint8_t>(known | bits);
  has_changed_ |= now != known;
  known = now;
}

void PrecisionNeeds::walk(Graph& graph, unsigned fetched) {
  for (const Graph::Fetch& fetch : graph.fetches()) need(graph, fetch.ref, fetched);
  for (NodeId id = graph.size() - 1; id >= 0; --id) walk_node(graph, id);
}

void PrecisionNeeds::walk_node(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const unsigned bits = node.types.empty() ? 0 : of(graph, {id, 0});
  const auto need_all = [&](unsigned wanted) {
    for (const Ref& ref : node.inputs) need(graph, ref, wanted);
  };
  switch (precision_role(node)) {
    case PrecisionRole::none: return;
    case PrecisionRole::product: return need_all(kNarrow);
    case PrecisionRole::mover:
      // Where both are wanted a view is there in both, and other values are rounded after it.
      return need_all(node.op->kind != OpKind::view && wants_wide(bits) ? bits & ~kNarrow : bits);
    case PrecisionRole::storage: return need_all(kNarrow);  // unless it is narrow already
    case PrecisionRole::barrier:
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        need(graph, node.inputs[i], of(graph, {id, static_cast<std::int32_t>(i)}));
      }
      return;
    case PrecisionRole::formula:
      // A comparison, or a conversion to integers, has no bits of its own.
      return need_all((bits & kExact) != 0 || node.types[0].dtype == f64 ? kExact : kEither);
    case PrecisionRole::adder: return need_all(kWish);
    case PrecisionRole::reduction: return need_all(kEither);
    case PrecisionRole::scan: return walk_scan(graph, id);
    case PrecisionRole::other: break;
  }
  need_all(node.op->precision == PrecisionRule::exact ? kExact : kWide);
  // Who assigns a parameter assigns its shadow.
  if (node.op->is(OpRole::update)) need(graph, node.inputs[1], of(graph, node.inputs[0]) & kNarrow);
  for (const auto& body : node.bodies) walk(*body, kWide);
}

void PrecisionNeeds::walk_scan(Graph& graph, NodeId id) {
  const ScanView scan(graph.node(id));
  const auto fetched = [&](int i) { return scan.body.fetches()[static_cast<std::size_t>(i)].ref; };
  const auto given = [&](int i) { return scan.node.inputs[static_cast<std::size_t>(i)]; };
  const auto read = [&](int i) { return Ref{scan.body.inputs()[static_cast<std::size_t>(i)], 0}; };
  const int first_output = scan.carries;
  for (int i = 0; i < scan.outputs; ++i) {
    need(scan.body, fetched(first_output + i), through_loop(of(graph, {id, first_output + i})));
  }
  for (int i = 0; i < scan.carries; ++i) {
    unsigned bits = of(scan.body, read(i));
    // Values computed from it add up from step to step, unless a product comes in between.
    if ((bits & kEither) != 0) bits |= is_from_product(scan.body, fetched(i), read(i)) ? kNarrow : kWide;
    bits |= of(graph, {id, i}) & static_cast<unsigned>(~kEither);
    bits = through_loop(bits) & (kNarrow | kWide);
    need(scan.body, read(i), bits);
    need(scan.body, fetched(i), bits);
    need(graph, given(i), bits);
  }
  for (NodeId inner = scan.body.size() - 1; inner >= 0; --inner) walk_node(scan.body, inner);
  for (int i = scan.carries; i < static_cast<int>(scan.node.inputs.size()); ++i) {
    need(graph, given(i), through_loop(of(scan.body, read(i))));
  }
}

}  // namespace paoding
