// SPDX-License-Identifier: Apache-2.0
#include "graph/number_everywhere.h"

#include "paoding/op.h"

namespace paoding {

std::optional<double> number_everywhere(const Graph& graph, Ref ref) {
  constexpr int kMostViews = 64;  // simplify_views leaves two or three
  std::optional<double> padded;
  const Node* node = &graph.node(ref.node);
  for (int views = 0; views < kMostViews; ++views) {
    const ViewForm view = node->op->view;
    if (node->op->is_uniform) {
      const double number = node->attrs.get_float("value");
      return padded && !has_same_bits(*padded, number) ? std::nullopt : std::optional(number);
    }
    if (view == ViewForm::padded) {
      const double around = node->attrs.get_float("value");
      if (padded && !has_same_bits(*padded, around)) return std::nullopt;
      padded = around;
    } else if (view != ViewForm::broadcast && view != ViewForm::reshaped) {
      return std::nullopt;
    }
    node = &graph.node(node->inputs[0].node);
  }
  return std::nullopt;
}

}  // namespace paoding
