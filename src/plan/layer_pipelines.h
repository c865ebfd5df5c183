// SPDX-License-Identifier: Apache-2.0
// Layers over time one above the other, which may share a launch (KernelCall::pipelined_layers).
#pragma once

#include <map>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

struct PipelinePlace {
  int pipeline = -1;        // its number
  std::int64_t layers = 1;  // of the pipeline
};

/// Moves layers, and the products between two of them, together; of each, which pipeline it is of. Kernels have claimed
/// the layers as a whole, they are alike, of the same lengths of rows, and nothing else reads the product of the one's
/// states that is the other's input.
std::map<NodeId, PipelinePlace> bring_layer_pipelines_together(const Graph& graph, std::vector<NodeId>* order);

}  // namespace paoding
