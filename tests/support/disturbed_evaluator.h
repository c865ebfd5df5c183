// SPDX-License-Identifier: Apache-2.0
// The evaluator with something done to every value on its way, for example rounding.
#pragma once

#include <cstdint>
#include <functional>

#include "tests/reference/reference_evaluator.h"

namespace paoding {

/// May change the floats that it is called with: those that a node has made, with 0 as `addends`; and, before a node
/// adds up or multiplies so many for each result, those.
using Disturb = std::function<void(DType dtype, std::int64_t addends, std::vector<double>& values)>;

/// The same with values disturbed on the way. Composed ops are evaluated by their compositions.
std::map<std::string, std::vector<double>> evaluate_graph(const Graph& graph,
                                                          const std::map<std::string, std::vector<double>>& feeds,
                                                          const Disturb& disturb);

}  // namespace paoding
