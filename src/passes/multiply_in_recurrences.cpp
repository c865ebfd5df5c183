// SPDX-License-Identifier: Apache-2.0
// multiply_in_recurrences: the product of the input of all steps is made beside the steps, by the kernel that runs
// them, where that says that it pays (ops/recurrence/recurrence_beside_gpu.h):
//
//   xw = matmul(x, w);  .. = lstm_recurrence(xw, u, h0, c0)
// becomes
//   .. = lstm_recurrence(x, u, h0, c0, w) {product=true}
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/claimed_by.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

bool is_recurrence(const Node& node) {
  const std::string& op = node.op->name;
  return op == "lstm_recurrence" || op == "gru_recurrence" || op == "rnn_recurrence";
}

// Whether a view of the value begins at a multiple of 16 bytes, as far as its slices say: a kernel that reads what lies
// elsewhere would have it copied.
bool begins_aligned(const Graph& graph, Ref ref) {
  for (const Node* node = &graph.node(ref.node); node->op->kind == OpKind::view && node->inputs.size() == 1;
       node = &graph.node(node->inputs[0].node)) {
    if (node->op->name != "slice") continue;
    const Type& from = graph.type(node->inputs[0]);
    const SliceRange range = slice_range(*node);
    if (!range.is_plain()) return false;
    std::int64_t bytes = size_bytes(from.dtype);
    for (int axis = from.shape.rank(); axis-- > 0; bytes *= from.shape[axis]) {
      if (range.start[static_cast<std::size_t>(axis)] * bytes % 16 != 0) return false;
    }
  }
  return true;
}

// The product that is the recurrence's input, perhaps seen otherwise; -1: nothing of the kind, or another reads it too.
NodeId product_of(const Graph& graph, const Rewriter& rewriter, Ref ref) {
  for (;; ref = graph.node(ref.node).inputs[0]) {
    const Node& node = graph.node(ref.node);
    if (rewriter.uses(ref.node) != 1) return -1;
    if (node.op->name != "reshape") break;
  }
  const Node& node = graph.node(ref.node);
  const bool is_plain = node.op->name == "matmul" && node.inputs.size() == 2 && !node.attrs.get_bool("transpose_a") &&
                        !node.attrs.get_bool("transpose_b") && graph.type(node.inputs[1]).shape.rank() == 2;
  return is_plain ? ref.node : -1;
}

std::vector<bool> read_results(const Graph& graph, NodeId id, std::size_t results) {
  std::vector<bool> is_read(results);
  const auto read = [&](Ref ref) {
    if (ref.node == id) is_read[static_cast<std::size_t>(ref.output)] = true;
  };
  for (NodeId other = 0; other < graph.size(); ++other) std::ranges::for_each(graph.node(other).inputs, read);
  for (const Graph::Fetch& fetch : graph.fetches()) read(fetch.ref);
  return is_read;
}

}  // namespace

void multiply_in_recurrences(Graph& graph, PassNotes& notes) {
  if (!notes.target().is_gpu()) return;
  for_each_graph(graph, [&](Graph& each) {
    Rewriter rewriter(each);
    for (NodeId id = 0; id < rewriter.first_new; ++id) {
      const Node& node = rewriter.enter(id);
      if (!is_recurrence(node) || node.attrs.get_bool("product")) continue;
      const NodeId product = product_of(each, rewriter, node.inputs[0]);
      if (product < 0) continue;
      const Node kept = node, multiplied = each.node(product);
      const Ref x = multiplied.inputs[0], w = multiplied.inputs[1];
      if (!begins_aligned(each, x) || !begins_aligned(each, w)) continue;
      const Shape& xw = each.type(kept.inputs[0]).shape;
      const Shape rows{xw[0], xw[1], each.type(w).shape[0]};
      if (rows.elements() != each.type(x).shape.elements() || each.type(w).shape[1] != xw[2]) continue;
      Values inputs = {reshape(each.value(x), rows)};
      for (std::size_t i = 1; i < kept.inputs.size(); ++i) inputs.push_back(each.value(kept.inputs[i]));
      inputs.push_back(each.value(w));
      Attrs attrs = kept.attrs;
      attrs.set("product", true);
      const Values made = call(*kept.op, inputs, attrs);
      const Node& joined = each.node(made[0].ref().node);
      const KernelImplementation* const kernel = claimed_by(each, joined, notes);
      if (kernel == nullptr) continue;
      const std::string drawback = drawback_of(*kernel, each, joined, read_results(each, id, made.size()), notes);
      if (!drawback.empty()) {
        notes.add(fmt::format("{} {} is made in front of {}: {}", multiplied.label(), to_string(multiplied.types[0]),
                              kept.op->name, drawback));
        continue;
      }
      for (std::size_t k = 0; k < made.size(); ++k) {
        rewriter.replace({id, static_cast<std::int32_t>(k)}, made[k].ref());
      }
      notes.add(fmt::format("{} {} is made beside the steps of {}", multiplied.label(), to_string(multiplied.types[0]),
                            kept.op->name));
    }
    rewriter.finish();
  });
}

}  // namespace paoding
