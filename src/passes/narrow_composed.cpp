// SPDX-License-Identifier: Apache-2.0
// narrow_composed: the first half of mixed_precision: recurrences over time and attention, which a kernel may claim,
// are made ops of 16 bits before one is asked, since after that pass there are only the parts of those that were not
// claimed.
//
//   states, cells, .. = lstm_recurrence(xw, u, h0, c0)
// becomes
//   s, cells, .. = lstm_recurrence(store_as(xw), store_as(u), store_as(h0), c0)
//   states = store_as(s) {dtype = f32}
//
// where store_as is to bf16 or f16, and mixed_precision takes out those that do nothing. Cell states stay f32; a GRU
// carries its state, which adds up from step to step, in f32 by itself. Of attention, log-sum-exp and the bias stay
// f32.
#include <algorithm>

#include "ops/recurrence/cell.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

bool is_narrowed(const Node& node) {
  return (node.op->cell != nullptr || node.op->narrow_inputs > 0) && node.types[0].dtype == f32;
}

// The inputs that stay f32.
std::vector<std::size_t> wide_inputs(const Node& node) {
  // Cell states and their gradient.
  if (node.op->cell != nullptr) return node.op->cell->wide_inputs(node.op->is_cell_gradient, node.attrs);
  std::vector<std::size_t> made;
  for (std::size_t i = node.op->narrow_inputs; i < node.inputs.size(); ++i) made.push_back(i);
  return made;
}

// Zeros, which a state begins with, are made in the dtype.
Value stored(const Value& value, DType dtype) {
  Graph& graph = value.graph();
  const Node& made = graph.node(value.ref().node);
  if (made.op->view == ViewForm::broadcast && graph.node(made.inputs[0].node).op->is_uniform) {
    return expand(stored(graph.value(made.inputs[0]), dtype), value.shape());
  }
  if (!made.op->is_uniform) return call("store_as", {value}, {{"dtype", dtype}});
  Attrs attrs = made.attrs;
  attrs.set("dtype", dtype);
  return call(*made.op, {}, attrs, {}, &graph)[0];
}

int narrow_in(Graph& graph, DType narrow) {
  Rewriter rewriter(graph);
  int count = 0;
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Node& node = rewriter.enter(id);
    if (!is_narrowed(node)) continue;
    const std::vector<std::size_t> stays_wide = wide_inputs(node);
    const std::vector<Ref> refs = node.inputs;
    const Attrs attrs = node.attrs;
    const OpDef* op = node.op;
    Values inputs;
    for (std::size_t i = 0; i < refs.size(); ++i) {
      const Value value = graph.value(refs[i]);
      const bool stays = value.dtype() != f32 || std::find(stays_wide.begin(), stays_wide.end(), i) != stays_wide.end();
      inputs.push_back(stays ? value : stored(value, narrow));
    }
    const Values made = call(*op, inputs, attrs);
    for (std::size_t k = 0; k < made.size(); ++k) {
      const Value wide = made[k].dtype() == narrow ? stored(made[k], f32) : made[k];
      rewriter.replace({id, static_cast<std::int32_t>(k)}, wide.ref());
    }
    ++count;
  }
  rewriter.finish();
  return count;
}

}  // namespace

void narrow_composed(Graph& graph, PassNotes& notes) {
  if (notes.precision() == f32) return;
  int count = 0;
  for_each_graph(graph, [&](Graph& each) { count += narrow_in(each, notes.precision()); });
  if (count > 0) {
    notes.add(std::to_string(count) + " composed ops are of " + std::string(to_string(notes.precision())));
  }
}

}  // namespace paoding
