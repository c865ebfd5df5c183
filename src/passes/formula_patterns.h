// SPDX-License-Identifier: Apache-2.0
// Formulas that several passes look for, by the primitives that they compute, in whichever way they are written.
#pragma once

#include <optional>

#include "graph/primitive_form.h"

namespace paoding {

/// The x where `ref` is max(x, 0), a ReLU; invalid for others. It may have another shape than `ref`.
inline Ref rectified(const Graph& graph, Ref ref) {
  const Node& node = graph.node(ref.node);
  if (!computes(node, Prim::maximum)) return {};
  for (const std::size_t k : {0, 1}) {
    if (number_at(graph, node, k) == 0.0) return argument(node, 1 - k);
  }
  return {};
}

/// A comparison with 0 that says the same of a value as of its ReLU: 0 < a, or a <= 0.
struct SignTest {
  Ref value;
  std::size_t input;  // of the node, that is the value
  bool is_above;      // it is true for values above 0
};
inline std::optional<SignTest> sign_test(const Graph& graph, Ref condition) {
  const Node& node = graph.node(condition.node);
  const bool is_above = computes(node, Prim::less);
  if (!is_above && !computes(node, Prim::less_equal)) return std::nullopt;
  const std::size_t k = is_above ? 1 : 0;
  if (!argument(node, k).valid() || number_at(graph, node, 1 - k) != 0.0) return std::nullopt;
  return SignTest{argument(node, k), static_cast<std::size_t>(node.op->primitive.arguments[k].input), is_above};
}

/// Whether the node computes the primitive of two values.
inline bool computes_of_two(const Node& node, Prim prim) {
  return computes(node, prim) && argument(node, 0).valid() && argument(node, 1).valid();
}

/// Whether the node chooses between two values by a condition: arguments 1, where that is true, and 2.
inline bool is_choice(const Node& node) {
  return computes(node, Prim::select) && argument(node, 0).valid() && argument(node, 1).valid() &&
         argument(node, 2).valid();
}

}  // namespace paoding
