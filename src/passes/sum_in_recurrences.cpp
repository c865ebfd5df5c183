// SPDX-License-Identifier: Apache-2.0
// When a recurrence's gradient is summed over steps and rows, as for the gradient of a bias, the gradient's kernel sums
// it: after it, that would be a pass over all of it.
//
//   dxw, dh0, dc0 = lstm_recurrence_grad(..);  db = sum(dxw, axes=[0,1])
// becomes
//   dxw, dh0, dc0, db = lstm_recurrence_grad(..) {sums=true}
//
// also where dxw is stored in another type first, and of a GRU's second bias, of which only the last gate has one.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "ops/axes.h"
#include "ops/recurrence/cell.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/claimed_by.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

Ref as_made(const Graph& graph, Ref ref) {
  while (graph.node(ref.node).op->conversion == Conversion::in_memory) ref = graph.node(ref.node).inputs[0];
  return ref;
}

// The first column of the operand of `sum` within the sums of a gradient over time, node `id`; none if it is not of
// that.
std::optional<std::int64_t> first_column(const Graph& graph, const Node& sum, NodeId id) {
  if (sum.op->reduces_with != Prim::add || graph.type(sum.inputs[0]).shape.rank() != 3) return {};
  if (plain_axes(sum.attrs.get_ints("axes"), 3) != std::vector<int>{0, 1}) return {};
  Ref ref = as_made(graph, sum.inputs[0]);
  if (ref == Ref{id, 0}) return 0;
  const Node& gradient = graph.node(id);
  const CellDescriptor& cell = *gradient.op->cell;
  if (!cell.has_inner_gradient() || graph.node(ref.node).op->view != ViewForm::sliced) return {};
  const SliceRange range = slice_range(graph.node(ref.node));
  const Shape whole = gradient.types[1].shape, part = graph.type(ref).shape;
  const std::int64_t hidden = whole[2] / cell.gates;
  ref = as_made(graph, graph.node(ref.node).inputs[0]);
  const bool is_last_gate = range.is_plain() && part[0] == whole[0] && part[1] == whole[1] && part[2] == hidden;
  if (!(ref == Ref{id, 1}) || !is_last_gate || range.start[2] != whole[2] - hidden) return {};
  return whole[2];
}

}  // namespace

void sum_in_recurrences(Graph& graph, PassNotes& notes) {
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Node& node = rewriter.enter(id);
    if (cell_of_gradient(*node.op) == nullptr || node.attrs.get_bool("sums")) continue;
    std::vector<std::pair<NodeId, std::int64_t>> sums;
    for (NodeId other = id + 1; other < rewriter.first_new; ++other) {
      const auto column = first_column(graph, graph.node(other), id);
      const bool is_alike =
          sums.empty() || graph.node(other).types[0].dtype == graph.node(sums[0].first).types[0].dtype;
      if (column && is_alike) sums.emplace_back(other, *column);
    }
    if (sums.empty()) continue;
    const Node kept = node;
    Values inputs;
    for (const Ref& ref : kept.inputs) inputs.push_back(graph.value(ref));
    Attrs attrs = kept.attrs;
    attrs.set("sums", true), attrs.set("sums_dtype", graph.node(sums[0].first).types[0].dtype);
    const Values made = call(*kept.op, inputs, attrs);
    if (claimed_by(graph, made[0].ref().node, notes) == nullptr) continue;
    for (std::size_t k = 0; k < kept.types.size(); ++k) {
      rewriter.replace({id, static_cast<std::int32_t>(k)}, made[k].ref());
    }
    for (const auto& [sum, column] : sums) {
      const Shape shape = graph.node(sum).types[0].shape;
      const Value part = slice(made.back(), 0, column, column + shape.elements());
      rewriter.replace({sum, 0}, reshape(part, shape).ref());
      notes.add(fmt::format("{} {} is added up in {}", graph.node(sum).label(), to_string(graph.node(sum).types[0]),
                            kept.op->name));
    }
  }
  rewriter.finish();
}

}  // namespace paoding
