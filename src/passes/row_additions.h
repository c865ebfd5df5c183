// SPDX-License-Identifier: Apache-2.0
// Nodes that add rows at places of a table: scatter_add, gradients of embeddings.
#pragma once

#include "paoding/graph.h"
#include "paoding/op.h"

namespace paoding {

/// Whether a node adds the rows of its input 1 at the places that input 0 names.
inline bool adds_rows(const Node& node) { return node.op->indexing == Indexing::adds_rows; }

/// The axis of the result that the places are along; 0 where the op has no such attribute.
inline int row_axis(const Node& node) {
  if (node.attrs.find("axis") == nullptr) return 0;
  const auto axis = static_cast<int>(node.attrs.get_int("axis"));
  return axis < 0 ? axis + node.types[0].shape.rank() : axis;
}

}  // namespace paoding
