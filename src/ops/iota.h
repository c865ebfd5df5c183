// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "paoding/ops.h"

namespace paoding {
// Stand-in until iota is an op.
inline Value iota(Graph& graph, const Shape& shape, int axis, DType dtype) {
  Values pieces;
  for (std::int64_t i = 0; i < shape[axis]; ++i)
    pieces.push_back(full(graph, shape.with_dim(axis, 1), static_cast<double>(i), dtype));
  return concat(pieces, axis);
}
inline Value dropout(const Value& x, double) { return x; }
}  // namespace paoding
