// SPDX-License-Identifier: Apache-2.0
// Values whose elements are all equal.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "paoding/graph.h"

namespace paoding {

/// Whether one may stand for the other: 0 and -0 may not, equal NaNs may.
inline bool has_same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// The number that every element of `ref` is, where it is a `full` seen through expands, reshapes and pads with the
/// same number; nullopt otherwise.
std::optional<double> number_everywhere(const Graph& graph, Ref ref);

/// Whether every element of `ref` is `number`, as far as number_everywhere() sees it.
inline bool is_everywhere(const Graph& graph, Ref ref, double number) {
  const std::optional<double> found = number_everywhere(graph, ref);
  return found && *found == number;
}

}  // namespace paoding
