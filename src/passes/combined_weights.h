// SPDX-License-Identifier: Apache-2.0
// Weights of several products of a loop, side by side in one matrix that is made in front of it. Products that read the
// same weights forward and backward find the same matrix, whether they put inner extents or columns side by side.
#pragma once

#include <optional>

#include "base/target.h"
#include "passes/scan_parts.h"

namespace paoding {

/// Rows (axis 0) or columns (axis 1) begin .. end of a matrix outside a loop.
struct WeightsPiece {
  Ref outer;
  std::int64_t begin = 0, end = 0;
  friend auto operator<=>(const WeightsPiece&, const WeightsPiece&) = default;
};

/// The weights of a product in the loop as a piece, if they are the same in every step; nullopt otherwise.
std::optional<WeightsPiece> weights_piece(const ScanParts& parts, Ref weights, int axis);

/// Why products with these weights had better stay apart; empty when one product takes less time.
std::string why_apart(const Target& target, const ScanParts& parts, const std::vector<WeightsPiece>& pieces, int axis);

/// The pieces side by side in this order, as the body sees them: a constant of the loop.
Ref combined_weights(ScanParts& parts, const std::vector<WeightsPiece>& pieces, int axis);

}  // namespace paoding
