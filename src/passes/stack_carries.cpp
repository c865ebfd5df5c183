// SPDX-License-Identifier: Apache-2.0
// stack_carries: the states that the steps of a loop began with are its carries. Written as all results but the last,
// after the start, they would be a second copy in memory:
//
//   out = scan(h0, ..) [ next = tanh(..);  out = next ];  before = slice(concat(h0, out), 0..T)
// becomes
//   out, before = scan(h0, ..) [ next = tanh(..);  out = next;  saved = carry ]
//
// The planner keeps both in one history.
#include <optional>

#include "graph/keep_names.h"
#include "ops/scan/scan.h"
#include "ops/views.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

struct CarryBefore {
  NodeId scan;
  Ref carry;  // of the body
};

// The loop, and the carry in front of its steps, that the slice is of.
std::optional<CarryBefore> carry_before(const Graph& graph, const Node& slice) {
  const Node& concatenation = graph.node(slice.inputs[0].node);
  if (concatenation.op->view != ViewForm::concatenated || concatenation.inputs.size() != 2 ||
      concat_axis(concatenation) != 0)
    return std::nullopt;
  for (const bool is_reverse : {false, true}) {
    const Ref start = concatenation.inputs[is_reverse ? 1 : 0], made = concatenation.inputs[is_reverse ? 0 : 1];
    const Node &entry = graph.node(start.node), &scan = graph.node(made.node);
    if (entry.op->view != ViewForm::reshaped || !scan.op->is_scan() || graph.type(start).shape[0] != 1) continue;
    const ScanView view(scan);
    if (view.is_reverse != is_reverse || made.output < view.carries || view.length == 0) continue;
    const SliceRange range = slice_range(slice);
    const Shape& whole = concatenation.types[0].shape;
    bool is_all_but_last = range.is_plain();
    for (int axis = 0; axis < whole.rank(); ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      const std::int64_t skipped = axis == 0 && is_reverse ? 1 : 0, left = axis == 0 && !is_reverse ? 1 : 0;
      is_all_but_last &= range.start[at] == skipped && range.end[at] == whole[axis] - left;
    }
    if (!is_all_but_last) continue;
    const auto& fetches = view.body.fetches();
    for (int i = 0; i < view.carries; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (scan.inputs[at] == entry.inputs[0] && fetches[at].ref == fetches[static_cast<std::size_t>(made.output)].ref) {
        return CarryBefore{made.node, {view.body.inputs()[at], 0}};
      }
    }
  }
  return std::nullopt;
}

void stack_in(Graph& graph, PassNotes& notes) {
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Node& node = rewriter.enter(id);
    if (node.op->view != ViewForm::sliced) continue;
    const auto found = carry_before(graph, node);
    if (!found) continue;
    rewriter.replace({id, 0}, ScanOutputs(graph, found->scan).add(found->carry));
    notes.add("what the steps of " + graph.node(found->scan).title() + " begin with is what they carry");
  }
  rewriter.finish();
}

}  // namespace

void stack_carries(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) { stack_in(each, notes); });
}

}  // namespace paoding
