// SPDX-License-Identifier: Apache-2.0
// combine_matmul_columns: products of a loop that multiply the same value become one product with their columns side by
// side. On a GPU a step of few rows is bound by launches: the gradients of an LSTM's input and state are one product.
//
//   before (in a scan's body):                        after:
//            %3 = matmul(%2, w, transpose_b = true)            %3 = matmul(%2, wu, transpose_b = true)
//            %4 = matmul(%2, u, transpose_b = true)            %4 = slice(%3, columns of w), slice(%3, columns of u)
//
// where wu, w and u side by side, is made in front of the loop.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "graph/keep_names.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/combined_weights.h"
#include "passes/large_product.h"
#include "passes/pass.h"

namespace paoding {
namespace {

struct ColumnProduct {
  WeightsPiece weights;
  NodeId id = -1;
};

// Groups products by their left operand. Products that a concatenation reads are left out, as they are written into it.
std::map<std::pair<Ref, bool>, std::vector<ColumnProduct>> products_by_operand(const ScanParts& parts) {
  std::set<NodeId> is_combined;
  for (NodeId id = 0; id < parts.body.size(); ++id) {
    const Node& node = parts.body.node(id);
    if (!node.op->is(OpRole::concatenate)) continue;
    for (const Ref& ref : node.inputs) is_combined.insert(ref.node);
  }
  std::map<std::pair<Ref, bool>, std::vector<ColumnProduct>> found;
  for (NodeId id = 0; id < parts.body.size(); ++id) {
    const Node& node = parts.body.node(id);
    if (!multiplies_matrices(node) || is_combined.contains(id) || node.attrs.get_bool("transpose_a")) continue;
    if (parts.body.type(node.inputs[0]).shape.rank() != 2) continue;
    const bool transpose_b = node.attrs.get_bool("transpose_b");
    const auto piece = weights_piece(parts, node.inputs[1], transpose_b ? 0 : 1);
    if (piece) found[{node.inputs[0], transpose_b}].push_back({*piece, id});
  }
  return found;
}

// Slices of a product are slices of the combined one, of which its columns start at `begin`.
void replace_slices(Graph& body, NodeId product, const Value& combined, std::int64_t begin,
                    std::map<Ref, Ref>* replaced) {
  const NodeId size = body.size();
  for (NodeId id = 0; id < size; ++id) {
    const Node& node = body.node(id);
    if (node.op->view != ViewForm::sliced || node.inputs[0] != Ref{product, 0}) continue;
    SliceRange range = slice_range(node);
    if (!range.is_plain()) continue;
    range.start[1] += begin;
    range.end[1] += begin;
    const KeepNames keep(body, node);
    (*replaced)[{id, 0}] = slice(combined, range.start, range.end).ref();
  }
}

void combine_in(Graph& graph, NodeId id, PassNotes& notes) {
  ScanParts parts(graph, id);
  std::map<Ref, Ref> replaced;
  for (auto& [key, products] : products_by_operand(parts)) {
    if (products.size() < 2) continue;
    const auto& [operand, transpose_b] = key;
    std::sort(products.begin(), products.end(),
              [](const ColumnProduct& a, const ColumnProduct& b) { return a.weights < b.weights; });
    std::vector<WeightsPiece> pieces;
    for (const ColumnProduct& product : products) pieces.push_back(product.weights);
    const int axis = transpose_b ? 0 : 1;
    const Node first = parts.body.node(products[0].id);
    const std::string what = fmt::format("{} products of {} with one operand", products.size(), first.label());
    if (const std::string why = why_apart(notes.target(), parts, pieces, axis); !why.empty()) {
      notes.add(fmt::format("{} are kept apart: {}", what, why));
      continue;
    }
    const KeepNames keep_outer(graph, first), keep_body(parts.body, first);
    const Value weights = parts.body.value(combined_weights(parts, pieces, axis));
    const Value combined = matmul(parts.body.value(operand), weights, false, transpose_b);
    std::int64_t begin = 0;
    for (const ColumnProduct& product : products) {
      const std::int64_t end = begin + product.weights.end - product.weights.begin;
      replace_slices(parts.body, product.id, combined, begin, &replaced);
      replaced[{product.id, 0}] = slice(combined, 1, begin, end).ref();
      begin = end;
    }
    notes.add(fmt::format("{} are one, {}", what, to_string(combined.type())));
  }
  if (replaced.empty()) return;
  parts.body.replace(replaced);
  const auto moved = [&](Ref* ref) {
    if (const auto it = replaced.find(*ref); it != replaced.end()) *ref = it->second;
  };
  for (ScanParts::Carry& carry : parts.carries) moved(&carry.next);
  for (ScanParts::Output& output : parts.outputs) moved(&output.value);
  std::map<Ref, Ref> results;
  parts.rebuild(&results);
  graph.replace(results);
}

}  // namespace

void combine_matmul_columns(Graph& graph, PassNotes& notes) {
  if (!notes.target().is_gpu()) return;
  for_each_graph(graph, [&](Graph& each) {
    const NodeId size = each.size();
    for (NodeId id = 0; id < size; ++id) {
      if (each.node(id).op->is_scan()) combine_in(each, id, notes);
    }
    each.compact();
  });
}

}  // namespace paoding
