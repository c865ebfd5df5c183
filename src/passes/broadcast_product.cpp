// SPDX-License-Identifier: Apache-2.0
#include "passes/broadcast_product.h"

#include "passes/formula_patterns.h"

namespace paoding {

Shape aligned_shape(const Shape& shape, int rank) {
  Shape aligned = shape;
  while (aligned.rank() < rank) aligned = aligned.with_inserted(0, 1);
  return aligned;
}

std::optional<BroadcastProduct> broadcast_product(Graph& graph, Ref ref) {
  const Node& node = graph.node(ref.node);
  if (!computes_of_two(node, Prim::mul) || !is_float(node.types[0].dtype)) return std::nullopt;
  const Shape& space = node.types[0].shape;
  const auto unexpanded = [&](Ref factor) {
    while (graph.node(factor.node).op->view == ViewForm::broadcast) factor = graph.node(factor.node).inputs[0];
    return graph.value(factor);
  };
  const BroadcastProduct product{unexpanded(argument(node, 0)), unexpanded(argument(node, 1))};
  const Shape a = aligned_shape(product.a.shape(), space.rank()), b = aligned_shape(product.b.shape(), space.rank());
  std::int64_t repeats_of_a = 1, repeats_of_b = 1;
  for (int axis = 0; axis < space.rank(); ++axis) {
    if (a[axis] != space[axis] && b[axis] != space[axis]) return std::nullopt;  // both were expanded
    if (a[axis] != space[axis]) repeats_of_a *= space[axis];
    if (b[axis] != space[axis]) repeats_of_b *= space[axis];
  }
  if (repeats_of_a < kLeastRepeats || repeats_of_b < kLeastRepeats) return std::nullopt;
  return product;
}

}  // namespace paoding
