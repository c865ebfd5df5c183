// SPDX-License-Identifier: Apache-2.0
// Runs a Graph in double with naive loops, node by node: the oracle that passes, gradients and both devices are
// compared with. It shares no code with the engine except the scalar primitives' reference meaning.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

/// The value of every fetch, by name, dense and row-major. `feeds`: every input and parameter by name, likewise.
/// Bools are 0 and 1. Nothing is rounded except by a cast. Throws std::invalid_argument on a missing or misshapen feed
/// and on an op it does not know.
std::map<std::string, std::vector<double>> evaluate_graph(const Graph& graph,
                                                          const std::map<std::string, std::vector<double>>& feeds);

}  // namespace paoding
