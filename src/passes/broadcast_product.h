// SPDX-License-Identifier: Apache-2.0
// A product of two values of which each repeats where the other does not, an outer product: its factors are smaller
// than it is, and a sum of such products is a product of matrices.
#pragma once

#include <optional>

#include "paoding/graph.h"

namespace paoding {

struct BroadcastProduct {
  Value a, b;  // as they are before they are expanded, of the rank of the product or less
};

/// The factors of `ref`, if it is a product of floats in which each factor repeats at least kLeastRepeats times along
/// axes of its own; nullopt otherwise.
std::optional<BroadcastProduct> broadcast_product(Graph& graph, Ref ref);

/// Below this a product of matrices is no faster than the sum that it replaces, whose operands are as small.
inline constexpr std::int64_t kLeastRepeats = 4;

/// `shape` with axes of extent 1 in front, as broadcasting sees it.
Shape aligned_shape(const Shape& shape, int rank);

}  // namespace paoding
