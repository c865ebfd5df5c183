// SPDX-License-Identifier: Apache-2.0
// Products that gain nothing by leaving a loop: outside, their operands or results would be kept for all steps. Loops
// over stretches of a long sequence (RecurrentOptions::recompute) have such.
#pragma once

#include "paoding/graph.h"
#include "paoding/op.h"

namespace paoding {

/// How many rows are as many as a library wants.
inline constexpr std::int64_t kManyRows = 1024;

/// Whether it is a product of matrices in the dtype of its factors.
inline bool multiplies_matrices(const Node& node) { return node.op->contracts && !node.op->is_wide(); }

/// Whether the result of a product has so many rows already.
inline bool has_many_rows(const Node& node) {
  const Shape& shape = node.types[0].shape;
  return multiplies_matrices(node) && shape.rank() >= 2 && shape.elements() >= kManyRows * shape[shape.rank() - 1];
}

/// Whether a product of a transposed factor, as weights' gradients are, sums over so many rows.
inline bool sums_many_rows(const Graph& graph, const Node& node) {
  if (!multiplies_matrices(node) || !node.attrs.get_bool("transpose_a")) return false;
  const Shape& left = graph.type(node.inputs[0]).shape;
  return left[left.rank() - 2] >= kManyRows;
}

/// Whether a step's product is as large as it needs to be, where the steps' products become one. Steps of weights'
/// gradients are combined along the axis that is summed over, those of others along rows.
inline bool is_large_by_itself(const Graph& graph, const Node& node) {
  const bool is_gradient = multiplies_matrices(node) && node.attrs.get_bool("transpose_a");
  return is_gradient ? sums_many_rows(graph, node) : has_many_rows(node);
}

}  // namespace paoding
