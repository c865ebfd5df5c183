// SPDX-License-Identifier: Apache-2.0
// A graph and its gradient as two graphs that run at two times.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

struct GradientHalves {
  /// The graph, with those of its inputs that it reads, and beside its own fetches the values that the other half
  /// needs, "saved/0" and on.
  std::unique_ptr<Graph> forward;
  /// Its inputs are those of the graph that it reads, saved values, and a seed "seed/NAME" for each result; its fetches
  /// are "gradient/NAME" for each input asked for, zeros where that does not influence the results.
  std::unique_ptr<Graph> backward;
  std::vector<std::string> notes;  // on loops that came unrolled, as the pass reroll_loops leaves them
};

/// d(sum of results * seeds) / d(inputs) of a graph, split where it begins: gradients() of the graph after its unrolled
/// loops have become loops again. Views of kept values and of inputs are made again instead of kept.
/// Errors: as gradients(); (argument) where a result or input is not there; (unsupported) for a graph with parameters
/// or with ops that have an effect (print, assign).
GradientHalves gradient_halves(const Graph& graph, std::span<const std::string> results,
                               std::span<const std::string> inputs);

}  // namespace paoding
