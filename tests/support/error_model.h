// SPDX-License-Identifier: Apache-2.0
// How far rounding may move the results of a graph, element by element: the evaluator runs it several times with every
// value disturbed by the rounding of its dtype, and a result that then moves much is badly conditioned there. A share
// of the largest element instead would let a wrong small element pass.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "paoding/graph.h"

namespace paoding::testing_program {

/// A fetch: the evaluator's values in float64, and by how much each element may differ from them. An infinite limit:
/// rounding may do anything to the element, which nothing can be compared with.
struct Expected {
  std::vector<double> values, limits;

  /// Elements whose limit is larger than the largest of them all.
  std::size_t vague() const;
  /// The problem of the first wrong element of `got`; "" when there is none. NaN and infinities have to be the same.
  std::string problem_with(const std::vector<double>& got) const;
};

/// Every fetch by name. Elements of u8 are wrapped as storing them does. `few_roundings`: so many roundings of a
/// result's largest element are allowed besides, for the losses of functions and sums.
std::map<std::string, Expected> expected_within(const Graph& graph,
                                                const std::map<std::string, std::vector<double>>& feeds,
                                                double few_roundings = 4);

}  // namespace paoding::testing_program
